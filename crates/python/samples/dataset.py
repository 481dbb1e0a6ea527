"""Trains on many small files: a shuffled pass over a directory, by number and as a stream.

    BRAID_CLUSTER=/srv/braid python dataset.py braid://main/samples
"""

import sys

import torch
from torch.utils.data import DataLoader

import braidfs
from braidfs.torch import FileDataset, FileStream

FILES, SIDE = 64, 32


def decode(content):
    """An image of 8-bit samples, as numbers from 0 to 1."""
    return content.view(SIDE, SIDE).float() / 255


def main(directory):
    client = braidfs.Client()
    client.makedirs(directory, exist_ok=True)
    for index in range(FILES):
        image = torch.full((SIDE, SIDE), index, dtype=torch.uint8)
        client.write_bytes(f"{directory}/{index:04}", bytes(image.flatten().tolist()))

    loader = DataLoader(FileDataset(directory, decode), batch_size=16, shuffle=True, num_workers=2)
    total = sum(float(batch[:, 0, 0].sum()) for batch in loader)

    stream = FileStream(directory, decode, seed=7)
    for epoch in range(2):
        stream.set_epoch(epoch)
        loader = DataLoader(stream, batch_size=16, num_workers=2)
        total += sum(float(batch[:, 0, 0].sum()) for batch in loader)
    expected = 3 * sum(range(FILES)) / 255
    print(f"every file was seen three times: {abs(total - expected) < 1e-3}")


if __name__ == "__main__":
    main(sys.argv[1])
