"""The client, for programs that wait for each call."""

from __future__ import annotations

import atexit
import io
import os
import weakref
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, Tuple, Union, overload

from braidfs import _layouts, _methods, _native, _names, _rates
from braidfs._file import BufferedRandom, BufferedReader, BufferedWriter, File
from braidfs._layouts import Layout, LayoutLike
from braidfs._methods import Answer
from braidfs._names import DirEntry, Name, Stat, Usage
from braidfs._rates import Rate, Reservation

#: A file in one of io's buffered classes.
Buffered = Union[io.BufferedRandom, io.BufferedReader, io.BufferedWriter]

#: Clients to be ended with the program.
_living: weakref.WeakSet[Any] = weakref.WeakSet()


class Client:
    """A client of one cluster; threads may share it.

    ``cluster`` is a directory made by ``braid up`` or a ``cluster.toml``; by default the one that
    ``BRAID_CLUSTER`` names, else the user's own. Every call lets other threads run, is ended by Ctrl-C, and
    fails with an :class:`OSError` (``FileNotFoundError`` and so on) that has errno and name. When a manager
    or a drive is away, calls wait for it for a minute at most.

    A process that was forked connects anew by itself, and a client can be pickled.

    >>> client = braidfs.Client("/srv/braid")
    >>> client.listdir("braid://main")
    ['hello']
    """

    def __init__(
        self,
        cluster: Union[str, "os.PathLike[str]", None] = None,
        *,
        connect: bool = True,
        volume_keys: Optional[Mapping[str, str]] = None,
        transport: Optional[str] = None,
    ):
        """``connect=False`` leaves that to the first call. ``volume_keys`` has the key files of encrypted
        volumes by their names; ``command:`` and a command asks a key server. ``transport`` is ``"tcp"``,
        ``"udp"`` or ``"auto"``: how data goes to and from drives."""
        self._volume_keys = dict(volume_keys or {})
        self._transport = transport
        place = None if cluster is None else os.fspath(cluster)
        self._native = _native.Client(place, self._volume_keys, transport)
        if connect:
            self._native.connect(None)
        _living.add(self)

    @property
    def cluster(self) -> str:
        """Where the cluster was found."""
        return os.fspath(self._native.cluster)

    @overload
    def open(
        self,
        name: Name,
        mode: str = "rb",
        buffering: Literal[0] = 0,
        *,
        reserve: Optional[Rate] = None,
        layout: Optional[LayoutLike] = None,
        range: Optional[Tuple[int, Optional[int]]] = None,
    ) -> File: ...

    @overload
    def open(
        self,
        name: Name,
        mode: str = "rb",
        *,
        buffering: int,
        reserve: Optional[Rate] = None,
        layout: Optional[LayoutLike] = None,
        range: Optional[Tuple[int, Optional[int]]] = None,
    ) -> Union[File, Buffered]: ...

    def open(
        self,
        name: Name,
        mode: str = "rb",
        buffering: int = 0,
        *,
        reserve: Optional[Rate] = None,
        layout: Optional[LayoutLike] = None,
        range: Optional[Tuple[int, Optional[int]]] = None,
    ) -> Union[File, Buffered]:
        """Opens a file; ``mode`` is r, w, a or x, and may have a ``+``. Files are binary.

        It is a :class:`File`; with ``buffering`` bytes, it is in one of ``io``'s buffered classes. With
        ``reserve`` its data rate is reserved until it is closed, to write if the mode writes, or refused
        with :class:`NotAdmitted`. A file that is made gets ``layout``, else that of its directory.

        With ``range``, of the first byte and one past the last (``None``: no end), only these bytes are
        written, in mode ``r+``. While all writers of a file name ranges that have no stripe in common, each
        writes as fast as if the file were its own (:meth:`File.stripe_bytes`).

        >>> with client.open("braid://main/log", "a") as file:
        ...     file.write(b"a line\\n")
        7
        """
        letter, plus = _names.parse_mode(mode)
        as_text = _layouts.of_new(layout, letter)
        native = self._native.open(_names.encode(name), letter, plus, reserve, as_text, None, range)
        file = File(self, native, name, letter, plus)
        if buffering <= 0:
            return file
        if plus:
            return BufferedRandom(file, buffering)
        return BufferedReader(file, buffering) if letter == "r" else BufferedWriter(file, buffering)

    def read_bytes(self, name: Name) -> bytes:
        """A whole file."""
        return _names.first_error(self._native.read_many([(_names.encode(name), 0, None)], None))[0]

    def write_bytes(self, name: Name, data: Any) -> int:
        """Writes a whole file. It appears, or takes another's place, at once."""
        _names.first_error(self._native.write_many([(_names.encode(name), data)], True, False, None))
        return memoryview(data).nbytes

    def stat(self, name: Name, *, follow_symlinks: bool = True) -> Stat:
        """Facts about a file or directory; without ``follow_symlinks``, of a symbolic link itself."""
        ask = self._native.stat if follow_symlinks else self._native.stat_itself
        return _names.stat(name, ask(_names.encode(name), None))

    def symlink(self, target: Name, name: Name) -> None:
        """Makes a symbolic link to a path, from the link's directory. It is followed within the volume."""
        self._native.symlink(_names.encode(target), _names.encode(name), None)

    def readlink(self, name: Name) -> str:
        """Where a symbolic link leads."""
        return _names.target(self.stat(name, follow_symlinks=False))

    def exists(self, name: Name) -> bool:
        """Whether something has this name."""
        try:
            self.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, name: Name) -> bool:
        """Whether it is a directory."""
        try:
            return self.stat(name).is_dir
        except (FileNotFoundError, NotADirectoryError):
            return False

    def isfile(self, name: Name) -> bool:
        """Whether it is a file."""
        try:
            return self.stat(name).is_file
        except (FileNotFoundError, NotADirectoryError):
            return False

    def listdir(self, name: Name) -> List[str]:
        """The names in a directory, in order."""
        return [row[0] for row in self._native.list(_names.encode(name), None)]

    def scandir(self, name: Name) -> Iterator[DirEntry]:
        """The entries of a directory, in order, with sizes and times.

        >>> [(entry.name, entry.size) for entry in client.scandir("braid://main")]
        [('hello', 5)]
        """
        directory = os.fsdecode(name)
        for row in self._native.list(_names.encode(name), None):
            yield _names.entry(directory, row)

    def mkdir(self, name: Name) -> None:
        """Makes a directory."""
        self._native.mkdir(_names.encode(name), False, None)

    def makedirs(self, name: Name, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it that are missing."""
        encoded = _names.encode(name)
        if not exist_ok:
            if parent := _names.directory_above(encoded):
                self._native.mkdir(parent, True, None)
            self._native.mkdir(encoded, False, None)
        else:
            self._native.mkdir(encoded, True, None)

    def remove(self, name: Name) -> None:
        """Removes a file, or anything else but a directory."""
        self._native.unlink(_names.encode(name), False, None)

    def rmdir(self, name: Name) -> None:
        """Removes an empty directory."""
        self._native.unlink(_names.encode(name), True, None)

    def rename(self, source: Name, target: Name, *, replace: bool = True) -> None:
        """Renames a file or directory within its volume, at once. A file takes another file's place; without
        ``replace`` that is a :class:`FileExistsError`."""
        self._native.rename(_names.encode(source), _names.encode(target), replace, None)

    def replace(self, source: Name, target: Name) -> None:
        """Like :meth:`rename`: a file takes another file's place."""
        self.rename(source, target)

    def chmod(self, name: Name, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets permission bits. They are stored, and only mounts enforce them.

        >>> client.chmod("braid://main/hello", 0o640)
        """
        changes = (mode, None, None, None, None)
        self._native.set_attributes(_names.encode(name), changes, follow_symlinks, None)

    def chown(self, name: Name, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Sets owner and group, by number; -1 leaves one as it is."""
        changes = _names.owner(uid, gid)
        self._native.set_attributes(_names.encode(name), changes, follow_symlinks, None)

    def utime(
        self,
        name: Name,
        times: Optional[Tuple[float, float]] = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets when it was read and when its bytes changed: in seconds, in nanoseconds, or to now.

        >>> client.utime("braid://main/hello", ns=(0, 1))
        """
        changes = _names.times(times, ns)
        self._native.set_attributes(_names.encode(name), changes, follow_symlinks, None)

    def link(self, source: Name, target: Name) -> None:
        """Gives a file, or anything else but a directory, another name in its volume."""
        self._native.link(_names.encode(source), _names.encode(target), None)

    def listxattr(self, name: Name, *, follow_symlinks: bool = True) -> List[str]:
        """The names of the extended attributes, in order."""
        return [row[0] for row in self._native.xattrs(_names.encode(name), follow_symlinks, None)]

    def getxattr(self, name: Name, attribute: Name, *, follow_symlinks: bool = True) -> bytes:
        """An extended attribute's value; an :class:`OSError` with ``ENODATA`` if there is none."""
        pairs = self._native.xattrs(_names.encode(name), follow_symlinks, None)
        return _names.attribute(name, attribute, pairs)

    def setxattr(
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

        >>> client.setxattr("braid://main/hello", "user.origin", b"here")
        >>> client.getxattr("braid://main/hello", "user.origin")
        b'here'
        """
        expect = _names.expectation(create, replace)
        encoded, called = _names.encode(name), _names.encode(attribute)
        self._native.set_xattr(encoded, called, bytes(value), expect, follow_symlinks, None)

    def removexattr(self, name: Name, attribute: Name, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        encoded, called = _names.encode(name), _names.encode(attribute)
        self._native.remove_xattr(encoded, called, follow_symlinks, None)

    def layout(self, name: Name) -> Layout:
        """How a file lies; of a directory, how files lie that are made in it, and where that comes from.

        >>> client.layout("braid://main").scheme
        'raid5 4+1'
        """
        return _layouts.in_force(self._native.layout(_names.encode(name), None))

    def set_layout(self, name: Name, layout: Optional[LayoutLike]) -> None:
        """Sets how files lie that are made in a directory and below it from now on, or in a volume; ``None``
        takes a directory's own layout away. What exists stays as it is. A file can be given a layout until
        something is written to it.

        >>> client.set_layout("braid://main/photos", "rs(4,2) unit=1M")
        """
        self._native.set_layout(_names.encode(name), _layouts.text(layout), None)

    def disk_usage(self, name: Name) -> Usage:
        """How much room the volume of a name has, for files of the volume's own shape."""
        total, free = self._native.room(_names.encode(name), None)
        return Usage(total, total - free, free)

    def volumes(self) -> List[Dict[str, Any]]:
        """The volumes: name, shape, files, bytes, quota."""
        return self._native.volumes(None)

    def run(
        self,
        method: str,
        name: Name,
        *,
        at: str = "cheapest",
        progress: Optional[_native.Progress] = None,
        **arguments: Any,
    ) -> Answer:
        """Asks a question about a file's records, which the drives answer where they hold them
        (docs/methods.md has the methods and their arguments). ``at`` is "drive" or "client" to say where.
        ``progress`` is a :class:`braidfs.Progress`, whose ``bytes`` another thread may look at.

        >>> client.run("count", "braid://main/hello").facts["records"]
        1
        >>> client.run("grep", "braid://main/hello", pattern="H.llo", ignore_case=True).facts["records"]
        [(0, b'hello')]
        """
        encoded, given = _names.encode(name), _methods.arguments(arguments)
        row = self._native.run(encoded, method, given, _methods.place(at), progress, None)
        return _methods.answer(method, row)

    def reserve(self, name: Name, rate: Rate, direction: str, *, dry_run: bool = False) -> Reservation:
        """Reserves a data rate to "read" or to "write" a file, a directory or a volume. What is opened there
        shares it, until it ends. A rate that cannot be kept is refused with :class:`NotAdmitted`.

        >>> client.reserve("braid://main/cam1", braidfs.Rate(5_000_000, seconds=60), "write").survive
        1
        """
        writes = _rates.is_write(direction)
        return _rates.reservation(self._native.reserve(_names.encode(name), rate, writes, dry_run, None))

    def reservations(self) -> List[Reservation]:
        """All data rates that are reserved."""
        return [_rates.reservation(row) for row in self._native.reservations(None)]

    def end_reservation(self, number: int) -> None:
        """Ends a reservation: what is open under it goes on as best effort."""
        self._native.end_reservation(number, None)

    def status(self) -> Dict[str, Any]:
        """The cluster and its drives."""
        return self._native.status(None)

    def __repr__(self) -> str:
        return f"braidfs.Client({self.cluster!r})"

    def __reduce__(self) -> Any:
        return (_reconnect, (self.cluster, self._volume_keys, self._transport))


def _reconnect(
    cluster: str, volume_keys: Optional[Mapping[str, str]] = None, transport: Optional[str] = None
) -> Client:
    return Client(cluster, connect=False, volume_keys=volume_keys, transport=transport)


@atexit.register
def _finish() -> None:
    """Lets drives be told what is settled: otherwise they would keep more than they need for a while."""
    for client in list(_living):
        try:
            client._native.finish()
        except OSError:
            pass
