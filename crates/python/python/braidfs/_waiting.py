"""The operations of the fsspec file system that are waited for.

fsspec would run the awaitable ones in a thread of its own and wait for that. These ask the native client in
the caller's thread: that saves two switches of threads for each call, and goes on working after a fork.
"""

from __future__ import annotations

import errno
import os
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from braidfs import _layouts, _literal, _names
from braidfs._buffered import BLOCK_BYTES, BraidFile, PackedFile, TextFile

#: A range of a file: name, first byte, one past the last or None for the end.
Range = Tuple[bytes, int, Optional[int]]


#: fsspec's words. A listing tells links; `info` follows them.
_TYPES = {"file": "file", "directory": "directory", "symlink": "link"}


def name_of(path: str) -> bytes:
    """The name of a path without protocol."""
    return os.fsencode(f"braid://{path}")


def is_local_literal(path: Any) -> bool:
    """Whether it could be a pattern, and is a local name that exists."""
    return _literal.has_magic(path) and os.path.lexists(LocalFileSystem._strip_protocol(path))


class WaitingFileSystem(AbstractFileSystem):
    """What waits, and what both kinds of operations share."""

    protocol = "braid"
    root_marker = ""
    client: Any
    auto_mkdir: bool

    # Paths and rows.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("braid://", "braid::"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
                break
        return path.strip("/") if path.strip("/") else cls.root_marker

    @classmethod
    def _parent(cls, path: str) -> str:
        return cls._strip_protocol(path).rpartition("/")[0]

    def _volume(self, path: str) -> str:
        volume, slash, rest = self._strip_protocol(path).partition("/")
        if not slash:
            raise IsADirectoryError(errno.EISDIR, "it is a volume, not a file", path)
        return volume

    @staticmethod
    def _root() -> Dict[str, Any]:
        return {"name": "", "size": 0, "type": "directory"}

    @staticmethod
    def _facts(path: str, row: Tuple[Any, ...]) -> Dict[str, Any]:
        stat = _names.stat(path, row)
        return {
            "name": path,
            "size": stat.size,
            "type": _TYPES.get(stat.kind, "other"),
            "created": stat.created,
            "mtime": stat.modified,
            "mode": stat.mode,
            "uid": stat.uid,
            "gid": stat.gid,
            "nlink": stat.links,
            "ino": stat.number,
        }

    @staticmethod
    def _entries(path: str, rows: List[Tuple[Any, ...]]) -> List[Dict[str, Any]]:
        return [
            {
                "name": f"{path}/{name}",
                "size": size,
                "type": _TYPES.get(kind, "other"),
                "mtime": modified / 1e9,
                "ino": number,
            }
            for name, kind, size, modified, number in rows
        ]

    @staticmethod
    def _volume_facts(volumes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        return [
            {"name": volume["name"], "size": 0, "type": "directory", "created": volume["created"]}
            for volume in volumes
        ]

    @staticmethod
    def _listed(entries: List[Dict[str, Any]], detail: bool) -> List[Any]:
        return entries if detail else sorted(entry["name"] for entry in entries)

    @staticmethod
    def _by_depth(paths: List[str]) -> Iterator[List[bytes]]:
        """The names of each depth, deepest first. A volume itself stays."""
        levels: Dict[int, List[bytes]] = {}
        for path in paths:
            path = path.rstrip("/")
            if "/" in path:
                levels.setdefault(path.count("/"), []).append(name_of(path))
        for depth in sorted(levels, reverse=True):
            yield levels[depth]

    # Names.

    def info(self, path: str, **_: Any) -> Dict[str, Any]:
        """Name, type, size, times, number."""
        path = self._strip_protocol(path)
        return self._facts(path, self.client._native.stat(name_of(path), None)) if path else self._root()

    def ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        """The entries of a directory; of a file itself."""
        path = self._strip_protocol(path)
        if not path:
            return self._listed(self._volume_facts(self.client.volumes()), detail)
        try:
            rows = self.client._native.list(name_of(path), None)
        except NotADirectoryError:
            return self._listed([self.info(path)], detail)
        return self._listed(self._entries(path, rows), detail)

    def created(self, path: str) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        """When it was changed last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def ukey(self, path: str) -> str:
        """Differs once the file has been changed or replaced."""
        info = self.info(path)
        return f"{info['ino']}-{info['mtime']}-{info['size']}"

    def checksum(self, path: str) -> int:
        """The same, as a number."""
        return hash(self.ukey(path))

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Makes a directory."""
        path = self._strip_protocol(path)
        parent = self._parent(path)
        if create_parents and "/" in parent:
            self.client.makedirs(name_of(parent), exist_ok=True)
        self.client.mkdir(name_of(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        if not exist_ok:
            self.mkdir(path)
        elif "/" in (path := self._strip_protocol(path)):
            self.client.makedirs(name_of(path), exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self.client.rmdir(name_of(self._strip_protocol(path)))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self.client.remove(name_of(self._strip_protocol(path)))

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Removes files; with ``recursive`` directories and all that is in them."""
        paths = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        if not recursive:
            for one in paths:
                self.rm_file(one)
            return
        for level in self._by_depth(paths):
            _names.first_error(self.client._native.unlink_many(level, None))

    # Names that could be patterns.

    def _is_literal(self, path: Any) -> bool:
        """Whether it could be a pattern, and is a name that exists."""
        if not _literal.has_magic(path) or "/" not in self._strip_protocol(path):
            return False
        try:
            self.client._native.stat_itself(name_of(self._strip_protocol(path)), None)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def expand_path(
        self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any
    ) -> List[str]:
        """The paths that match; a name that exists is no pattern."""
        given = list(path) if isinstance(path, (list, tuple, set)) else [path]
        literal = [self._strip_protocol(one) for one in given if self._is_literal(one)]
        if not literal:
            return super().expand_path(path, recursive=recursive, maxdepth=maxdepth, **kwargs)
        out = set(literal)
        if recursive:
            for one in literal:
                out.update(self.find(one, maxdepth=maxdepth, withdirs=True))
        others = [one for one in given if self._strip_protocol(one) not in literal]
        if others:
            out.update(super().expand_path(others, recursive=recursive, maxdepth=maxdepth, **kwargs))
        return sorted(out)

    def _found(self, fs: Any, source: str, recursive: bool, maxdepth: Optional[int]) -> List[str]:
        """What a copy of this name takes; directories only with all that is in them."""
        found = {source}
        if recursive:
            found.update(fs.find(source, maxdepth=maxdepth, withdirs=True))
        files_only = not recursive or maxdepth is not None
        return [one for one in found if not (files_only and fs.isdir(one))]

    def copy(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any
    ) -> None:
        """Copies files; with ``recursive`` directories and all that is in them."""
        if isinstance(path2, str) and self._is_literal(path1):
            source = self._strip_protocol(path1)
            found = self._found(self, source, recursive, maxdepth)
            path1, path2 = _literal.pairs(path1, source, found, path2, self.isdir(path2))
        super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> None:
        """Copies files to local ones; with ``recursive`` directories and all that is in them."""
        if isinstance(lpath, str) and self._is_literal(rpath):
            source = self._strip_protocol(rpath)
            found = self._found(self, source, recursive, kwargs.get("maxdepth"))
            rpath, lpath = _literal.pairs(rpath, source, found, lpath, os.path.isdir(lpath))
        super().get(rpath, lpath, recursive=recursive, **kwargs)

    def put(self, lpath: Any, rpath: Any, recursive: bool = False, **kwargs: Any) -> None:
        """Copies local files; with ``recursive`` directories and all that is in them."""
        if isinstance(rpath, str) and is_local_literal(lpath):
            source = LocalFileSystem._strip_protocol(lpath)
            found = self._found(LocalFileSystem(), source, recursive, kwargs.get("maxdepth"))
            lpath, rpath = _literal.pairs(lpath, source, found, rpath, self.isdir(rpath))
        super().put(lpath, rpath, recursive=recursive, **kwargs)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any
    ) -> None:
        """Renames, within a volume. Patterns, lists and other volumes are copied and removed."""
        plain = isinstance(path1, str) and isinstance(path2, str)
        is_pattern = _literal.has_magic(path1) and not self._is_literal(path1)
        if not plain or is_pattern or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        into = path2.endswith("/") or (self.isdir(target) and not path1.endswith("/"))
        if into:
            target = f"{target}/{source.rpartition('/')[2]}"
        if source == target:
            return
        if self._volume(source) != self._volume(target):
            super().mv(path1, path2, recursive=recursive, **kwargs)
            return
        if self.auto_mkdir and "/" in (parent := self._parent(target)):
            self.client.makedirs(name_of(parent), exist_ok=True)
        self.client.rename(name_of(source), name_of(target))

    # Content.

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: Any = None,
        cache_options: Any = None,
        compression: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Opens a file. One that is written has its name when it is closed, whole. With ``layout`` it is made
        so, as :class:`braidfs.Layout` or its text."""
        text = {key: kwargs.pop(key) for key in ("encoding", "errors", "newline") if key in kwargs}
        binary = mode if "b" in mode else mode.replace("t", "") + "b"
        file = super().open(path, binary, block_size=block_size, cache_options=cache_options, **kwargs)
        if compression is not None:
            pack = compr[get_compression(self._strip_protocol(path), compression)]
            packed = pack(file, mode=mode[0])
            file = PackedFile(packed, file) if packed is not file and isinstance(file, BraidFile) else packed
        return file if "b" in mode else TextFile(file, **text)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        self._volume(path)
        if "+" in mode:
            buffering, layout = block_size or BLOCK_BYTES, kwargs.get("layout")
            return self.client.open(name_of(path), mode, buffering=buffering, layout=layout)
        _layouts.of_new(kwargs.get("layout"), mode[0])
        return BraidFile(self, path, mode=mode, block_size=block_size, **kwargs)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        """A file's bytes, or a range of them."""
        return self.cat_ranges([path], start, end, on_error="raise")[0]

    def cat_ranges(
        self,
        paths: List[str],
        starts: Any,
        ends: Any,
        max_gap: Optional[int] = None,
        on_error: str = "return",
        **_: Any,
    ) -> List[Any]:
        """Ranges of files, read in parallel. Of one that fails the result is the exception."""
        ranges = self._ranges(paths, starts, ends, max_gap)
        counted = self._counted_from_end(ranges)
        if counted:
            ranges = self._resolve(ranges, counted, self.client._native.stat_many(counted, None))
        read = self.client._native.read_many(self._whole(ranges), None)
        return self._results(ranges, read, on_error)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **_: Any) -> Any:
        """A file's bytes, or those of many, read in parallel, as a dictionary."""
        paths = self.expand_path(path, recursive=recursive)
        if not (len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)):
            return self.cat_file(paths[0])
        if recursive:
            paths = [one for one, info in zip(paths, map(self.info, paths)) if info["type"] == "file"]
        read = self.cat_ranges(paths, None, None, on_error="raise" if on_error == "raise" else "return")
        both = zip(paths, read)
        return {one: data for one, data in both if on_error != "omit" or not isinstance(data, Exception)}

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        """Writes a whole file."""
        self.pipe({path: value}, mode=mode)

    def pipe(self, path: Any, value: Any = None, mode: str = "overwrite", **_: Any) -> None:
        """Writes whole files, in parallel."""
        files = {path: value} if isinstance(path, str) else path
        if self._intrans:
            for one, content in files.items():
                with self.open(one, "xb" if mode == "create" else "wb") as file:
                    file.write(content)
            return
        pairs = [(name_of(self._file_path(one)), content) for one, content in files.items()]
        native = self.client._native
        _names.first_error(native.write_many(pairs, mode != "create", self.auto_mkdir, None))

    def _file_path(self, path: str) -> str:
        self._volume(path)
        return self._strip_protocol(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies a file."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb", cache_type="none") as source, self.open(path2, "wb") as target:
            while block := source.read(BLOCK_BYTES):
                target.write(block)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Makes an empty file; without ``truncate`` one that is there stays."""
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")

    # Ranges.

    def _ranges(self, paths: Any, starts: Any, ends: Any, max_gap: Optional[int]) -> List[Range]:
        if max_gap is not None:
            raise NotImplementedError("max_gap is not supported: ranges are read as they are asked for")
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends must be of the same length")
        return [
            (name_of(self._strip_protocol(path)), start or 0, end)
            for path, start, end in zip(paths, starts, ends)
        ]

    @staticmethod
    def _counted_from_end(ranges: List[Range]) -> List[bytes]:
        """The files of which a range counts from the end, as Python's slices do."""
        return sorted({name for name, start, end in ranges if start < 0 or (end is not None and end < 0)})

    @staticmethod
    def _resolve(ranges: List[Range], counted: List[bytes], rows: List[Any]) -> List[Any]:
        """The ranges counted from the beginning; the exception in place of one whose file has no size."""
        known = dict(zip(counted, rows))

        def one(entry: Range) -> Any:
            name, start, end = entry
            row = known.get(name)
            if row is None or isinstance(row, Exception):
                return entry if row is None else row
            size = row[1]
            start = max(size + start, 0) if start < 0 else start
            return name, start, max(size + end, 0) if end is not None and end < 0 else end

        return [one(entry) for entry in ranges]

    @staticmethod
    def _whole(ranges: List[Any]) -> List[Range]:
        return [entry for entry in ranges if isinstance(entry, tuple)]

    @staticmethod
    def _results(ranges: List[Any], read: List[Any], on_error: str) -> List[Any]:
        if on_error not in ("return", "raise"):
            raise ValueError(f"on_error {on_error!r}: it must be 'return' or 'raise'")
        results = iter(read)
        merged = [next(results) if isinstance(entry, tuple) else entry for entry in ranges]
        return _names.first_error(merged) if on_error == "raise" else merged
