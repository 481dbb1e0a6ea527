"""Saves a model with all ranks' tensors in one file: a storage of torch.distributed.checkpoint.

    BRAID_CLUSTER=/srv/braid torchrun --nproc-per-node 4 one_file.py braid://main/checkpoints/step-1

The coordinator gives each rank a range of the file `all.tensors`, in whole stripes, and makes the file. Each
rank opens it for its range, and so has a lease on its own stripes: no rank waits for another. BraidReader
reads the checkpoint. Without torch's planner telling the lengths of what is no tensor, such items go to a
file of the rank's own, as BraidWriter writes it.
"""

import dataclasses
import sys

from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from braidfs.torch import BraidWriter
from braidfs.torch._memory import memory
from braidfs.torch.checkpoint import _Stored

FILE = "all.tensors"
#: Tensors begin at multiples of this.
ALIGN_BYTES = 4096


def rounded(length, to):
    return -(-length // to) * to


@dataclasses.dataclass
class Range:
    """Where a rank's tensors are: from `start` on, up to `end`, which is that of a stripe."""

    rank: int
    start: int
    end: int


def tensors(plan):
    return [item for item in plan.items if item.type != WriteItemType.BYTE_IO]


class OneFileWriter(BraidWriter):
    """Writes checkpoints whose tensors are in one file."""

    def prepare_global_plan(self, plans):
        directory = self._directory
        with directory.client.open(f"{directory.path}/{FILE}", "w") as file:
            stripe = file.stripe_bytes()
        ranges, end = [], 0
        for rank, plan in enumerate(plans):
            length = sum(rounded(item.tensor_storage_size(), ALIGN_BYTES) for item in tensors(plan))
            ranges.append(Range(rank, end, rounded(end + length, stripe)))
            end = ranges[-1].end
        return [dataclasses.replace(plan, storage_data=at) for plan, at in zip(plans, ranges)]

    def write_data(self, plan, planner):
        mine, results = plan.storage_data, []
        if mine.end > mine.start:
            results = self._write_tensors(plan, planner, mine)
        rest = [item for item in plan.items if item.type == WriteItemType.BYTE_IO]
        if rest:
            others = dataclasses.replace(plan, items=rest, storage_data=f"__{mine.rank}")
            results += super().write_data(others, planner).wait()
        done = Future()
        done.set_result(results)
        return done

    def _write_tensors(self, plan, planner, mine):
        name = f"{self._directory.path}/{FILE}"
        results, offset, held, running = [], mine.start, [], []
        with self._directory.client.open(name, "r+", range=(mine.start, mine.end)) as file:
            for item in tensors(plan):
                tensor = planner.resolve_data(item).detach().to("cpu").contiguous()
                bytes_ = memory(tensor)
                stored = _Stored(FILE, offset, len(bytes_), tuple(tensor.shape), tensor.dtype)
                results.append(
                    WriteResult(index=item.index, size_in_bytes=len(bytes_), storage_data=stored)
                )
                held.append(tensor)
                running.append(file._native.pwrite(bytes_, offset, True))
                offset += rounded(len(bytes_), ALIGN_BYTES)
            for one in running:
                one.result()
        return results
