"""Braid from Python: files striped, with redundancy, over many drives.

    >>> import braidfs
    >>> client = braidfs.Client("/srv/braid")
    >>> with client.open("braid://main/hello", "wb") as file:
    ...     file.write(b"hello")
    5
    >>> client.read_bytes("braid://main/hello")
    b'hello'

A cluster is a directory made by ``braid up``, or a ``cluster.toml``; without one it is that of the
environment's ``BRAID_CLUSTER``, or the one in the user's default directory.

Programs that know fsspec (pandas, pyarrow, zarr, dask) take ``braid://VOLUME/PATH`` as it is:
:mod:`braidfs.filesystem`. For PyTorch there is :mod:`braidfs.torch`, for asyncio :mod:`braidfs.aio`.
"""

from braidfs._client import Client, DirEntry, Stat, Usage
from braidfs._file import File
from braidfs._layouts import Layout
from braidfs._methods import Answer
from braidfs._native import Progress, __version__
from braidfs._rates import Lateness, NotAdmitted, Offer, Rate, Reservation
from braidfs.aio import AsyncClient, AsyncFile

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncFile",
    "Client",
    "DirEntry",
    "File",
    "Lateness",
    "Layout",
    "NotAdmitted",
    "Offer",
    "Progress",
    "Rate",
    "Reservation",
    "Stat",
    "Usage",
    "__version__",
]
