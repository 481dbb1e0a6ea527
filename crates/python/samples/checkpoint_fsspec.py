"""The same by torch's own writer and reader, which know `braid://` through fsspec.

    BRAID_CLUSTER=/srv/braid python checkpoint_fsspec.py braid://main/checkpoints/step-1
"""

import sys

import torch
import torch.distributed.checkpoint as dcp


def main(path):
    saved = {"weights": torch.randn(1000, 1000), "step": 7}
    dcp.save(saved, storage_writer=dcp.FsspecWriter(path))
    loaded = {"weights": torch.zeros(1000, 1000), "step": 0}
    dcp.load(loaded, storage_reader=dcp.FsspecReader(path))
    same = torch.equal(saved["weights"], loaded["weights"]) and loaded["step"] == 7
    print(f"the loaded state is the saved one: {same}")


if __name__ == "__main__":
    main(sys.argv[1])
