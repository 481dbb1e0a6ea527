#!/bin/bash
# `braid up` after power loss with one drive's disk gone must start the rest (raid5 reads without it), so
# that `braid drive replace` can be used. usage: BRAID [store|dir]
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap '$B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 6 >/dev/null || exit 2
head -c 3000001 /dev/urandom >$W/want; $B cp -q $W/want braid://main/f || exit 2
$B down --dir $W/c >/dev/null
case ${2:-store} in store) rm -rf $W/c/drive-3/store;; dir) rm -rf $W/c/drive-3;; esac
timeout 120 $B up --detach --dir $W/c; echo "up: rc $?"
timeout 20 $B cat braid://main/f | cmp - $W/want || { echo "WRONG: one of six drives is lost, and nothing is served"; $B status | head -3; r=1; }
if [ "${r:-0}" = 1 ]; then echo "== following the advice: empty the directory"; rm -rf $W/c/drive-3; mkdir $W/c/drive-3; timeout 120 $B up --detach --dir $W/c; echo "up: rc $?"; timeout 20 $B status | head -4
echo "== more drives"; timeout 120 $B up --detach --dir $W/c --drives 7; echo "up --drives 7: rc $?"; timeout 20 $B status | head -2; fi
exit ${r:-0}
