"""A tensor's memory as a buffer, without numpy."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


def memory(tensor: torch.Tensor) -> Any:
    """The bytes of a contiguous tensor on the processor, as a writable buffer that keeps it alive."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("only a contiguous tensor in the processor's memory has its bytes in one place")
    length = tensor.numel() * tensor.element_size()
    if length == 0:
        return bytearray()
    buffer = (ctypes.c_ubyte * length).from_address(tensor.data_ptr())
    buffer.owner = tensor
    return buffer
