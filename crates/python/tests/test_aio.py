"""The client for asyncio."""

import asyncio
import subprocess
import sys

import pytest

import braidfs
from conftest import noise


def test_many_calls_at_once(cluster, place):
    content = noise(4 << 20)

    async def main():
        client = braidfs.AsyncClient(cluster)
        async with client.open(f"{place}/a", "w") as file:
            assert await file.write(content) == len(content)
            assert file.tell() == len(content)
        async with client.open(f"{place}/a") as file:
            offsets = range(0, len(content), 65536)
            parts = await asyncio.gather(*(file.pread(65536, offset) for offset in offsets))
            assert b"".join(parts) == content
            buffer = bytearray(1000)
            assert await file.pread_into(buffer, 5) == 1000 and buffer == content[5:1005]
            file.seek(-10, 2)
            assert await file.read() == content[-10:]
        await client.write_bytes(f"{place}/b", b"b")
        assert await client.listdir(place) == ["a", "b"]
        await client.makedirs(f"{place}/d/e")
        await client.makedirs(f"{place}/d/e", exist_ok=True)
        with pytest.raises(FileExistsError):
            await client.makedirs(f"{place}/d/e")
        await client.rmdir(f"{place}/d/e")
        await client.rmdir(f"{place}/d")
        assert [entry.size async for entry in client.scandir(place)] == [len(content), 1]
        await client.rename(f"{place}/b", f"{place}/c")
        assert await client.exists(f"{place}/c") and not await client.exists(f"{place}/b")
        await client.remove(f"{place}/c")
        file = await client.open(f"{place}/log", "a+")
        await asyncio.gather(*(file.write(bytes([65 + index])) for index in range(20)))
        assert sorted(await file.pread(100, 0)) == [65 + index for index in range(20)]
        await file.truncate(3)
        await file.close()
        assert (await client.stat(f"{place}/log")).size == 3

    asyncio.run(main())


#: Ends with many results on their way to an event loop that takes none.
ENDS = """
import asyncio, sys, braidfs
client = braidfs.AsyncClient(sys.argv[1])
asyncio.run(client.volumes())
loop = asyncio.new_event_loop()
buffers = [client._native.read_many([(b"braid://main/none", 0, None)], loop) for _ in range(300)]
futures = [client._native.volumes(loop) for _ in range(300)]
"""


def test_a_program_may_end_while_results_come(cluster):
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", ENDS, cluster], capture_output=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_nothing_is_awaited_once_python_ends(cluster):
    late = """
import asyncio, atexit, sys

def at_the_end():
    try:
        asyncio.run(client.volumes())
    except RuntimeError as error:
        print(error)
    print(waiting.exists("braid://main/none"))

atexit.register(at_the_end)
import braidfs
client, waiting = braidfs.AsyncClient(sys.argv[1]), braidfs.Client(sys.argv[1])
"""
    ended = subprocess.run([sys.executable, "-c", late, cluster], capture_output=True, text=True, timeout=60)
    said = "Python is ending: nothing can be awaited any more\nFalse\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, said, "")


def test_what_is_known_besides_the_bytes(cluster, place):
    async def main():
        client = braidfs.AsyncClient(cluster)
        name = f"{place}/f"
        await client.write_bytes(name, b"x")
        await client.symlink("f", f"{place}/link")
        assert await client.readlink(f"{place}/link") == "f"
        assert (await client.stat(f"{place}/link", follow_symlinks=False)).is_symlink
        await client.chmod(f"{place}/link", 0o600)
        await client.chown(name, 12, 34)
        await client.utime(name, ns=(5, 6_000_000_000))
        stat = await client.stat(name)
        assert (stat.mode, stat.uid, stat.gid, stat.modified) == (0o600, 12, 34, 6.0)
        await client.link(name, f"{place}/g")
        with pytest.raises(FileExistsError):
            await client.rename(name, f"{place}/g", replace=False)
        await client.rename(f"{place}/g", f"{place}/h", replace=False)
        await client.setxattr(name, "user.a", b"1")
        assert await client.listxattr(f"{place}/h") == ["user.a"]
        assert await client.getxattr(f"{place}/h", "user.a") == b"1"
        await client.removexattr(name, "user.a")
        with pytest.raises(OSError):
            await client.getxattr(name, "user.a")
        await client.replace(name, f"{place}/i")
        usage = await client.disk_usage(name)
        assert 0 < usage.free <= usage.total

    asyncio.run(main())


def test_errors_are_raised_where_they_are_awaited(cluster, place):
    async def main():
        client = braidfs.AsyncClient(cluster)
        results = await asyncio.gather(
            client.stat(f"{place}/none"), client.listdir(place), return_exceptions=True
        )
        assert isinstance(results[0], FileNotFoundError) and results[1] == []

    asyncio.run(main())


def test_a_cancelled_call_ends(cluster, place):
    async def main():
        client = braidfs.AsyncClient(cluster)
        await client.write_bytes(f"{place}/a", noise(32 << 20))
        async with client.open(f"{place}/a") as file:
            buffer = bytearray(32 << 20)
            call = asyncio.ensure_future(file.pread_into(buffer, 0))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            # Once it has let go of the buffer, that can be resized again.
            for _ in range(1000):
                try:
                    buffer.clear()
                    break
                except BufferError:
                    await asyncio.sleep(0.01)
            assert not buffer
            assert len(await file.pread(1000, 0)) == 1000

    asyncio.run(main())


def test_a_loop_that_is_closed_is_not_told(cluster, place):
    client = braidfs.AsyncClient(cluster)
    asyncio.run(client.write_bytes(f"{place}/a", noise(8 << 20)))

    async def begin():
        loop = asyncio.get_running_loop()
        return client._native.read_many([(f"{place}/a".encode(), 0, None)], loop)

    asyncio.run(begin())
    assert len(asyncio.run(client.read_bytes(f"{place}/a"))) == 8 << 20
