#!/bin/bash
# `braid drive add` after the newest drive was removed: it picks the removed drive's name and fails.
B=$1; export BRAID_CLUSTER=$(mktemp -d /dev/shm/braid-case-XXXX); D=$BRAID_CLUSTER
trap '$B down --dir $D >/dev/null; rm -rf $D' EXIT
$B up --detach --dir $D --drives 3 >/dev/null
$B drive add; $B drive drain drive-4 --wait; $B drive rm drive-4; echo "rm rc=$?"
$B drive add; r=$?; echo "add rc=$r (expected: drive-5 is added)"
$B up --detach --drives 4 --dir $D; q=$?; echo "up --drives 4: rc=$q"; [ $r = 0 ] && [ $q = 0 ]
