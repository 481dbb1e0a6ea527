#!/bin/bash
# An open directory that is removed (rmdir, or replaced by rename) must go on answering fstat/fchmod through
# its descriptor, with nlink 0; a process whose working directory it is must be able to stat ".".
B=${1:?braid}; W=$(mktemp -d /dev/shm/braid-case.XXXX); M=$W/m; mkdir $M
"$B" up --dir $W/c --drives 3 --detach >/dev/null || exit 2
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
export BRAID_CLUSTER=$W/c
"$B" mount --detach --log $W/log braid://main $M >/dev/null || exit 2
python3 - $M <<'P'
import os, sys, errno
os.chdir(sys.argv[1]); bad = 0
def want(name, f, v=None):
    global bad
    try: r = f()
    except OSError as e: r = errno.errorcode[e.errno]
    ok = r == v
    bad += not ok
    print("ok " if ok else "BAD", name, "gave", r, "wanted", v)
os.mkdir("a"); a = os.open("a", os.O_RDONLY); os.stat("a"); os.rmdir("a")
want("links of a removed open directory", lambda: os.fstat(a).st_nlink, 0)
want("fchmod of it", lambda: os.fchmod(a, 0o700))
want("utimens of it", lambda: os.utime(a, (5, 5)))
os.mkdir("b"); os.mkdir("c"); c = os.open("c", os.O_RDONLY); os.rename("b", "c")
want("links of a replaced open directory", lambda: os.fstat(c).st_nlink, 0)
os.mkdir("d"); os.chdir("d"); os.rmdir("../d")
want("stat of a removed working directory", lambda: os.stat(".").st_nlink, 0)
want("listing of it", lambda: os.listdir("."), [])
sys.exit(bad > 0)
P
