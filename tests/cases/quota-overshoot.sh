#!/bin/bash
# A volume's quota holds for a mount too.
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap 'umount -l $W/m 2>/dev/null; $B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 6 >/dev/null || exit 2
$B volume create q --quota 5M; mkdir $W/m; $B mount --detach braid://q $W/m >/dev/null; head -c 9000001 /dev/urandom >$W/f9
head -c 4000000 $W/f9 >$W/m/a; cp $W/f9 $W/m/b; echo "cp rc $?"; for i in 1 2 3; do cp $W/f9 $W/m/c$i 2>&1 | head -1; done; umount $W/m; $B volume ls; $B ls -l braid://q
sleep 15; cmp <($B cat braid://q/c1) $W/f9 && echo "c1 is whole, after 15 s"
u=$($B ls -l braid://q | awk '{s+=$5} END {print s+0}'); echo "used $u of 5242880"; [ $u -le 5242880 ]
