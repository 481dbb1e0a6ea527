#!/bin/bash
# Names with *, ? or [: fs.rm of a name that exists removes OTHER files; fs.rm("d[0]", recursive=True)
# removes d0 and leaves d[0]; fs.mv of such a name fails. fsspec's own LocalFileSystem takes an existing
# name literally for rm and mv. Sources: fsspec/filesystem_spec#2036, #838; danielfrg/s3contents#165 (s3fs
# has it too).
set -u; B=$1; PY=${PY:-python3}; D=/dev/shm/braid-case-mn-$$; export BRAID_CLUSTER=$D; mkdir -p $D; trap '$B down --dir $D >/dev/null 2>&1; rm -rf $D' EXIT
$PY -c 'import braidfs,fsspec' || exit 2
$B up --dir $D --drives 3 --detach >/dev/null || exit 2
$PY - $D/local <<'E'
import fsspec,os,sys
br=fsspec.filesystem("braid",cluster=os.environ["BRAID_CLUSTER"]); lo=fsspec.filesystem("file",auto_mkdir=True); out=[]
for fs,R in ((lo,sys.argv[1]),(br,"main/t")):
    o=[]
    for n in ("test?file","testXfile","d[0]/in","d0/in","f[1].txt","f1.txt"): fs.makedirs(fs._parent(f"{R}/{n}"),exist_ok=True); fs.pipe_file(f"{R}/{n}",n.encode())
    fs.rm(R+"/test?file"); o.append(("rm test?file: left",[n for n in ("test?file","testXfile") if fs.exists(f"{R}/{n}")]))
    fs.rm(R+"/d[0]",recursive=True); o.append(("rm d[0]: left",[n for n in ("d[0]","d0") if fs.exists(f"{R}/{n}")]))
    try: fs.mv(R+"/f[1].txt",R+"/moved"); o.append(("mv f[1].txt",fs.cat_file(R+"/moved")))
    except Exception as e: o.append(("mv f[1].txt",type(e).__name__))
    print(o); out.append(o)
sys.exit(out[0]!=out[1])
E
