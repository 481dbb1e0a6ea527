"""Datasets over many files: each file is an item, a tensor of its bytes."""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any, Callable, Deque, Iterator, List, Optional, Sequence, Tuple, Union

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from braidfs import _names
from braidfs._client import Client
from braidfs.torch._memory import memory

#: Files read by one call of a stream: requests of one call share messages.
_GROUP = 16


class _Files:
    """Names and sizes of files, and reading some of them into new tensors."""

    def __init__(
        self,
        files: Union[str, Sequence[_names.Name]],
        client: Optional[Client],
        cluster: Union[str, "os.PathLike[str]", None],
    ):
        self.client = client or Client(cluster)
        native = self.client._native
        if isinstance(files, str):
            entries = [entry for entry in self.client.scandir(files) if entry.is_file]
            self.names = [_names.encode(entry.path) for entry in entries]
            self.sizes = [entry.size for entry in entries]
        else:
            self.names = [_names.encode(name) for name in files]
            rows = _names.first_error(native.stat_many(self.names, None))
            self.sizes = [row[1] for row in rows]

    def begin(self, indices: Sequence[int], how: Optional[bool]) -> Tuple[List[torch.Tensor], Any]:
        """New tensors, and what fills them."""
        tensors = [torch.empty(self.sizes[index], dtype=torch.uint8) for index in indices]
        targets = [(self.names[index], 0, memory(tensor)) for index, tensor in zip(indices, tensors)]
        return tensors, self.client._native.read_into_many(targets, how)

    @staticmethod
    def end(tensors: List[torch.Tensor], counts: List[Any]) -> List[torch.Tensor]:
        """The tensors; of a file that has become shorter since its size was asked for, what there is."""
        _names.first_error(counts)
        return [
            tensor if count == tensor.numel() else tensor[:count] for tensor, count in zip(tensors, counts)
        ]


class FileDataset(Dataset):
    """Files by number. A batch is read by one call, all its files in parallel, each into its tensor.

    ``files`` is a directory's name, or a list of files' names; sizes are asked for once. ``transform`` makes
    an item of a file's bytes (a tensor of ``torch.uint8``). Workers of a ``DataLoader``, forked or spawned,
    have connections of their own.

    >>> dataset = FileDataset("braid://main/images", transform=torchvision.io.decode_image)
    >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
    """

    def __init__(
        self,
        files: Union[str, Sequence[_names.Name]],
        transform: Optional[Callable[[torch.Tensor], Any]] = None,
        *,
        client: Optional[Client] = None,
        cluster: Union[str, "os.PathLike[str]", None] = None,
    ):
        self._files = _Files(files, client, cluster)
        self.transform = transform

    def __len__(self) -> int:
        return len(self._files.names)

    def name(self, index: int) -> str:
        """An item's file."""
        return os.fsdecode(self._files.names[index])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> List[Any]:
        """A batch; ``DataLoader`` asks for whole ones."""
        items = self._files.end(*self._files.begin(indices, None))
        return items if self.transform is None else [self.transform(item) for item in items]


class FileStream(IterableDataset):
    """Files in a random order, of which those that come next are being read already.

    Each worker of each rank gets its share. ``ahead`` is how many files are being read or wait to be taken;
    ``ahead_bytes`` bounds their bytes (one group of files may be more). Call :meth:`set_epoch` before each
    pass, for another order in each that is the same in all ranks.

    >>> stream = FileStream("braid://main/images", transform=decode, seed=7)
    >>> for epoch in range(10):
    ...     stream.set_epoch(epoch)
    ...     for batch in DataLoader(stream, batch_size=64, num_workers=4):
    ...         train(batch)
    """

    def __init__(
        self,
        files: Union[str, Sequence[_names.Name]],
        transform: Optional[Callable[[torch.Tensor], Any]] = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        ahead: int = 64,
        ahead_bytes: int = 256 << 20,
        client: Optional[Client] = None,
        cluster: Union[str, "os.PathLike[str]", None] = None,
    ):
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank}: it must be below the number of ranks, {ranks}")
        self._files = _Files(files, client, cluster)
        self.transform = transform
        self._shuffle, self._seed, self._epoch = shuffle, seed, 0
        self._share, self._shares = rank, ranks
        self._groups_ahead = max(ahead // _GROUP, 1)
        self._bytes_ahead = ahead_bytes

    def set_epoch(self, epoch: int) -> None:
        """The next pass has this epoch's order."""
        self._epoch = epoch

    def _order(self) -> List[int]:
        order = list(range(len(self._files.names)))
        if self._shuffle:
            random.Random(f"{self._seed}-{self._epoch}").shuffle(order)
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return order[self._share * workers + number :: self._shares * workers]

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        # Each with its bytes: tensors, and the reading that fills them.
        begun: Deque[Tuple[int, List[torch.Tensor], Any]] = deque()
        for start in range(0, len(order), _GROUP):
            group = order[start : start + _GROUP]
            group_bytes = sum(self._files.sizes[index] for index in group)
            while begun and (
                len(begun) >= self._groups_ahead
                or sum(entry[0] for entry in begun) + group_bytes > self._bytes_ahead
            ):
                yield from self._items(begun.popleft())
            begun.append((group_bytes, *self._files.begin(group, True)))
        while begun:
            yield from self._items(begun.popleft())

    def _items(self, entry: Tuple[int, List[torch.Tensor], Any]) -> Iterator[Any]:
        _, tensors, pending = entry
        for item in self._files.end(tensors, pending.result()):
            yield item if self.transform is None else self.transform(item)
