"""Braid for fsspec: ``braid://VOLUME/PATH`` in pandas, pyarrow, zarr, dask.

    >>> pandas.read_parquet("braid://main/table.parquet")
    >>> fs = fsspec.filesystem("braid", cluster="/srv/braid")
    >>> fs.cat_ranges(["main/a", "main/b"], [0, 0], [10, 10])

``cat_ranges``, ``cat`` and ``pipe`` work on all their files in parallel, natively. A file that is written
has no name until it is closed, or, in a transaction, until that ends: nobody sees a part of it. Files in
directories that do not exist make them (``auto_mkdir``), as programs made for object stores expect.

Operations that are waited for run in the caller's thread, so they work after a fork too; those of an
``asynchronous`` file system are awaitables of the running event loop.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any, Dict, List, Optional, Sequence

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from braidfs import _literal, _names
from braidfs._buffered import BLOCK_BYTES, BraidFile
from braidfs._client import Client
from braidfs._waiting import WaitingFileSystem, is_local_literal, name_of

__all__ = ["BraidFile", "BraidFileSystem"]


class BraidFileSystem(WaitingFileSystem, AsyncFileSystem):
    """The volumes of a cluster. ``cluster``, ``volume_keys`` and ``transport`` are those of
    :class:`braidfs.Client`."""

    # The calls that wait are not those of the event loop's thread, but of the client: see `_waiting`.
    mirror_sync_methods = False

    def __init__(
        self,
        cluster: Optional[str] = None,
        auto_mkdir: bool = True,
        volume_keys: Optional[Dict[str, str]] = None,
        transport: Optional[str] = None,
        **options: Any,
    ):
        own = {"auto_mkdir": auto_mkdir, "volume_keys": volume_keys, "transport": transport}
        super().__init__(cluster=cluster, **own, **options)
        self.client = Client(cluster, connect=False, volume_keys=volume_keys, transport=transport)
        self.auto_mkdir = auto_mkdir

    def scan(
        self,
        path: str,
        *,
        columns: Optional[Sequence[str]] = None,
        where: Optional[str] = None,
        kind: Optional[str] = None,
        at: str = "cheapest",
    ) -> Any:
        """The rows of a Parquet or CSV file for which a condition holds, as a :class:`pyarrow.Table`. The
        drives look for them where they hold the file, and only these rows are moved.

        ``columns`` are all unless given; ``where`` is a condition of the method (docs/methods.md); ``kind`` is
        "parquet" or "csv", by default as the path's end says. pandas and DuckDB take the table as it is.
        Raises an OSError with ESTALE if the file was written meanwhile: scan it again, or in a snapshot.

        >>> table = fs.scan("main/sales.parquet", columns=["item", "price"], where="price>100")
        >>> duckdb.sql("select item, sum(price) from table group by item")
        """
        import pyarrow
        import pyarrow.csv

        path = self._strip_protocol(path)
        kind = kind or ("parquet" if path.endswith((".parquet", ".parq", ".pq")) else "csv")
        answer = self.client.run(kind, f"braid://{path}", at=at, columns=columns, where=where)
        if answer.changed:
            why = "the file was written meanwhile: scan it again, or in a snapshot"
            raise OSError(errno.ESTALE, why, f"braid://{path}")
        rows = pyarrow.BufferReader(answer.facts["rows"])
        if kind == "csv":
            return pyarrow.csv.read_csv(rows)
        return pyarrow.ipc.open_stream(rows).read_all()

    # What is awaited.

    async def _ask(self, method: str, *arguments: Any) -> Any:
        return await getattr(self.client._native, method)(*arguments, asyncio.get_running_loop())

    async def _info(self, path: str, **_: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        if not path:
            return self._root()
        return self._facts(path, await self._ask("stat", name_of(path)))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        path = self._strip_protocol(path)
        if not path:
            return self._listed(self._volume_facts(await self._ask("volumes")), detail)
        try:
            rows = await self._ask("list", name_of(path))
        except NotADirectoryError:
            return self._listed([await self._info(path)], detail)
        return self._listed(self._entries(path, rows), detail)

    async def _cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any
    ) -> bytes:
        return (await self._cat_ranges([path], start, end, on_error="raise"))[0]

    async def _cat_ranges(
        self,
        paths: List[str],
        starts: Any,
        ends: Any,
        max_gap: Optional[int] = None,
        batch_size: Optional[int] = None,
        on_error: str = "return",
        **_: Any,
    ) -> List[Any]:
        ranges = self._ranges(paths, starts, ends, max_gap)
        counted = self._counted_from_end(ranges)
        if counted:
            sizes = await self._ask("stat_many", counted)
            ranges = self._resolve(ranges, counted, sizes)
        return self._results(ranges, await self._ask("read_many", self._whole(ranges)), on_error)

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        files = [(name_of(self._strip_protocol(path)), value)]
        _names.first_error(await self._ask("write_many", files, mode != "create", self.auto_mkdir))

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        self._volume(rpath)
        file = await self._ask("create_for", name_of(rpath), None)
        loop = asyncio.get_running_loop()
        with open(lpath, "rb") as source:
            offset = 0
            while True:
                block = source.read(BLOCK_BYTES)
                if not block:
                    break
                offset += await file.pwrite(block, offset, loop)
        await file.link(name_of(rpath), mode != "create", self.auto_mkdir, loop)

    async def _get_file(self, rpath: str, lpath: Any, **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if not rpath or await self._isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        loop = asyncio.get_running_loop()
        file = await self.client._native.open(name_of(rpath), "r", False, None, None, loop)
        with open(lpath, "wb") as target:
            offset = 0
            while True:
                block = await file.pread(BLOCK_BYTES, offset, loop)
                if not block:
                    break
                offset += target.write(block)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if await self._isdir(path1):
            await self._makedirs(path2, exist_ok=True)
            return
        loop = asyncio.get_running_loop()
        source = await self.client._native.open(name_of(path1), "r", False, None, None, loop)
        self._volume(path2)
        target = await self._ask("create_for", name_of(path2), None)
        offset = 0
        while True:
            block = await source.pread(BLOCK_BYTES, offset, loop)
            if not block:
                break
            offset += await target.pwrite(block, offset, loop)
        await target.link(name_of(path2), True, self.auto_mkdir, loop)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        parent = self._parent(path)
        if create_parents and "/" in parent:
            await self._ask("mkdir", name_of(parent), True)
        await self._ask("mkdir", name_of(path), False)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not exist_ok:
            await self._mkdir(path)
        elif "/" in (path := self._strip_protocol(path)):
            await self._ask("mkdir", name_of(path), True)

    async def _rmdir(self, path: str) -> None:
        await self._ask("unlink", name_of(self._strip_protocol(path)), True)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._ask("unlink", name_of(self._strip_protocol(path)), False)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: Optional[int] = None,
        maxdepth: Optional[int] = None,
        **_: Any,
    ) -> None:
        paths = await self._expand_path(path, recursive=recursive, maxdepth=maxdepth)
        if not recursive:
            for one in paths:
                await self._rm_file(one)
            return
        for level in self._by_depth(paths):
            _names.first_error(await self._ask("unlink_many", level))

    # Names that could be patterns.

    async def _is_literal_name(self, path: Any) -> bool:
        if not _literal.has_magic(path) or "/" not in self._strip_protocol(path):
            return False
        try:
            await self._ask("stat_itself", name_of(self._strip_protocol(path)))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def _expand_path(
        self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any
    ) -> List[str]:
        given = list(path) if isinstance(path, (list, tuple, set)) else [path]
        literal = [self._strip_protocol(one) for one in given if await self._is_literal_name(one)]
        if not literal:
            return await super()._expand_path(path, recursive=recursive, maxdepth=maxdepth, **kwargs)
        out = set(literal)
        if recursive:
            for one in literal:
                out.update(await self._find(one, maxdepth=maxdepth, withdirs=True))
        others = [one for one in given if self._strip_protocol(one) not in literal]
        if others:
            more = super()._expand_path(others, recursive=recursive, maxdepth=maxdepth, **kwargs)
            out.update(await more)
        return sorted(out)

    async def _found_below(self, source: str, recursive: bool, maxdepth: Optional[int]) -> List[str]:
        found = {source}
        if recursive:
            found.update(await self._find(source, maxdepth=maxdepth, withdirs=True))
        files_only = not recursive or maxdepth is not None
        return [one for one in found if not (files_only and await self._isdir(one))]

    async def _copy(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any
    ) -> None:
        if isinstance(path2, str) and await self._is_literal_name(path1):
            source = self._strip_protocol(path1)
            found = await self._found_below(source, recursive, maxdepth)
            path1, path2 = _literal.pairs(path1, source, found, path2, await self._isdir(path2))
        await super()._copy(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    async def _get(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> None:
        if isinstance(lpath, str) and await self._is_literal_name(rpath):
            source = self._strip_protocol(rpath)
            found = await self._found_below(source, recursive, kwargs.get("maxdepth"))
            rpath, lpath = _literal.pairs(rpath, source, found, lpath, os.path.isdir(lpath))
        await super()._get(rpath, lpath, recursive=recursive, **kwargs)

    async def _put(self, lpath: Any, rpath: Any, recursive: bool = False, **kwargs: Any) -> None:
        if isinstance(rpath, str) and is_local_literal(lpath):
            source = LocalFileSystem._strip_protocol(lpath)
            found = self._found(LocalFileSystem(), source, recursive, kwargs.get("maxdepth"))
            lpath, rpath = _literal.pairs(lpath, source, found, rpath, await self._isdir(rpath))
        await super()._put(lpath, rpath, recursive=recursive, **kwargs)

    async def _mv_file(self, path1: str, path2: str) -> None:
        names = name_of(self._strip_protocol(path1)), name_of(self._strip_protocol(path2))
        await self._ask("rename", *names, True)
