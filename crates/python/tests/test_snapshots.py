"""Names in snapshots: read by all doors of the package, and never changed."""

import asyncio
import errno

import pytest

import braidfs
from conftest import braid, noise


@pytest.fixture
def taken(client, cluster, place):
    """The test's directory in a snapshot of it; what it shows has changed since."""
    client.write_bytes(f"{place}/a", noise(3 << 20))
    client.makedirs(f"{place}/d")
    client.write_bytes(f"{place}/d/b", b"12345")
    client.symlink("d/b", f"{place}/link")
    name = f"s{abs(hash(place)) % 10**9}"
    braid("snapshot", "make", place, name, "--cluster", cluster)
    client.write_bytes(f"{place}/a", b"other")
    client.remove(f"{place}/d/b")
    client.write_bytes(f"{place}/new", b"new")
    return place.replace("braid://main/", f"braid://main@{name}/")


def test_what_was_is_read(client, place, taken):
    assert client.listdir(taken) == ["a", "d", "link"] and client.listdir(place) == ["a", "d", "link", "new"]
    assert client.read_bytes(f"{taken}/a") == noise(3 << 20) and client.read_bytes(f"{place}/a") == b"other"
    with client.open(f"{taken}/d/b") as file:
        assert file.read() == b"12345" and file.pread(2, 1) == b"23"
    assert client.read_bytes(f"{taken}/link") == b"12345"
    stat = client.stat(f"{taken}/a")
    assert (stat.size, stat.is_file, stat.name) == (3 << 20, True, f"{taken}/a")
    found = {entry.name: (entry.kind, entry.path) for entry in client.scandir(taken)}
    assert found["d"] == ("directory", f"{taken}/d")
    assert not client.exists(f"{taken}/new") and client.isdir(f"{taken}/d")
    # By path, the same.
    name = taken.partition("@")[2].partition("/")[0]
    assert client.listdir(f"{place}/.snapshots") == [name]
    assert client.read_bytes(f"{place}/.snapshots/{name}/d/b") == b"12345"
    with pytest.raises(FileNotFoundError, match="no snapshot"):
        client.read_bytes("braid://main@none/a")


def test_nothing_is_changed(client, place, taken):
    calls = [
        lambda: client.write_bytes(f"{taken}/a", b"x"),
        lambda: client.write_bytes(f"{taken}/x", b"x"),
        lambda: client.open(f"{taken}/a", "a"),
        lambda: client.open(f"{taken}/x", "w"),
        lambda: client.makedirs(f"{taken}/x"),
        lambda: client.remove(f"{taken}/a"),
        lambda: client.rmdir(f"{taken}/d"),
        lambda: client.rename(f"{taken}/a", f"{place}/y"),
        lambda: client.rename(f"{place}/a", f"{taken}/y"),
        lambda: client.symlink("a", f"{taken}/x"),
        lambda: client.chmod(f"{taken}/a", 0o600),
        lambda: client.setxattr(f"{taken}/a", "user.k", b"v"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(OSError, match="is in a snapshot, which cannot be changed") as raised:
            call()
        assert raised.value.errno == errno.EROFS, number
    assert client.read_bytes(f"{taken}/a") == noise(3 << 20)


def test_awaited(cluster, taken):
    async def main():
        client = braidfs.AsyncClient(cluster)
        assert await client.read_bytes(f"{taken}/d/b") == b"12345"
        assert await client.listdir(taken) == ["a", "d", "link"]
        assert (await client.stat(f"{taken}/a")).size == 3 << 20
        with pytest.raises(OSError, match="is in a snapshot"):
            await client.write_bytes(f"{taken}/a", b"x")

    asyncio.run(main())


def test_fsspec(fs, taken):
    fsspec = pytest.importorskip("fsspec")
    path = taken[len("braid://") :]
    assert fs.ls(path, detail=False) == [f"{path}/a", f"{path}/d", f"{path}/link"]
    assert fs.cat(taken + "/a") == noise(3 << 20)
    assert fs.cat_ranges([f"{path}/a", f"{path}/d/b"], [0, 1], [10, 3]) == [noise(3 << 20)[:10], b"23"]
    assert fs.info(taken + "/d/b")["size"] == 5 and fs.find(path) and fs.exists(taken + "/d")
    assert fs.glob(f"{path}/*/b") == [f"{path}/d/b"]
    with fs.open(taken + "/d/b") as file:
        assert file.read() == b"12345"
    assert fsspec.core.split_protocol(taken)[1] == path and fs._parent(f"{path}/a") == path
    with pytest.raises(OSError, match="is in a snapshot"):
        fs.pipe(f"{path}/x", b"x")
    with pytest.raises(OSError, match="is in a snapshot"):
        fs.rm(f"{path}/a")
