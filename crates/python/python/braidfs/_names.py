"""Names, modes and rows, as users see them and as the native module does."""

from __future__ import annotations

import errno
import os
import time
from typing import Any, List, NamedTuple, Optional, Tuple, Union

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


class Usage(NamedTuple):
    """How much room a volume has, as :func:`shutil.disk_usage` says it of a file system."""

    #: Bytes of data that fit in all, redundancy not counted; a volume's quota is a bound.
    total: int
    used: int
    free: int


#: What is given to the native module to be set; what is None stays.
Changes = Tuple[Optional[int], Optional[int], Optional[int], Optional[int], Optional[int]]


def owner(uid: int, gid: int) -> Changes:
    """An owner and a group to be set; -1 leaves one as it is."""
    return (None, None if uid == -1 else uid, None if gid == -1 else gid, None, None)


def times(given: Optional[Tuple[float, float]], ns: Optional[Tuple[int, int]]) -> Changes:
    """Times to be set, as :func:`os.utime` takes them; without any it is now."""
    if given is not None and ns is not None:
        raise ValueError("give times in seconds or in nanoseconds, not both")
    if given is not None:
        ns = (round(given[0] * 1e9), round(given[1] * 1e9))
    if ns is None:
        ns = (time.time_ns(),) * 2
    return (None, None, None, *ns)


def expectation(create: bool, replace: bool) -> str:
    """What must be there of an attribute that is set."""
    if create and replace:
        raise ValueError("an attribute is created or replaced, not both")
    return "create" if create else "replace" if replace else "any"


def attribute(name: Name, attribute: Name, pairs: List[Tuple[str, bytes]]) -> bytes:
    """An extended attribute's value."""
    for known, value in pairs:
        if known == os.fsdecode(attribute):
            return value
    raise OSError(errno.ENODATA, f"it has no extended attribute {os.fsdecode(attribute)!r}", os.fsdecode(name))


def encode(name: Name) -> bytes:
    """A name's bytes. They need not be UTF-8: ``os.fsencode`` has a form for every byte."""
    return os.fsencode(name)


def directory_above(encoded: bytes) -> Optional[bytes]:
    """The directory that a name is in, if that is not the volume's root."""
    parent = encoded.rstrip(b"/").rpartition(b"/")[0]
    return parent if parent.count(b"/") > 2 else None


def stat(name: Name, row: Tuple[Any, ...]) -> Stat:
    kind, size, modified, created, accessed, changed, *rest = row
    times = (modified / 1e9, created / 1e9, accessed / 1e9, changed / 1e9)
    return Stat(os.fsdecode(name), kind, size, *times, *rest)


def target(link: Stat) -> str:
    """Where a symbolic link leads."""
    if not link.is_symlink:
        raise OSError(errno.EINVAL, "it is not a symbolic link", link.name)
    return link.target


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
