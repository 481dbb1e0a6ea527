"""A cluster for the tests: real processes of the `braid` that the wheel brings, in a temporary directory."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import braidfs

#: The bound for every command, in seconds.
PATIENCE = 120


def braid(*arguments):
    """Runs the program that was installed beside Python."""
    program = Path(sys.executable).parent / "braid"
    environment = {key: value for key, value in os.environ.items() if key != "BRAID_CLUSTER"}
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def cluster():
    """The directory of a running cluster of six drives."""
    with tempfile.TemporaryDirectory(prefix="braid-python-") as temporary:
        directory = Path(temporary) / "cluster"
        braid("up", "--detach", "--dir", directory)
        try:
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
