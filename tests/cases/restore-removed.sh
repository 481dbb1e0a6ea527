#!/bin/bash
# A file removed after the backup: after the restore `status` says that drives are behind and catch up, and
# names `braid heal --watch`; does that ever end?
B=$1; export BRAID_CLUSTER=$(mktemp -d /dev/shm/braid-case-XXXX); D=$BRAID_CLUSTER; K=$(mktemp -d /tmp/braid-case-XXXX)
$B up --detach --dir $D --drives 3 >/dev/null; echo 1 | $B cp -q - braid://main/one; $B manager backup $K/b >/dev/null; $B rm braid://main/one; sleep 1
$B down >/dev/null; mv $D/manager/manager.redb $K/; $B manager restore $K/b --dir $D/manager >/dev/null; $B up --detach >/dev/null
$B status | grep "at risk"; timeout 40 $B heal --watch; r=$?; echo "heal --watch: rc=$r (124: still waiting after 40 s)"
$B cat braid://main/one; $B status | grep -c "at risk"; $B rm braid://main/one; sleep 1; $B status | grep -E "at risk|all is well"
$B down >/dev/null; rm -rf $D $K; [ $r != 124 ]
