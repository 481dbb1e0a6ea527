#!/bin/bash
# open(O_TRUNC) by one who does not own the file leaves its set-user-ID and set-group-ID bits (write,
# truncate, chown clear them). Source: libfuse/libfuse#1580, #1599 (FUSE_OPEN_KILL_SUIDGID),
# cberner/fuser#721.
set -u; B=$1; D=/dev/shm/braid-case-su-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach --allow-other braid://main $D.1 >/dev/null || exit 2
python3 - $D.1 <<'E'
import os,sys
A=sys.argv[1]; os.chmod(A,0o777); bad=0
for label,f in (("write",lambda p: os.write(os.open(p,os.O_WRONLY),b"x")),("truncate",lambda p: os.truncate(p,5)),("open O_TRUNC",lambda p: os.open(p,os.O_WRONLY|os.O_TRUNC))):
    p=A+"/"+label.replace(" ","_"); open(p,"w").write("y"*100); os.chmod(p,0o6777); pid=os.fork()
    if pid==0: os.setgroups([]); os.setgid(1234); os.setuid(1234); f(p); os._exit(0)
    os.waitpid(pid,0); m=os.stat(p).st_mode&0o7777; print(label,oct(m),"" if m==0o777 else "WRONG, ext4: 0o777"); bad+=m!=0o777
sys.exit(bad>0)
E
