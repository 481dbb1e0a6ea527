"""Runs samples/one_file.py against a small stand-in for PyTorch, whose wheel is gigabytes: three ranks, one
after the other. What it checks are the sample's ranges and Braid's calls, not torch.

    BRAID_CLUSTER=DIR python one_file_without_torch.py braid://main/checkpoint
"""

import ctypes
import dataclasses
import enum
import importlib.util
import io
import sys
import types
from pathlib import Path

import braidfs

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "one_file.py"


class Future:
    def set_result(self, result):
        self._result = result

    def wait(self):
        return self._result


class Tensor:
    """Bytes with the methods that the writers call."""

    dtype = "uint8"
    device = types.SimpleNamespace(type="cpu")

    def __init__(self, content):
        self.content = content
        self.shape = (len(content),)
        self._memory = (ctypes.c_ubyte * len(content)).from_buffer_copy(content)

    def detach(self):
        return self

    def to(self, _device):
        return self

    def contiguous(self):
        return self

    def is_contiguous(self):
        return True

    def numel(self):
        return len(self.content)

    def element_size(self):
        return 1

    def data_ptr(self):
        return ctypes.addressof(self._memory)


class WriteItemType(enum.Enum):
    TENSOR = 1
    BYTE_IO = 3


class LoadItemType(enum.Enum):
    BYTE_IO = 1


@dataclasses.dataclass
class WriteItem:
    index: str
    type: WriteItemType
    content: bytes

    def tensor_storage_size(self):
        return len(self.content)


@dataclasses.dataclass
class Plan:
    items: list
    storage_data: object = None


@dataclasses.dataclass
class WriteResult:
    index: str
    size_in_bytes: int
    storage_data: object


def stand_in():
    """Puts modules of torch's names where the package looks for them."""
    nothing = type("Nothing", (), {})
    contents = {
        "torch": {"Tensor": Tensor, "dtype": str, "uint8": "uint8"},
        "torch.futures": {"Future": Future},
        "torch.utils": {},
        "torch.utils.data": {"Dataset": nothing, "IterableDataset": nothing, "get_worker_info": None},
        "torch.distributed": {},
        "torch.distributed.checkpoint": {},
        "torch.distributed.checkpoint.metadata": {"Metadata": nothing, "StorageMeta": nothing},
        "torch.distributed.checkpoint.planner": {
            "LoadItemType": LoadItemType,
            "WriteItemType": WriteItemType,
            "WriteItem": WriteItem,
            **{name: nothing for name in ("LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner")},
        },
        "torch.distributed.checkpoint.storage": {
            "StorageReader": nothing,
            "StorageWriter": nothing,
            "WriteResult": WriteResult,
        },
    }
    for name, content in contents.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module


class Planner:
    def resolve_data(self, item):
        if item.type == WriteItemType.BYTE_IO:
            return io.BytesIO(item.content)
        return Tensor(item.content)


def plans():
    """What three ranks have to write; the last has no tensor."""

    def tensor(rank, at, length):
        content = bytes((rank * 50 + at + i) % 256 for i in range(length))
        return WriteItem(f"{rank}.{at}", WriteItemType.TENSOR, content)

    def state(rank):
        return WriteItem(f"{rank}.state", WriteItemType.BYTE_IO, f"rank {rank}".encode())

    return [
        Plan([tensor(0, 0, 3_000_000), tensor(0, 1, 5), state(0)]),
        Plan([tensor(1, 0, 4096), tensor(1, 1, 70_000)]),
        Plan([state(2)]),
    ]


def main(path):
    stand_in()
    spec = importlib.util.spec_from_file_location("one_file", SAMPLE)
    sample = importlib.util.module_from_spec(spec)
    sys.modules["one_file"] = sample
    spec.loader.exec_module(sample)

    writers = [sample.OneFileWriter(path) for _ in range(3)]
    for rank, writer in enumerate(writers):
        writer.set_up_storage_writer(rank == 0)
    planned = writers[0].prepare_global_plan(plans())
    results = [one.write_data(plan, Planner()).wait() for one, plan in zip(writers, planned)]

    client = braidfs.Client()
    items = {item.index: item for plan in plans() for item in plan.items}
    seen = set()
    for rank, result in enumerate(results):
        for one in result:
            at = one.storage_data
            with client.open(f"{path}/{at.file}") as file:
                assert file.pread(at.length, at.offset) == items[one.index].content, one.index
            if items[one.index].type == WriteItemType.TENSOR:
                mine = planned[rank].storage_data
                assert at.file == "all.tensors" and mine.start <= at.offset < mine.end
            seen.add(one.index)
    assert seen == set(items)
    with client.open(f"{path}/all.tensors") as file:
        stripe = file.stripe_bytes()
    assert all(plan.storage_data.end % stripe == 0 for plan in planned)
    print(f"{len(seen)} items of 3 ranks came back")


if __name__ == "__main__":
    main(sys.argv[1])
