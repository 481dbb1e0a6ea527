"""Names, modes and rows, as users see them and as the native module does."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional, Tuple, Union

Name = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Stat(NamedTuple):
    """What is known of a file or directory."""

    name: str
    is_dir: bool
    #: Bytes, as of the last flush or close; 0 for a directory.
    size: int
    #: Seconds since 1970.
    modified: float
    created: float
    #: Permission bits, if whoever made it gave them.
    mode: Optional[int]
    #: Its number in the cluster, which stays when its name changes.
    number: int

    @property
    def is_file(self) -> bool:
        return not self.is_dir


class DirEntry(NamedTuple):
    """An entry of a directory."""

    #: The last part of the name.
    name: str
    #: The whole name.
    path: str
    is_dir: bool
    size: int
    modified: float
    number: int

    @property
    def is_file(self) -> bool:
        return not self.is_dir


def encode(name: Name) -> bytes:
    """A name's bytes. They need not be UTF-8: ``os.fsencode`` has a form for every byte."""
    return os.fsencode(name)


def stat(name: Name, row: Tuple[Any, ...]) -> Stat:
    is_dir, size, modified, created, mode, number = row
    return Stat(os.fsdecode(name), is_dir, size, modified / 1000, created / 1000, mode, number)


def entry(directory: str, row: Tuple[Any, ...]) -> DirEntry:
    name, is_dir, size, modified, number = row
    return DirEntry(name, f"{directory.rstrip('/')}/{name}", is_dir, size, modified / 1000, number)


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
