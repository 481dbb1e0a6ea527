//! `braid-lab bench small`: small files, names and pieces on a cluster of a manager and six drives. A client,
//! and the far ends of the plain exchanges that stand beside each row, are processes of their own too.

pub(super) mod meter;
mod plain;
mod single;
mod trees;

use std::time::Duration;

use braid_bench::small::{
    IN_FLIGHT, Limit, Operation, Report as Found, Row, SyncRate, Synced, document, show_latency, show_number,
    svg, sync_rate,
};
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::{Report, table};
use braid_cli::output::size;

use super::OnThread;
use super::client::ClientProcess;
use super::cluster::Cluster;
use super::run::Run;
use crate::args::BenchCluster;

use meter::Meter;
use plain::{FarEnds, PlainSample};

const DRIVES: u16 = 6;
const SHAPE: (&str, u8) = ("raid5", 5);
/// Free bytes that the directory must have, in a full run and in a quick one. A full run touches as much
/// memory before anything is measured; a quick run touches `TOUCHED_BYTES_QUICK`.
const NEEDED_BYTES: (u64, u64) = (8 << 30, 512 << 20);
const TOUCHED_BYTES_QUICK: u64 = 16 << 20;
/// Number of samples of a disk's sync rate, and their length.
const SYNCS: (u32, Duration) = (5, Duration::from_millis(500));
const SYNCS_QUICK: (u32, Duration) = (1, Duration::from_millis(20));

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let run = Run::begin(&asked, NEEDED_BYTES)?;
    let single = IN_FLIGHT.iter().flat_map(|number| Operation::SINGLE.map(|kind| kind.title(Some(*number))));
    let titles: Vec<String> = single.chain(Operation::OF_TREES.map(|kind| kind.title(None))).collect();
    if !titles.iter().any(|title| run.wants(title)) {
        return Err(run.nothing_wanted("small"));
    }
    let found = Found::begin(&run.parent, run.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    let mut small = Small::start(run, found).await?;
    let ended = match single::measure(&mut small).await {
        Ok(()) => trees::measure(&mut small).await,
        failed => failed,
    };
    small.run.end();
    ended?;
    let Small { run, mut found, cluster, client, far_ends, .. } = small;
    drop((client, far_ends));
    cluster.down().await?;
    found.end();
    let documents = |command: &str, when: &str, plot: &str| document(&found, command, when, plot);
    run.write("small", documents, || svg(&found))?;
    report.facts(&found, text)
}

/// Runs `braid-lab bench-far-end`.
pub(crate) async fn far_end() -> Result<(), Failure> {
    plain::run().await
}

/// The run so far, and its processes. Dropping it kills the processes, and removes the directory last.
struct Small {
    client: ClientProcess,
    far_ends: FarEnds,
    meter: Meter,
    /// Number of sockets that the client had after its last sample: to the manager, and to each drive.
    sockets: (u32, Vec<u32>),
    /// Number of samples so far. It seeds the next one, whose places in files differ from all before.
    samples: u64,
    found: Found,
    cluster: Cluster,
    run: Run,
}

impl Small {
    async fn start(run: Run, mut found: Found) -> Result<Small, Failure> {
        run.tell("touch memory");
        let bytes = run.size(NEEDED_BYTES.0, TOUCHED_BYTES_QUICK);
        found.touched_bytes = OnThread::begin(move |_| Ok(braid_bench::touch_memory(bytes)))?.end().await?;
        for of in [Synced::Manager, Synced::Drive] {
            run.tell(of.name());
            found.syncs.push(syncs(&run, of).await?);
        }
        run.tell("start");
        let cluster = Cluster::up(run.path(), "small", DRIVES, SHAPE).await?;
        let client = cluster.client_process().await?;
        let far_ends = FarEnds::start(DRIVES).await?;
        let meter = Meter::of(&cluster)?;
        // Assumed until the client has opened some.
        let sockets = (1, vec![1; usize::from(DRIVES)]);
        Ok(Small { client, far_ends, meter, sockets, samples: 0, found, cluster, run })
    }

    /// Shows that a row with this many samples begins.
    fn begin(&self, kind: Operation, in_flight: Option<u32>, samples: u32) {
        self.run.tell(kind.title(in_flight));
        let steps = if kind == Operation::Create { 2 } else { 1 };
        self.run.steps(u64::from(samples) * steps);
    }

    /// Returns a seed that no sample had before.
    fn seed(&mut self) -> u64 {
        self.samples += 1;
        self.samples
    }

    /// Takes a sample of the plain exchanges that stand for an operation.
    async fn plain(&mut self, kind: Operation, in_flight: u32, limit: Limit) -> Result<PlainSample, Failure> {
        let exchanges = kind.exchanges(self.found.names);
        let rest = (in_flight, limit);
        self.far_ends.sample(&mut self.client, &self.meter, &self.sockets, exchanges, rest).await
    }
}

/// Measures the sync rate of the disk, in the directory where the cluster will be.
async fn syncs(run: &Run, of: Synced) -> Result<SyncRate, Failure> {
    let directory = run.path().to_owned();
    let (count, pause) = run.size(SYNCS, SYNCS_QUICK);
    OnThread::begin(move |stop| sync_rate(&directory, of, count, pause, stop))?.end().await
}

/// Formats the results as text.
fn text(found: &Found) -> String {
    let mut text = format!(
        "{}, raid5 4+1 over {DRIVES}; {} of memory touched before\n",
        super::head(&found.ran),
        size::show(found.touched_bytes),
    );
    let header = [
        "", "OPS/S", "MIN", "MAX", "P50", "P99", "CPU us", "CLIENT", "DRIVES", "MANAGER", "KERNEL",
        "OF PLAIN", "PER SYNC", "GOAL",
    ];
    text.push_str(&table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], found.rows.iter().map(cells)));
    text.push('\n');
    let syncs = found.syncs.iter().map(|sync| {
        let rate = &sync.per_second;
        vec![sync.name.to_owned(), show_number(rate.median), show_number(rate.min), show_number(rate.max)]
    });
    text.push_str(&table(&["one by one", "A SECOND", "MIN", "MAX"], &[1, 2, 3], syncs));
    if found.ran.quick {
        text.push_str("\na quick run: the figures mean nothing\n");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let rate = &row.per_second;
    let cpu = &row.cpu_us;
    vec![
        row.name.clone(),
        show_number(rate.median),
        show_number(rate.min),
        show_number(rate.max),
        show_latency(row.p50_us),
        show_latency(row.p99_us),
        show_number(row.cpu_total_us),
        show_number(cpu.client.total()),
        show_number(cpu.drives.total()),
        show_number(cpu.manager.total()),
        show_number(row.cpu_kernel_us),
        row.plain.as_ref().map_or(String::new(), |plain| format!("{:.2}", plain.ratio.median)),
        row.per_sync.map_or(String::new(), |share| format!("{share:.2}")),
        row.show_goal(),
    ]
}
