#!/bin/bash
# POSIX: write and ftruncate mark mtime AND ctime for update, and stat must show it. Seen: after a write
# that was looked at (stat) before its fsync, and after an ftruncate to the same size, stat goes on showing
# the old ctime (with the new mtime) after fsync and close, for about 1 s more; then it changes with nobody
# doing anything. (Public: xfstests generic/313.)
B=${1:?braid}; W=$(mktemp -d /dev/shm/braid-case.XXXX); M=$W/m; mkdir $M
"$B" up --dir $W/c --drives 3 --detach >/dev/null || exit 2
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
export BRAID_CLUSTER=$W/c
"$B" mount --detach --log $W/log braid://main $M >/dev/null || exit 2
python3 - $M/f <<'P'
import os, sys, time
p = sys.argv[1]; bad = 0
def go(name, change):
    global bad
    with open(p, "wb") as f: f.write(b"x" * 5000)
    time.sleep(1.5)
    fd = os.open(p, os.O_RDWR); a = os.fstat(fd); time.sleep(0.1); change(fd)
    b = os.stat(p); os.fsync(fd); c = os.stat(p); os.close(fd); d = os.stat(p); time.sleep(2); e = os.stat(p)
    moved = [x.st_ctime_ns > a.st_ctime_ns for x in (b, c, d, e)]; m = [x.st_mtime_ns > a.st_mtime_ns for x in (b, c, d, e)]
    ok = all(moved[1:]); bad += not ok
    print("ok " if ok else "BAD", name, "| ctime moved: after the call %s, fsync %s, close %s, 2 s later %s | mtime:" % tuple(moved), m)
go("write, stat, fsync", lambda fd: os.pwrite(fd, b"y", 0))
go("ftruncate to the same size", lambda fd: os.ftruncate(fd, 5000))
go("ftruncate to less", lambda fd: os.ftruncate(fd, 50))
sys.exit(bad > 0)
P
