#!/bin/bash
# On a full disk shared by the drives (as `braid up` makes it), a write through the mount should fail with
# ENOSPC at once (docs/mount.md). Seen: now and then the drives refuse the manager's fence ("the disk is
# full"), and the close takes minutes and ends with EIO, while the log says "no answer from the manager ...
# Is it running". ROUNDS
W=$(mktemp -d)
B=$1; T=/dev/shm/braid-case-full-$$; mkdir -p $T $W/mf; mount -t tmpfs -o size=${SIZE:-200M} none $T
export BRAID_CLUSTER=$T/c
trap '{ umount $W/mf || umount -l $W/mf; } 2>/dev/null; $B down --dir $T/c >/dev/null; umount $T; rmdir $T; rm -rf $W' EXIT
$B up --dir $T/c --drives 3 --detach >/dev/null
$B mount --detach --log $W/mf.log braid://main $W/mf
head -c 30000000 /dev/urandom > $W/r30
for r in $(seq ${ROUNDS:-12}); do
  for i in 1 2 3 4 5 6 7 8; do
    s=$(date +%s%N)
    timeout 200 dd if=$W/r30 of=$W/mf/f$i bs=1M conv=fsync 2>$W/full.err; rc=$?
    ms=$(( ($(date +%s%N)-s)/1000000 ))
    [ $ms -gt 5000 ] && { echo "round $r file $i: rc=$rc after $ms ms: $(grep -v records $W/full.err | tail -1)"; bad=1; }
  done
  grep -a "not recovered" $T/c/logs/manager.log | tail -1 | cut -c1-300
  [ -n "$bad" ] && break
  rm $W/mf/f* 
done
echo "rounds: $r"; grep -c . $W/mf.log
exit ${bad:-0}
