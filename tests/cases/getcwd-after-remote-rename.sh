#!/bin/bash
# A program's working directory is renamed in another mount: getcwd gives ENOENT (the names in it work).
# Source: seaweedfs#1182.
set -u; B=$1; D=/dev/shm/braid-case-gc-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1 $D.2
trap 'cd /; { umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; { umount $D.2 || { sleep 1; umount $D.2 || umount -l $D.2; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1 $D.2' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2; $B mount --detach braid://main $D.2 >/dev/null || exit 2
python3 - $D.1 $D.2 <<'E'
import os,sys,time
A,B=sys.argv[1:]; bad=0
os.mkdir(A+"/w"); os.mkdir(A+"/w/x"); os.chdir(A+"/w/x"); os.rename(B+"/w/x",B+"/w/y"); time.sleep(0.2)
try: print("renamed elsewhere:",os.getcwd())
except OSError as e: print("renamed elsewhere: getcwd:",e.strerror); bad=1
os.chdir(A+"/w"); open(B+"/w/new","w").close(); os.rename(B+"/w/new",B+"/w/new2"); os.chmod(B+"/w",0o700); time.sleep(0.2)
try: print("only changed elsewhere:",os.getcwd())
except OSError as e: print("only changed elsewhere: getcwd:",e.strerror); bad=1
sys.exit(bad)
E
