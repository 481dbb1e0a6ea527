#!/bin/bash
# Sources: irods/irods_client_icommands#98, SUPERCILEX/fuc#30, uutils/coreutils#9779, moby/moby#13451. A
# tree whose paths exceed 4096 bytes (made by mkdir/chdir in a mount, as on ext4) cannot be listed, copied,
# checked or removed by the CLI, `check --all` of the whole volume fails, and fsspec's find finds nothing
# below it, silently. Through the mount `rm -rf` works.
set -u; B=$1; D=/dev/shm/braid-case-dt-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap 'rm -rf $D.1/deep; { umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2
echo after > $D.1/zz; echo before > $D.1/aa
python3 - $D.1 <<'E'
import os,sys
os.mkdir(sys.argv[1]+"/deep"); fd=os.open(sys.argv[1]+"/deep",os.O_RDONLY)
for i in range(200):
    os.mkdir(b"d"*50,dir_fd=fd); n=os.open(b"d"*50,os.O_RDONLY,dir_fd=fd); os.close(fd); fd=n
os.write(os.open(b"f",os.O_CREAT|os.O_WRONLY,dir_fd=fd),b"deep")
E
rc=0; for c in "check --all braid://main" "ls -R braid://main" "cp -q -r braid://main $D/out" "rm -r braid://main/deep"; do timeout 60 $B $c >$D/o 2>$D/e; r=$?; echo "braid $c: rc $r; $(grep -c zz $D/o) lines about zz; $(tail -c 60 $D/e)"; [ $r = 0 ] || rc=1; done; ls $D/out; exit $rc
