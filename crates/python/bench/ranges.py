"""A file of 1 GiB, read in ranges of 8 MiB: by fsspec's cat_ranges, in place, and by the native library.

    python ranges.py target/release/examples/read_rounds [MIB] [ROUNDS]
"""

import sys

import fsspec

import common
from common import MIB

#: Ranges under way, here as there: cat_ranges has no more.
TOGETHER = 64


def main(program, size=1024, rounds=9):
    size *= MIB
    with common.cluster() as directory:
        client = common.client(directory)
        common.fill(client, "braid://main/a", size)
        fs = fsspec.filesystem("braid", cluster=directory)
        starts = list(range(0, size, 8 * MIB))
        ends = [start + 8 * MIB for start in starts]
        buffers = [bytearray(8 * MIB) for _ in starts]
        targets = [(b"braid://main/a", start, buffer) for start, buffer in zip(starts, buffers)]
        native = common.Native(program, directory, "ranges", "braid://main/a", 8 * MIB, TOGETHER)

        def cat_ranges():
            assert sum(map(len, fs.cat_ranges(["main/a"] * len(starts), starts, ends))) == size

        def sequential():
            buffer = bytearray(8 * MIB)
            with fs.open("main/a", "rb") as file:
                while file.readinto(buffer):
                    pass

        common.pairs(
            rounds,
            ("native, memory used again", lambda: native.round("again"), size),
            [
                ("native, new memory", lambda: native.round("fresh")),
                ("fsspec cat_ranges", lambda: common.seconds(cat_ranges)),
                ("in place", lambda: common.seconds(lambda: client._native.read_into_many(targets, None))),
                ("fsspec open, readinto, one after another", lambda: common.seconds(sequential)),
            ],
        )
        native.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
