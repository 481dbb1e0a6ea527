"""Many files of 100 KiB, shuffled, by PyTorch's DataLoader with 4 workers, by the native library, and by
open() in a mount (root, /dev/fuse), mounted anew before each pass, and a second time with what is kept.

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
    """Files by open()."""

    def __init__(self, directory, files):
        self._paths = [os.path.join(directory, f"{index:07}") for index in range(files)]

    def fill(self):
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
    with (
        common.cluster() as directory,
        common.Mounted(directory) as mount,
        tempfile.TemporaryDirectory(dir="/dev/shm") as plain_directory,
    ):
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
        # The same in memory, without Braid: what DataLoader itself costs.
        plain_files = PlainFiles(plain_directory, files)
        plain_files.fill()
        plain = DataLoader(plain_files, shuffle=True, **options)
        in_mount = DataLoader(PlainFiles(os.path.join(mount.at, "files"), files), shuffle=True, **options)

        def first_in_mount():
            mount.anew()
            return common.seconds(lambda: whole_pass(in_mount, files))

        native = common.Native(program, directory, "files", directory_name, WORKERS * 16)
        common.pairs(
            rounds,
            ("native", lambda: native.round("again"), files * FILE_BYTES),
            [
                ("DataLoader, plain files", lambda: common.seconds(lambda: whole_pass(plain, files))),
                ("DataLoader, open() in a mount, first", first_in_mount),
                (
                    "DataLoader, open() in a mount, second",
                    lambda: common.seconds(lambda: whole_pass(in_mount, files)),
                ),
                ("DataLoader, FileDataset", lambda: common.seconds(lambda: whole_pass(by_number, files))),
                ("DataLoader, FileStream", lambda: common.seconds(lambda: whole_pass(stream, files))),
            ],
        )
        native.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
