"""The load of mount-soak.sh, and the samples of memory.

usage: mount-soak.py DIRECTORY SECONDS SEED mount=PID [NAME=PID ...]
"""

import hashlib
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time

SAMPLE_SECONDS = 10
# A load that does not end so long after its time hangs.
PATIENCE_SECONDS = 120
# Of what is wrong so much is told, of each process.
TOLD_MAX = 3
# A process's memory counts as growing if its mean in the last third of the time is above its mean in the
# second third by more than this. The first third is left out: names, attributes and buffers are kept up to
# bounds, and until these are reached memory grows as it should. A part, as what allocators keep follows what
# is used; and some MiB, as bytes that wait to be written come and go, up to 64 MiB of them.
GROWTH_PART = 0.20
GROWTH_MIB = 16

MIB = 1 << 20


def noise(name, length):
    """Bytes that only this name has."""
    piece = hashlib.sha256(name.encode()).digest() * 128
    return (piece * (length // len(piece) + 1))[:length]


class Wrong(Exception):
    pass


def same(what, found, wanted):
    if found != wanted:
        at = next((n for n, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        raise Wrong(f"{what}: {len(found)} bytes, not {len(wanted)}, or other bytes from {at} on")


def read(path):
    with open(path, "rb") as file:
        return file.read()


# Each load is a generator that yields once for each operation or few. It works in a directory of its own, and
# keeps what it has there bounded.


def small_files(at, rng):
    """Files of up to 64 KiB: made, written, renamed, read back, removed."""
    files = {}
    for n in range(1 << 40):
        name = f"{n % 20}/{rng.randrange(1 << 60):x}"
        os.makedirs(f"{at}/{n % 20}", exist_ok=True)
        length = int(65536 * rng.random() ** 4)
        with open(f"{at}/{name}", "xb") as file:
            file.write(noise(name, length))
            if rng.random() < 0.1:
                file.flush()
                os.fsync(file.fileno())
        files[name] = (name, length)
        yield
        if rng.random() < 0.5:
            old = rng.choice(list(files))
            to = f"{rng.randrange(min(n, 19) + 1)}/r{rng.randrange(1 << 60):x}"
            os.rename(f"{at}/{old}", f"{at}/{to}")
            files[to] = files.pop(old)
            yield
        some = rng.choice(list(files))
        same(some, read(f"{at}/{some}"), noise(*files[some]))
        if os.stat(f"{at}/{some}").st_size != files[some][1]:
            raise Wrong(f"{some} has another size")
        yield
        while len(files) > 500:
            old = rng.choice(list(files))
            del files[old]
            os.unlink(f"{at}/{old}")
            yield


def large_file(at, rng):
    """One file of up to 64 MiB: written in pieces, read in whole, changed in places, cut, removed."""
    for n in range(1 << 40):
        path = f"{at}/large-{n % 3}"
        model = bytearray()
        with open(path, "wb") as file:
            for k in range(rng.randrange(1, 64)):
                piece = noise(f"{n} {k}", rng.randrange(1, MIB + 1))
                file.write(piece)
                model += piece
                yield
        same(path, read(path), model)
        yield
        with open(path, "r+b", buffering=0) as file:
            for k in range(rng.randrange(100)):
                where = rng.randrange(len(model))
                piece = noise(f"{n} over {k}", rng.randrange(1, 20_000))[: len(model) - where]
                os.pwrite(file.fileno(), piece, where)
                model[where : where + len(piece)] = piece
                yield
            os.fsync(file.fileno())
            keep = rng.randrange(len(model))
            os.ftruncate(file.fileno(), keep)
            del model[keep:]
        same(path, read(path), model)
        os.unlink(path)
        yield


def appends(at, rng):
    """A log that several processes append to; whoever finds it long renames it, and some remove old ones."""
    me = os.getpid()
    while True:
        file = os.open(f"{at}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for _ in range(rng.randrange(1, 200)):
            n = time.monotonic_ns()
            os.write(file, f"{me} {n} {'x' * rng.randrange(400)} {me} {n}\n".encode())
            yield
        long = os.fstat(file).st_size > 4 * MIB
        os.close(file)
        try:
            if long:
                os.rename(f"{at}/log", f"{at}/old-{rng.randrange(3)}")
            seen = {}
            old = f"{at}/old-{rng.randrange(3)}" if rng.random() < 0.1 else f"{at}/log"
            for line in read(old).split(b"\n")[:-1]:
                words = line.split(b" ")
                if len(words) != 5 or words[:2] != words[3:] or seen.get(words[0], 0) >= int(words[1]):
                    zeros = len(line) - len(line.lstrip(b"\0"))
                    begin = line.lstrip(b"\0")[:40]
                    raise Wrong(f"{old} has a line that begins with {zeros} zeros and {begin}")
                seen[words[0]] = int(words[1])
        except FileNotFoundError:
            pass
        yield


def mappings(at, rng):
    """Files that are mapped, changed in places, synced, and read back by read."""
    for n in range(1 << 40):
        path = f"{at}/mapped-{n % 4}"
        length = rng.randrange(1, 4 * MIB)
        model = bytearray(length)
        with open(path, "w+b") as file:
            file.truncate(length)
            with mmap.mmap(file.fileno(), length) as mapped:
                for k in range(rng.randrange(1, 100)):
                    where = rng.randrange(length)
                    piece = noise(f"{n} {k}", rng.randrange(1, 10_000))[: length - where]
                    mapped[where : where + len(piece)] = piece
                    model[where : where + len(piece)] = piece
                    if rng.random() < 0.05:
                        mapped.flush()
                    yield
        same(path, read(path), model)
        if rng.random() < 0.5:
            os.unlink(path)
        yield


def trees(at, rng):
    """A tree of some hundred files: made, copied, compared, its modes and times changed, removed."""
    for n in range(1 << 40):
        root = f"{at}/tree-{n}"
        for k in range(rng.randrange(50, 400)):
            directory = f"{root}/{k % 7}/{k % 11}"
            os.makedirs(directory, exist_ok=True)
            with open(f"{directory}/{k}", "wb") as file:
                file.write(noise(f"{n} {k}", rng.randrange(8192)))
            yield
        shutil.copytree(root, f"{root}-copy")
        yield
        for above, _, names in os.walk(root):
            for name in names:
                path = f"{above}/{name}"
                same(path, read(path.replace(root, f"{root}-copy", 1)), read(path))
                os.chmod(path, 0o640)
                os.symlink(name, f"{path}.link")
                os.link(path, f"{path}.other")
                yield
        shutil.rmtree(f"{root}-copy")
        shutil.rmtree(root)
        yield


def finds(at, _rng):
    """All that the others have, again and again, with attributes."""
    above = os.path.dirname(at)
    while True:
        for directory, _, names in os.walk(above):
            for name in names:
                try:
                    os.lstat(f"{directory}/{name}")
                except FileNotFoundError:
                    pass
                yield
        time.sleep(0.5)


# Those of one name share a directory.
LOADS = [small_files, small_files, large_file, appends, appends, appends, mappings, trees, finds]
SHARED = {appends}


def work(number, load, root, seed, until, count, wrong):
    """Until the time is over. What is wrong is told, and the load begins anew elsewhere."""
    rng = random.Random(f"{seed} {number}")
    while True:
        at = f"{root}/{load.__name__}" + ("" if load in SHARED else f"-{number}-{wrong.value}")
        os.makedirs(at, exist_ok=True)
        try:
            for _ in load(at, rng):
                count.value += 1
                if time.monotonic() > until:
                    return
        except Wrong as error:
            wrong.value += 1
            if wrong.value <= TOLD_MAX:
                print(f"{time.strftime('%T')} {load.__name__}: {error}", flush=True)


def resident(pid):
    """MiB in all, MiB of them not of files, and descriptors that are open."""
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    sizes = [int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")]
    return *sizes, len(os.listdir(f"/proc/{pid}/fd"))


def mean(numbers):
    return sum(numbers) / len(numbers)


def table(samples):
    names = ["mount", "of own", "open", "manager", "drives"]
    print(f"{'s':>6} {' '.join(f'{name:>8}' for name in names)} {'operations':>11}   MiB resident")
    for at, sizes, done in samples:
        drives = sum(size[0] for name, size in sizes.items() if name.startswith("drive"))
        mount, manager = sizes["mount"], sizes["manager"]
        print(f"{at:6.0f} {mount[0]:8.1f} {mount[1]:8.1f} {mount[2]:8} {manager[0]:8.1f} {drives:8.1f} {done:11,}")


def main():
    root, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    pids = dict(pair.split("=") for pair in sys.argv[4:])
    # So that the loads end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    began = time.monotonic()
    until = began + seconds
    counts = [multiprocessing.Value("q", 0) for _ in LOADS]
    wrongs = [multiprocessing.Value("q", 0) for _ in LOADS]
    workers = [
        multiprocessing.Process(target=work, args=(n, load, root, seed, until, counts[n], wrongs[n]), daemon=True)
        for n, load in enumerate(LOADS)
    ]
    for worker in workers:
        worker.start()
    samples, failed = [], []
    while time.monotonic() < until and not failed:
        time.sleep(max(0, min(SAMPLE_SECONDS * (len(samples) + 1) + began, until) - time.monotonic()))
        sizes = {name: resident(pid) for name, pid in pids.items()}
        samples.append((time.monotonic() - began, sizes, sum(count.value for count in counts)))
        failed = [n for n, worker in enumerate(workers) if worker.exitcode]
    for n, worker in enumerate(workers):
        if not failed:
            worker.join(max(0.1, until + PATIENCE_SECONDS - time.monotonic()))
        if worker.exitcode is None and not failed:
            failed = [n]
            print(f"{LOADS[n].__name__} hangs")
        if worker.exitcode:
            failed.append(n)
        worker.kill()
    table(samples)
    for load, count, wrong in zip(LOADS, counts, wrongs):
        print(f"{load.__name__}: {count.value:,} operations, {wrong.value} times something was wrong")
    is_wrong = any(wrong.value for wrong in wrongs)
    if failed:
        print(f"failed: {', '.join(LOADS[n].__name__ for n in sorted(set(failed)))}")
        return 1
    if len(samples) < 6:
        print("too short to say whether memory is flat")
        return int(is_wrong)
    third = len(samples) // 3
    grows = False
    for name in pids:
        sizes = [sizes[name][0] for _, sizes, _ in samples]
        before, after = mean(sizes[third : 2 * third]), mean(sizes[2 * third :])
        bound = before * (1 + GROWTH_PART) + GROWTH_MIB
        verdict = "it GROWS" if after > bound else "flat"
        means = f"{before:.1f} MiB on average in the second third, {after:.1f} in the last; at most {bound:.1f}"
        print(f"{name}: {means}: {verdict}")
        grows |= after > bound
    return int(is_wrong or grows)


if __name__ == "__main__":
    sys.exit(main())
