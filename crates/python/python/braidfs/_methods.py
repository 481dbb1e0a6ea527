"""Questions about a file's records, answered where the data lies."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

#: Where a method may run.
_PLACES = ("cheapest", "drive", "client")


class Answer(NamedTuple):
    """The answer of a method for a whole file, and what it took."""

    method: str
    #: The answer: the fields that ``braid run METHOD --json`` has. Records are pairs of offset and bytes,
    #: bins are (from, to, count), sets are (items, count), rows and what modules emit are bytes.
    facts: Dict[str, Any]
    #: Bytes of the file.
    bytes: int
    #: Bytes that drives answered for; the others were read.
    bytes_at_drives: int
    #: Bytes of the answers of drives.
    answer_bytes: int
    #: True if the file was written meanwhile: the answer may be of several states of it.
    changed: bool


def answer(method: str, row: Any) -> Answer:
    return Answer(method, *row)


def arguments(given: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Python's arguments as the method's: ``ignore_case=True`` is ``ignore-case=yes``, a list is joined."""
    return [(name.replace("_", "-"), _text(value)) for name, value in given.items() if value is not None]


def place(at: str) -> str:
    if at not in _PLACES:
        raise ValueError(f"at={at!r}: it is one of {', '.join(_PLACES)}")
    return at


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)
