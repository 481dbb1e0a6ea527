#!/bin/bash
# One sparse file (truncate -s 1T, no bytes stored) keeps a cluster from re-protecting itself: neither
# `drive drain` nor the automatic move of a lost drive's columns begins, as the file's size counts as if it
# were stored. Public kin: gluster/glusterfs#3546 (heal of sparse files fills a brick, never ends),
# galaxy#21392 (sparse counted as full).
set -u; B=$1; D=/dev/shm/braid-case-sp-$$; mkdir -p $D/m; trap 'for p in "${P[@]}"; do kill $p 2>/dev/null; done; sleep 0.5; rm -rf $D' EXIT; P=()
$B manager serve --dir $D/m --listen 127.0.0.1:0 --lost-after 12 >$D/m.log 2>&1 & P+=($!)
for i in $(seq 50); do [ -s $D/m/cluster.toml ] && break; sleep 0.1; done
A=$(sed -n 's/^manager = "\(.*\)"/\1/p' $D/m/cluster.toml); export BRAID_CLUSTER=$D/m/cluster.toml
for i in 1 2 3 4 5 6; do mkdir $D/d$i; $B drive serve --dir $D/d$i --name d$i --listen 127.0.0.1:0 --manager $A --token-file $D/m/join.token >$D/d$i.log 2>&1 & P+=($!); done
for i in $(seq 50); do [ "$($B drive ls 2>/dev/null | grep -c ' up ')" = 6 ] && break; sleep 0.1; done
$B volume create v --scheme raid5 --width 5 >/dev/null
for i in $(seq 8); do head -c 3M /dev/urandom | $B cp -q - braid://v/f$i; done
if [ "${2:-sparse}" = sparse ]; then truncate -s 1T $D/sparse; $B cp -q $D/sparse braid://v/sparse; fi
rc=0; $B df | grep -E 'drive|total'
$B drive drain d1 || { echo "drain refused"; rc=1; }
$B drive drain d1 --undo >/dev/null 2>&1
kill -9 ${P[2]}; echo "d2 killed; lost after 12 s"; sleep 40
$B status | grep -E 'at risk|well|lost'; grep -i -E 'room|lost' $D/m.log | tail -3
$B status >/dev/null || true; n=$($B status --json | python3 -c "import json,sys; print(json.dumps(json.load(sys.stdin)))" | grep -o '"well": *[a-z]*'); echo $n
$B status | grep -q 'not rebuilt\|stale\|is away' && { $B status | grep -c 'at risk'; }
if $B stat braid://v/f1 braid://v/f2 braid://v/f3 braid://v/f4 braid://v/f5 braid://v/f6 braid://v/f7 braid://v/f8 | grep -qE ' out | d2 '; then echo "columns of the lost drive were not made anew elsewhere"; rc=1; fi
exit $rc
