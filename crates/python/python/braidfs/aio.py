"""The client for asyncio.

    >>> async def main():
    ...     client = braidfs.AsyncClient("/srv/braid")
    ...     async with client.open("braid://main/hello", "rb") as file:
    ...         parts = await asyncio.gather(file.pread(3, 0), file.pread(2, 3))
    ...     return parts
    >>> asyncio.run(main())
    [b'hel', b'lo']

Calls run as tasks of the native runtime, with no thread of their own. A call that is cancelled ends midway;
a file whose write was cancelled must be opened again to be written.
"""

from __future__ import annotations

import asyncio
import os
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Dict,
    Generator,
    List,
    Mapping,
    Optional,
    Tuple,
    Union,
)

from braidfs import _layouts, _methods, _native, _names, _rates
from braidfs._layouts import Layout, LayoutLike
from braidfs._methods import Answer
from braidfs._names import DirEntry, Name, Stat, Usage
from braidfs._rates import Lateness, Rate, Reservation


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


class AsyncFile:
    """An open file. Any number of its calls may run at once; only those at the position have an order."""

    def __init__(self, native: Any, name: Name, letter: str, plus: bool):
        self._native = native
        self._letter = letter
        self._position = native.size() if letter == "a" else 0
        #: One call at the position at a time.
        self._turn = asyncio.Lock()
        self.name = os.fsdecode(name)
        self.mode = letter + "b" + ("+" if plus else "")
        self.closed = False

    def lateness(self) -> Optional[Lateness]:
        """What was delivered under a reservation, and what was late; ``None`` without one."""
        return _rates.lateness(self._native.lateness())

    def stripe_bytes(self) -> int:
        """Bytes of a stripe: writes of whole multiples of them, from such a multiple on, cost least, and
        ranges begin at one."""
        return self._native.stripe_bytes()

    async def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the end."""
        return await self._native.pread(size, offset, _loop())

    async def pread_into(self, buffer: Any, offset: int) -> int:
        """Fills ``buffer`` from ``offset``. Returns how many bytes were read."""
        return await self._native.pread_into(buffer, offset, _loop())

    async def pwrite(self, buffer: Any, offset: int) -> int:
        """Writes all of ``buffer`` at ``offset``."""
        return await self._native.pwrite(buffer, offset, _loop())

    async def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes at the position; all that is left if it is negative."""
        async with self._turn:
            if size < 0:
                size = max(self.size() - self._position, 0)
            # Of one that only reads, what comes next is read ahead.
            pread = self._native.read_next if self.mode == "rb" else self._native.pread
            data = await pread(size, self._position, _loop())
            self._position += len(data)
            return data

    async def readinto(self, buffer: Any) -> int:
        """Fills ``buffer`` from the position."""
        async with self._turn:
            native = self._native
            pread_into = native.read_next_into if self.mode == "rb" else native.pread_into
            count = await pread_into(buffer, self._position, _loop())
            self._position += count
            return count

    async def write(self, data: Any) -> int:
        """Writes all of ``data`` at the position, or at the end if it was opened to append."""
        async with self._turn:
            length = memoryview(data).nbytes
            if self._letter == "a":
                self._position = await self._native.append(data, _loop()) + length
            else:
                self._position += await self.pwrite(data, self._position)
            return length

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size()}[whence]
        if start + offset < 0:
            raise ValueError(f"position {start + offset} is before the first byte")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def size(self) -> int:
        """The size as this file sees it, with its own writes."""
        return self._native.size()

    async def stat(self) -> Stat:
        """The manager's facts of the file."""
        return _names.stat(self.name, await self._native.stat(_loop()))

    async def truncate(self, size: Optional[int] = None) -> int:
        """Sets the size: to the position if none is given."""
        size = self._position if size is None else size
        await self._native.truncate(size, _loop())
        return size

    async def flush(self) -> None:
        """Lets others see the size."""
        await self._native.flush(_loop())

    async def close(self) -> None:
        """Commits the size, and ends the file; waits for calls under way."""
        if not self.closed:
            self.closed = True
            await self._native.close(_loop())

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(self, kind: Any = None, *_: Any) -> None:
        try:
            await self.close()
        except OSError:
            # Of a block that is left by an exception, that is what the program is told.
            if kind is None:
                raise


class _Opening:
    """What :meth:`AsyncClient.open` returns: it can be awaited, or entered by ``async with``."""

    def __init__(self, opening: Callable[[], Awaitable[AsyncFile]]):
        self._opening = opening
        self._file: Optional[AsyncFile] = None

    def __await__(self) -> Generator[Any, None, AsyncFile]:
        return self._opening().__await__()

    async def __aenter__(self) -> AsyncFile:
        self._file = await self._opening()
        return self._file

    async def __aexit__(self, *left: Any) -> None:
        if self._file is not None:
            await self._file.__aexit__(*left)


class AsyncClient:
    """A client of one cluster, found as :class:`braidfs.Client` finds it. It connects with its first call."""

    def __init__(
        self,
        cluster: Union[str, "os.PathLike[str]", None] = None,
        *,
        volume_keys: Optional[Mapping[str, str]] = None,
        transport: Optional[str] = None,
    ):
        place = None if cluster is None else os.fspath(cluster)
        self._native = _native.Client(place, dict(volume_keys or {}), transport)

    @property
    def cluster(self) -> str:
        """Where the cluster was found."""
        return os.fspath(self._native.cluster)

    def open(
        self,
        name: Name,
        mode: str = "rb",
        *,
        reserve: Optional[Rate] = None,
        layout: Optional[LayoutLike] = None,
        range: Optional[Tuple[int, Optional[int]]] = None,
    ) -> _Opening:
        """Opens a file: ``await client.open(...)`` or ``async with client.open(...) as file``. With
        ``reserve`` its data rate is reserved until it is closed. A file that is made gets ``layout``. With
        ``range`` only these bytes are written."""
        letter, plus = _names.parse_mode(mode)
        as_text = _layouts.of_new(layout, letter)

        async def opening() -> AsyncFile:
            native = await self._native.open(
                _names.encode(name), letter, plus, reserve, as_text, _loop(), range
            )
            return AsyncFile(native, name, letter, plus)

        return _Opening(opening)

    async def read_bytes(self, name: Name) -> bytes:
        """A whole file."""
        read = await self._native.read_many([(_names.encode(name), 0, None)], _loop())
        return _names.first_error(read)[0]

    async def write_bytes(self, name: Name, data: Any) -> int:
        """Writes a whole file. It appears, or takes another's place, at once."""
        written = await self._native.write_many([(_names.encode(name), data)], True, False, _loop())
        _names.first_error(written)
        return memoryview(data).nbytes

    async def stat(self, name: Name, *, follow_symlinks: bool = True) -> Stat:
        """Facts about a file or directory; without ``follow_symlinks``, of a symbolic link itself."""
        ask = self._native.stat if follow_symlinks else self._native.stat_itself
        return _names.stat(name, await ask(_names.encode(name), _loop()))

    async def symlink(self, target: Name, name: Name) -> None:
        """Makes a symbolic link to a path, from the link's directory. It is followed within the volume."""
        await self._native.symlink(_names.encode(target), _names.encode(name), _loop())

    async def readlink(self, name: Name) -> str:
        """Where a symbolic link leads."""
        return _names.target(await self.stat(name, follow_symlinks=False))

    async def exists(self, name: Name) -> bool:
        """Whether something has this name."""
        try:
            await self.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def listdir(self, name: Name) -> List[str]:
        """The names in a directory, in order."""
        return [row[0] for row in await self._native.list(_names.encode(name), _loop())]

    async def scandir(self, name: Name) -> AsyncIterator[DirEntry]:
        """The entries of a directory, in order: ``async for entry in client.scandir(name)``."""
        directory = os.fsdecode(name)
        for row in await self._native.list(_names.encode(name), _loop()):
            yield _names.entry(directory, row)

    async def mkdir(self, name: Name) -> None:
        """Makes a directory."""
        await self._native.mkdir(_names.encode(name), False, _loop())

    async def makedirs(self, name: Name, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it that are missing."""
        encoded = _names.encode(name)
        if not exist_ok:
            if parent := _names.directory_above(encoded):
                await self._native.mkdir(parent, True, _loop())
            await self._native.mkdir(encoded, False, _loop())
        else:
            await self._native.mkdir(encoded, True, _loop())

    async def remove(self, name: Name) -> None:
        """Removes a file."""
        await self._native.unlink(_names.encode(name), False, _loop())

    async def rmdir(self, name: Name) -> None:
        """Removes an empty directory."""
        await self._native.unlink(_names.encode(name), True, _loop())

    async def rename(self, source: Name, target: Name, *, replace: bool = True) -> None:
        """Renames a file or directory within its volume, at once. A file takes another file's place; without
        ``replace`` that is a :class:`FileExistsError`."""
        await self._native.rename(_names.encode(source), _names.encode(target), replace, _loop())

    async def replace(self, source: Name, target: Name) -> None:
        """Like :meth:`rename`: a file takes another file's place."""
        await self.rename(source, target)

    async def chmod(self, name: Name, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets permission bits. They are stored, and only mounts enforce them."""
        changes = (mode, None, None, None, None)
        await self._native.set_attributes(_names.encode(name), changes, follow_symlinks, _loop())

    async def chown(self, name: Name, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Sets owner and group, by number; -1 leaves one as it is."""
        changes = _names.owner(uid, gid)
        await self._native.set_attributes(_names.encode(name), changes, follow_symlinks, _loop())

    async def utime(
        self,
        name: Name,
        times: Optional[Tuple[float, float]] = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets when it was read and when its bytes changed: in seconds, in nanoseconds, or to now."""
        changes = _names.times(times, ns)
        await self._native.set_attributes(_names.encode(name), changes, follow_symlinks, _loop())

    async def link(self, source: Name, target: Name) -> None:
        """Gives a file, or anything else but a directory, another name in its volume."""
        await self._native.link(_names.encode(source), _names.encode(target), _loop())

    async def listxattr(self, name: Name, *, follow_symlinks: bool = True) -> List[str]:
        """The names of the extended attributes, in order."""
        rows = await self._native.xattrs(_names.encode(name), follow_symlinks, _loop())
        return [row[0] for row in rows]

    async def getxattr(self, name: Name, attribute: Name, *, follow_symlinks: bool = True) -> bytes:
        """An extended attribute's value; an :class:`OSError` with ``ENODATA`` if there is none."""
        pairs = await self._native.xattrs(_names.encode(name), follow_symlinks, _loop())
        return _names.attribute(name, attribute, pairs)

    async def setxattr(
        self,
        name: Name,
        attribute: Name,
        value: Any,
        *,
        create: bool = False,
        replace: bool = False,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets an extended attribute. With ``create`` there must be none, with ``replace`` one.

        A name begins with ``user.`` where mounts are to show it.
        """
        expect = _names.expectation(create, replace)
        encoded, called = _names.encode(name), _names.encode(attribute)
        await self._native.set_xattr(encoded, called, bytes(value), expect, follow_symlinks, _loop())

    async def removexattr(self, name: Name, attribute: Name, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        encoded, called = _names.encode(name), _names.encode(attribute)
        await self._native.remove_xattr(encoded, called, follow_symlinks, _loop())

    async def layout(self, name: Name) -> Layout:
        """How a file lies, or files that are made in a directory, as :meth:`braidfs.Client.layout` says."""
        return _layouts.in_force(await self._native.layout(_names.encode(name), _loop()))

    async def set_layout(self, name: Name, layout: Optional[LayoutLike]) -> None:
        """Sets a layout, as :meth:`braidfs.Client.set_layout` does."""
        await self._native.set_layout(_names.encode(name), _layouts.text(layout), _loop())

    async def disk_usage(self, name: Name) -> Usage:
        """How much room the volume of a name has, for files of the volume's own shape."""
        total, free = await self._native.room(_names.encode(name), _loop())
        return Usage(total, total - free, free)

    async def volumes(self) -> List[Dict[str, Any]]:
        """The volumes."""
        return await self._native.volumes(_loop())

    async def run(
        self,
        method: str,
        name: Name,
        *,
        at: str = "cheapest",
        progress: Optional[_native.Progress] = None,
        **arguments: Any,
    ) -> Answer:
        """Asks a question about a file's records, as :meth:`braidfs.Client.run` does. Who cancels the task asks
        no more of the drives."""
        encoded, given = _names.encode(name), _methods.arguments(arguments)
        row = await self._native.run(encoded, method, given, _methods.place(at), progress, _loop())
        return _methods.answer(method, row)

    async def reserve(
        self, name: Name, rate: Rate, direction: str, *, dry_run: bool = False
    ) -> Reservation:
        """Reserves a data rate, as :meth:`braidfs.Client.reserve` does."""
        writes = _rates.is_write(direction)
        row = await self._native.reserve(_names.encode(name), rate, writes, dry_run, _loop())
        return _rates.reservation(row)

    async def reservations(self) -> List[Reservation]:
        """All data rates that are reserved."""
        return [_rates.reservation(row) for row in await self._native.reservations(_loop())]

    async def end_reservation(self, number: int) -> None:
        """Ends a reservation: what is open under it goes on as best effort."""
        await self._native.end_reservation(number, _loop())

    async def status(self) -> Dict[str, Any]:
        """The cluster and its drives."""
        return await self._native.status(_loop())
