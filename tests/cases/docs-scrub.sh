#!/bin/bash
# docs/operations.md, "Damage": `braid scrub --wait` "waits for it"; it is refused (exit 2), and the message
# does not name --all.
export BRAID_CLUSTER=$(mktemp -d /dev/shm/braid-case-XXXX); $1 up --detach --dir $BRAID_CLUSTER --drives 3 >/dev/null
$1 scrub --wait; r=$?; echo "rc=$r"; $1 down >/dev/null; rm -rf $BRAID_CLUSTER; [ $r = 0 ]
