"""Saves a model and its optimizer, and loads them into new ones: BraidWriter and BraidReader.

    BRAID_CLUSTER=/srv/braid python checkpoint.py braid://main/checkpoints/step-1
"""

import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from braidfs.torch import BraidReader, BraidWriter


def trained(steps):
    torch.manual_seed(steps)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 512)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def main(path):
    model, optimizer = trained(3)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, storage_writer=BraidWriter(path))

    other, other_optimizer = trained(1)
    weights, state = get_state_dict(other, other_optimizer)
    loaded = {"model": weights, "optimizer": state}
    dcp.load(loaded, storage_reader=BraidReader(path))
    set_state_dict(
        other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    print(f"the loaded model is the saved one: {same}")


if __name__ == "__main__":
    main(sys.argv[1])
