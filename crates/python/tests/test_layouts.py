"""Layouts of files and directories."""

import asyncio
import errno

import pytest

import braidfs


def scheme(client, name):
    layout = client.layout(name)
    return layout.scheme, layout.unit


def test_a_directory_says_how_new_files_lie_and_a_caller_may_say_otherwise(client, place):
    client.set_layout(place, braidfs.Layout("raid5", width=3, unit="64K"))
    client.makedirs(f"{place}/below")
    told = client.layout(f"{place}/below")
    assert told == braidfs.Layout("raid5 2+1", 3, 65536, "directory", place)
    client.write_bytes(f"{place}/below/one", b"1")
    assert scheme(client, f"{place}/below/one") == ("raid5 2+1", 65536)
    with client.open(f"{place}/two", "wb", layout="rs(3,2) unit=8K") as file:
        file.write(b"2")
    assert scheme(client, f"{place}/two") == ("rs(3,2)", 8192)
    with client.open(f"{place}/three", "x", layout=braidfs.Layout("raid1")) as file:
        file.write(b"3")
    assert client.layout(f"{place}/three") == braidfs.Layout("raid1 1+1", 2, 512 << 10, "file", f"{place}/three")
    assert client.listxattr(place) == ["user.braid.layout"]
    client.set_layout(place, None)
    assert client.layout(place).source == "volume"
    assert client.listxattr(place) == []


def test_what_is_no_layout_is_refused(client, place):
    for wrong in ("raid7", "raid5", "raid1 unit=5000", braidfs.Layout("raid5", width="many")):
        with pytest.raises(ValueError):
            client.open(f"{place}/f", "w", layout=wrong)
        with pytest.raises(ValueError):
            client.set_layout(place, wrong)
    with pytest.raises(ValueError):
        client.open(f"{place}/f", "r", layout="raid1")
    assert not client.exists(f"{place}/f")
    with pytest.raises(OSError):
        client.set_layout(place, "raid0 60")
    client.write_bytes(f"{place}/f", b"bytes")
    with pytest.raises(OSError) as refused:
        client.set_layout(f"{place}/f", "raid1")
    assert refused.value.errno == errno.EBUSY
    with client.open(f"{place}/empty", "w"):
        pass
    client.set_layout(f"{place}/empty", "raid1")
    assert client.layout(f"{place}/empty").scheme == "raid1 1+1"


def test_fsspec_and_asyncio_have_layouts_too(cluster, client, fs, place):
    path = place[len("braid://") :]
    with fs.open(f"{path}/new/packed", "wb", layout="raid1 unit=4K") as file:
        file.write(b"bytes")
    assert scheme(client, f"{place}/new/packed") == ("raid1 1+1", 4096)
    client.set_layout(place, "rs(2,2)")
    with fs.open(f"{path}/later/inherited", "wb") as file:
        file.write(b"bytes")
    fs.pipe(f"{path}/later/piped", b"bytes")
    assert {scheme(client, f"{place}/later/{name}")[0] for name in ("inherited", "piped")} == {"rs(2,2)"}

    async def main():
        there = braidfs.AsyncClient(cluster)
        async with there.open(f"{place}/f", "w", layout="raid0 3") as file:
            await file.write(b"hello")
        await there.set_layout(place, None)
        return await there.layout(f"{place}/f"), await there.layout(place)

    of_file, of_directory = asyncio.run(main())
    assert (of_file.scheme, of_directory.source) == ("raid0 3", "volume")
