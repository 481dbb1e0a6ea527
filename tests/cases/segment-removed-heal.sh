#!/bin/bash
# a segment file of one stopped drive is removed (a lost file after fsck). The drive must mend it from the
# others, and `braid heal --watch` must not say that nothing is to be done while files do not match.
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap '$B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 6 >/dev/null || exit 2; $B volume create rs --scheme 'rs(4,2)' --unit 64K >/dev/null
for i in $(seq 1 12); do head -c 1500001 /dev/urandom >$W/w$i; $B cp -q $W/w$i braid://rs/f$i || exit 2; done
$B down --dir $W/c >/dev/null; rm $(find $W/c/drive-1/store/log -type f | sort | head -1)
$B up --detach --dir $W/c >/dev/null; S=$SECONDS
for t in 0 10 30 60; do while [ $((SECONDS-S)) -lt $t ]; do sleep 1; done
 $B heal --watch >$W/h 2>&1; h=$?; $B check --all braid://rs >$W/k 2>&1; k=$?; $B status >$W/s 2>&1; s=$?; echo "$t s: heal --watch rc $h ($(tail -1 $W/h)); check rc $k ($(tail -1 $W/k | cut -c1-60)); status rc $s: $(grep 'at risk\|all is well' $W/s | head -1 | cut -c1-120)"; [ $k = 0 ] && break; done
r=0; for i in $(seq 1 12); do $B cat braid://rs/f$i | cmp - $W/w$i || r=1; done
[ $k = 0 ] || r=1; [ $h = 0 -a $k != 0 ] && echo "heal says done, check does not"; exit $r
