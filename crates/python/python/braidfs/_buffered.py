"""Files of fsspec: read through its caches, written as files without a name."""

from __future__ import annotations

import errno
import io
from typing import Any, Optional

from fsspec.spec import AbstractBufferedFile

from braidfs import _layouts, _names
from braidfs._file import leave

#: What is read or written at a time: a plan set of the client's.
BLOCK_BYTES = 8 << 20


class BraidFile(AbstractBufferedFile):
    """A file opened by fsspec, with its buffer and its caches.

    Reading, ``read`` and ``readinto`` of a block or more go past the cache, which would only copy them.

    Written, it has no name until it is committed: when it is closed, or with the transaction. Discarded, it
    vanishes; so it does if an exception leaves its with-block. What is appended to a file (``ab``) goes to
    its end block by block; in a transaction, when that is committed.
    """

    DEFAULT_BLOCK_SIZE = BLOCK_BYTES
    #: How far it is written; absent before the first block.
    offset: Optional[int]

    def __init__(
        self,
        fs: Any,
        path: str,
        mode: str = "rb",
        block_size: Any = "default",
        size: Any = None,
        **kwargs: Any,
    ):
        self._file: Any = None
        if mode == "xb" and fs.exists(path):
            # Before it is a file that closing would commit.
            raise FileExistsError(errno.EEXIST, "it exists already", path)
        if mode == "rb":
            self._file = fs.client.open(_names_of(path), "rb")
            size = self._file.size()
        super().__init__(fs, path, mode=mode, block_size=block_size, size=size, **kwargs)
        if mode == "ab":
            # Its end, where the writes go; 0 for one that is not there yet.
            self.loc = self._size_or_zero()

    def _size_or_zero(self) -> int:
        try:
            return self.fs.client.stat(_names_of(self.path)).size
        except FileNotFoundError:
            return 0

    # Reading.

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._file.pread(end - start, start)

    def read(self, length: Optional[int] = -1) -> bytes:
        length = -1 if length is None else int(length)
        if self.mode == "rb" and not self.closed:
            left = max(self.size - self.loc, 0)
            length = left if length < 0 else min(length, left)
            if length >= self.blocksize:
                data = self._file.pread(length, self.loc)
                self.loc += len(data)
                return data
        return super().read(length)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self.mode == "rb" and not self.closed and view.nbytes >= self.blocksize:
            count = self._file.pread_into(view, self.loc)
            self.loc += count
            return count
        return super().readinto(view)

    # Writing.

    def write(self, data: Any) -> int:
        view = memoryview(data)
        is_large = self.writable() and not self.forced and view.nbytes >= self.blocksize
        if not is_large or self.buffer.tell() > 0 or not view.c_contiguous:
            return super().write(data)
        # From where it is, without the buffer.
        if self.offset is None:
            self.offset = 0
            self._initiate_upload()
        self._file.pwrite(view, self.offset, None)
        self.offset += view.nbytes
        self.loc += view.nbytes
        return view.nbytes

    def _initiate_upload(self) -> None:
        native = self.fs.client._native
        if self.mode == "ab" and self.autocommit:
            self._file = _Appending(self._open_to_append())
        else:
            self._file = native.create_for(_names.encode(_names_of(self.path)), self._layout(), None)

    def _layout(self) -> Optional[str]:
        return _layouts.text(self.kwargs.get("layout"))

    def _open_to_append(self) -> Any:
        native = self.fs.client._native
        name = _names.encode(_names_of(self.path))
        try:
            return native.open(name, "a", False, None, self._layout(), None)
        except FileNotFoundError:
            if not self.fs.auto_mkdir:
                raise
        self.fs.makedirs(self.fs._parent(self.path), exist_ok=True)
        return native.open(name, "a", False, None, self._layout(), None)

    def _upload_chunk(self, final: bool = False) -> bool:
        try:
            with self.buffer.getbuffer() as block:
                if block.nbytes:
                    self._file.pwrite(block, self.offset, None)
            if final and self.autocommit:
                self.commit()
        except BaseException:
            self.discard()
            raise
        return True

    def commit(self) -> None:
        """Gives the file its name; appends what is to be appended."""
        file, self._file = self._file, None
        if file is None:
            return
        if self.mode != "ab":
            name = _names.encode(_names_of(self.path))
            file.link(name, self.mode != "xb", self.fs.auto_mkdir, None)
        elif self.autocommit:
            file.close(None)
        else:
            self._append_from(file)

    def _append_from(self, file: Any) -> None:
        target = self._open_to_append()
        try:
            offset = 0
            while True:
                block = file.pread(BLOCK_BYTES, offset, None)
                if not block:
                    break
                target.append(block, None)
                offset += len(block)
        finally:
            target.close(None)
            file.close(None)

    def discard(self) -> None:
        """Has what was written vanish, as far as it has no name."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close(None)
            except OSError:
                # It has no name, so the manager removes it when its lease is over.
                pass

    def __exit__(self, kind: Any = None, *_: Any) -> None:
        if kind is None or self.closed:
            self.close()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Closes it although it is not whole: a new one does not take another's place."""
        if self.mode not in ("wb", "xb"):
            self.close()
            return
        self.forced = self.closed = True
        self.discard()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self.mode == "rb" and self._file is not None:
                self._file.close()
                self._file = None


class PackedFile:
    """A file that is compressed. Closed it closes the file below too; left by an exception it does what that
    does."""

    def __init__(self, packing: Any, file: BraidFile):
        self._packing = packing
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packing, name)

    def __iter__(self) -> Any:
        return iter(self._packing)

    def __enter__(self) -> PackedFile:
        return self

    def __exit__(self, kind: Any = None, *_: Any) -> None:
        if kind is None:
            self.close()
            return
        # The end of what is packed goes to a file that gets no name.
        self._file.autocommit = False
        try:
            self._packing.close()
        except Exception:
            # The program is told what it was left by.
            pass
        finally:
            self._file.abandon()

    def close(self) -> None:
        try:
            self._packing.close()
        except BaseException:
            self._file.abandon()
            raise
        self._file.close()


class TextFile(io.TextIOWrapper):
    """Text in a file. Left by an exception it does what the file below does."""

    def __exit__(self, kind: Any = None, *rest: Any) -> None:
        if kind is not None and isinstance(self.buffer, (BraidFile, PackedFile)):
            self.buffer.__exit__(kind, *rest)
        else:
            leave(self, kind)


class _Appending:
    """A file opened to append, whose writes go to its end."""

    def __init__(self, native: Any):
        self._native = native

    def pwrite(self, block: Any, _offset: int, how: None) -> int:
        self._native.append(block, how)
        return memoryview(block).nbytes

    def close(self, how: None) -> None:
        self._native.close(how)


def _names_of(path: str) -> str:
    return f"braid://{path}"
