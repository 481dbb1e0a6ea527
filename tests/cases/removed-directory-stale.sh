#!/bin/bash
# fstat/readdir of an open directory that was replaced or removed give ESTALE (ext4: link count 0, empty).
# xfstests generic/035. Source: hanwen/go-fuse#137, smfrench/smb3-kernel#282.
set -u; B=$1; D=/dev/shm/braid-case-rd-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2
python3 - $D.1 <<'E'
import os,sys,errno
A=sys.argv[1]; bad=0
def t(f):
    try: return f()
    except OSError as e: return errno.errorcode[e.errno]
os.mkdir(A+"/a"); os.mkdir(A+"/b"); d=os.open(A+"/b",os.O_RDONLY); os.rename(A+"/a",A+"/b"); r=t(lambda:os.fstat(d).st_nlink); print("renamed over: nlink",r); bad+=r!=0
os.mkdir(A+"/c"); d=os.open(A+"/c",os.O_RDONLY); os.rmdir(A+"/c"); r=(t(lambda:os.fstat(d).st_nlink),t(lambda:os.listdir(d))); print("removed: nlink, listdir",r); bad+=r!=(0,[])
os.mkdir(A+"/e"); os.chdir(A+"/e"); os.rmdir(A+"/e"); r=(t(lambda:os.listdir(".")),t(lambda:os.stat(".").st_nlink)); print("cwd removed: listdir, nlink",r); bad+=r!=([],0); os.chdir("/")
sys.exit(bad>0)
E
