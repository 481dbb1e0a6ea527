#!/bin/bash
# fs.cp of a file that cannot be read to its end puts a truncated (here empty) file in the target's place:
# the old target is lost. Sources: googleapis/python-storage#1228, PyFilesystem/s3fs#95 (an exception in the
# with-block publishes a part). Needs braidfs and fsspec in the python named by $PY (default python3).
set -u; B=$1; PY=${PY:-python3}; D=/dev/shm/braid-case-cp-$$; export BRAID_CLUSTER=$D; mkdir -p $D; trap '$B down --dir $D >/dev/null 2>&1; rm -rf $D' EXIT
$PY -c 'import braidfs,fsspec' || exit 2
pid() { sed -n 's/^pid = //p' $D/pids/$1; }
$B up --dir $D --drives 6 --detach >/dev/null || exit 2; $B volume create r1 --scheme raid1 --width 2 >/dev/null
head -c 30M /dev/urandom | $B cp -q - braid://main/src
for i in 1 2 3 4 5 6 7 8; do echo "old content, the only copy" | $B cp -q - braid://r1/t$i; done
# two drives of the source's five, so that it cannot be read
set -- $($B stat braid://main/src | grep -oE 'drive-[0-9]+' | head -2); kill -9 $(pid $1) $(pid $2); echo "killed $1 $2"; sleep 8
timeout 400 $PY - <<'E'
import fsspec,os,sys,time
fs=fsspec.filesystem("braid",cluster=os.environ["BRAID_CLUSTER"]); bad=0; ok=0
for i in range(1,9):
    p=f"r1/t{i}"
    try: old=fs.cat_file(p)
    except Exception as e: print(p,"itself on the dead drives:",type(e).__name__); continue
    t=time.time()
    try: fs.cp("main/src",p); print(p,"copied?")
    except Exception as e: print(p,"cp fails, as it must:",type(e).__name__,str(e)[:90],round(time.time()-t,1),"s")
    try: new=fs.cat_file(p)
    except Exception as e: new=repr(e)
    print("   before",len(old),"bytes; after",len(new),"bytes", "" if new==old else "LOST"); bad+=new!=old; ok+=1
    if ok>=2: break
sys.exit(1 if bad else (0 if ok else 2))
E
