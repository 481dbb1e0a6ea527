"""Names, modes and rows, as users see them and as the native module does."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Tuple, Union

Name = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class _Kinds:
    """Questions about a kind."""

    kind: str

    @property
    def is_file(self) -> bool:
        return self.kind == "file"

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"

    @property
    def is_symlink(self) -> bool:
        return self.kind == "symlink"


class _StatFields(NamedTuple):
    name: str
    #: "file", "directory", "symlink", "fifo", "socket", "character device" or "block device".
    kind: str
    #: Bytes: of a file as of the last flush or close.
    size: int
    #: Times in seconds since 1970: of its bytes, of its making, of its reading, of any change.
    modified: float
    created: float
    accessed: float
    changed: float
    #: Permission bits; stored, not enforced.
    mode: int
    uid: int
    gid: int
    #: Names that it has.
    links: int
    #: Its number in the cluster, which stays when its name changes.
    number: int
    #: Of a symbolic link: where it leads.
    target: str


class Stat(_StatFields, _Kinds):  # type: ignore[misc]
    """What is known of a file or directory."""

    __slots__ = ()


class _DirEntryFields(NamedTuple):
    #: The last part of the name.
    name: str
    #: The whole name.
    path: str
    kind: str
    size: int
    modified: float
    number: int


class DirEntry(_DirEntryFields, _Kinds):  # type: ignore[misc]
    """An entry of a directory: of a symbolic link what is known of the link."""

    __slots__ = ()


def encode(name: Name) -> bytes:
    """A name's bytes. They need not be UTF-8: ``os.fsencode`` has a form for every byte."""
    return os.fsencode(name)


def stat(name: Name, row: Tuple[Any, ...]) -> Stat:
    kind, size, modified, created, accessed, changed, *rest = row
    times = (modified / 1e9, created / 1e9, accessed / 1e9, changed / 1e9)
    return Stat(os.fsdecode(name), kind, size, *times, *rest)


def entry(directory: str, row: Tuple[Any, ...]) -> DirEntry:
    name, kind, size, modified, number = row
    return DirEntry(name, f"{directory.rstrip('/')}/{name}", kind, size, modified / 1e9, number)


def parse_mode(mode: str) -> Tuple[str, bool]:
    """The letter of a mode, and whether it has a plus."""
    letters = set(mode)
    if "t" in letters:
        raise ValueError(f"mode {mode!r}: files are binary; wrap one in io.TextIOWrapper for text")
    kind = letters & set("rwax")
    if len(letters) != len(mode) or letters - set("rwaxb+") or len(kind) != 1:
        raise ValueError(f"mode {mode!r}: it must be one of r, w, a and x, and may have a + and a b")
    return kind.pop(), "+" in letters


def first_error(results: Any) -> Any:
    """The results; the first exception among them is raised."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
