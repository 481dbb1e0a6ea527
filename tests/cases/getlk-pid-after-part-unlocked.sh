#!/bin/bash
# F_GETLK must name the process that holds the lock in l_pid, also for what is left of a lock of which the
# middle was released. (Public: LTP fcntl19, fcntl20.)
B=${1:?braid}; W=$(mktemp -d /dev/shm/braid-case.XXXX); M=$W/m; mkdir $M
"$B" up --dir $W/c --drives 3 --detach >/dev/null || exit 2
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
export BRAID_CLUSTER=$W/c
"$B" mount --detach --log $W/log braid://main $M >/dev/null || exit 2
python3 - $M/f <<'P'
import os, sys, fcntl, struct
p = sys.argv[1]; F = "hhqqi4x"; bad = 0
fd = os.open(p, os.O_RDWR | os.O_CREAT, 0o644)
def lock(kind, start, n): fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack(F, kind, 0, start, n, 0))
def holder(start, n):
    r, w = os.pipe()
    if not os.fork():
        f = os.open(p, os.O_RDWR)
        a = struct.unpack(F, fcntl.fcntl(f, fcntl.F_GETLK, struct.pack(F, fcntl.F_WRLCK, 0, start, n, 0)))
        os.write(w, b"%d" % a[4]); os._exit(0)
    os.wait(); return int(os.read(r, 20))
lock(fcntl.F_WRLCK, 0, 100)
for what, step in (("whole lock", None), ("after its middle was released", lambda: lock(fcntl.F_UNLCK, 40, 20))):
    if step: step()
    for s in (0, 70):
        h = holder(s, 10); ok = h == os.getpid(); bad += not ok
        print("ok " if ok else "BAD", what, "byte", s, ": l_pid", h, "wanted", os.getpid())
sys.exit(bad > 0)
P
