"""PyTorch: datasets, checkpoints, and the samples. Without torch, whose wheel is large, all are skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import noise

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its tests are not run")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from braidfs.torch import BraidReader, BraidWriter, FileDataset, FileStream  # noqa: E402

SAMPLES = Path(__file__).resolve().parents[1] / "samples"


@pytest.fixture
def files(client, place):
    """Files of different lengths, one of them empty."""
    contents = {f"{place}/{index:03}": noise(index * 1000, index) for index in range(50)}
    for name, content in contents.items():
        client.write_bytes(name, content)
    return contents


def as_bytes(tensor):
    return bytes(tensor.tolist())


def test_files_by_number(client, place, files):
    dataset = FileDataset(place, client=client)
    assert len(dataset) == 50 and dataset.name(3) == f"{place}/003"
    assert as_bytes(dataset[7]) == files[f"{place}/007"]
    assert [item.numel() for item in dataset.__getitems__([5, 0, 9])] == [5000, 0, 9000]
    named = FileDataset([f"{place}/002", f"{place}/001"], transform=lambda item: item.numel(), client=client)
    assert [named[index] for index in range(2)] == [2000, 1000]
    with pytest.raises(FileNotFoundError):
        FileDataset([f"{place}/none"], client=client)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_have_clients_of_their_own(client, place, files, start):
    dataset = FileDataset(place, client=client)
    loader = DataLoader(
        dataset,
        batch_size=8,
        shuffle=True,
        num_workers=2,
        collate_fn=list,
        multiprocessing_context=start,
    )
    for _ in range(2):
        seen = sorted(as_bytes(item) for batch in loader for item in batch)
        assert seen == sorted(files.values())
    # This process's own client goes on.
    assert as_bytes(dataset[1]) == files[f"{place}/001"]


def test_a_stream_gives_each_file_once(client, place, files):
    shares = []
    for rank in range(2):
        stream = FileStream(place, seed=3, rank=rank, ranks=2, ahead=20, ahead_bytes=60_000, client=client)
        loader = DataLoader(stream, batch_size=None, num_workers=2)
        shares.append([as_bytes(item) for item in loader])
    assert sorted(shares[0] + shares[1]) == sorted(files.values())
    stream = FileStream(place, seed=3, client=client)
    passes = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        passes.append([as_bytes(item) for item in stream])
    assert passes[0] == passes[2] != passes[1] and sorted(passes[0]) == sorted(passes[1])


def test_a_stream_that_is_left_early_ends(client, place, files):
    for _ in range(3):
        assert next(iter(FileStream(place, client=client))) is not None


def state():
    torch.manual_seed(1)
    return {
        "large": torch.randn(1000, 1000),
        "bfloat": torch.randn(700_000).bfloat16(),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 5),
        "turned": torch.randn(30, 40).t(),
        "flags": torch.tensor([True, False, True]),
        "many": {str(index): torch.full((index,), float(index)) for index in range(100)},
        "words": "any text",
        "step": 12,
    }


def check_same(found, expected):
    for key, value in expected.items():
        if isinstance(value, dict):
            check_same(found[key], value)
        elif isinstance(value, torch.Tensor):
            assert torch.equal(found[key], value), key
        else:
            assert found[key] == value, key


def blank(value):
    if isinstance(value, dict):
        return {key: blank(one) for key, one in value.items()}
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else type(value)()


def test_a_checkpoint_comes_back(client, place):
    path = f"{place}/deep/step-1"
    saved = state()
    dcp.save(saved, storage_writer=BraidWriter(path, client=client))
    assert client.listdir(path) == [".metadata", "__0.tensors"]
    loaded = blank(saved)
    # One that is not in one piece, and one of another type: read beside, and copied.
    loaded["large"] = torch.zeros(1000, 2000)[:, ::2]
    loaded["bfloat"] = torch.zeros(700_000)
    dcp.load(loaded, storage_reader=BraidReader(path, client=client))
    saved["bfloat"] = saved["bfloat"].float()
    check_same(loaded, saved)
    # Saved again over the old one.
    dcp.save({"step": 13}, storage_writer=BraidWriter(path, client=client))
    again = {"step": 0}
    dcp.load(again, storage_reader=BraidReader(path, client=client))
    assert again == {"step": 13}


def test_torchs_own_writer_and_reader(cluster, client, place):
    saved = state()
    dcp.save(saved, storage_writer=dcp.FsspecWriter(f"{place}/c", cluster=cluster))
    loaded = blank(saved)
    dcp.load(loaded, storage_reader=dcp.FsspecReader(f"{place}/c", cluster=cluster))
    check_same(loaded, saved)
    with pytest.raises(CheckpointException, match="FsspecReader"):
        dcp.load(blank(saved), storage_reader=BraidReader(f"{place}/c", client=client))


def test_a_checkpoint_that_failed_is_none(client, place):
    class Fails(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            if item.index.fqn == "step":
                raise ZeroDivisionError
            return super().resolve_data(item)

    with pytest.raises(CheckpointException, match="ZeroDivisionError"):
        dcp.save(state(), storage_writer=BraidWriter(f"{place}/c", client=client), planner=Fails())
    assert client.listdir(f"{place}/c") == []
    with pytest.raises(CheckpointException, match="metadata"):
        dcp.load({"step": 0}, storage_reader=BraidReader(f"{place}/c", client=client))


@pytest.mark.parametrize("sample", ["dataset", "checkpoint", "checkpoint_fsspec"])
def test_samples(cluster, place, sample):
    environment = {**os.environ, "BRAID_CLUSTER": cluster}
    command = [sys.executable, SAMPLES / f"{sample}.py", f"{place}/{sample}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip().endswith("True"), done.stdout + done.stderr
