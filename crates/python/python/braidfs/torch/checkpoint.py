"""Checkpoints of ``torch.distributed.checkpoint``, with tensors moved between their memory and the drives.

torch's own ``FsspecWriter`` and ``FsspecReader`` work on ``braid://`` too. They pass each tensor through
``torch.save``, fsspec's buffer, and one stream at a time. These write a tensor's memory as it is, several at
once, and read it to where it belongs.

A checkpoint is a directory: a file for each rank (``__N.tensors``) and ``.metadata``, which is written last
and makes it one. In a rank's file each large tensor begins at a stripe's first byte, so that whole stripes
are written; what is small follows, packed.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, List, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from braidfs import _names
from braidfs._client import Client
from braidfs.torch._memory import memory

#: From this size on a tensor is written from where it is.
_LARGE_BYTES = 1 << 20
#: Writes under way, and reads into memory of their own: bounds what they hold.
_UNDER_WAY_BYTES = 256 << 20
_METADATA = ".metadata"

_Place = Union[str, "os.PathLike[str]"]


@dataclass
class _Stored:
    """Where an item is."""

    file: str
    offset: int
    length: int
    #: Of a tensor.
    shape: Optional[Tuple[int, ...]] = None
    dtype: Optional[torch.dtype] = None


class _Directory:
    """The directory of a checkpoint."""

    def __init__(self, path: _Place, client: Optional[Client], cluster: Optional[_Place]):
        self.client = client or Client(cluster)
        self.reset(path)

    def reset(self, path: _Place) -> None:
        self.path = os.fspath(path).rstrip("/")

    def name(self, file: str) -> bytes:
        return _names.encode(f"{self.path}/{file}")

    @staticmethod
    def is_valid(path: Any) -> bool:
        return isinstance(path, str) and path.startswith("braid://")


class BraidWriter(StorageWriter):
    """Writes checkpoints into a directory.

    >>> dcp.save(state_dict, storage_writer=BraidWriter("braid://main/step-100"))
    """

    def __init__(
        self, path: _Place, *, client: Optional[Client] = None, cluster: Optional[_Place] = None
    ) -> None:
        super().__init__()
        self._directory = _Directory(path, client, cluster)

    def reset(self, checkpoint_id: Optional[_Place] = None) -> None:
        if checkpoint_id:
            self._directory.reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if is_coordinator:
            self._directory.client.makedirs(self._directory.path, exist_ok=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        return [dataclasses.replace(plan, storage_data=f"__{rank}") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[List[WriteResult]]:
        file_name = f"{plan.storage_data}.tensors"
        native = self._directory.client._native
        file = native.create_for(self._directory.name(file_name), None, None)
        try:
            results = _Packing(file, file_name).write(plan.items, planner)
            file.link(self._directory.name(file_name), True, True, None)
        except BaseException:
            # Without a name it vanishes. Not by a call that waits: that is what failed.
            del file
            raise
        done: Future[List[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        metadata.storage_data = {one.index: one.storage_data for each in results for one in each}
        metadata.storage_meta = self.storage_meta()
        content = pickle.dumps(metadata)
        files = [(self._directory.name(_METADATA), content)]
        _names.first_error(self._directory.client._native.write_many(files, True, True, None))

    def storage_meta(self) -> Optional[StorageMeta]:
        return StorageMeta(checkpoint_id=self._directory.path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _Place) -> bool:
        return _Directory.is_valid(checkpoint_id)


class _Packing:
    """Writes items into a new file, several at once."""

    def __init__(self, file: Any, file_name: str):
        self._file = file
        self._file_name = file_name
        self._stripe_bytes = file.stripe_bytes()
        self._end = 0
        self._under_way: Deque[Tuple[int, Any]] = deque()
        self._results: List[WriteResult] = []

    def write(self, items: List[WriteItem], planner: SavePlanner) -> List[WriteResult]:
        small: List[Tuple[WriteItem, Any, Optional[torch.Tensor]]] = []
        for item in items:
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                small.append((item, data.getbuffer(), None))
                continue
            tensor = data.detach().to("cpu").contiguous()
            buffer = memory(tensor)
            if len(buffer) >= _LARGE_BYTES:
                self._note(item, self._end, len(buffer), tensor)
                self._begin(buffer, self._end, len(buffer))
                self._end += -(-len(buffer) // self._stripe_bytes) * self._stripe_bytes
            else:
                small.append((item, buffer, tensor))
        self._write_small(small)
        while self._under_way:
            self._wait()
        return self._results

    def _write_small(self, items: List[Tuple[WriteItem, Any, Optional[torch.Tensor]]]) -> None:
        packed, start = bytearray(), self._end
        for item, buffer, tensor in items:
            # A tensor can be read to where it belongs from any offset; 8 keeps the file easy to look at.
            packed.extend(bytes(-len(packed) % 8))
            self._note(item, start + len(packed), len(buffer), tensor)
            packed += buffer
            if len(packed) >= _UNDER_WAY_BYTES:
                start = self._flush(packed, start)
                packed = bytearray()
        self._flush(packed, start)

    def _flush(self, packed: bytearray, start: int) -> int:
        if packed:
            self._begin(packed, start, len(packed))
        return start + -(-len(packed) // self._stripe_bytes) * self._stripe_bytes

    def _note(self, item: WriteItem, offset: int, length: int, tensor: Optional[torch.Tensor]) -> None:
        stored = _Stored(self._file_name, offset, length)
        if tensor is not None:
            stored.shape, stored.dtype = tuple(tensor.shape), tensor.dtype
        self._results.append(WriteResult(index=item.index, size_in_bytes=length, storage_data=stored))

    def _begin(self, buffer: Any, offset: int, length: int) -> None:
        while self._under_way and sum(one[0] for one in self._under_way) + length > _UNDER_WAY_BYTES:
            self._wait()
        self._under_way.append((length, self._file.pwrite(buffer, offset, True)))

    def _wait(self) -> None:
        self._under_way.popleft()[1].result()


class BraidReader(StorageReader):
    """Reads checkpoints that :class:`BraidWriter` wrote.

    >>> dcp.load(state_dict, storage_reader=BraidReader("braid://main/step-100"))

    The metadata is a pickle, as in torch's own: read only checkpoints that you trust.
    """

    def __init__(
        self, path: _Place, *, client: Optional[Client] = None, cluster: Optional[_Place] = None
    ) -> None:
        super().__init__()
        self._directory = _Directory(path, client, cluster)
        self._stored: Dict[Any, _Stored] = {}

    def reset(self, checkpoint_id: Optional[_Place] = None) -> None:
        self._stored = {}
        if checkpoint_id:
            self._directory.reset(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        content = self._directory.client.read_bytes(self._directory.name(_METADATA))
        metadata = pickle.loads(content)
        if not all(isinstance(one, _Stored) for one in (metadata.storage_data or {}).values()):
            raise ValueError(
                f"{self._directory.path}: BraidWriter did not write this checkpoint: use torch's FsspecReader"
            )
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        batch: List[_Reading] = []
        held = 0
        # Items that lie together are read together.
        for request in sorted(plan.items, key=self._place):
            reading = _Reading(request, self._stored[request.storage_index], planner)
            if batch and held + reading.held_bytes > _UNDER_WAY_BYTES:
                self._read(batch, planner)
                batch, held = [], 0
            batch.append(reading)
            held += reading.held_bytes
        self._read(batch, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _place(self, request: ReadItem) -> Tuple[str, int]:
        stored = self._stored[request.storage_index]
        return stored.file, stored.offset

    def _read(self, batch: List[_Reading], planner: LoadPlanner) -> None:
        targets = [
            (self._directory.name(one.stored.file), one.stored.offset, one.buffer) for one in batch
        ]
        counts = _names.first_error(self._directory.client._native.read_into_many(targets, None))
        for one, count in zip(batch, counts):
            if count != one.stored.length:
                name = os.fsdecode(self._directory.name(one.stored.file))
                raise OSError(5, f"it ends before the bytes of {one.request.storage_index}", name)
            one.give(planner)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _Place) -> bool:
        return _Directory.is_valid(checkpoint_id)


class _Reading:
    """An item that is read: to where it belongs, if that is one piece of this machine's memory."""

    def __init__(self, request: ReadItem, stored: _Stored, planner: LoadPlanner):
        self.request, self.stored = request, stored
        self.held_bytes = 0
        self._target: Optional[torch.Tensor] = None
        self._whole: Optional[torch.Tensor] = None
        if request.type == LoadItemType.BYTE_IO:
            self.buffer: Any = bytearray(stored.length)
            self.held_bytes = stored.length
            return
        self._target = planner.resolve_tensor(request).detach()
        if not self._is_in_place(self._target):
            self._whole = torch.empty(stored.shape, dtype=stored.dtype)
            self.held_bytes = stored.length
        self.buffer = memory(self._target if self._whole is None else self._whole)

    def _is_in_place(self, target: torch.Tensor) -> bool:
        is_whole = tuple(self.request.lengths) == self.stored.shape
        return (
            is_whole
            and target.dtype == self.stored.dtype
            and target.device.type == "cpu"
            and target.is_contiguous()
        )

    def give(self, planner: LoadPlanner) -> None:
        """Hands the item to the planner."""
        if self._target is None:
            planner.load_bytes(self.request, io.BytesIO(self.buffer))
            return
        if self._whole is not None:
            part = self._whole
            for dimension, (start, length) in enumerate(
                zip(self.request.storage_offsets, self.request.lengths)
            ):
                part = part.narrow(dimension, start, length)
            self._target.copy_(part)
        planner.commit_tensor(self.request, self._target)
