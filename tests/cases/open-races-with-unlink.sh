#!/bin/bash
# One mount. One process makes and removes a name, another opens it over and over (without O_CREAT). An open
# that succeeds gives a file: a lock on it and fstat and a write must work, removed or not ("a file that is
# removed while it is open goes on until it is closed", docs/mount.md). Only the open itself may say ENOENT.
# (Public: xfstests generic/089, src/t_mtab: "can't lock lock file t_mtab~: No such file or directory",
# every run.) $2: seconds (5). With DIR set to a directory it is tried there instead (for comparison).
B=${1:?braid}; W=$(mktemp -d /dev/shm/braid-case-case.XXXX); M=$W/m; mkdir $M
if [ -n "$DIR" ]; then M=$DIR; trap 'rm -rf $W' EXIT; else
"$B" up --dir $W/c --drives 5 --detach >/dev/null || exit 2
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
BRAID_CLUSTER=$W/c "$B" --cluster $W/c mount --detach --log $W/log braid://main $M >/dev/null || exit 2; fi
python3 - $M ${2:-5} <<'P'
import os, sys, errno, time, fcntl
p, end = sys.argv[1] + "/lockfile", time.time() + float(sys.argv[2])
pid = os.fork()
if pid == 0:
    while time.time() < end:
        os.close(os.open(p, os.O_RDWR | os.O_CREAT, 0o644)); os.unlink(p)
    os._exit(0)
opened, bad = 0, {}
while time.time() < end:
    try: fd = os.open(p, os.O_WRONLY)
    except FileNotFoundError: continue
    except OSError as e:
        k = "open: " + errno.errorcode[e.errno]; bad[k] = bad.get(k, 0) + 1; continue
    opened += 1
    for name, f in (("fstat", lambda: os.fstat(fd)), ("fcntl lock", lambda: fcntl.lockf(fd, fcntl.LOCK_EX)), ("write", lambda: os.write(fd, b"x"))):
        try: f()
        except OSError as e: k = name + ": " + errno.errorcode[e.errno]; bad[k] = bad.get(k, 0) + 1
    try: os.close(fd)
    except OSError as e: k = "close: " + errno.errorcode[e.errno]; bad[k] = bad.get(k, 0) + 1
os.waitpid(pid, 0)
print("%d opened; failed on an open descriptor: %s" % (opened, bad or "nothing"))
sys.exit(bool(bad))
P
