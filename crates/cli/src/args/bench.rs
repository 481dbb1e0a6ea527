//! Commands that measure.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One drive's store against raw files: rates, CPU time, and the ratio of each pair of samples
    #[command(
        after_help = "Every row is a ratio: the store's rate over that of plain pread, pwritev and fdatasync doing the same work (sizes, depth, sync policy) in the same run. Samples alternate; the median ratio counts, the least and the greatest stand beside it. CPU is user and system time of all threads.\n\nRows:\n  \
        write whole units   16 in flight; plain: one writer that takes what waits, writes it at once, syncs once\n  \
        read whole units    one after the other\n  \
        random read         so many at a time\n  \
        durable write       answered when it is on the medium; plain: an fdatasync for each, by one thread or by as many\n  \
        hit, miss           the bytes are in the page cache, or were dropped from it before the sample\n  \
        sendfile            from the page cache to a loopback socket; against reading into a buffer and sending that; CPU is the sender's\n\n\
        Opening: seconds to open a store of a million objects and 100 GiB of (made up) log as after kill -9, with a tail of 64 MiB to replay and with the longest that there can be; on the first directory that is no memory. Write amplification: bytes written for each byte of the foreground by how much of the store is live, for overwrites of all units alike and of a tenth of them by nine tenths of the writes, beside a simulation; counted, not timed, in memory if a directory is.\n\n\
        It needs 4 GiB free in each directory (96 MiB with --quick) and about a quarter of an hour for a directory on a disk and one in memory, and removes its files, also on Ctrl-C. In memory (tmpfs) nothing misses a cache and nothing need be synced: those rows are left out.\n\nExamples:\n  \
        braid bench store\n  braid bench store --dir /disk1 --dir /dev/shm\n  braid bench store --quick --json\n  \
        braid bench store --dir /disk1 --out docs/results\n  \
        braid bench store --dir /disk1 --only 'durable write'"
    )]
    Store(BenchStore),
}

#[derive(Debug, Args)]
pub(crate) struct BenchStore {
    /// Where to measure; may be repeated [default: the system's temporary directory, and /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Vec<PathBuf>,
    /// Do only enough to see that it runs: a few MiB; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only what has TEXT in its first column, or "write amplification"
    #[arg(long, value_name = "TEXT", conflicts_with = "out")]
    pub(crate) only: Option<String>,
    /// Write store.md, store.json and store.svg to this directory too
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
