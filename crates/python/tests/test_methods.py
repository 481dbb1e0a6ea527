"""Questions about a file's records."""

import asyncio
import errno

import pytest

import braidfs

LINES = b"pear\n\xff Plum\nplum\n" * 20_000


def test_the_drives_answer(client, place):
    name = f"{place}/lines"
    client.write_bytes(name, LINES)
    progress = braidfs.Progress()
    counted = client.run("count", name, at="drive", progress=progress)
    assert (counted.facts["records"], counted.facts["record_bytes"]) == (60_000, len(LINES))
    assert (counted.method, counted.bytes, counted.changed) == ("count", len(LINES), False)
    assert counted.bytes_at_drives == len(LINES) == progress.bytes
    found = client.run("grep", name, pattern="plum$", ignore_case=True)
    assert found.facts["records"][:2] == [(5, b"\xff Plum"), (12, b"plum")]
    assert len(found.facts["records"]) == 40_000
    summed = client.run("checksum", name, algorithm="sha256").facts
    assert summed == client.run("checksum", name, algorithm="sha256", at="client").facts


def test_methods_that_take_several_runs(client, place):
    left, right = f"{place}/left", f"{place}/right"
    client.write_bytes(left, b"1 2\n2 1\n3\n")
    client.write_bytes(right, b"1 2\n2 1\n4\n")
    sets = client.run("frequent-sets", left, support=2, items=2).facts
    assert sets == {"sets": [([1], 2), ([2], 2), ([1, 2], 2)], "lines": 3, "bad_lines": 0}
    assert client.run("compare", left, **{"with": right}).facts == {"first_difference": 8}
    assert client.run("compare", left, **{"with": left}).facts == {"first_difference": None}


def test_what_there_is_not_is_refused(client, place):
    name = f"{place}/one"
    client.write_bytes(name, b"one")
    with pytest.raises(OSError, match="there is no method 'gerp'.*grep|there is no method \"gerp\".*grep"):
        client.run("gerp", name)
    with pytest.raises(OSError, match="takes no argument"):
        client.run("count", name, patern="x")
    with pytest.raises(FileNotFoundError):
        client.run("count", f"{place}/none")
    with pytest.raises(ValueError, match="cheapest"):
        client.run("count", name, at="moon")


def test_a_scan_is_a_table(cluster, client, place):
    pyarrow = pytest.importorskip("pyarrow")
    from braidfs.filesystem import BraidFileSystem

    lines = "".join(f"{index},{index % 7},name {index}\n" for index in range(20_000))
    client.write_bytes(f"{place}/t.csv", f"id,day,name\n{lines}".encode())
    fs = BraidFileSystem(cluster)
    found = fs.scan(f"{place}/t.csv", columns=["id", "name"], where="day=3")
    assert found.column_names == ["id", "name"] and found.num_rows == 2857
    assert found.column("id").to_pylist()[:3] == [3, 10, 17]
    assert isinstance(found, pyarrow.Table)


def test_an_event_loop_asks_too(cluster, client, place):
    name = f"{place}/lines"
    client.write_bytes(name, b"a\nb\n")

    async def count():
        return await braidfs.AsyncClient(cluster).run("count", name)

    assert asyncio.run(count()).facts["records"] == 2


def test_a_scan_of_a_file_that_is_written_meanwhile_says_so(cluster, client, place, monkeypatch):
    pytest.importorskip("pyarrow")
    from braidfs.filesystem import BraidFileSystem

    client.write_bytes(f"{place}/t.csv", b"id\n1\n")
    fs = BraidFileSystem(cluster)
    run = braidfs.Client.run
    changed = lambda self, *args, **more: run(self, *args, **more)._replace(changed=True)  # noqa: E731
    monkeypatch.setattr(braidfs.Client, "run", changed)
    with pytest.raises(OSError, match="written meanwhile") as raised:
        fs.scan(f"{place}/t.csv")
    assert raised.value.errno == errno.ESTALE
