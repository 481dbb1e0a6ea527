"""Braid for PyTorch: datasets over many files, and checkpoints.

    >>> dataset = braidfs.torch.FileDataset("braid://main/images", transform=decode)
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

    >>> import torch.distributed.checkpoint as dcp
    >>> dcp.save(model.state_dict(), storage_writer=braidfs.torch.BraidWriter("braid://main/step-100"))
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("braidfs.torch needs PyTorch: pip install torch") from error

from braidfs.torch.checkpoint import BraidReader, BraidWriter
from braidfs.torch.data import FileDataset, FileStream

__all__ = ["BraidReader", "BraidWriter", "FileDataset", "FileStream"]
