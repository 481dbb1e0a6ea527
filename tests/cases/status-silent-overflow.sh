#!/bin/bash
# A drive that the restarted manager has not heard of must not be "silent for 18446744073709551 s".
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
pids(){ for p in /proc/[0-9]*; do case "$(readlink $p/exe 2>/dev/null)" in *braid) tr '\0' ' ' <$p/cmdline | grep -q -- "$1" && basename $p;; esac; done; }
trap '[ -n "$M" ] && kill $M; $B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 6 >/dev/null || exit 2
A=$(grep -o '127.0.0.1:[0-9]*' $W/c/cluster.toml | head -1)
kill -9 $(pids "drive serve --name drive-3.*$W"); sleep 8; kill -9 $(pids "manager serve.*$W"); sleep 0.3
$B manager serve --dir $W/c/manager --listen $A 2>/dev/null & M=$!
r=0; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do timeout 10 $B status 2>/dev/null >$W/s; grep -q 'silent for [0-9]\{12,\}' $W/s && { grep -o 'drive-3 is away, silent for [0-9]* s' $W/s; r=1; break; }; sleep 1; done
[ $r = 0 ] && grep 'drive-3' $W/s | head -1
timeout 10 $B --json status | grep -o '"silent[a-z_]*": *18446744073709551[0-9]*' | head -1
exit $r
