#!/bin/bash
# While no server answers, a program that waits in the mount (lookup, create, close) is in D state and
# survives kill -9 for up to 60 s or more; requests are not interruptible (only waits for locks are).
# Sources: libfuse/libfuse#509, marmos91/dittofs#1507.
set -u; B=$1; D=/dev/shm/braid-case-k9-$$; export BRAID_CLUSTER=$D; M=$D.1; mkdir -p $D $M
pid() { sed -n 's/^pid = //p' $D/pids/$1; }
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $M >/dev/null || exit 2; MP=$(pgrep -f -- "-- braid://main $M\$")
echo hi > $M/f; for n in manager drive-1 drive-2 drive-3; do kill -9 $(pid $n); done; sleep 0.3
( exec stat $M/other ) >/dev/null 2>&1 & P1=$!; ( exec touch $M/new ) >/dev/null 2>&1 & P2=$!; sleep 1; kill -9 $P1 $P2; t=$(date +%s); rc=0
for i in $(seq 1 90); do a=0; for p in $P1 $P2; do [ -d /proc/$p ] && ! grep -q '^State:.*Z' /proc/$p/status && a=1; done; [ $a = 0 ] && break; sleep 1; done
s=$(( $(date +%s)-t )); echo "gone $s s after kill -9"; [ $s -gt 5 ] && rc=1
kill -9 $MP; umount -l $M; sleep 0.3; rm -rf $D; rmdir $M; exit $rc
