"""A checkpoint of 16 tensors of 32 MiB, saved and loaded: BraidWriter and BraidReader, and torch's by fsspec.

    python checkpoint.py [TENSORS] [ROUNDS]
"""

import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp

import common
from braidfs.torch import BraidReader, BraidWriter
from common import MIB


def main(tensors=16, rounds=5):
    warnings.simplefilter("ignore")
    state = {str(index): torch.randn(8 * MIB) for index in range(tensors)}
    size = tensors * 32 * MIB
    with common.cluster() as directory:
        client = common.client(directory)

        def own_save():
            dcp.save(state, storage_writer=BraidWriter("braid://main/own", client=client))

        def own_load():
            dcp.load(state, storage_reader=BraidReader("braid://main/own", client=client))

        def torch_save():
            dcp.save(state, storage_writer=dcp.FsspecWriter("braid://main/torch", cluster=directory))

        def torch_load():
            dcp.load(state, storage_reader=dcp.FsspecReader("braid://main/torch", cluster=directory))

        own_save()
        torch_save()
        common.pairs(
            rounds,
            ("save, FsspecWriter", lambda: common.seconds(torch_save), size),
            [("save, BraidWriter", lambda: common.seconds(own_save))],
        )
        common.pairs(
            rounds,
            ("load, FsspecReader", lambda: common.seconds(torch_load), size),
            [("load, BraidReader", lambda: common.seconds(own_load))],
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
