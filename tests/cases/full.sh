#!/bin/bash
# A cp that fails for want of space: how long does its space stay lost?
W=$(mktemp -d)
B=$1; T=/dev/shm/braid-case-full-$$; mkdir -p $T; mount -t tmpfs -o size=${SIZE:-300M} none $T
export BRAID_CLUSTER=$T/c
trap '$B down --dir $T/c >/dev/null; umount $T; rmdir $T; rm -rf $W' EXIT
$B up --dir $T/c --drives 3 --detach >/dev/null
head -c 600000000 /dev/zero | tr '\0' 'a' | $B cp - braid://main/big; echo "cp of too much: rc=$?"
$B ls -l braid://main
s=$SECONDS
while [ $((SECONDS-s)) -lt ${WAIT:-150} ]; do
  head -c 20000000 /dev/urandom | timeout 60 $B cp -q - braid://main/small 2>$W/full.err; rc=$?
  echo "$((SECONDS-s)) s after: a 20 MB file: rc=$rc $(head -c 200 $W/full.err)"
  $B df --json | tr ',' '\n' | grep -E 'live|dead' | head -2 | tr '\n' ' '; echo
  [ $rc = 0 ] && break
  sleep 8
done
exit $rc
