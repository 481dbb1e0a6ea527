"""Many files of 100 KiB, shuffled, by PyTorch's DataLoader with 4 workers, and by the native library.

    python loader.py target/release/examples/read_rounds [FILES] [ROUNDS]
"""

import os
import sys
import tempfile
import warnings

import torch
from torch.utils.data import DataLoader, Dataset

import common
from braidfs.torch import FileDataset, FileStream

FILE_BYTES, BATCH, WORKERS = 100 << 10, 64, 4


class PlainFiles(Dataset):
    """The same files in memory, without Braid: what DataLoader itself costs."""

    def __init__(self, directory, files):
        self._paths = [os.path.join(directory, f"{index:07}") for index in range(files)]
        for path in self._paths:
            with open(path, "wb") as file:
                file.write(bytes(FILE_BYTES))

    def __len__(self):
        return len(self._paths)

    def __getitem__(self, index):
        with open(self._paths[index], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def whole_pass(loader, files):
    seen = sum(len(batch) for batch in loader)
    assert seen == files, seen


def main(program, files=4000, rounds=5):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    directory_name = "braid://main/files"
    with common.cluster() as directory, tempfile.TemporaryDirectory(dir="/dev/shm") as plain_directory:
        client = common.client(directory)
        client.makedirs(directory_name, exist_ok=True)
        content = memoryview(bytes(FILE_BYTES))
        pairs = [(f"{directory_name}/{index:07}".encode(), content) for index in range(files)]
        for start in range(0, files, 500):
            written = client._native.write_many(pairs[start : start + 500], True, False, None)
            assert not any(written)
        options = dict(batch_size=BATCH, num_workers=WORKERS, collate_fn=torch.stack, persistent_workers=True)
        by_number = DataLoader(FileDataset(directory_name, client=client), shuffle=True, **options)
        stream = DataLoader(FileStream(directory_name, client=client), **options)
        plain = DataLoader(PlainFiles(plain_directory, files), shuffle=True, **options)
        native = common.Native(program, directory, "files", directory_name, WORKERS * 16)
        common.pairs(
            rounds,
            ("native", lambda: native.round("again"), files * FILE_BYTES),
            [
                ("DataLoader, plain files", lambda: common.seconds(lambda: whole_pass(plain, files))),
                ("DataLoader, FileDataset", lambda: common.seconds(lambda: whole_pass(by_number, files))),
                ("DataLoader, FileStream", lambda: common.seconds(lambda: whole_pass(stream, files))),
            ],
        )
        native.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
