"""Several writers of one file, each with a range of its own."""

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import braidfs
from conftest import PATIENCE, noise

LAYOUT = "raid5 2+1 unit=64K"


def made(client, name):
    with client.open(name, "x", layout=LAYOUT) as file:
        return file.stripe_bytes()


def test_each_writes_its_own_range(client, place):
    name = f"{place}/shared"
    stripe = made(client, name)
    assert stripe == 128 << 10
    parts = [client.open(name, "r+", range=(rank * stripe, (rank + 1) * stripe)) for rank in range(3)]
    content = noise(3 * stripe)
    for rank, part in enumerate(parts):
        part.pwrite(content[rank * stripe : (rank + 1) * stripe], rank * stripe)
    with pytest.raises(OSError) as refused:
        parts[1].pwrite(b"?", 0)
    assert refused.value.errno == errno.EINVAL and "opened to write" in str(refused.value)
    for part in parts:
        part.close()
    assert client.read_bytes(name) == content


def test_a_range_without_an_end_and_one_that_cannot_be(client, place):
    name = f"{place}/tail"
    stripe = made(client, name)

    async def write():
        asynchronous = braidfs.AsyncClient(client.cluster)
        async with asynchronous.open(name, "r+", range=(stripe, None)) as file:
            assert file.stripe_bytes() == stripe
            await file.pwrite(b"behind", 5 * stripe)

    asyncio.run(write())
    assert client.stat(name).size == 5 * stripe + 6
    with pytest.raises(OSError) as refused:
        client.open(name, "w", range=(0, stripe))
    assert refused.value.errno == errno.EINVAL and "truncate" in str(refused.value)


def test_a_checkpoint_whose_ranks_write_one_file(cluster, place):
    program = Path(__file__).with_name("one_file_without_torch.py")
    environment = {**os.environ, "BRAID_CLUSTER": cluster}
    done = subprocess.run(
        [sys.executable, str(program), f"{place}/checkpoint"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "6 items of 3 ranks came back\n"
