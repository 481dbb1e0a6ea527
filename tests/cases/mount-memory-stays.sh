#!/bin/bash
# Memory of the mount after many files were open at once, then closed and removed: it is kept for good
# (about 36 KB for each file that was open; 5,000 -> +180 MB, 20,000 -> about 900 MB, unchanged after 11
# idle minutes). $2: how many files (5000). Exit 0: less than 40 MB more than before.
B=${1:?braid}; N=${2:-5000}; W=$(mktemp -d /dev/shm/braid-case.XXXX); M=$W/m; mkdir $M
"$B" up --dir $W/c --drives 3 --detach >/dev/null || exit 2
export BRAID_CLUSTER=$W/c
"$B" mount --log $W/log braid://main $M >/dev/null & P=$!
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
for i in $(seq 50); do mountpoint -q $M && break; sleep 0.1; done
rss() { awk '/^VmRSS/{print $2}' /proc/$P/status; }
a=$(rss)
prlimit --nofile=20000 python3 - $M $N <<'P'
import os, sys
d, n = sys.argv[1] + "/d", int(sys.argv[2]); os.mkdir(d)
f = [os.open("%s/%d" % (d, i), os.O_RDWR | os.O_CREAT, 0o644) for i in range(n)]
for x in f: os.close(x)
for i in range(n): os.unlink("%s/%d" % (d, i))
os.rmdir(d)
P
b=$(rss); sleep 20; c=$(rss)
echo "RSS of the mount: before $a KB, after $N files were open, closed and removed $b KB, 20 s later $c KB"
[ $((c - a)) -lt 40000 ]
