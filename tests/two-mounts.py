"""Two mounts of a volume take turns with one file, and every byte is checked against a model.

A turn: one mount opens the file, does some dozens of random operations (reads, writes, appends, truncations,
holes, zeroed ranges, syncs), and closes it; the next turn is mostly the other mount's. What is checked is
what docs/mount.md and docs/posix.md promise: who opens the file after a close sees all of it, and so does `stat`;
who opens it while the other mount has it open for writing sees all that was written by then; a reader that
stays open sees the other's bytes once they are synced or closed. There are no mappings.

With `--turns-only` nobody has the file open besides the mount whose turn it is, and it was made a second ago.

usage: two-mounts.py [--turns-only] FILE SAME-FILE-IN-THE-OTHER-MOUNT OPERATIONS SEED
exit 0 only if no byte was wrong
"""

import ctypes
import os
import random
import sys
import time

LENGTH_MAX = 256 * 1024
PIECE_MAX = 64 * 1024
TURN_MAX = 80
HISTORY = 400
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def fallocate(file, mode, offset, length):
    if libc.fallocate(file, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Wrong(Exception):
    pass


class Turns:
    def __init__(self, paths, operations, seed, turns_only):
        self.turns_only = turns_only
        self.paths, self.operations, self.random = paths, operations, random.Random(seed)
        self.model = bytearray()
        self.done = self.turns = 0
        self.history = []
        self.side = 0
        # A reader that stays open through turns, for each mount.
        self.readers = [None, None]

    def say(self, text):
        self.history.append(f"{self.done} {'here' if self.side == 0 else 'there'} {text}")
        del self.history[:-HISTORY]

    def compare(self, what, offset, found):
        wanted = self.model[offset : offset + len(found)]
        if found == wanted:
            return
        at = next((n for n, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        wrong = sum(a != b for a, b in zip(found, wanted))
        raise Wrong(
            f"{what}: at byte {offset + at} there is {bytes(found[at:at + 8]).hex()}, not "
            f"{bytes(wanted[at:at + 8]).hex()}; {wrong} of {len(found)} bytes from {offset} on differ"
        )

    def size(self, what, found):
        if found != len(self.model):
            raise Wrong(f"{what}: {found} bytes long, not {len(self.model)}")

    def whole(self, what, file):
        self.size(what, os.fstat(file).st_size)
        found = os.pread(file, LENGTH_MAX + 1, 0)
        self.size(what + ", bytes read", len(found))
        self.compare(what, 0, found)

    def range(self, end):
        offset = self.random.randrange(end)
        return offset, self.random.randrange(1, min(PIECE_MAX, LENGTH_MAX - offset) + 1)

    def put(self, offset, piece):
        if offset > len(self.model):
            self.model.extend(bytes(offset - len(self.model)))
        self.model[offset : offset + len(piece)] = piece

    def piece(self, length):
        # Each piece tells which operation wrote it; it is made quickly.
        return (self.done.to_bytes(4, "little") + self.random.randbytes(12)) * (length // 16 + 1)

    def operation(self, file, append):
        kind = self.random.choices(
            ["read", "write", "append", "truncate", "hole", "zero", "sync", "size", "glance"],
            [24, 24, 8, 6, 6, 3, 2, 4, 2],
        )[0]
        if kind == "append" and len(self.model) + 4096 > LENGTH_MAX:
            kind = "truncate"
        if kind == "read":
            offset, length = self.range(max(len(self.model), 1))
            self.say(f"read {offset}+{length}")
            found = os.pread(file, length, offset)
            if len(found) != max(0, min(length, len(self.model) - offset)):
                raise Wrong(f"read {offset}+{length}: {len(found)} bytes of a file of {len(self.model)}")
            self.compare("read", offset, found)
        elif kind == "write" and append is None:
            offset, length = self.range(LENGTH_MAX)
            self.say(f"write {offset}+{length} (was {len(self.model)} long)")
            piece = self.piece(length)[:length]
            self.put(offset, piece)
            written = os.pwrite(file, piece, offset)
            if written != length:
                raise Wrong(f"{written} of {length} bytes written")
        elif kind in ("append", "write"):
            length = self.random.randrange(1, 4097)
            if len(self.model) + length > LENGTH_MAX:
                return
            self.say(f"append {length} to {len(self.model)}")
            piece = self.piece(length)[:length]
            offset = len(self.model)
            self.put(offset, piece)
            if append is not None:
                os.write(append, piece)
            else:
                os.pwrite(file, piece, offset)
        elif kind == "truncate":
            length = self.random.randrange(LENGTH_MAX)
            self.say(f"truncate {len(self.model)} to {length}")
            os.ftruncate(file, length)
            del self.model[length:]
            self.put(length, b"")
        elif kind in ("hole", "zero"):
            offset, length = self.range(max(len(self.model), 1))
            keep = kind == "hole" or self.random.random() < 0.5
            self.say(f"{kind} {offset}+{length}{' size kept' if keep else ''} of {len(self.model)}")
            fallocate(file, (PUNCH if kind == "hole" else ZERO) | (KEEP_SIZE if keep else 0), offset, length)
            end = min(offset + length, len(self.model)) if keep else offset + length
            if end > offset:
                self.put(offset, bytes(end - offset))
        elif kind == "sync":
            self.say("sync")
            (os.fsync if self.random.random() < 0.5 else os.fdatasync)(file)
            self.readers_see("a reader that stayed open, after a sync")
        elif kind == "size":
            self.say("size")
            self.size("fstat", os.fstat(file).st_size)
            self.size("stat", os.stat(self.paths[self.side]).st_size)
        elif not self.turns_only:
            self.say("the other mount opens it, reads it and closes it")
            other = os.open(self.paths[1 - self.side], os.O_RDONLY)
            self.whole("opened in the other mount while it is open for writing", other)
            os.close(other)

    def readers_see(self, what):
        for side, reader in enumerate(self.readers):
            if reader is not None and self.random.random() < 0.5:
                whose = "in this mount" if side == self.side else "in the other mount"
                self.say(f"the reader that stayed open {whose} reads")
                self.whole(f"{what}, {whose}", reader)

    def turn(self):
        self.turns += 1
        if self.random.random() < 0.9:
            self.side = 1 - self.side
        path = self.paths[self.side]
        # An O_APPEND descriptor beside the other, for some turns: all appends go by it.
        with_append = self.random.random() < 0.2
        self.say("open" + (" also with O_APPEND" if with_append else ""))
        file = os.open(path, os.O_RDWR)
        append = os.open(path, os.O_WRONLY | os.O_APPEND) if with_append else None
        if self.random.random() < 0.5:
            self.whole("after open", file)
        for _ in range(min(self.random.randrange(1, TURN_MAX), self.operations - self.done)):
            self.operation(file, append)
            self.done += 1
        if append is not None:
            os.close(append)
        os.close(file)
        self.say("closed")
        # Attributes are seen at once, whoever asks.
        self.size("stat in the other mount after close", os.stat(self.paths[1 - self.side]).st_size)
        self.readers_see("a reader that stayed open, after a close")
        which = self.random.randrange(2)
        if self.random.random() < 0.2 and not self.turns_only:
            if self.readers[which] is None:
                self.say(f"a reader {'here' if which == 0 else 'there'} is opened, and stays open")
                self.readers[which] = os.open(self.paths[which], os.O_RDONLY)
            else:
                self.say(f"the reader {'here' if which == 0 else 'there'} that stayed open is closed")
                os.close(self.readers[which])
                self.readers[which] = None

    def run(self):
        os.close(os.open(self.paths[0], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        if self.turns_only:
            time.sleep(1.5)
        while self.done < self.operations:
            self.turn()
        for path in self.paths:
            file = os.open(path, os.O_RDONLY)
            self.whole("at the end", file)
            os.close(file)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--turns-only"]
    paths, operations, seed = arguments[:2], int(arguments[2]), int(arguments[3])
    began = time.monotonic()
    turns = Turns(paths, operations, seed, "--turns-only" in sys.argv)
    try:
        turns.run()
    except (Wrong, OSError) as error:
        print("\n".join(turns.history))
        print(f"seed {seed}, operation {turns.done}, turn {turns.turns}: {error}")
        return 1
    print(f"{turns.done} operations in {turns.turns} turns, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
