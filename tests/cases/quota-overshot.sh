#!/bin/bash
# A write that was refused by the quota (EDQUOT at close) is there a second later all the same, and the
# volume holds several times its quota. Sources: juicedata/juicefs#4591, rclone/rclone#9104 (used > total);
# the fault itself was met while trying these.
set -u; B=$1; D=/dev/shm/braid-case-qo-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 5 --detach >/dev/null || exit 2; $B volume create q --quota 10M >/dev/null; $B mount --detach braid://q $D.1 >/dev/null || exit 2
sleep ${2:-0}; for i in 1 2 3 4 5 6; do head -c 20M /dev/urandom > $D.1/f$i; echo "20 MB into a quota of 10 MiB: rc $?"; done 2>&1
sleep 3; ls -l $D.1; $B df | grep -E '^volume|^q '
used=$($B ls --json braid://q | grep -o '"size": *[0-9]*' | grep -o '[0-9]*' | paste -sd+ | bc 2>/dev/null || $B ls -l braid://q | awk '{s+=$5} END {print s}')
used=$($B ls -l braid://q | awk '{s+=$5} END {print s}'); echo "bytes in the volume: $used of 10485760"; [ $used -le 10485760 ]
