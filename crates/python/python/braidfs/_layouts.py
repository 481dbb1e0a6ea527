"""Layouts: how files lie on the drives."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Union


class Layout(NamedTuple):
    """Scheme, width and unit of files.

    >>> braidfs.Layout("raid5", width=5, unit="64K")
    Layout(scheme='raid5', width=5, unit='64K', source=None, path=None)
    """

    #: raid0, raid1, raid4, raid5 or rs(k,m); raid5 4+1 and the like have the width in them.
    scheme: str
    #: Columns, parity included. It may be left out for raid1, and where the scheme says it.
    width: Optional[int] = None
    #: Bytes of a unit, or a text such as "64K": a power of two from 4K to 64M.
    unit: Union[int, str] = "512K"
    #: What has this layout: "file", "directory" or "volume"; None for one that is asked for.
    source: Optional[str] = None
    #: Name of that file, directory or volume.
    path: Optional[str] = None


#: A layout, or its text, such as "raid5 4+1 unit=64KiB".
LayoutLike = Union[Layout, str]


def text(layout: Optional[LayoutLike]) -> Optional[str]:
    """The text that the native client reads."""
    if layout is None or isinstance(layout, str):
        return layout
    width = "" if layout.width is None else f" width={layout.width}"
    return f"{layout.scheme} unit={layout.unit}{width}"


def of_new(layout: Optional[LayoutLike], letter: str) -> Optional[str]:
    """The text of a layout for a file that may be made: a mode that only opens what is there has none."""
    if layout is not None and letter == "r":
        raise ValueError("a layout is for a file that is made: the mode must be w, a or x")
    return text(layout)


def in_force(row: Dict[str, Any]) -> Layout:
    return Layout(**row)
