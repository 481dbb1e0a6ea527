"""Reserved data rates."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple


class Rate(NamedTuple):
    """A data rate to ask for.

    >>> braidfs.Rate(20_000_000, seconds=3600)
    Rate(rate=20000000, seconds=3600, streams=1, period_ms=100, survive=1)
    """

    #: Bytes of file data a second, of all streams together.
    rate: int
    #: How long the rate is kept.
    seconds: float
    #: Streams that share the rate, each with its part.
    streams: int = 1
    #: Milliseconds in which the rate's bytes must have arrived.
    period_ms: int = 100
    #: Drives that may be lost while the rate is kept.
    survive: int = 1


class Offer(NamedTuple):
    """A rate that would be admitted: ask for it with this rate and this number of drives that may be lost."""

    rate: int
    survive: int
    detail: str
    #: Seconds since 1970 from which on it would be admitted; 0 if it would be now.
    begins: float = 0.0
    #: Shape of new files under it and bytes of a unit, if they are other than asked.
    shape: Optional[str] = None
    unit_bytes: Optional[int] = None


class Lateness(NamedTuple):
    """What was delivered under a reservation, and what was late."""

    bytes: int
    periods: int
    late_periods: int
    #: Seconds from when something was due until it was done, but for pauses.
    worst: float
    #: Periods that were late by a drive's death, within the stated pause: they are not among the late ones.
    paused_periods: int
    #: Seconds from when something was due in these until it was done.
    worst_pause: float


class NotAdmitted(OSError):
    """A data rate cannot be kept; its errno is ``EAGAIN``."""

    #: What is scarce.
    resource: str = ""
    #: What would be admitted instead, the best first.
    offers: Tuple[Offer, ...] = ()

    @classmethod
    def _of(
        cls, errno: int, message: str, name: Optional[str], resource: str, offers: List[Dict[str, Any]]
    ) -> "NotAdmitted":
        made = cls(errno, message, name)
        made.resource = resource
        made.offers = tuple(Offer(**offer) for offer in offers)
        return made


class Reservation(NamedTuple):
    """A data rate that is reserved."""

    #: 0 if nothing was booked.
    number: int
    name: str
    #: "read" or "write".
    direction: str
    rate: int
    streams: int
    survive: int
    #: Names of the drives on which something is booked.
    drives: Tuple[str, ...]
    #: Bytes of memory that the client needs.
    buffer_bytes: int
    #: Seconds: how late something is at most, and how long the first data takes at most.
    lateness_bound: float
    start: float
    #: Why the rate may not be kept at present.
    risk: Optional[str]
    periods: int
    late_periods: int
    worst_lateness: float
    #: Periods that were late by a drive's death, within the stated pause: they are not among the late ones.
    paused_periods: int
    #: Seconds from when something was due in these until it was done.
    worst_pause: float


def reservation(row: Dict[str, Any]) -> Reservation:
    path = bytes(row.pop("path")).decode("utf-8", "surrogateescape")
    name = f"braid://{row.pop('volume')}/{path}"
    return Reservation(name=name, **{**row, "drives": tuple(row["drives"])})


def lateness(account: Optional[Dict[str, Any]]) -> Optional[Lateness]:
    return None if account is None else Lateness(**account)


def is_write(direction: str) -> bool:
    if direction not in ("read", "write"):
        raise ValueError(f"direction must be 'read' or 'write', not {direction!r}")
    return direction == "write"
