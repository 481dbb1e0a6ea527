//! Commands that measure.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One drive's store against raw files: rates, CPU time, and the ratio of each pair of samples
    #[command(
        after_help = "Every row is a ratio: the store's rate over that of plain pread, pwritev and fdatasync doing the same work (sizes, depth, sync policy) in the same run. Samples alternate. The median of their ratios is printed first, with the lowest and the highest. CPU is user and system time of all threads.\n\nRows:\n  \
        write whole units   16 in flight; plain: one writer that writes everything that waits at once and syncs once\n  \
        read whole units    one after the other\n  \
        random read         the given number at a time\n  \
        durable write       answered when it is on the medium; plain: one fdatasync each, by one thread or by as many threads\n  \
        hit, miss           the bytes are in the page cache, or were dropped from it before the sample\n  \
        sendfile            from the page cache to a loopback socket; plain: reading into a buffer and sending that; CPU is the sender's\n\n\
        Opening: seconds to open a store of a million objects and 100 GiB of (generated) log as after kill -9, with a tail of 64 MiB to replay and with the longest possible tail; in the first directory that is not in memory. Write amplification: bytes written per byte that clients write, by the live share of the store. Overwrites are uniform, or nine tenths of them go to a tenth of the units; a simulation stands beside. It is counted, not timed, and runs in memory if one of the directories is.\n\n\
        It needs 4 GiB free in each directory (96 MiB with --quick), and about a quarter of an hour for a directory on a disk and one in memory. It removes its files, also on Ctrl-C. In memory (tmpfs) nothing misses a cache and nothing needs a sync, so those rows are left out.\n\nExamples:\n  \
        braid-lab bench store\n  braid-lab bench store --dir /disk1 --dir /dev/shm\n  braid-lab bench store --quick --json\n  \
        braid-lab bench store --dir /disk1 --out docs/results\n  \
        braid-lab bench store --dir /disk1 --only 'durable write'"
    )]
    Store(BenchStore),
    /// Files over real drives: one shared file against one each, small updates, drives away, rebuilds
    #[command(
        after_help = "A manager, drives and clients run as processes of their own in a temporary directory. Every figure is a ratio of two samples taken one right after the other; the order alternates. docs/bench.md says what each row does and what bounds it.\n\nRows:\n  \
        E18       all clients write a file each, against all of them write one file: small records, or ranges\n  \
        E15       4 KiB updates: bytes sent per byte written, and the rate against updates computed by the client\n  \
        E19       reads and writes with drives away, and during a rebuild, against healthy ones\n  \
        catch-up  bytes written to bring a drive up to date that missed 1 % of the writes\n  \
        E16       the rebuild of a lost drive, against what all links together could carry\n\n\
        Rows with limited links run each drive in a network namespace of its own; they need root and iproute2, and are left out without. It needs 12 GiB free in the directory (1 GiB with --quick) and about a quarter of an hour. It ends its processes and removes its files and namespaces, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench stripes\n  braid-lab bench stripes --quick --json\n  braid-lab bench stripes --only E18\n  braid-lab bench stripes --only '1 away'\n  \
        braid-lab bench stripes --dir /dev/shm --out docs/results"
    )]
    Stripes(BenchCluster),
    /// Small files, names and 4 KiB pieces on a cluster: operations a second, latency, processor time
    #[command(
        after_help = "A manager, six drives (raid5 4+1) and a client run as processes of their own in a temporary directory. Rows, with 1, 16 and 64 operations in flight:\n  \
        create + write 4 KiB + close    durable, and so is the name\n  \
        unlink                          of these files\n  \
        open + read 4 KiB + close       of a directory's files\n  \
        stat, list a directory\n  \
        random read, random overwrite   4 KiB of a file of 1 GiB; an overwrite is durable\n\
        and, with as many in flight as the commands have:\n  \
        cp -r in, cp -r out, rm -r      a tree of 20,000 files of 4 KiB\n\n\
        CPU us is processor time for one operation: of the client, the drives and the manager, until these have nothing left to do; kernel is its part in the kernel. OF PLAIN is the rate over that of plain messages of the same bytes, as many in flight, over as many sockets between as many processes; the samples alternate. PER SYNC is the rate over the syncs that the disk can do one by one; in memory it is left out. Goals are for drives in memory, but one. docs/bench.md says more.\n\n\
        It needs 8 GiB free in the directory (512 MiB with --quick) and about ten minutes. It ends its processes and removes its files, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench small\n  braid-lab bench small --quick --json\n  braid-lab bench small --only unlink\n  \
        braid-lab bench small --only '16 in flight'\n  braid-lab bench small --dir /disk1 --only 'cp -r'\n  \
        braid-lab bench small --out docs/results"
    )]
    Small(BenchCluster),
    /// Reserved rates beside other clients, lost drives, rebuilds and limited links: what was late
    #[command(
        after_help = "A manager, six drives and clients run as processes of their own in a temporary directory. The drives' disks are modelled: a spindle and a flash disk, slow enough that processors are not the limit. docs/bench.md says what each row does.\n\nRows:\n  \
        beside overload             reads and writes at 0.7 of the greatest rate, beside clients that take what they get\n  \
        a drive killed              the same, until its columns are rebuilt\n  \
        without reservations        both again, to see how late they are\n  \
        best effort                 what others get beside a reserved rate\n  \
        admitted over carried       the greatest rate admitted, over the greatest without lateness\n  \
        predicted over measured     rates, healthy and degraded\n  \
        streams                     200 of 8 Mbit/s with random starts\n  \
        links                       at 0.7 of links that `tc tbf` limits; needs root\n  \
        rebuild                     its finish against what `braid heal` said\n\n\
        It needs 8 GiB free in the directory (2 GiB with --quick) and about ten minutes. It ends its processes and removes its files, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench promises\n  braid-lab bench promises --quick --json\n  braid-lab bench promises --only spindle\n  \
        braid-lab bench promises --out docs/results"
    )]
    Promises(BenchCluster),
    /// Measure volumes and drives beside moving bytes: quotas, snapshots, keys, small files, reading ahead
    #[command(
        after_help = "A manager, a drive and clients run as processes of their own. Disks are modelled, but one that is this machine's memory. docs/bench.md says what each row does.\n\nRows:\n  \
        quota                   bytes beyond one by 16 writers at once; writes with quotas on against off\n  \
        snapshot                pause of writers, bytes, and reads against the live file's\n  \
        keys turn               requests that fail meanwhile\n  \
        names                   those that come back from the drives alone, and the time it takes\n  \
        clustered               small files read one by one, cold, near each other against not\n  \
        8 interleaved streams   read in order, cold, from one drive: their sum against one stream\n  \
        of the disk             their sum against the disk's own rate\n  \
        one stream              with read-ahead against without\n  \
        random 4 KiB reads      with read-ahead against without: it must not cost anything\n\n\
        It needs 3 GiB free in the directory (1 GiB with --quick) and about a quarter of an hour. It ends its processes and removes its files, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench volumes\n  braid-lab bench volumes --quick --json\n  braid-lab bench volumes --only spindle\n  \
        braid-lab bench volumes --out docs/results"
    )]
    Volumes(BenchCluster),
    /// Measure what files get of the links between drives and a client, beside plain TCP
    #[command(
        after_help = "Each drive is on a host of its own, a network namespace, and links are limited by `tc tbf`: it needs root and iproute2, and leaves its rows out without them. docs/bench.md says what each row does.\n\nRows:\n  \
        rails    three drives and a client, over two links each against one, of 100 Mbit/s\n  \
        links    1 to 16 drives, each on a link of 100 Mbit/s, and a client's link of 100 to 200 Mbit/s\n  \
         incast   16 drives answer a client at once, and 16 clients write to a drive, over 200 Mbit/s with a queue of 32 KiB\n\n\
        It needs 8 GiB free in the directory (1 GiB with --quick) and about 20 minutes. It ends its processes and removes its files and hosts, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench net\n  braid-lab bench net --quick --json\n  braid-lab bench net --only rails\n  \
        braid-lab bench net --out docs/results"
    )]
    Net(BenchCluster),
    /// Measure plain senders, writers and memory of this machine: the bounds of the other benches
    #[command(after_help = "Rows:\n  \
        sockets  five processes send files to this one, by sendfile and by a copy; this one sends to five that write, or drop\n  \
        memory   copies, XOR and checksums of cold and of hot bytes\n\n\
        Each with its processor time for a GiB, of all processes. It needs 3 GiB free in the directory (256 MiB with --quick) and about two minutes, and removes its files, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench bound\n  braid-lab bench bound --only memcpy --json\n  braid-lab bench bound --out docs/results")]
    Bound(BenchCluster),
    /// One client, raid5 4+1 over drives on this machine: every transfer against the bound of the same run
    #[command(
        after_help = "Rows, each by turns with plain processes that move as many bytes, or with what it is a part of:\n  \
        sequential read, degraded read, sequential write, overwrites of 1 MiB at random, records of 47,008 bytes,\n  \
        and a mount's write and read\n\n\
        CPU s/GiB counts the client, the drives, the manager and the mount. Mounts need /dev/fuse, and are left out without. It needs 12 GiB free in the directory (1 GiB with --quick) and about ten minutes.\n\nExamples:\n  \
        braid-lab bench local\n  braid-lab bench local --only 'sequential read'\n  braid-lab bench local --out docs/results"
    )]
    Local(BenchCluster),
    /// Several managers, and keys that turn: files made a second, a leader that dies, requests that fail
    #[command(after_help = "Rows:\n  \
        files made              a second, on three members of etcd, by turns with one manager's own state\n  \
        the leader's death      with its member of etcd: how long names wait; the longest write and read of open files\n  \
        keys turn               requests that fail meanwhile\n\n\
        Three managers run with the etcd that they start: it needs the program etcd, and leaves these rows out without. It needs 4 GiB free in the directory (1 GiB with --quick) and about five minutes. It ends its processes and removes its files, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench trust\n  braid-lab bench trust --only 'made and closed' --dir /disk1\n  braid-lab bench trust --out docs/results")]
    Trust(BenchCluster),
    /// A volume with private data beside one with integrity: what a second of processor time moves
    #[command(
        after_help = "Rows, each by turns on both volumes: sequential read, sequential write, overwrites of 64 KiB at random. The values are bytes for a second of processor time, of the client, the drives and the manager together; RATIO is 1 over the cost of privacy.\n\nIt needs 8 GiB free in the directory (1 GiB with --quick) and a few minutes.\n\nExamples:\n  \
        braid-lab bench privacy\n  braid-lab bench privacy --only read --json"
    )]
    Privacy(BenchCluster),
    /// Schemes and transfer sizes, drives lost, the cost of parity, and many drives (E4, E5, E7)
    #[command(after_help = "Rows:\n  \
        E4       reads and writes of 8 KB to 64 MiB: raid4 and raid5 against raid0\n  \
        E4       with a drive lost against healthy: raid5, and raid4 without a data drive and without its parity drive\n  \
        E5       the part of a write's time that parity arithmetic takes\n  \
        RAID-II  random reads of 4 KB and reads in order over up to 24 drives, against as many times one drive; disks are modelled\n\n\
        It needs 8 GiB free in the directory (2 GiB with --quick) and about a quarter of an hour.\n\nExamples:\n  \
        braid-lab bench array\n  braid-lab bench array --only RAID-II\n  braid-lab bench array --out docs/results")]
    Array(BenchCluster),
    /// Thirteen drives and one to ten clients that read what is cached (E9)
    #[command(
        after_help = "Each client reads a file of its own in order, 2 MB at a time, over four drives, from their page caches; beside it plain processes send as many bytes by sendfile. It needs 6 GiB free in the directory (1 GiB with --quick) and a few minutes.\n\nExamples:\n  \
        braid-lab bench cache\n  braid-lab bench cache --only '4 clients'\n  braid-lab bench cache --out docs/results"
    )]
    Cache(BenchCluster),
    /// User instructions of a drive for one request (E10)
    #[command(
        after_help = "Reads of 1 B to 512 KB, warm and cold, counted at the drive: by `perf stat` where the machine counts instructions, else by valgrind's callgrind. Without either it says so. It needs 1 GiB free in the directory and a few minutes; under valgrind a drive is some fifty times slower, which does not matter for counts.\n\nExamples:\n  \
        braid-lab bench cost\n  braid-lab bench cost --only warm --json"
    )]
    Cost(BenchCluster),
    /// The same work on what people would pick today, as far as it is installed (E17)
    #[command(
        after_help = "NFS-Ganesha, MinIO and SeaweedFS, each as one server on this machine with its files in the directory, against Braid. What is not installed is named. It needs 8 GiB free in the directory (1 GiB with --quick).\n\nExamples:\n  \
        braid-lab bench peers\n  braid-lab bench peers --only MinIO"
    )]
    Peers(BenchCluster),
    /// Methods at the drives against `braid cat` and a tool, over a link of 1 Gbit/s: time, and bytes moved
    #[command(
        after_help = "grep, count and csv over a file of receipts, of whose lines about one in a hundred is asked for: `braid run ... --at drive`, and `braid cat` into grep, wc and awk, by turns. The drives are on hosts, and the client's link is limited; that needs root and iproute2. It needs 2 GiB free in the directory (256 MiB with --quick) and a few minutes.\n\nExamples:\n  \
        braid-lab bench methods\n  braid-lab bench methods --only grep --json\n  braid-lab bench methods --out docs/results"
    )]
    Methods(BenchCluster),
    /// Datagrams under each policy beside TCP: clean, lossy, shared and crowded links, and the loopback (E6)
    #[command(
        after_help = "Servers stand in the drives' places and answer with blocks, without stores. They are on hosts, network namespaces, and the client's link is limited by `tc tbf`: that needs root and iproute2, and losses nftables; rows are left out without them. docs/bench.md says what each row does.\n\nRows:\n  \
        loopback  without a limit: rate and processor time\n  \
        clean     100 Mbit/s and 1 Gbit/s, with a deep queue and a shallow one\n  \
        loss      deep queues, with 0.1, 1 and 3 % of the frames lost\n  \
        shared    a connection beside 1, 2 and 4 of TCP: how fairly\n  \
        incast    4 to 32 servers answer at once, over 200 Mbit/s with queues of 64 and 32 KiB\n  \
        paper     as Swift/RAID measured its adaptive flow control: 3 to 5 drives, raid0, raid4, raid5\n  \
        away      a data drive of five away against all\n\n\
        It takes about 20 minutes. It ends its processes and removes its hosts, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench transport\n  braid-lab bench transport --quick --json\n  braid-lab bench transport --only incast\n  \
        braid-lab bench transport --out docs/results"
    )]
    Transport(BenchCluster),
    /// Measure what the parts of a cluster cost on this machine, in the form that `braid sim` takes
    #[command(
        after_help = "Five drives (raid5 4+1) and a client run as processes of their own for half a minute. Processor time for bytes and messages is counted; a disk's rates are those of plain files; what a message's way and a commit take is what is left of a small operation's time when it is simulated without them.\n\nThe output is the [parts] of a spec (docs/sim.md).\n\nExamples:\n  \
        braid-lab bench calibrate\n  braid-lab bench calibrate --dir /disk1 --out parts.toml"
    )]
    Calibrate(BenchCalibrate),
    /// Compare the simulator's predictions for a cluster on limited links with measurements
    #[command(
        after_help = "It calibrates first, then runs each row's work on drives in network namespaces of their own, whose links are limited, and simulates the same. It needs root and iproute2; without, the rows are left out.\n\nRows:\n  \
        E1  raid0 over 3 drives, the client's link limited\n  \
        E4  raid5 over 5 drives, the client's link limited: large, small, and with a drive away\n  \
        E5  raid5 over 3, 4 and 5 drives, whose links are limited\n\n\
        It needs 4 GiB free in the directory and a few minutes. It ends its processes and removes its files and namespaces, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab bench predict\n  braid-lab bench predict --only E5\n  braid-lab bench predict --out docs/results"
    )]
    Predict(BenchCluster),
}

#[derive(Debug, Args)]
pub(crate) struct BenchCalibrate {
    /// The directory to keep the drives in [default: /dev/shm, if it has room; else the system's temporary
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Measure only a few MiB, to see that it runs; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write the parts to this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

// Arguments of the benches that start a cluster. (Not a doc comment: that would become the command's help.)
#[derive(Debug, Args)]
pub(crate) struct BenchCluster {
    /// The directory to keep the drives in [default: /dev/shm, so that no disk is the limit, if it has room;
    /// else the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Measure only a few MiB, to see that it runs; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only the rows with TEXT in their name
    #[arg(long, value_name = "TEXT", conflicts_with = "out")]
    pub(crate) only: Option<String>,
    /// Write the results to this directory too: a document, and a plot as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchStore {
    /// The directory to measure in; may be repeated [default: the system's temporary directory, and /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Vec<PathBuf>,
    /// Measure only a few MiB, to see that it runs; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only the rows with TEXT in their first column, or "write amplification"
    #[arg(long, value_name = "TEXT", conflicts_with = "out")]
    pub(crate) only: Option<String>,
    /// Write store.md and store.svg to this directory too
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
