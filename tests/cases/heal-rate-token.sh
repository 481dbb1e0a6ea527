#!/bin/bash
# (by design today) who holds only cluster.toml, "for those who read and write files", can stop repair: heal
# --rate 1, rebalance --off, drain. exit 0 = refused
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); trap '$B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 6 >/dev/null || exit 2; cp $W/c/manager/cluster.toml $W/t.toml; r=0
for c in "heal --rate 1" "rebalance --off" "drive drain drive-1" "manager free-unnamed" "volume rm main"; do $B --cluster $W/t.toml $c >$W/o 2>&1; rc=$?; echo "$c: rc $rc $(head -1 $W/o)"; [ $rc = 6 ] || r=1; done; exit $r
