"""Ranks of an MPI program write disjoint ranges of one file, together, and each reads what another wrote.

    BRAID_CLUSTER=/srv/braid mpirun -n 4 python collective.py braid://main/field
    mpirun -n 4 python collective.py /mnt/braid/field        # the same by MPI-IO, on a mount

On a name of Braid the ranks open the file by `braidfs`, each for a range of whole stripes: each has a lease
on its own stripes, and no write waits for another rank's. On a path they use MPI-IO, collectively.

What holds: the ranges are disjoint, so no order among the writes is needed. Each write that has returned is
durable, and after the barrier every rank sees all of them. That is MPI's non-atomic mode with a sync, a
barrier and a sync; MPI's atomic mode, in which overlapping writes of several ranks are whole, is not given by
`braidfs`, and on a mount is what MPI's own locks make of it.
"""

import sys
import time

from mpi4py import MPI

#: Bytes of each rank, at least: rounded up to whole stripes.
SHARE_BYTES = 32 << 20

#: For the file that is made.
LAYOUT = "raid5 4+1 unit=64K"


def content(rank, length):
    """Bytes that tell the rank, and any that is misplaced."""
    block = bytes((rank * 37 + at * 11 + at // 256) % 256 for at in range(65536))
    return (block * (length // len(block) + 1))[:length]


def by_braid(comm, name):
    """Writes this rank's share, and reads that of the next rank. Returns the bytes and the seconds."""
    import braidfs

    client = braidfs.Client()
    stripe = None
    if comm.rank == 0:
        with client.open(name, "w", layout=LAYOUT) as file:
            stripe = file.stripe_bytes()
    stripe = comm.bcast(stripe)
    share = -(-SHARE_BYTES // stripe) * stripe
    mine, start = content(comm.rank, share), comm.rank * share
    with client.open(name, "r+", range=(start, start + share)) as file:
        comm.Barrier()
        began = time.perf_counter()
        file.pwrite(mine, start)
        comm.Barrier()
        wrote = time.perf_counter() - began
    comm.Barrier()
    other = (comm.rank + 1) % comm.size
    with client.open(name, "r") as file:
        read = file.pread(share, other * share)
    return other, read, share, wrote


def by_mpi_io(comm, path):
    """The same, by MPI's own calls."""
    share = SHARE_BYTES
    mine, start = content(comm.rank, share), comm.rank * share
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Set_atomicity(False)
    file.Set_size(0)
    comm.Barrier()
    began = time.perf_counter()
    file.Write_at_all(start, mine)
    file.Sync()
    wrote = time.perf_counter() - began
    comm.Barrier()
    file.Sync()
    other = (comm.rank + 1) % comm.size
    read = bytearray(share)
    file.Read_at_all(other * share, read)
    file.Close()
    return other, bytes(read), share, wrote


def main(name):
    comm = MPI.COMM_WORLD
    write = by_braid if name.startswith("braid://") else by_mpi_io
    other, read, share, wrote = write(comm, name)
    is_right = comm.allreduce(int(read == content(other, share))) == comm.size
    slowest = comm.allreduce(wrote, op=MPI.MAX)
    if comm.rank == 0:
        total = share * comm.size
        print(f"{comm.size} ranks wrote {total} bytes in {slowest:.3f} s: {total / slowest / 1e6:.0f} MB/s")
        print("every rank read what another wrote" if is_right else "some rank read something else")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
