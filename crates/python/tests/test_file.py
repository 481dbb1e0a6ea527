"""Files: modes, positions, offsets, buffers, errors."""

import array
import errno
import io
import pickle
import signal
import threading
import time

import pytest

from conftest import braid, noise


def test_a_file_is_written_and_read(client, place):
    content = noise(3_000_001)
    with client.open(f"{place}/a", "w") as file:
        assert file.write(content[:1000]) == 1000
        assert file.write(memoryview(content)[1000:]) == len(content) - 1000
        assert file.tell() == len(content)
    with client.open(f"{place}/a") as file:
        assert file.read(10) == content[:10]
        assert file.read() == content[10:]
        assert file.read(1) == b"" and file.read() == b""
        assert file.seek(-5, io.SEEK_END) == len(content) - 5
        assert file.read(100) == content[-5:]
        assert file.pread(7, 1_000_000) == content[1_000_000:1_000_007]
        assert file.pread(7, 10_000_000) == b""
    assert file.closed
    with pytest.raises(ValueError):
        file.read(1)


def test_small_reads_in_order_and_jumps_between_find_what_is_there(client, place):
    content = noise(7_000_001)
    client.write_bytes(f"{place}/a", content)
    with client.open(f"{place}/a") as file:
        found = b"".join(iter(lambda: file.read(60_000), b""))
        assert found == content
        for start in (100, 5_000_000, 2_999_990):
            file.seek(start)
            for _ in range(5):
                at = file.tell()
                buffer = bytearray(1000)
                assert file.readinto(buffer) == 1000 and buffer == content[at:at + 1000]
    # What another one has written is seen by a reader in order, a second later at most.
    with client.open(f"{place}/a") as reader, client.open(f"{place}/a", "r+") as writer:
        for _ in range(5):
            reader.read(1000)
        writer.pwrite(bytes(2000), 5000)
        assert reader.pread(2000, 5000) == bytes(2000)
        time.sleep(1.1)
        assert reader.read(2000) == bytes(2000)


def test_buffers_are_filled_in_place(client, place):
    content = noise(70_000)
    client.write_bytes(f"{place}/a", content)
    with client.open(f"{place}/a") as file:
        buffer = bytearray(100)
        assert file.readinto(buffer) == 100 and buffer == content[:100]
        assert file.pread_into(memoryview(buffer)[10:20], 5) == 10
        assert buffer[10:20] == content[5:15]
        words = array.array("Q", [0] * 4)
        assert file.pread_into(words, 32) == 32 and words.tobytes() == content[32:64]
        assert file.pread_into(bytearray(100), 69_990) == 10
        with pytest.raises(BufferError):
            file.pread_into(b"constant", 0)
        with pytest.raises(BufferError):
            file.pread_into(memoryview(bytearray(10))[::2], 0)
        with pytest.raises(TypeError):
            file.pread_into("text", 0)
        # It is not resized while it is filled, and can be afterwards.
        buffer.extend(b"more")


@pytest.mark.parametrize(
    "mode, there, absent, reads, writes",
    [
        ("r", b"old", None, True, False),
        ("w", b"", b"", False, True),
        ("a", b"old", b"", False, True),
        ("x", None, b"", False, True),
        ("r+", b"old", None, True, True),
        ("w+", b"", b"", True, True),
        ("a+b", b"old", b"", True, True),
        ("x+", None, b"", True, True),
    ],
)
def test_modes(client, place, mode, there, absent, reads, writes):
    client.write_bytes(f"{place}/there", b"old")
    for name, expected in (("there", there), ("absent", absent)):
        if expected is None:
            kind = FileExistsError if name == "there" else FileNotFoundError
            with pytest.raises(kind) as raised:
                client.open(f"{place}/{name}", mode)
            assert raised.value.filename == f"{place}/{name}"
            continue
        with client.open(f"{place}/{name}", mode) as file:
            assert (file.readable(), file.writable()) == (reads, writes)
            if reads:
                assert file.pread(100, 0) == expected
            else:
                with pytest.raises(io.UnsupportedOperation):
                    file.read(1)
            if writes:
                file.write(b"12")
        after = expected + b"12" if mode.startswith("a") else b"12" + expected[2:] if writes else expected
        assert client.read_bytes(f"{place}/{name}") == after


def test_modes_that_are_refused(client, place):
    for mode in ("", "rw", "rt", "z", "rr"):
        with pytest.raises(ValueError):
            client.open(f"{place}/a", mode)


def test_what_is_open_for_reading_and_writing(client, place):
    with client.open(f"{place}/a", "w+") as file:
        file.pwrite(b"world", 6)
        assert file.pread(20, 0) == b"\0" * 6 + b"world"
        file.seek(0)
        file.write(b"hello")
        assert file.truncate(8) == 8
        assert file.size() == 8
        file.flush()
        assert client.stat(f"{place}/a").size == 8
        file.seek(4)
        assert file.truncate() == 4
    assert client.read_bytes(f"{place}/a") == b"hell"


def test_the_classes_of_io_take_it(client, place):
    with io.TextIOWrapper(client.open(f"{place}/t", "w", buffering=100), encoding="utf-8") as text:
        text.write("ä line\nand another\n" * 100)
    with io.TextIOWrapper(client.open(f"{place}/t"), encoding="utf-8") as text:
        assert text.readline() == "ä line\n"
        assert len(text.readlines()) == 199
    with io.BufferedReader(client.open(f"{place}/t"), 512) as reader:
        assert reader.peek(2)[:2] == "ä".encode()
        assert reader.read(2) == "ä".encode()
    with client.open(f"{place}/t", "r+", buffering=4096) as file:
        assert isinstance(file, io.BufferedRandom)
        file.seek(3)
        file.write(b"LINE")
        file.seek(0)
        assert file.readline() == "ä LINE\n".encode()


def test_an_open_file_that_reads_can_be_pickled(client, place):
    client.write_bytes(f"{place}/a", b"abcdef")
    with client.open(f"{place}/a") as file:
        file.seek(2)
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == b"cdef"
    with client.open(f"{place}/a", "a") as file, pytest.raises(TypeError):
        pickle.dumps(file)


def test_errors_name_errno_and_name(client, place):
    client.makedirs(f"{place}/d/e")
    client.write_bytes(f"{place}/f", b"")
    cases = [
        (lambda: client.open(f"{place}/none"), FileNotFoundError, errno.ENOENT, f"{place}/none"),
        (lambda: client.open(f"{place}/d"), IsADirectoryError, errno.EISDIR, f"{place}/d"),
        (lambda: client.listdir(f"{place}/f"), NotADirectoryError, errno.ENOTDIR, f"{place}/f"),
        (lambda: client.mkdir(f"{place}/d"), FileExistsError, errno.EEXIST, f"{place}/d"),
        (lambda: client.rmdir(f"{place}/d"), OSError, errno.ENOTEMPTY, f"{place}/d"),
        (lambda: client.rmdir(f"{place}/f"), NotADirectoryError, errno.ENOTDIR, f"{place}/f"),
        (lambda: client.remove(f"{place}/d"), IsADirectoryError, errno.EISDIR, f"{place}/d"),
        (lambda: client.stat("braid://nowhere/x"), FileNotFoundError, errno.ENOENT, "braid://nowhere/x"),
        (lambda: client.stat("/local/x"), OSError, errno.EINVAL, "/local/x"),
        (lambda: client.stat(f"{place}/../x"), OSError, errno.EINVAL, f"{place}/../x"),
    ]
    for act, kind, number, name in cases:
        with pytest.raises(kind) as raised:
            act()
        assert (raised.value.errno, raised.value.filename) == (number, name)
        assert not raised.value.strerror.startswith(name), "the name is said once"


def test_offsets_that_make_no_sense(client, place):
    with client.open(f"{place}/a", "w+") as file:
        for act in (
            lambda: file.pread(1, -1),
            lambda: file.pwrite(b"x", -1),
            lambda: file.seek(-1),
            lambda: file.truncate(-1),
        ):
            with pytest.raises((ValueError, OverflowError)):
                act()
        with pytest.raises(OSError) as raised:
            file.pwrite(b"x", 2**63)
        assert raised.value.errno == errno.EFBIG


@pytest.mark.parametrize("mode, buffering", [("w", 0), ("w", 1 << 20), ("w+", 1 << 20)])
def test_a_block_that_ctrl_c_leaves_says_so(client, place, mode, buffering):
    block = noise(8 << 20)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            with client.open(f"{place}/a", mode, buffering=buffering) as file:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                while True:
                    file.write(block)
                    file.seek(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert file.closed
    with pytest.raises(ZeroDivisionError):
        with client.open(f"{place}/b", mode, buffering=buffering) as file:
            file.write(b"kept")
            1 / 0
    assert client.read_bytes(f"{place}/b") == b"kept"


def test_a_buffer_that_changes_meanwhile_leaves_no_wrong_parity(cluster, client, place):
    buffer, contents = bytearray(4 << 20), [noise(4 << 20, seed) for seed in (1, 2)]
    done = threading.Event()

    def change():
        while not done.is_set():
            for content in contents:
                buffer[:] = content

    changing = threading.Thread(target=change)
    changing.start()
    try:
        with client.open(f"{place}/a", "w") as file:
            for index in range(8):
                file.pwrite(buffer, index * len(buffer))
                file.pwrite(memoryview(buffer).toreadonly(), index * len(buffer))
        client.write_bytes(f"{place}/b", buffer)
    finally:
        done.set()
        changing.join()
    # Fails if it finds parity that does not match.
    braid("--cluster", cluster, "check", f"{place}/a", f"{place}/b")
