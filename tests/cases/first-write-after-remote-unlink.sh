#!/bin/bash
# A file is open O_RDWR in mount 2 and not yet written there; mount 1 removes it (or renames another over
# it): the first write in mount 2 fails with ENOENT, later ones succeed. docs/mount.md: it "goes on until it
# is closed". Kin: juicefs#6593, gluster#3153 (ENOENT/ESTALE on an open descriptor).
set -u; B=$1; D=/dev/shm/braid-case-fw-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1 $D.2
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; { umount $D.2 || { sleep 1; umount $D.2 || umount -l $D.2; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1 $D.2' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2; $B mount --detach braid://main $D.2 >/dev/null || exit 2
python3 - $D.1 $D.2 <<'E'
import os,sys,time,errno
A,B=sys.argv[1:]; bad=0
def t(f,*a):
    try: return f(*a)
    except OSError as e: return errno.errorcode[e.errno]
for how in ("unlink","rename over"):
    for wait in (0,1.5):
        open(A+"/x","w").write("0123456789"*100); fd=os.open(B+"/x",os.O_RDWR); time.sleep(wait)
        if how=="unlink": os.unlink(A+"/x")
        else: open(A+"/y","w").write("new"); os.rename(A+"/y",A+"/x")
        time.sleep(wait); r=[t(os.pwrite,fd,b"ZZ",5),t(os.pwrite,fd,b"ZZ",5),t(os.fsync,fd),t(os.pread,fd,4,4),t(os.close,fd)]
        print(how,"waited",wait,"first write, second write, fsync, read, close:",r); bad+=r[0]!=2
sys.exit(bad>0)
E
