#!/bin/bash
# fs.put_file that ends early (Ctrl-C, an exception of a progress callback, a local read error) puts a
# truncated copy in the old file's place. Cause: fsspec's put_file copies inside `with self.open(rpath,
# "wb")`, and a with-block that ends by an exception commits; the awaitable _put_file of braidfs itself does
# not. Sources: googleapis/python-storage#1228, PyFilesystem/s3fs#95, strukto rocketride#600.
set -u; B=$1; PY=${PY:-python3}; D=/dev/shm/braid-case-pi-$$; export BRAID_CLUSTER=$D; mkdir -p $D; trap '$B down --dir $D >/dev/null 2>&1; rm -rf $D' EXIT
$PY -c 'import braidfs,fsspec' || exit 2
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; head -c 30M /dev/urandom > $D/src
$PY - $D/src <<'E'
import fsspec,os,sys
from fsspec.callbacks import Callback
class Stop(Callback):
    n=0
    def relative_update(self,inc=1):
        self.n+=1
        if self.n==2: raise KeyboardInterrupt
fs=fsspec.filesystem("braid",cluster=os.environ["BRAID_CLUSTER"]); fs.pipe_file("main/t",b"old content")
try: fs.put_file(sys.argv[1],"main/t",callback=Stop())
except KeyboardInterrupt: print("interrupted")
x=fs.cat_file("main/t"); print("the target has",len(x),"bytes of 31457280" if x!=b"old content" else "bytes: the old ones"); sys.exit(len(x) not in (11,31457280))
E
