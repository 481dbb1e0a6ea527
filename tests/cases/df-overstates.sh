#!/bin/bash
# Drives of `braid up` share one disk; `braid df` counts it once, the mount's statfs (df -h) and Python's
# disk_usage count it once per drive.
W=$(mktemp -d)
B=$1; T=/dev/shm/braid-case-dfs-$$; mkdir -p $T $W/mdf; mount -t tmpfs -o size=300M none $T; export BRAID_CLUSTER=$T/c
$B up --dir $T/c --detach >/dev/null; $B mount --detach braid://main $W/mdf >/dev/null
$B df | grep -E 'total|^drive '; df -h $W/mdf; n=$(df --output=size -B1 $W/mdf | tail -1); echo "expected: at most 300M * 4/5 = 240M"
umount $W/mdf; $B down >/dev/null; umount $T; rmdir $T; rm -rf $W; [ "$n" -le 251658240 ]
