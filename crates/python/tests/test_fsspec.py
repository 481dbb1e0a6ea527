"""The file system of fsspec, and programs that use it. What is not installed is skipped, and said."""

import os
import pickle
import time
from datetime import datetime, timezone

import pytest

from conftest import noise

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def root(place):
    """The test's directory as a path of the file system."""
    return place[len("braid://") :]


@pytest.fixture(autouse=True)
def in_environment(cluster, monkeypatch):
    """URLs without options find the cluster."""
    monkeypatch.setenv("BRAID_CLUSTER", cluster)


def test_paths(fs):
    strip = fs._strip_protocol
    assert strip("braid://main/a/b/") == strip("main/a/b") == strip("/main/a/b") == "main/a/b"
    assert strip("braid://") == strip("braid:///") == strip("") == strip("/") == ""
    assert strip(["braid://main/a", "b"]) == ["main/a", "b"]
    assert fs.unstrip_protocol("main/a") == "braid://main/a"
    assert fs._parent("braid://main/a/b") == "main/a" and fs._parent("main") == ""
    found, path = fsspec.core.url_to_fs("braid://main/x")
    assert type(found) is type(fs) and path == "main/x"


def test_names(fs, root):
    assert [entry["name"] for entry in fs.ls("")] == ["main"] and fs.isdir("braid://main")
    fs.pipe(f"{root}/d/e/f", b"12345")
    assert fs.ls(f"{root}/d", detail=False) == [f"{root}/d/e"]
    (entry,) = fs.ls(f"{root}/d/e")
    info = fs.info(f"{root}/d/e/f")
    assert (entry["name"], entry["size"], entry["type"]) == (f"{root}/d/e/f", 5, "file")
    assert {key: info[key] for key in entry} == entry
    assert fs.ls(f"{root}/d/e/f") == [info], "a file lists itself"
    assert fs.find(root) == [f"{root}/d/e/f"]
    assert fs.find(root, withdirs=True)[1:] == [f"{root}/d", f"{root}/d/e", f"{root}/d/e/f"]
    assert fs.glob(f"{root}/*/e/*") == [f"{root}/d/e/f"]
    assert fs.du(root) == 5
    assert abs(fs.modified(f"{root}/d/e/f") - datetime.now(tz=timezone.utc)).total_seconds() < 60
    assert fs.created(f"{root}/d/e/f") <= fs.modified(f"{root}/d/e/f")
    before = fs.ukey(f"{root}/d/e/f")
    fs.pipe(f"{root}/d/e/f", b"54321")
    assert fs.ukey(f"{root}/d/e/f") != before
    with pytest.raises(FileNotFoundError):
        fs.info(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{root}/none")


def test_what_is_moved_and_removed(fs, root):
    fs.pipe({f"{root}/a/{index}": bytes([index]) for index in range(20)})
    fs.mv(f"{root}/a", f"{root}/b", recursive=True)
    assert not fs.exists(f"{root}/a") and len(fs.find(f"{root}/b")) == 20
    fs.mv(f"{root}/b/1", f"{root}/c/one")
    assert fs.cat(f"{root}/c/one") == b"\1"
    fs.mv(f"{root}/c/one", f"{root}/b/")
    assert fs.cat(f"{root}/b/one") == b"\1"
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{root}/b")
    fs.rm([f"{root}/b/2", f"{root}/b/3"])
    fs.rm(f"{root}/b", recursive=True)
    assert not fs.exists(f"{root}/b")
    fs.mkdir(f"{root}/x/y")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/x/y")
    fs.makedirs(f"{root}/x/y", exist_ok=True)
    fs.rmdir(f"{root}/x/y")


def test_ranges(fs, root):
    content = noise(100_000)
    fs.pipe({f"{root}/a": content, f"{root}/b": content[::-1]})
    paths = [f"{root}/a", f"{root}/none", f"{root}/b", f"{root}/a", f"{root}/a"]
    read = fs.cat_ranges(paths, [0, 0, -10, 5, 99_990], [10, 10, None, -99_990, 200_000])
    assert read[0] == content[:10] and isinstance(read[1], FileNotFoundError)
    assert read[2:] == [content[::-1][-10:], content[5:10], content[99_990:]]
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 1, on_error="raise")
    assert fs.cat_ranges(paths[:1] * 3, 7, 9) == [content[7:9]] * 3
    assert fs.cat(f"{root}/a") == content
    assert fs.cat([f"{root}/a", f"{root}/b"]) == {f"{root}/a": content, f"{root}/b": content[::-1]}
    assert fs.cat(root, recursive=True) == {f"{root}/a": content, f"{root}/b": content[::-1]}
    assert list(fs.cat([f"{root}/a", f"{root}/none"], on_error="omit")) == [f"{root}/a"]
    assert fs.cat_file(f"{root}/a", start=-5) == content[-5:]
    assert fs.head(f"{root}/a", 3) == content[:3] and fs.tail(f"{root}/a", 3) == content[-3:]
    assert fs.read_block(f"{root}/a", 10, 20) == content[10:30]


def test_a_file_appears_when_it_is_closed(fs, root):
    content = noise(3_000_000)
    with fs.open(f"{root}/new/a", "wb", block_size=1 << 20) as file:
        for start in range(0, len(content), 300_000):
            file.write(content[start : start + 300_000])
        assert not fs.exists(f"{root}/new/a")
    assert fs.cat(f"{root}/new/a") == content
    with fs.open(f"{root}/new/a", "wb", block_size=1 << 20) as file:
        file.write(content[: 2 << 20])
        file.write(b"end")
        assert fs.size(f"{root}/new/a") == len(content)
    assert fs.cat(f"{root}/new/a") == content[: 2 << 20] + b"end"
    with fs.open(f"{root}/empty", "wb"):
        pass
    assert fs.cat(f"{root}/empty") == b""


def test_a_file_is_read_through_a_cache(fs, root):
    content = b"".join(b"line %d\n" % index for index in range(100_000))
    fs.pipe(f"{root}/a", content)
    for cache in ("readahead", "none", "bytes", "mmap", "blockcache", "all", "background"):
        with fs.open(f"{root}/a", block_size=100_000, cache_type=cache) as file:
            assert file.size == len(content)
            assert file.readline() == b"line 0\n"
            file.seek(500_000)
            assert file.read(10) == content[500_000:500_010]
            assert file.read(300_000) == content[500_010:800_010], "more than a block"
            buffer = bytearray(200_000)
            assert file.readinto(buffer) == 200_000 and buffer == content[800_010:1_000_010]
            assert file.read() == content[1_000_010:] and file.read() == b""
            file.seek(10)
            with pickle.loads(pickle.dumps(file)) as other:
                assert other.tell() == 10 and other.read(10) == content[10:20]
    with fs.open(f"{root}/a", "r") as text:
        assert sum(1 for _ in text) == 100_000


def test_modes(fs, root):
    with fs.open(f"{root}/x", "xb") as file:
        file.write(b"1")
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/x", "xb")
    for length in (2, 300_000):
        with fs.open(f"{root}/x", "ab", block_size=100_000) as file:
            assert file.tell() == fs.size(f"{root}/x")
            file.write(b"a" * length)
    assert fs.cat(f"{root}/x") == b"1" + b"a" * 300_002
    with fs.open(f"{root}/new/log", "ab") as file:
        file.write(b"first")
    assert fs.cat(f"{root}/new/log") == b"first"
    with fs.open(f"{root}/x", "r+b") as file:
        file.write(b"2")
    assert fs.cat(f"{root}/x")[:2] == b"2a"
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/none")


def test_a_transaction_is_all_or_nothing(fs, root):
    fs.pipe(f"{root}/log", b"old ")
    with fs.transaction:
        with fs.open(f"{root}/t/a", "wb") as file:
            file.write(b"a" * 20_000_000)
        fs.pipe(f"{root}/t/b", b"b")
        with fs.open(f"{root}/log", "ab") as file:
            file.write(b"new")
        assert not fs.exists(f"{root}/t/a") and not fs.exists(f"{root}/t/b")
        assert fs.cat(f"{root}/log") == b"old "
    assert fs.cat([f"{root}/t/a", f"{root}/t/b"]) == {f"{root}/t/a": b"a" * 20_000_000, f"{root}/t/b": b"b"}
    assert fs.cat(f"{root}/log") == b"old new"
    with pytest.raises(ZeroDivisionError), fs.transaction:
        fs.pipe(f"{root}/t/c", b"c")
        with fs.open(f"{root}/log", "ab") as file:
            file.write(b" lost")
        raise ZeroDivisionError
    assert not fs.exists(f"{root}/t/c") and fs.cat(f"{root}/log") == b"old new"
    fs.pipe(f"{root}/t/d", b"d")
    assert fs.cat(f"{root}/t/d") == b"d", "the transaction is over"


def test_directories_are_made_only_if_asked_for(cluster, root):
    fs = fsspec.filesystem("braid", cluster=cluster, auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        fs.pipe(f"{root}/none/a", b"")
    with pytest.raises(FileNotFoundError), fs.open(f"{root}/none/a", "wb") as file:
        file.write(b"x")
    assert not fs.exists(f"{root}/none")


def test_local_files_go_in_and_out(fs, root, tmp_path):
    content = noise(9_000_000)
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a").write_bytes(content)
    (tmp_path / "in" / "sub" / "b").write_bytes(b"b")
    fs.put(str(tmp_path / "in"), f"{root}/in", recursive=True)
    fs.cp(f"{root}/in", f"{root}/copy", recursive=True)
    fs.get(f"{root}/copy", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out" / "a").read_bytes() == content
    assert (tmp_path / "out" / "sub" / "b").read_bytes() == b"b"


def test_a_name_that_exists_is_no_pattern(fs, root, tmp_path):
    from fsspec.implementations.local import LocalFileSystem

    local = LocalFileSystem(auto_mkdir=True)
    names = ("test?file", "testXfile", "d[0]/in", "d0/in", "f[1].txt", "f1.txt", "s*")
    found = []
    for one, top in ((local, str(tmp_path / "local")), (fs, root)):
        for name in names:
            one.makedirs(one._parent(f"{top}/{name}"), exist_ok=True)
            one.pipe_file(f"{top}/{name}", name.encode())
        one.rm(f"{top}/test?file")
        one.rm(f"{top}/d[0]", recursive=True)
        one.mv(f"{top}/f[1].txt", f"{top}/moved")
        found.append({path[len(top) :]: one.cat_file(path) for path in one.find(top)})
    assert found[0] == found[1]
    assert found[1]["/moved"] == b"f[1].txt" and "/testXfile" in found[1]
    fs.pipe({f"{root}/e[0]/a": b"a", f"{root}/e[0]/b/c": b"c", f"{root}/e0/a": b"no"})
    fs.cp(f"{root}/s*", f"{root}/star")
    assert fs.cat(f"{root}/star") == b"s*" and fs.cat(f"{root}/s*") == b"s*"
    fs.cp(f"{root}/e[0]", f"{root}/copy", recursive=True)
    fs.cp(f"{root}/e[0]", f"{root}/copy", recursive=True)
    assert fs.find(f"{root}/copy") == [f"{root}/copy/{name}" for name in ("a", "b/c", "e[0]/a", "e[0]/b/c")]
    fs.get(f"{root}/e[0]", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "b" / "c").read_bytes() == b"c"
    (tmp_path / "x[1]").write_bytes(b"literal")
    (tmp_path / "x1").write_bytes(b"another")
    fs.put(str(tmp_path / "x[1]"), f"{root}/put")
    assert fs.cat(f"{root}/put") == b"literal"
    # What does not exist is one, as before.
    assert fs.expand_path(f"{root}/e[01]") == [f"{root}/e0"]
    fs.rm(f"{root}/e[01]", recursive=True)
    assert fs.exists(f"{root}/e[0]/a") and not fs.exists(f"{root}/e0")


def test_nothing_takes_a_file_s_place_unless_it_is_whole(fs, root, tmp_path, monkeypatch):
    from fsspec.callbacks import Callback

    from braidfs.filesystem import BraidFile

    class Stopping(Callback):
        def relative_update(self, inc=1):
            raise KeyboardInterrupt

    old, name = b"the old content", f"{root}/a"
    (tmp_path / "source").write_bytes(noise(20 << 20))
    fs.pipe({name: old, f"{root}/source": noise(20 << 20)})
    with pytest.raises(KeyboardInterrupt):
        fs.put_file(str(tmp_path / "source"), name, callback=Stopping())
    assert fs.cat(name) == old
    for mode, part in (("wb", b"part"), ("w", "part"), ("wt", "part")):
        with pytest.raises(ZeroDivisionError):
            with fs.open(name, mode) as file:
                file.write(part)
                1 / 0
        assert file.closed and fs.cat(name) == old, mode
    for compression in ("gzip", "bz2", "xz", "zip"):
        for mode, part in (("wb", noise(1000)), ("wt", "part")):
            with pytest.raises(ZeroDivisionError):
                with fs.open(name, mode, compression=compression) as file:
                    file.write(part)
                    1 / 0
            del file
            assert fs.cat(name) == old, (mode, compression)
            with fs.open(f"{root}/packed", mode, compression=compression) as file:
                file.write(part)
            with fs.open(f"{root}/packed", mode.replace("w", "r"), compression=compression) as packed:
                assert packed.read() == part, (mode, compression)
    with pytest.raises(ZeroDivisionError):
        with fs.open(f"{root}/new", "xb") as file:
            file.write(b"part")
            1 / 0
    assert not fs.exists(f"{root}/new")
    with fs.open(name, "w", encoding="utf-16-le") as file:
        file.write("whole")
    assert fs.cat(name) == "whole".encode("utf-16-le")

    reads = iter([True])

    def read(file, length=-1):
        return noise(1000) if next(reads, False) else os.fsencode(1 / 0)

    with monkeypatch.context() as patched:
        patched.setattr(BraidFile, "read", read)
        with pytest.raises(ZeroDivisionError):
            fs.cp(f"{root}/source", name)
    assert fs.cat(name) == "whole".encode("utf-16-le")


def test_paths_that_no_request_holds(fs, root):
    deep = root
    for _ in range(45):
        deep = f"{deep}/{'d' * 200}"
        fs.mkdir(deep, create_parents=False)
    fs.pipe(f"{deep}/f", b"deep")
    assert fs.find(root) == [f"{deep}/f"]
    assert fs.cat(f"{deep}/f") == b"deep" and fs.info(deep)["type"] == "directory"
    fs.rm(f"{root}/{'d' * 200}", recursive=True)
    assert fs.ls(root) == []


def test_a_fork_goes_on(fs, root):
    fs.pipe(f"{root}/a", b"abc")
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(theirs, fs.cat(f"{root}/a") + fs.cat_ranges([f"{root}/a"], 1, 2)[0])
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        assert pipe.read() == b"abcb"
    os.waitpid(pid, 0)
    assert fs.cat(f"{root}/a") == b"abc"


def test_an_asynchronous_file_system(cluster, root):
    import asyncio

    async def main():
        fs = fsspec.filesystem("braid", cluster=cluster, asynchronous=True)
        await fs._pipe({f"{root}/d/{index}": bytes([index]) * 10 for index in range(5)})
        assert await fs._cat_file(f"{root}/d/3", 2, 4) == b"\3\3"
        assert await fs._cat_file(f"{root}/d/3", -4) == b"\3" * 4
        assert len(await fs._find(root)) == 5
        assert len(await fs._cat(root, recursive=True, on_error="omit")) == 5
        await fs._cp_file(f"{root}/d/1", f"{root}/e/1")
        await fs._mv_file(f"{root}/e/1", f"{root}/d/6")
        assert await fs._cat_file(f"{root}/d/6") == b"\1" * 10
        await fs._pipe({f"{root}/p[0]/f": b"f", f"{root}/p0": b"0"})
        await fs._copy(f"{root}/p[0]", f"{root}/q", recursive=True)
        await fs._rm(f"{root}/p[0]", recursive=True)
        assert await fs._cat_file(f"{root}/p0") == b"0" and await fs._cat_file(f"{root}/q/f") == b"f"
        await fs._rm([f"{root}/p0", f"{root}/q/f"])
        await fs._rmdir(f"{root}/q")
        await fs._rm(f"{root}/d", recursive=True)
        assert not await fs._exists(f"{root}/d")

    asyncio.run(main())


def test_pandas(root):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(10_000), "b": [str(index) for index in range(10_000)]})
    frame.to_csv(f"braid://{root}/t.csv.gz", index=False)
    assert pandas.read_csv(f"braid://{root}/t.csv.gz").a.sum() == frame.a.sum()
    pytest.importorskip("pyarrow")
    frame.to_parquet(f"braid://{root}/t.parquet")
    assert pandas.read_parquet(f"braid://{root}/t.parquet", columns=["a"]).a.sum() == frame.a.sum()


def test_pyarrow(fs, root):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.dataset as dataset
    import pyarrow.parquet as parquet

    table = pyarrow.table({"part": [1, 1, 2], "value": [1.5, 2.5, 3.5]})
    parquet.write_to_dataset(table, f"{root}/data", partition_cols=["part"], filesystem=fs)
    read = dataset.dataset(f"{root}/data", filesystem=fs, partitioning="hive").to_table()
    assert sorted(read["value"].to_pylist()) == [1.5, 2.5, 3.5]
    assert len(fs.find(f"{root}/data")) == 2


def test_zarr(root):
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(1_000_000, dtype="i4").reshape(1000, 1000)
    array = zarr.create_array(f"braid://{root}/z", shape=values.shape, chunks=(100, 1000), dtype="i4")
    array[:] = values
    again = zarr.open_array(f"braid://{root}/z", mode="r")
    assert (again[150:250, ::7] == values[150:250, ::7]).all()


def test_dask(root):
    pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe")
    import pandas

    frame = pandas.DataFrame({"a": range(1000), "b": [index % 7 for index in range(1000)]})
    dataframe.from_pandas(frame, npartitions=4).to_parquet(f"braid://{root}/d")
    again = dataframe.read_parquet(f"braid://{root}/d")
    assert again.npartitions == 4 and int(again.a.sum().compute()) == frame.a.sum()
    import dask.bag as bag

    lines = bag.from_sequence(map(str, range(100)), npartitions=3)
    lines.to_textfiles(f"braid://{root}/t/*.txt")
    assert bag.read_text(f"braid://{root}/t/*.txt").count().compute() == 100
