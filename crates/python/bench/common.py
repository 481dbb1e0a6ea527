"""What the measurements share: a cluster in memory, the native reader beside, pairs of rounds."""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import braidfs

MIB = 1 << 20


def braid(*arguments):
    program = Path(sys.executable).parent / "braid"
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def cluster(drives=6):
    """A cluster with its drives in /dev/shm, so that no disk is measured; its directory."""
    place = tempfile.mkdtemp(prefix="braid-bench-", dir="/dev/shm")
    directory = os.path.join(place, "cluster")
    try:
        braid("up", "--detach", "--dir", directory, "--drives", drives)
        yield directory
    finally:
        braid("down", "--dir", directory)
        shutil.rmtree(place)


class Mounted:
    """The volume as a file system, at `at`; `anew` unmounts it first, so that nothing of it is kept."""

    def __init__(self, cluster_directory):
        self._cluster = cluster_directory
        self.at = os.path.join(os.path.dirname(cluster_directory), "mount")
        os.mkdir(self.at)
        self._mount()

    def _mount(self):
        braid("mount", "--detach", "--cluster", self._cluster, "braid://main", self.at)

    def _unmount(self):
        subprocess.run(["umount", self.at], check=True, timeout=60)

    def anew(self):
        self._unmount()
        self._mount()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._unmount()


class Native:
    """The example `read_rounds` of the client crate, which does the same without Python."""

    def __init__(self, program, *arguments):
        command = [program, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self):
        # Not by the end of its input: workers that were forked meanwhile hold that open.
        self._process.terminate()
        self._process.wait(timeout=60)


def seconds(act):
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def pairs(rounds, base, others):
    """Runs all in turn, round after round, after one that does not count. Prints each rate over the base's:
    the median of the pairs, and the least and the most."""
    name, base_act, size = base
    taken = {one: [] for one, _ in [(name, None), *others]}
    for number in range(rounds + 1):
        order = [(name, base_act), *others]
        for one, act in order if number % 2 else reversed(order):
            took = act()
            if number:
                taken[one].append(took)
    base_rate = size / statistics.median(taken[name]) / MIB
    print(f"{name}: {base_rate:.0f} MiB/s")
    for one, _ in others:
        ratios = [base_took / took for base_took, took in zip(taken[name], taken[one])]
        rate = size / statistics.median(taken[one]) / MIB
        print(
            f"{one}: {rate:.0f} MiB/s, {statistics.median(ratios):.2f} of it "
            f"({min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds)"
        )


def fill(client, name, size):
    """A file of so many bytes that no drive could compress or share."""
    block = os.urandom(8 * MIB)
    with client.open(name, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)


def client(directory):
    return braidfs.Client(directory)
