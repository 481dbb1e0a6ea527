#!/bin/bash
# After a write that found the disk full, the mount refuses writes although the volume is (nearly) empty.
W=$(mktemp -d)
B=$1; T=/dev/shm/braid-case-full-$$; mkdir -p $T $W/mf; mount -t tmpfs -o size=${SIZE:-200M} none $T
export BRAID_CLUSTER=$T/c
trap '{ umount $W/mf || umount -l $W/mf; } 2>/dev/null; $B down --dir $T/c >/dev/null; umount $T; rmdir $T; rm -rf $W' EXIT
$B up --dir $T/c --drives 3 --detach >/dev/null
$B mount --detach --log $W/mf.log braid://main $W/mf
df -h $W/mf | tail -1
[ -n "$FIRST" ] && { head -c 400000000 /dev/zero | tr '\0' 'a' | $B cp - braid://main/big; echo "cp of 400 MB: rc=$?"; }
head -c 30000000 /dev/urandom > $W/r30
for i in 1 2 3 4 5 6; do timeout 100 dd if=$W/r30 of=$W/mf/f$i bs=1M conv=fsync 2>&1 | tail -1; done
ls -l $W/mf; df -h $W/mf | tail -1
rm $W/mf/f*; echo "all files removed"; ls $W/mf
s=$SECONDS
while [ $((SECONDS-s)) -lt ${WAIT:-180} ]; do
  timeout 60 dd if=$W/r30 of=$W/mf/g bs=1M conv=fsync 2>$W/full.err; rc=$?
  echo "$((SECONDS-s)) s after: 30 MB: rc=$rc $(grep -v records $W/full.err)"; df -h $W/mf | tail -1
  [ $rc = 0 ] && break; sleep 8
done
exit $rc
