//! Work that the paper's authors left undone (sections 5.1 and 6.1): parity, lost disks, preallocation and
//! read-ahead, caching, and reservations that hold on all parts at once.

use super::Runner;
use super::result::{Row, Table};
use super::search::{link_busy, most};
use super::setup::{Setup, named};
use braid_sim::model::{LinkModel, Placement};
use braid_sim::outcome::{PartKind, RunOutcome};
use braid_sim::spec::{Interval, Load, Pattern, Reserved, Spec};
use braid_sim::units::{Bytes, Rate, Span};

/// One row to be run: its name and its spec.
struct Case {
    name: &'static str,
    spec: Spec,
}

pub(super) fn tables(runner: &Runner<'_>) -> Option<Vec<Table>> {
    Some(vec![
        parity(runner)?,
        small_writes(runner)?,
        placement(runner)?,
        caching(runner)?,
        reservations(runner)?,
    ])
}

/// Replaces the load by separate loads of reads and of writes, 4:1, together `rate` requests a second.
fn apart(spec: &mut Spec, rate: f64, request: Bytes) {
    let reads = Load::open("reads", 0.8 * rate, request);
    let writes = Load { read: 0.0, ..Load::open("writes", 0.2 * rate, request) };
    spec.load = vec![reads, writes];
}

/// A row with the times of reads and of writes at the spec's rate, and the greatest data-rate.
fn times_and_most(case: &Case) -> Row {
    let at_rate = braid_sim::run(&case.spec, &[]);
    // The greatest rate is that of the same mix in one load that always has requests waiting. One load has
    // one pattern: that of the writes.
    let pattern = case.spec.load[1].pattern;
    let mixed = Load { read: 0.8, pattern, ..case.spec.load[0].clone() };
    let full = most(&Spec { load: vec![mixed], ..case.spec.clone() });
    let ms = |outcome: &RunOutcome, load: usize| {
        (!outcome.is_saturated()).then(|| outcome.loads[load].milliseconds.mean)
    };
    Row {
        name: case.name.to_owned(),
        values: vec![
            ms(&at_rate, 0),
            ms(&at_rate, 1),
            Some(100.0 * at_rate.utilisation(PartKind::Disk)),
            Some(100.0 * at_rate.utilisation(PartKind::ClientProcessor)),
            Some(full.loads[0].bytes_per_second / 1e6),
        ],
    }
}

fn columns() -> Vec<String> {
    let names = ["reads (ms)", "writes (ms)", "disks busy (%)", "clients' processors (%)", "the most (MB/s)"];
    names.map(str::to_owned).to_vec()
}

/// A table of 32 data disks and one more: without parity, with parity, with its arithmetic, with a disk
/// lost.
fn parity(runner: &Runner<'_>) -> Option<Table> {
    let request = Bytes(1 << 20);
    let base = |disks: u32, scheme: &str, arithmetic: bool, lost: bool| {
        let mut spec = Setup::new(disks, 32, 1024).at(10.0).spec();
        spec.files.scheme = scheme.to_owned();
        if arithmetic {
            // One instruction for each byte that goes into parity.
            spec.parts.client.parity = Some(Rate(100e6));
        }
        if lost {
            spec.cluster.down = vec![0];
        }
        apart(&mut spec, 10.0, request);
        spec
    };
    let cases = [
        Case { name: "32 disks, no parity: the paper's", spec: base(32, "raid0", false, false) },
        Case { name: "raid5 32+1, parity computed in no time", spec: base(33, "raid5", false, false) },
        Case { name: "raid5 32+1, one instruction a byte", spec: base(33, "raid5", true, false) },
        Case { name: "raid5 32+1, the same, a disk lost", spec: base(33, "raid5", true, true) },
        Case { name: "rs(30,2), the same, no disk lost", spec: rs(base(32, "raid0", true, false), &[]) },
        Case {
            name: "rs(30,2), the same, two disks lost",
            spec: rs(base(32, "raid0", true, false), &[0, 1]),
        },
    ];
    let rows = runner.map("parity and lost disks", &cases, times_and_most)?;
    Some(Table {
        title: "Parity, and disks that are lost".to_owned(),
        about: "Requests of 1 MB in units of 32 KB, 10 a second, reads to writes 4:1; plan sets as Braid's client \
                makes them. A full stripe's parity costs its arithmetic and one more unit on one more disk. With a \
                disk lost, a read of its unit reads all others' units instead, which the request reads anyway, and \
                one instruction for each of their bytes. The stripes of rs(30,2) are shorter than requests: some \
                disks have two units of a request, writes that do not fill their stripes read first, and with disks \
                lost a stripe is read whole of which a request has little."
            .to_owned(),
        columns: columns(),
        rows,
    })
}

fn rs(mut spec: Spec, lost: &[u32]) -> Spec {
    spec.files.scheme = "rs(30,2)".to_owned();
    spec.files.width = None;
    spec.cluster.down = lost.to_vec();
    spec
}

/// A table of writes that do not fill a stripe, by the way in which they are made.
fn small_writes(runner: &Runner<'_>) -> Option<Table> {
    let base = |scheme: &str, disks: u32, shared: bool| {
        let mut spec = Setup::new(disks, 32, 32).at(20.0).spec();
        spec.files.scheme = scheme.to_owned();
        spec.parts.client.parity = Some(Rate(100e6));
        apart(&mut spec, 20.0, Bytes(32 << 10));
        if shared {
            spec.load[1].pattern = Pattern::NTo1;
        }
        spec
    };
    let log = |mut spec: Spec| {
        spec.parts.store.log = true;
        spec
    };
    let cases = [
        Case { name: "no parity", spec: base("raid0", 8, false) },
        Case { name: "raid5 8+1, the cheapest way", spec: base("raid5", 9, false) },
        Case { name: "the same, all clients to one file", spec: base("raid5", 9, true) },
        Case { name: "the same, and drives that append to a log", spec: log(base("raid5", 9, true)) },
    ];
    let rows = runner.map("small writes", &cases, times_and_most)?;
    Some(Table {
        title: "The extra writes of small requests".to_owned(),
        about: "Requests of one unit of 32 KB on 8 data disks, 20 a second, reads to writes 4:1. The client picks \
                the cheapest way by bytes and rounds; the data drive then sends the change to the parity drive \
                (drive to drive), after it has read what it replaces. Swift's disks have no log: every access \
                positions."
            .to_owned(),
        columns: columns(),
        rows,
    })
}

/// A table of the placements of units, and of reading ahead.
fn placement(runner: &Runner<'_>) -> Option<Table> {
    let base = |unit: u64, placement: Placement, sequential: bool, ahead: u64| {
        let mut spec = Setup::new(8, unit, 1024).at(2.0).spec();
        spec.parts.store.placement = placement;
        if ahead > 0 {
            spec.parts.store.cache = Bytes(16 << 20);
            spec.parts.store.read_ahead = Bytes(ahead);
        }
        apart(&mut spec, 0.5, Bytes(1 << 20));
        if sequential {
            spec.files.count = 8;
            spec.load.iter_mut().for_each(|load| load.pattern = Pattern::Sequential);
        }
        spec
    };
    use Placement::{Clustered, Contiguous, Scattered};
    let cases = [
        Case { name: "4 KB, every unit anywhere: the paper's", spec: base(4, Scattered, false, 0) },
        Case { name: "4 KB, a request's units together", spec: base(4, Clustered, false, 0) },
        Case { name: "32 KB, every unit anywhere: the paper's", spec: base(32, Scattered, false, 0) },
        Case { name: "32 KB, a request's units together", spec: base(32, Clustered, false, 0) },
        Case { name: "32 KB, one extent, 8 files from end to end", spec: base(32, Contiguous, true, 0) },
        Case { name: "the same, reading ahead 512 KB", spec: base(32, Contiguous, true, 512 << 10) },
    ];
    let rows = runner.map("preallocation and read-ahead", &cases, times_and_most)?;
    Some(Table {
        title: "Preallocation and read-ahead".to_owned(),
        about: "Requests of 1 MB on 8 disks, one in two seconds, reads to writes 4:1. The paper's section 5.1: \
                \"Staging data in the cache and sequential preallocation of storage would greatly reduce the number \
                of seeks and significantly improve performance.\" So they do."
            .to_owned(),
        columns: columns(),
        rows,
    })
}

/// A table of caches of several sizes before data that is read again and again.
fn caching(runner: &Runner<'_>) -> Option<Table> {
    let base = |cache: u64| {
        let mut spec = Setup::new(8, 32, 256).at(4.0).spec();
        spec.files.size = Bytes(64 << 20);
        spec.parts.store.cache = Bytes(cache);
        apart(&mut spec, 4.0, Bytes(256 << 10));
        spec
    };
    let cases = [
        Case { name: "no cache: the paper's", spec: base(0) },
        Case { name: "2 MB on each drive: a quarter of the data", spec: base(2 << 20) },
        Case { name: "4 MB: half", spec: base(4 << 20) },
        Case { name: "6 MB: three quarters", spec: base(6 << 20) },
        Case { name: "8 MB: all of it", spec: base(8 << 20) },
    ];
    let rows = runner.map("caching", &cases, times_and_most)?;
    Some(Table {
        title: "Caching".to_owned(),
        about: "Requests of 256 KB at random offsets of 64 MB on 8 disks with units of 32 KB, 4 a second, reads to \
                writes 4:1. The page used longest ago goes first. Writes go through. A request is as slow as its \
                slowest disk: half of the data in memory is far from half of the time."
            .to_owned(),
        columns: columns(),
        rows,
    })
}

/// A table of streams with a deadline beside a load that takes all that is left.
fn reservations(runner: &Runner<'_>) -> Option<Table> {
    let spec = |reserved: Reserved, ring: &str| {
        let mut spec = Setup::new(32, 32, 1024).spec();
        let mut link: LinkModel = named("swift-ring");
        if ring == "100 Mb/s" {
            link.rate = Rate(12.5e6);
        }
        spec.parts.link = link;
        let streams = Load {
            interval: Interval::Constant,
            reserved,
            deadline: Some(Span::milliseconds(300.0)),
            ..Load::open("streams", 5.0, Bytes(1 << 20))
        };
        let rest = Load::closed("the rest", 4, Bytes(1 << 20));
        spec.load = vec![streams, rest];
        spec.run.precision = 0.05;
        spec.run.requests_max = 40_000;
        spec
    };
    let cases: Vec<(String, Spec)> = ["1 Gb/s", "100 Mb/s"]
        .iter()
        .flat_map(|ring| {
            [
                ("nothing reserved", Reserved::Nothing),
                ("disks reserved", Reserved::Disks),
                ("disks, processors and link reserved", Reserved::All),
            ]
            .map(|(name, reserved)| (format!("ring of {ring}, {name}"), spec(reserved, ring)))
        })
        .collect();
    let rows = runner.map("reservations", &cases, |(name, spec)| {
        let outcome = braid_sim::run(spec, &[]);
        let [streams, rest] = [&outcome.loads[0], &outcome.loads[1]];
        let late = super::real(streams.late.unwrap_or(0)) / super::real(streams.requests.max(1));
        let known = !outcome.is_saturated();
        Row {
            name: name.clone(),
            values: vec![
                known.then_some(streams.milliseconds.mean),
                known.then_some(streams.milliseconds.p999),
                Some(100.0 * late),
                Some(rest.bytes_per_second / 1e6),
                Some(100.0 * outcome.utilisation(PartKind::Disk)),
                Some(100.0 * link_busy(&outcome)),
            ],
        }
    })?;
    let columns = [
        "streams (ms)",
        "99.9 % below (ms)",
        "late (%)",
        "the rest (MB/s)",
        "disks busy (%)",
        "link busy (%)",
    ];
    Some(Table {
        title: "Co-scheduled reservations".to_owned(),
        about: "Streams of 5 MB/s in all read 1 MB each 200 ms, and are late after 300 ms; beside them 32 requests \
                of the same size are always in flight. What is reserved is served first on that part; nothing is \
                broken off. The paper's section 6.1.2: \"resources such as the central processor, peripheral \
                processors (audio, video), and communication network capacity must be allocated and scheduled together\". Where \
                the disks are the limit, their reservation is enough; where the link is, it takes all of them."
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    })
}
