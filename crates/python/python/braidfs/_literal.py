"""Names with ``*``, ``?`` or ``[`` in them. fsspec takes them for patterns, also where such a name exists."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Tuple

from fsspec.utils import stringify_path


def has_magic(path: Any) -> bool:
    """Whether it is one name that fsspec takes for a pattern."""
    return isinstance(path, (str, os.PathLike)) and bool(set("*?[") & set(str(stringify_path(path))))


def pairs(
    named: Any, source: str, found: Iterable[str], target: str, target_is_directory: bool
) -> Tuple[List[str], List[str]]:
    """What is copied, and where to: `found` is `source`, which was given as `named`, and what is below it.

    As elsewhere in fsspec, it goes into a target that is a directory, unless it was given with a slash.
    """
    into = (target.endswith("/") or target_is_directory) and not str(stringify_path(named)).endswith("/")
    top = target.rstrip("/")
    if into:
        top = f"{top}/{source.rpartition('/')[2]}"
    sources = sorted(found)
    return sources, [top + one[len(source) :] for one in sources]
