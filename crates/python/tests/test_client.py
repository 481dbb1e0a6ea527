"""The client: names, the cluster, threads, signals, forks."""

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import braidfs
from conftest import braid, noise, said


def test_names(client, place):
    client.makedirs(f"{place}/a/b/c")
    client.makedirs(f"{place}/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        client.makedirs(f"{place}/a/b/c")
    assert client.write_bytes(f"{place}/a/f", b"12345") == 5
    assert client.listdir(f"{place}/a") == ["b", "f"]
    found = {entry.name: (entry.is_dir, entry.size, entry.path) for entry in client.scandir(f"{place}/a")}
    assert found == {"b": (True, 0, f"{place}/a/b"), "f": (False, 5, f"{place}/a/f")}
    client.write_bytes(f"{place}/a/g", b"other")
    client.rename(f"{place}/a/f", f"{place}/a/g")
    assert client.read_bytes(f"{place}/a/g") == b"12345"
    assert client.exists(f"{place}/a/g") and not client.exists(f"{place}/a/f")
    assert client.isdir(f"{place}/a") and client.isfile(f"{place}/a/g")
    client.remove(f"{place}/a/g")
    client.rmdir(f"{place}/a/b/c")
    assert client.listdir(f"{place}/a/b") == []


def test_stat(client, place):
    before = time.time()
    client.write_bytes(f"{place}/f", b"12345")
    stat = client.stat(f"{place}/f")
    assert (stat.name, stat.size, stat.is_file, stat.is_dir) == (f"{place}/f", 5, True, False)
    assert before - 60 < stat.modified < time.time() + 60
    client.rename(f"{place}/f", f"{place}/g")
    assert client.stat(f"{place}/g").number == stat.number
    assert (stat.uid, stat.links, stat.kind) == (os.getuid(), 1, "file")
    client.symlink("g", f"{place}/link")
    link = client.stat(f"{place}/link", follow_symlinks=False)
    assert link.is_symlink and client.readlink(f"{place}/link") == link.target == "g"
    assert client.stat(f"{place}/link").number == stat.number
    assert client.read_bytes(f"{place}/link") == b"12345"
    with pytest.raises(OSError):
        client.readlink(f"{place}/g")


def test_permissions_owners_and_times(client, place):
    name, link = f"{place}/f", f"{place}/link"
    client.write_bytes(name, b"x")
    client.symlink("f", link)
    before = client.stat(name)
    client.chmod(link, 0o2750)
    assert client.stat(name).mode == 0o2750
    assert client.stat(link, follow_symlinks=False).mode == 0o777
    client.chown(name, 1234, -1)
    client.chown(name, -1, 4321)
    assert (client.stat(name).uid, client.stat(name).gid) == (1234, 4321)
    client.chown(link, 1, 2, follow_symlinks=False)
    assert client.stat(name).uid == 1234 and client.stat(link, follow_symlinks=False).uid == 1
    client.utime(name, ns=(1, 2_000_000_000))
    after = client.stat(name)
    assert (after.accessed, after.modified) == (1e-9, 2.0) and after.changed > before.changed
    client.utime(name, (3.5, -4.25))
    assert (client.stat(name).accessed, client.stat(name).modified) == (3.5, -4.25)
    client.utime(name)
    assert abs(client.stat(name).modified - time.time()) < 60
    with pytest.raises(ValueError):
        client.utime(name, (1, 2), ns=(1, 2))
    with pytest.raises(OSError):
        client.chmod(name, 0o1000000)
    with pytest.raises(FileNotFoundError) as raised:
        client.chmod(f"{place}/none", 0o600)
    assert raised.value.filename == f"{place}/none"


def test_other_names_of_a_file(client, place):
    client.write_bytes(f"{place}/a", b"a")
    client.link(f"{place}/a", f"{place}/b")
    a, b = client.stat(f"{place}/a"), client.stat(f"{place}/b")
    assert (a.number, a.links) == (b.number, 2)
    with pytest.raises(FileExistsError):
        client.link(f"{place}/a", f"{place}/b")
    client.write_bytes(f"{place}/c", b"c")
    with pytest.raises(FileExistsError):
        client.rename(f"{place}/a", f"{place}/c", replace=False)
    assert client.read_bytes(f"{place}/c") == b"c"
    client.rename(f"{place}/a", f"{place}/d", replace=False)
    client.replace(f"{place}/d", f"{place}/c")
    assert client.listdir(place) == ["b", "c"]
    client.remove(f"{place}/b")
    assert client.stat(f"{place}/c").links == 1 and client.read_bytes(f"{place}/c") == b"a"


def test_extended_attributes(client, place):
    name, link = f"{place}/f", f"{place}/link"
    client.write_bytes(name, b"x")
    client.symlink("f", link)
    assert client.listxattr(name) == []
    client.setxattr(link, "user.b", bytearray(b"\0\xff"))
    client.setxattr(name, b"user.a\xff", b"", create=True)
    assert client.listxattr(name) == ["user.a\udcff", "user.b"] == client.listxattr(link)
    assert client.listxattr(link, follow_symlinks=False) == []
    assert client.getxattr(name, "user.b") == b"\0\xff" and client.getxattr(name, b"user.a\xff") == b""
    with pytest.raises(FileExistsError):
        client.setxattr(name, "user.b", b"", create=True)
    client.setxattr(name, "user.b", b"new", replace=True)
    client.removexattr(link, "user.b")
    assert client.listxattr(name) == ["user.a\udcff"]
    missing = [
        lambda: client.getxattr(name, "user.b"),
        lambda: client.removexattr(name, "user.b"),
        lambda: client.setxattr(name, "user.b", b"", replace=True),
    ]
    for call in missing:
        with pytest.raises(OSError) as raised:
            call()
        assert (raised.value.errno, raised.value.filename) == (errno.ENODATA, name)
    with pytest.raises(ValueError):
        client.setxattr(name, "user.b", b"", create=True, replace=True)
    with pytest.raises(OSError) as raised:
        client.setxattr(name, "user.b", bytes(65537))
    assert raised.value.errno == errno.ENOSPC


def test_how_much_room_there_is(cluster, client):
    usage = client.disk_usage("braid://main/anything")
    assert 0 < usage.free <= usage.total and usage.used == usage.total - usage.free
    drives = client.status()["drives"]
    assert usage.free < sum(drive["free_bytes"] for drive in drives), "redundancy takes a part"
    braid("volume", "create", "bounded", "--quota", "1M", "--cluster", cluster)
    try:
        client.write_bytes("braid://bounded/f", bytes(300_000))
        assert client.disk_usage("braid://bounded") == (1 << 20, 300_000, (1 << 20) - 300_000)
        client.remove("braid://bounded/f")
    finally:
        braid("volume", "rm", "bounded", "--cluster", cluster)
    with pytest.raises(FileNotFoundError):
        client.disk_usage("braid://absent")


def test_names_need_not_be_utf8(client, place):
    name = os.fsencode(place) + b"/\xff\xfe"
    client.write_bytes(name, b"x")
    assert client.listdir(place) == ["\udcff\udcfe"]
    assert client.read_bytes(f"{place}/" + os.fsdecode(b"\xff\xfe")) == b"x"


def test_the_cluster(client):
    (main,) = client.volumes()
    assert main["name"] == "main" and main["quota_bytes"] is None and main["shape"].startswith("raid5")
    status = client.status()
    assert [drive["state"] for drive in status["drives"]] == ["up"] * 6


def test_a_cluster_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="braid up") as raised:
        braidfs.Client(tmp_path)
    assert raised.value.filename == str(tmp_path)
    monkeypatch.setenv("BRAID_CLUSTER", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        braidfs.Client()


def test_a_manager_that_is_not_there(cluster, tmp_path):
    with open(f"{cluster}/cluster.toml") as file:
        token = next(line for line in file if line.startswith("token"))
    # Port 1 of this machine: nobody listens there.
    (tmp_path / "cluster.toml").write_text(f'manager = "127.0.0.1:1"\n{token}')
    with pytest.raises(ConnectionRefusedError, match="braid manager serve"):
        braidfs.Client(tmp_path)
    braidfs.Client(tmp_path, connect=False)


def test_a_client_can_be_pickled(client, place):
    client.write_bytes(f"{place}/a", b"x")
    assert pickle.loads(pickle.dumps(client)).read_bytes(f"{place}/a") == b"x"


def test_many_threads_share_a_file(client, place):
    content = noise(8 << 20)
    client.write_bytes(f"{place}/a", content)
    wrong = []
    with client.open(f"{place}/a") as file:

        def read(start):
            for offset in range(start, len(content), 8 * 65536):
                if file.pread(65536, offset) != content[offset : offset + 65536]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(index * 65536,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_other_threads_run_while_one_reads(client, place):
    """Without that, this thread's count would stand still during a read."""
    client.write_bytes(f"{place}/a", noise(64 << 20))
    counts = [0]
    done = threading.Event()

    def count():
        while not done.is_set():
            counts[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    with client.open(f"{place}/a") as file:
        buffer = bytearray(64 << 20)
        before = counts[0]
        file.pread_into(buffer, 0)
        during = counts[0] - before
    done.set()
    counter.join()
    # A switch of threads at each end would let it count for a few milliseconds at most.
    assert during > 1000


def test_ctrl_c_ends_a_call(cluster, client, place):
    """The manager is stopped, so that a call waits: for a minute, if nothing ended it."""
    manager = _status(cluster)["manager"]["pid"]
    code = (
        "import braidfs, signal, sys\n"
        # What is started in the background of a shell inherits that it ignores Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"client = braidfs.Client({cluster!r})\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print('calls', flush=True)\n"
        "try:\n"
        f"    client.stat({place!r})\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert caller.stdout.readline() == "ready\n"
        os.kill(manager, signal.SIGSTOP)
        # The signal is sent before the last thread has stopped: one on the other core may still answer.
        _until(lambda: _stopped(manager))
        caller.stdin.write("go\n")
        caller.stdin.flush()
        assert caller.stdout.readline() == "calls\n"
        _until(lambda: _waits(caller.pid))
        begun = time.monotonic()
        os.kill(caller.pid, signal.SIGINT)
        assert caller.stdout.readline() == "interrupted\n"
        # Far less than the call would have gone on, also on a busy machine.
        assert time.monotonic() - begun < 20
    finally:
        os.kill(manager, signal.SIGCONT)
        caller.kill()
        caller.communicate(timeout=60)
    _until(lambda: all(drive["state"] == "up" for drive in client.status()["drives"]))


def test_a_fork_gets_a_client_of_its_own(client, place):
    client.write_bytes(f"{place}/a", b"abcdef")
    reader = client.open(f"{place}/a")
    writer = client.open(f"{place}/b", "w")
    writer.write(b"parent")
    reader.read(2)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = b"failed"
        try:
            assert reader.read(2) == b"cd"
            client.write_bytes(f"{place}/c", b"child")
            try:
                writer.write(b"child")
            except OSError as error:
                assert "fork" in str(error)
                said = b"well"
            del reader, writer
        finally:
            os.write(theirs, said)
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        assert pipe.read() == b"well"
    os.waitpid(pid, 0)
    assert client.read_bytes(f"{place}/c") == b"child"
    # Nothing of the parent's was disturbed.
    assert reader.read() == b"cdef"
    writer.write(b"!")
    writer.close()
    assert client.read_bytes(f"{place}/b") == b"parent!"


def test_a_drive_dies(cluster, client, place):
    """Reads and writes go on; started again, it is brought up to date."""
    content = noise(10 << 20)
    client.write_bytes(f"{place}/a", content)
    pid = _status(cluster)["drives"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert client.read_bytes(f"{place}/a") == content
    client.write_bytes(f"{place}/b", content[::-1])
    assert client.read_bytes(f"{place}/b") == content[::-1]
    braid("up", "--detach", "--dir", cluster)
    _until(lambda: all(drive["state"] == "up" for drive in client.status()["drives"]))


def _status(cluster):
    """What the program says, also if it says that a drive is slow: a busy machine makes it so."""
    return json.loads(said("--cluster", cluster, "status", "--json").stdout)


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _stopped(pid):
    """Whether all threads of a process are stopped."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat") as file:
            states.append(file.read().rsplit(")", 1)[1].split()[0])
    return all(state == "T" for state in states)


def _waits(pid):
    """Whether a process's first thread has been asleep for a moment. Others of it may try again and again."""

    def used():
        with open(f"/proc/{pid}/task/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = used()
    time.sleep(0.3)
    return used() == before
