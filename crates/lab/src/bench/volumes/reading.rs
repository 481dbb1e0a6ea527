//! Reading ahead: many clients that read in order from one drive, and reads at random places, which must not
//! lose by it.
//!
//! Files lie one after the other on the disk, so a head must move between them. Cold: a modelled disk has
//! nothing in its page cache but what was read ahead, and that for one read.

use braid_bench::median;
use braid_bench::stripes::{Goal, Job, Work};
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Exit, Failure};
use braid_client::Name;

use super::Run;
use crate::bench::client::{ClientProcess, all_at_once, rate};
use crate::bench::cluster::Cluster;
use crate::bench::promises::{Disks, FLASH, SPINDLE, calibrate, show};
use crate::bench::stripes::{fill, job};

pub(super) const GROUP: &str = "reading ahead";

const STREAMS: usize = 8;
/// Bytes of a stream's file; one stream alone reads [`ALONE`] of them.
const FILE_BYTES: u64 = 96 << 20;
const FILE_BYTES_QUICK: u64 = 8 << 20;
const ALONE: u64 = 2;
/// A client's requests, and how many it has in flight.
const REQUEST_BYTES: u64 = 256 << 10;
const REQUESTS: u32 = 4;
const PIECE_BYTES: u64 = 4096;
const PIECES_AT_ONCE: u32 = 16;
/// Samples of a row; without read-ahead, which takes long, one of those in order.
const SAMPLES: usize = 3;
/// Samples of reads in memory, which vary more.
const SAMPLES_MEMORY: usize = 9;
const LOST_AFTER: &str = "600";

/// A disk, and how many random pieces a sample on it reads.
struct Case {
    name: &'static str,
    disks: Option<Disks>,
    /// Bytes a second that the modelled disk reads.
    rate: f64,
    pieces: u64,
}

const CASES: [Case; 3] = [
    Case { name: SPINDLE.name, disks: Some(SPINDLE), rate: 60e6, pieces: 400 },
    Case { name: FLASH.name, disks: Some(FLASH), rate: 40e6, pieces: 4000 },
    Case { name: "memory", disks: None, rate: 0.0, pieces: 40_000 },
];

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    for case in &CASES {
        let rows = Rows::of(case);
        let wanted = [&rows.streams, &rows.disk, &rows.one, &rows.random];
        let is_modelled = case.disks.is_some();
        if wanted.iter().any(|name| run.wants(name) && (is_modelled || **name == rows.random)) {
            run.tell(format!("{GROUP}, {}: start", case.name));
            let on = Drive::up(run, case, None).await?;
            let off = Drive::up(run, case, Some(0)).await?;
            measure_on(run, case, &rows, on, off).await?;
        }
    }
    Ok(())
}

/// Names of a case's rows.
struct Rows {
    streams: String,
    disk: String,
    one: String,
    random: String,
}

impl Rows {
    fn of(case: &Case) -> Rows {
        let name = case.name;
        Rows {
            streams: format!(
                "{STREAMS} interleaved sequential streams on one drive, cold, against one, {name}"
            ),
            disk: format!("{STREAMS} interleaved sequential streams, cold, of the disk's own rate, {name}"),
            one: format!("one sequential stream, cold, with read-ahead against without, {name}"),
            random: format!("random 4 KiB reads, with read-ahead against without, {name}"),
        }
    }
}

async fn measure_on(
    run: &mut Run,
    case: &Case,
    rows: &Rows,
    mut on: Drive,
    mut off: Drive,
) -> Result<(), Failure> {
    if case.disks.is_some() {
        let samples = run.size(SAMPLES, 1);
        // One stream and several, each with and without.
        let mut rates = [const { Vec::new() }; 4];
        for sample in 0..samples {
            run.tell(format!("{GROUP}, {}: {} of {samples}", case.name, sample + 1));
            for (streams, at) in [(1, 0), (STREAMS, 2)] {
                rates[at].push(on.in_order(streams).await?);
                if sample == 0 {
                    rates[at + 1].push(off.in_order(streams).await?);
                }
            }
        }
        let [one, one_without, all, all_without] = rates.map(|of| median(&of));
        let without = format!("without read-ahead {} of {}", show(all_without), show(one_without));
        let found = format!("{} of {}; {without}", show(all), show(one));
        run.add(&rows.streams, found, all / one, Some(Goal::AtLeast(0.9)));
        run.add(&rows.disk, format!("{} of {}", show(all), show(case.rate)), all / case.rate, None);
        run.add(&rows.one, format!("{} of {}", show(one), show(one_without)), one / one_without, None);
    }
    run.tell(format!("{GROUP}, {}: random reads", case.name));
    let samples = run.size(if case.disks.is_some() { SAMPLES } else { SAMPLES_MEMORY }, 1);
    let pieces = run.size(case.pieces, 50);
    let mut ratios = Vec::new();
    let mut with = Vec::new();
    let mut without = Vec::new();
    for sample in 0..samples {
        let seed = u64::try_from(sample).unwrap_or(0) + 1;
        // The order alternates.
        let first_on = if sample % 2 == 0 { Some(on.at_random(pieces, seed).await?) } else { None };
        let of_off = off.at_random(pieces, seed).await?;
        let of_on = match first_on {
            Some(rate) => rate,
            None => on.at_random(pieces, seed).await?,
        };
        ratios.push(of_on / of_off);
        with.push(of_on);
        without.push(of_off);
    }
    let found = format!("{} of {}", show(median(&with)), show(median(&without)));
    run.add(&rows.random, found, median(&ratios), Some(Goal::AtLeast(0.98)));
    on.cluster.down().await?;
    off.cluster.down().await
}

/// A cluster of one drive, with a file for each stream and a long one.
struct Drive {
    cluster: Cluster,
    clients: Vec<ClientProcess>,
    files: Vec<Name>,
    long: Name,
    file_bytes: u64,
}

impl Drive {
    async fn up(run: &Run, case: &Case, read_ahead: Option<u64>) -> Result<Drive, Failure> {
        let model = |why| Failure::new(Exit::Usage, "model a disk", why);
        let options = match &case.disks {
            Some(disks) => DriveOptions::modelled(disks.model).map_err(model)?,
            None => DriveOptions::default(),
        };
        let options = read_ahead.map_or(options, |bytes| options.reading_ahead(bytes));
        let name = format!("{}-{}", case.name, if read_ahead.is_some() { "off" } else { "on" });
        let mut cluster = Cluster::up_with(run.path(), &name, 1, options, LOST_AFTER).await?;
        if case.disks.is_some() {
            calibrate(&cluster).await?;
        }
        cluster.make_volume(("raid0", 1), crate::bench::cluster::UNIT_BYTES).await?;
        let mut clients = Vec::new();
        for _ in 0..STREAMS {
            clients.push(cluster.client_process().await?);
        }
        let file_bytes = run.size(FILE_BYTES, FILE_BYTES_QUICK);
        let mut files = Vec::new();
        for _ in 0..STREAMS {
            files.push(fill(&mut cluster, &mut clients[0], file_bytes).await?);
        }
        let long = fill(&mut cluster, &mut clients[0], ALONE * file_bytes).await?;
        Ok(Drive { cluster, clients, files, long, file_bytes })
    }

    /// Bytes a second of so many streams together.
    async fn in_order(&mut self, streams: usize) -> Result<f64, Failure> {
        let read = |file: &Name, bytes| {
            job(file, Work::Read { bytes, request_bytes: REQUEST_BYTES, depth: REQUESTS })
        };
        let jobs: Vec<Job> = match streams {
            1 => vec![read(&self.long, ALONE * self.file_bytes)],
            _ => self.files.iter().take(streams).map(|file| read(file, self.file_bytes)).collect(),
        };
        Ok(rate(&all_at_once(&mut self.clients, &jobs).await?))
    }

    /// Bytes a second of reads at random places.
    async fn at_random(&mut self, pieces: u64, seed: u64) -> Result<f64, Failure> {
        let within = ALONE * self.file_bytes;
        let depth = PIECES_AT_ONCE;
        let work = Work::Pieces { within, piece_bytes: PIECE_BYTES, pieces, depth, seed };
        Ok(rate(&all_at_once(&mut self.clients, &[job(&self.long, work)]).await?))
    }
}
