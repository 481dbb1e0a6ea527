"""An open file."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

from braidfs import _names, _rates

if TYPE_CHECKING:
    from braidfs._client import Client


def leave(file: Any, kind: Any) -> None:
    """Ends a with-block. Of one that is left by an exception, that is what the program is told, and not that
    closing has failed as well, as it does after a write that was interrupted."""
    try:
        file.close()
    except OSError:
        if kind is None:
            raise


class _Left:
    """Its with-block ends by `leave`."""

    def __exit__(self, kind: Any = None, *_: Any) -> None:
        leave(self, kind)


class File(_Left, io.RawIOBase):
    """An open file, without a buffer: each call is a request to the drives. Made by :meth:`Client.open`.

    One that only reads, and is read in order by ``read`` or ``readinto``, in pieces below 2 MiB, has what
    comes next fetched meanwhile. Such bytes are at most a second old; ``pread`` always asks the drives.

    It is what ``open(path, mode, buffering=0)`` gives, and more: ``pread``, ``pread_into`` and ``pwrite``
    take an offset, do not touch the position, and may be called by many threads at once. ``readinto`` and
    ``pread_into`` fill a buffer in place, and ``write`` and ``pwrite`` take its bytes from where they are.
    For many small reads or writes, wrap it: ``io.BufferedReader(file)``.

    A write that returned is durable. Other programs see the bytes at once, and the size after ``flush`` or
    ``close``. A write that was interrupted leaves a file that must be opened again to be written.

    After a fork, a file that only reads goes on in the child, which opens it anew; one that writes is the
    parent's.
    """

    def __init__(self, client: Client, native: Any, name: _names.Name, letter: str, plus: bool):
        super().__init__()
        self._client = client
        self._native = native
        self._pid = os.getpid()
        self._letter = letter
        self._reads = letter == "r" or plus
        self._writes = letter != "r" or plus
        self._position = native.size() if letter == "a" else 0
        self.name = os.fsdecode(name)
        self.mode = letter + "b" + ("+" if plus else "")

    def _open(self) -> Any:
        """The open file in this process."""
        if self._native is None:
            raise ValueError("I/O operation on closed file")
        if self._pid != os.getpid() and not self._writes:
            self._native = self._client._native.open(_names.encode(self.name), "r", False, None, None, None)
            self._pid = os.getpid()
        return self._native

    def _reading(self) -> Any:
        if not self._reads:
            raise io.UnsupportedOperation("it was not opened for reading")
        return self._open()

    def _writing(self) -> Any:
        if not self._writes:
            raise io.UnsupportedOperation("it was not opened for writing")
        return self._open()

    def lateness(self) -> Optional[_rates.Lateness]:
        """What was delivered under a reservation, and what was late; ``None`` without one."""
        return _rates.lateness(self._open().lateness())

    def stripe_bytes(self) -> int:
        """Bytes of a stripe: writes of whole multiples of them, from such a multiple on, cost least, and
        ranges begin at one."""
        return self._open().stripe_bytes()

    # By offset.

    def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the end of the file.

        >>> file.pread(4, 0)
        b'hell'
        """
        return self._reading().pread(size, offset, None)

    def pread_into(self, buffer: Any, offset: int) -> int:
        """Fills ``buffer`` from ``offset``. Returns how many bytes were read: less only at the end.

        >>> array = numpy.empty(1 << 20, dtype=numpy.uint8)
        >>> file.pread_into(array, 0)
        1048576
        """
        return self._reading().pread_into(buffer, offset, None)

    def pwrite(self, buffer: Any, offset: int) -> int:
        """Writes all of ``buffer`` at ``offset``. Returns its length in bytes."""
        return self._writing().pwrite(buffer, offset, None)

    # At the position.

    def read(self, size: Optional[int] = -1) -> bytes:
        """Up to ``size`` bytes; fewer only at the end. All that is left if it is negative or ``None``."""
        if size is None or size < 0:
            return self.readall()
        native = self._reading()
        data = (native.pread if self._writes else native.read_next)(size, self._position, None)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes up to the end."""
        native = self._reading()
        parts: List[bytes] = []
        while True:
            left = max(native.size() - self._position, 0)
            part = native.pread(left or 1, self._position, None)
            if not part:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            parts.append(part)
            self._position += len(part)

    def readinto(self, buffer: Any) -> int:
        """Fills ``buffer``. Returns how many bytes were read: less only at the end."""
        native = self._reading()
        count = (native.pread_into if self._writes else native.read_next_into)(buffer, self._position, None)
        self._position += count
        return count

    def write(self, data: Any) -> int:
        """Writes all of ``data``: at the end if it was opened to append. Returns its length in bytes."""
        native = self._writing()
        if self._letter == "a":
            length = memoryview(data).nbytes
            self._position = native.append(data, None) + length
            return length
        count = native.pwrite(data, self._position, None)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets the position; past the end is allowed."""
        native = self._open()
        if whence == io.SEEK_SET:
            position = offset
        elif whence == io.SEEK_CUR:
            position = self._position + offset
        elif whence == io.SEEK_END:
            position = native.size() + offset
        else:
            raise ValueError(f"whence {whence}: it must be 0, 1 or 2")
        if position < 0:
            raise ValueError(f"position {position} is before the first byte")
        self._position = position
        return position

    def tell(self) -> int:
        """The position."""
        self._open()
        return self._position

    def truncate(self, size: Optional[int] = None) -> int:
        """Sets the size: to the position if none is given. Returns it."""
        size = self._position if size is None else size
        self._writing().truncate(size, None)
        return size

    # The rest.

    def size(self) -> int:
        """The size as this file sees it, with its own writes."""
        return self._open().size()

    def stat(self) -> _names.Stat:
        """The manager's facts of the file. One that only reads learns the size anew."""
        return _names.stat(self.name, self._open().stat(None))

    def flush(self) -> None:
        """Lets others see the size. The bytes are durable already."""
        if self._writes and not self.closed:
            self._open().flush(None)

    def close(self) -> None:
        """Commits the size, and ends the file."""
        if self.closed:
            return
        native, self._native = self._native, None
        self._writes_at_close, self._writes = self._writes, False
        try:
            # Of a parent's file that only reads there is nothing to end in a child.
            if native is not None and (self._writes_at_close or self._pid == os.getpid()):
                native.close(None)
        finally:
            super().close()

    def readable(self) -> bool:
        self._open()
        return self._reads

    def writable(self) -> bool:
        self._open()
        return self._writes

    def seekable(self) -> bool:
        self._open()
        return True

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<braidfs.File {self.name!r} mode={self.mode!r}{state}>"

    def __reduce__(self) -> Tuple[Any, ...]:
        if self._writes or self.closed:
            raise TypeError(f"{self!r} cannot be pickled: only open files that do not write can")
        return (_reopen, (self._client, self.name, self._position))


class BufferedReader(_Left, io.BufferedReader):
    """A file that is read through a buffer."""


class BufferedWriter(_Left, io.BufferedWriter):
    """A file that is written through a buffer."""


class BufferedRandom(_Left, io.BufferedRandom):
    """A file that is read and written through a buffer."""


def _reopen(client: Client, name: str, position: int) -> File:
    file = client.open(name, "rb")
    file.seek(position)
    return file
