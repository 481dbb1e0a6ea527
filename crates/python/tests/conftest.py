"""A cluster for the tests: real processes of the `braid` that the wheel brings, in a temporary directory."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import braidfs

#: The bound for every command, in seconds.
PATIENCE = 120

#: The disks are modelled, so that what they carry does not depend on the machine's load.
MODEL = "flash,iops=5000,read=200MB/s,write=150MB/s,sync=1ms"


def said(*arguments):
    """What the program that was installed beside Python says."""
    program = Path(sys.executable).parent / "braid"
    environment = {key: value for key, value in os.environ.items() if key != "BRAID_CLUSTER"}
    command = [str(program), *map(str, arguments)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, env=environment
    )


def braid(*arguments):
    """Runs the program, which must succeed; its output."""
    done = said(*arguments)
    assert done.returncode == 0, f"{done.args}: {done.stderr}"
    return done.stdout


def wait_for_calibration(directory):
    """Waits until the cost of all disks is known: without it, no rate is promised of them.

    On a busy machine the short run at the start may not have been enough: then another is asked for.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        rows = json.loads(braid("drive", "ls", "--cost", "--json", "--cluster", directory))
        left = [row["drive"] for row in rows if not row["cost"]]
        if not left:
            return
        assert time.monotonic() < deadline, f"not calibrated: {left}"
        time.sleep(0.2)
        for drive in left:
            said("drive", "calibrate", drive, "--cluster", directory)


@pytest.fixture(scope="session")
def cluster():
    """The directory of a running cluster of six drives."""
    with tempfile.TemporaryDirectory(prefix="braid-python-") as temporary:
        directory = Path(temporary) / "cluster"
        braid("up", "--detach", "--disk-model", MODEL, "--dir", directory)
        try:
            wait_for_calibration(directory)
            yield str(directory)
        finally:
            braid("down", "--dir", directory)


@pytest.fixture(scope="session")
def client(cluster):
    return braidfs.Client(cluster)


@pytest.fixture
def place(client, request):
    """A directory of the test's own."""
    name = f"braid://main/{abs(hash(request.node.nodeid))}"
    client.makedirs(name, exist_ok=True)
    return name


@pytest.fixture
def fs(cluster):
    fsspec = pytest.importorskip("fsspec")
    return fsspec.filesystem("braid", cluster=cluster)


def noise(length, seed=1):
    """Bytes that look random, and reveal any that is misplaced."""
    import random

    return random.Random(seed).randbytes(length)
