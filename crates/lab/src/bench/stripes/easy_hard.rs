//! E18: IO500's rule. *Easy*: every client writes a file of its own, in whole stripes. *Hard*: all clients
//! write one file, in records of 47,008 bytes, in turns.

use braid_bench::stripes::{Goal, Question, RECORD_BYTES, RECORDS_AT_ONCE, Unit, Work};
use braid_cli::output::exit::Failure;
use braid_client::Name;

use super::files::job;
use super::{Run, Which};
use crate::bench::client::{ClientProcess, all_at_once, rate};
use crate::bench::cluster::{Cluster, UNIT_BYTES};
use crate::bench::hosts::{Hosts, Links};

const CLIENTS: usize = 8;
const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
/// Data units of a stripe.
const K: u64 = 4;
/// Number of stripes that a client writes to its own file: 64 MiB.
const STRIPES: u64 = 32;
/// Number of such stripes on limited links: 8 MiB.
const STRIPES_LIMITED: u64 = 4;
/// Cases with limited links: the row's name, the links, and their limit in bits a second. Low, so that
/// processors are not the limit.
const LIMITS: [(&str, Links, u64); 2] = [
    ("their link limited", Links::Clients, 200_000_000),
    ("drives' links limited", Links::Drives, 100_000_000),
];
/// Number of whole stripes that a client has in flight.
const STRIPES_AT_ONCE: u32 = 2;

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let question = |name: &str, second| Question {
        experiment: "E18",
        name: name.into(),
        unit: Unit::BytesPerSecond,
        first: "a file each",
        second,
        goal: None,
    };
    let shared = Question {
        goal: Some(Goal::AtMost(1.5)),
        ..question("easy over hard, 8 clients", "records of 47,008 bytes in one file")
    };
    let single = question("easy by 8 over hard by one client", "one client writes all records");
    let ranges = question("easy over ranges, 8 clients", "whole stripes, a range each of one file");
    if [&shared, &single, &ranges].iter().any(|row| run.wants(row)) {
        on_loopback(run, [&shared, &single, &ranges]).await?;
    }
    on_limited_links(run, &question).await
}

async fn on_loopback(run: &mut Run, [shared, single, ranged]: [&Question; 3]) -> Result<(), Failure> {
    run.tell("E18: start");
    let mut cluster = Cluster::up(run.path(), "e18", DRIVES, SHAPE).await?;
    let mut clients = processes(&cluster).await?;
    let scale = Scale { stripes: run.size(STRIPES, 2) };
    let mut verified = false;
    run.pairs(shared, async |which| match which {
        Which::First => easy(&mut cluster, &mut clients, scale).await,
        Which::Second => {
            let check = !std::mem::replace(&mut verified, true);
            hard(&mut cluster, &mut clients, scale, check).await
        }
    })
    .await?;
    run.pairs(single, async |which| match which {
        Which::First => easy(&mut cluster, &mut clients, scale).await,
        Which::Second => hard(&mut cluster, &mut clients[..1], scale, false).await,
    })
    .await?;
    run.pairs(ranged, async |which| match which {
        Which::First => easy(&mut cluster, &mut clients, scale).await,
        Which::Second => ranges(&mut cluster, &mut clients, scale).await,
    })
    .await?;
    drop(clients);
    cluster.down().await
}

/// Measures easy over hard where links are the limit: the one that all clients share, and then each drive's.
async fn on_limited_links(
    run: &mut Run,
    question: &impl Fn(&str, &'static str) -> Question,
) -> Result<(), Failure> {
    let rows = LIMITS.map(|(name, links, bits)| {
        (
            question(&format!("easy over hard, 8 clients, {name}"), "records of 47,008 bytes in one file"),
            links,
            bits,
        )
    });
    for (row, links, bits) in rows {
        let row = Question { goal: Some(Goal::AtMost(1.5)), ..row };
        if !run.wants(&row) || !run.may_limit(&row) {
            continue;
        }
        run.tell("E18, limited links: start");
        let hosts = Hosts::up(usize::from(DRIVES))?;
        let mut cluster = Cluster::up_on(&hosts, run.path(), "e18-limited", DRIVES, SHAPE).await?;
        let mut clients = processes(&cluster).await?;
        hosts.limit(links, bits)?;
        let scale = Scale { stripes: STRIPES_LIMITED };
        run.pairs(&row, async |which| match which {
            Which::First => easy(&mut cluster, &mut clients, scale).await,
            Which::Second => hard(&mut cluster, &mut clients, scale, false).await,
        })
        .await?;
        drop(clients);
        cluster.down().await?;
    }
    Ok(())
}

async fn processes(cluster: &Cluster) -> Result<Vec<ClientProcess>, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(cluster.client_process().await?);
    }
    Ok(clients)
}

#[derive(Debug, Clone, Copy)]
struct Scale {
    stripes: u64,
}

impl Scale {
    fn bytes(self) -> u64 {
        self.stripes * K * u64::from(UNIT_BYTES)
    }

    /// Number of records that a client writes: as many whole batches as come nearest to the bytes of the easy
    /// side.
    fn records(self) -> u64 {
        let batch = u64::from(RECORDS_AT_ONCE);
        (self.bytes() / RECORD_BYTES / batch).max(1) * batch
    }
}

/// The rate of all clients together, each in a new file of its own.
async fn easy(cluster: &mut Cluster, clients: &mut [ClientProcess], scale: Scale) -> Result<f64, Failure> {
    let mut files = Vec::new();
    for _ in 0..clients.len() {
        files.push(cluster.create().await?);
    }
    let stripe = K * u64::from(UNIT_BYTES);
    let work = |file: &Name| {
        job(file, Work::Write { bytes: scale.bytes(), request_bytes: stripe, depth: STRIPES_AT_ONCE })
    };
    let done = all_at_once(clients, &files.iter().map(work).collect::<Vec<_>>()).await?;
    cluster.remove(&files).await?;
    Ok(rate(&done))
}

/// The rate of all clients together, each in a range of its own of one new file. The range is as long as the
/// client's file of the easy side.
async fn ranges(cluster: &mut Cluster, clients: &mut [ClientProcess], scale: Scale) -> Result<f64, Failure> {
    let file = cluster.create().await?;
    let bytes = scale.bytes();
    let request_bytes = K * u64::from(UNIT_BYTES);
    let work = |client| {
        let depth = STRIPES_AT_ONCE;
        job(&file, Work::Range { from: client * bytes, bytes, request_bytes, depth })
    };
    let count = u64::try_from(clients.len()).unwrap_or(1);
    let done = all_at_once(clients, &(0..count).map(work).collect::<Vec<_>>()).await?;
    cluster.remove(&[file]).await?;
    Ok(rate(&done))
}

/// The rate of all clients together, in one new file. One client alone writes as much as each of several.
/// With `check`, its content is compared afterwards.
async fn hard(
    cluster: &mut Cluster,
    clients: &mut [ClientProcess],
    scale: Scale,
    check: bool,
) -> Result<f64, Failure> {
    let file = cluster.create().await?;
    let count = u64::try_from(clients.len()).unwrap_or(1);
    let records = scale.records();
    let work = |client| job(&file, Work::Records { client, clients: count, records });
    let done = all_at_once(clients, &(0..count).map(work).collect::<Vec<_>>()).await?;
    if check {
        let verify = job(&file, Work::Verify { records: records * count });
        crate::bench::client::alone(&mut clients[0], &verify).await?;
    }
    cluster.remove(&[file]).await?;
    Ok(rate(&done))
}
