#!/bin/bash
# A file that nobody changed since the manager's backup has its size and bytes after `manager restore`, also
# when one of its columns is stale or gone then (a drive was drained, or replaced/dead). usage:
# restore-size.sh BRAID [drain|dead|none]
B=$(realpath "$1"); HOW=${2:-drain}; W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap '$B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 7 >/dev/null || exit 2
$B volume create rs --scheme 'rs(4,2)' --unit 64K >/dev/null || exit 2
head -c 3000001 /dev/urandom >$W/want; for i in $(seq 1 24); do $B cp -q $W/want braid://rs/f$i || exit 2; done
$B manager backup $W/backup >/dev/null || exit 2
case $HOW in drain) timeout 200 $B drive drain drive-7 --wait >/dev/null 2>&1;; esac
$B down --dir $W/c >/dev/null; mv $W/c/manager/manager.redb $W/was
$B manager restore $W/backup --dir $W/c/manager >/dev/null || exit 2
case $HOW in dead) rm -rf $W/c/drive-3; sed -i "s/\"drive-3\", //" $W/c/cluster.toml;; esac
if [ $HOW = dead ]; then A=$(grep -o '127.0.0.1:[0-9]*' $W/c/cluster.toml | head -1); rm -f $W/c/manager/LOCK.x; setsid $B manager serve --dir $W/c/manager --listen $A >$W/m.log 2>&1 & P=$!; for n in 1 2 4 5 6 7; do setsid $B drive serve --dir $W/c/drive-$n --name drive-$n --manager $A >$W/d$n.log 2>&1 & P="$P $!"; done; for k in $(seq 100); do timeout 10 $B ls braid://rs >/dev/null 2>&1 && break; sleep 1; done; echo "served after $k tries"; else
timeout 120 $B up --detach --dir $W/c 2>&1 | grep -v 'use it'; fi
r=0; sleep 3
for i in $(seq 1 24); do
  $B cat braid://rs/f$i >$W/got 2>$W/err; rc=$?
  cmp -s $W/got $W/want || { echo "f$i: rc $rc, $(stat -c %s $W/got) bytes, want $(stat -c %s $W/want) $(cut -c1-200 $W/err)"; [ $rc = 0 ] && r=1; }
done
sed -n 1,4p $W/c/manager/comparison.txt; $B status | grep 'all is well\|at risk' | head -3
$B heal --watch >/dev/null 2>&1; $B check --all braid://rs | grep -v ', ok' | head -3; for i in $(seq 1 24); do $B cat braid://rs/f$i 2>/dev/null | cmp -s - $W/want || echo "after heal: f$i wrong"; done
[ -n "$P" ] && kill -9 $P; exit $r
