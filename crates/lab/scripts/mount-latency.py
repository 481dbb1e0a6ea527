"""What single operations on files take, in microseconds: the median and the 99th percentile.

`prepare` makes a tree; the mount is then mounted anew, and `measure` uses the tree, and prints a line of
name, median and percentile, apart by tabs, for each operation. The time is that of Python's call with all
that Python does for it, one or two microseconds; nothing is subtracted.

usage: mount-latency.py prepare|measure DIRECTORY
"""

import os
import sys
import time

TIMES = 2000
FEW = 500
NAMES = [f"file-{n}" for n in range(TIMES)]


def times(name, operations):
    took = []
    for operation in operations:
        began = time.perf_counter_ns()
        operation()
        took.append(time.perf_counter_ns() - began)
    took.sort()
    print(f"{name}\t{took[len(took) // 2] / 1000:.1f}\t{took[len(took) * 99 // 100] / 1000:.1f}", flush=True)


def write(path, data, flags=os.O_CREAT | os.O_EXCL):
    file = os.open(path, os.O_WRONLY | flags, 0o644)
    if data:
        os.write(file, data)
    os.close(file)


def read(path):
    file = os.open(path, os.O_RDONLY)
    os.pread(file, 4096, 0)
    os.close(file)


def prepare():
    os.mkdir("cold")
    for name in NAMES[:FEW]:
        write(f"cold/{name}", b"x" * 3000)
    write("four", b"x" * 4096)


def measure():
    each = lambda operation, names: [lambda name=name: operation(name) for name in names]
    times("stat, not kept", each(lambda name: os.stat(f"cold/{name}"), NAMES[:FEW]))
    times("open, read 3000 bytes, close, first", each(lambda name: read(f"cold/{name}"), NAMES[:FEW]))
    times("stat, kept", each(lambda name: os.stat(f"cold/{name}"), NAMES[:FEW] * 4))
    read("four")
    times("open, read 4 KiB, close, kept", each(lambda _: read("four"), NAMES))
    times("mkdir", each(lambda name: os.mkdir(f"d-{name}"), NAMES[:FEW]))
    times("rmdir", each(lambda name: os.rmdir(f"d-{name}"), NAMES[:FEW]))
    os.mkdir("new")
    times("create, close", each(lambda name: write(f"new/e-{name}", b""), NAMES[:FEW]))
    times("create, write 3000 bytes, close", each(lambda name: write(f"new/{name}", b"x" * 3000), NAMES[:FEW]))
    times("overwrite 3000 bytes, close", each(lambda name: write(f"new/{name}", b"y" * 3000, 0), NAMES[:FEW]))
    times("chmod", each(lambda name: os.chmod(f"new/{name}", 0o600), NAMES[:FEW]))
    times("rename", each(lambda name: os.rename(f"new/{name}", f"new/r-{name}"), NAMES[:FEW]))
    times("unlink", each(lambda name: os.unlink(f"new/r-{name}"), NAMES[:FEW]))


what = sys.argv[1]
os.chdir(sys.argv[2])
{"prepare": prepare, "measure": measure}[what]()
