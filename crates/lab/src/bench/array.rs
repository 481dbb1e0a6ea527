//! `braid-lab bench array`: the experiments of the Swift/RAID and RAID-II papers. Schemes by transfer size
//! (E4), what a lost drive costs, what parity arithmetic costs (E5), and how many drives add up (E7).

use braid_bench::against::{Goal, Of, Question, Taken, Unit};
use braid_bench::stripes::Work;
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::Report;
use braid_client::{Name, OpenOptions};

use super::cluster::{Cluster, UNIT_BYTES};
use super::ratios::{self, Bench, Metered, Run};
use super::run::Which;
use super::stripes::{fill, healthy_and_hit, job, read, write};
use crate::args::BenchCluster;

const BENCH: Bench = Bench { name: "array", title: "Schemes, sizes and drives", needed: (8 << 30, 2 << 30) };
const WIDTH: u8 = 5;
/// One more than a file has columns: it can be on a file's drive and not on another's.
const DRIVES: u16 = 6;
/// The schemes, with a volume of each.
const SCHEMES: [&str; 3] = ["raid0", "raid4", "raid5"];
/// Sizes of transfers: those of the papers, and up to 64 MiB.
const SIZES: [(&str, u64); 6] = [
    ("8 KB", 8 << 10),
    ("64 KB", 64 << 10),
    ("256 KB", 256 << 10),
    ("800 KB", 800 << 10),
    ("4 MiB", 4 << 20),
    ("64 MiB", 64 << 20),
];
/// Least and most bytes of a sample.
const BYTES: (u64, u64) = (4 << 20, 256 << 20);
/// Transfers of a sample at most.
const TRANSFERS: u64 = 512;
/// Bytes whose parity is computed for the share of its arithmetic.
const PARITY_BYTES: (u64, u64) = (256 << 20, 16 << 20);
/// Modelled disks, slow enough that 24 of them do not busy this machine's processors.
const DISKS: &str = "spindle,op=10ms,read=12MB/s,write=12MB/s,sync=1ms";
/// Numbers of drives of RAID-II's tables.
const ARRAYS: [u16; 4] = [6, 12, 15, 24];
const ARRAYS_QUICK: [u16; 1] = [3];
const PIECE_BYTES: u64 = 4096;
/// Reads in flight for each drive.
const READS_EACH: u32 = 4;
const PIECES_EACH: (u64, u64) = (200, 8);
/// Bytes of each drive that are read in order.
const SEQUENTIAL_EACH: (u64, u64) = (16 << 20, 2 << 20);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    ratios::run(BENCH, asked, report, async |run| {
        schemes(run).await?;
        lost(run).await?;
        parity(run).await?;
        arrays(run).await
    })
    .await
}

/// A row of E4: a scheme against raid0.
struct Transfer {
    question: Question,
    scheme: &'static str,
    bytes: u64,
    is_read: bool,
}

fn transfers(sizes: &[(&'static str, u64)]) -> Vec<Transfer> {
    let of = |scheme, is_read| match (scheme, is_read) {
        ("raid5", true) => "87-90 %",
        ("raid5", false) => "53 %",
        (_, true) => "92 %",
        (_, false) => "34 %",
    };
    let mut rows = Vec::new();
    for is_read in [true, false] {
        for &(size, bytes) in sizes {
            for scheme in ["raid4", "raid5"] {
                let act = if is_read { "read" } else { "write" };
                let name = format!("{act} {size}, {scheme} over raid0");
                let question = Question::rates("E4", name, [scheme, "raid0"]).paper(of(scheme, is_read));
                rows.push(Transfer { question, scheme, bytes, is_read });
            }
        }
    }
    rows
}

/// Bytes of a sample of transfers of this size: whole ones.
fn sample_bytes(transfer: u64, bytes: (u64, u64)) -> u64 {
    let wanted = (transfer * TRANSFERS).clamp(bytes.0, bytes.1);
    (wanted / transfer).max(1) * transfer
}

/// The work of one transfer after another.
fn one_by_one(file: &Name, bytes: u64, transfer: u64, is_read: bool) -> braid_bench::stripes::Job {
    let depth = 1;
    let request_bytes = transfer;
    job(
        file,
        if is_read {
            Work::Read { bytes, request_bytes, depth }
        } else {
            Work::Write { bytes, request_bytes, depth }
        },
    )
}

async fn schemes(run: &mut Run) -> Result<(), Failure> {
    let sizes = run.size(&SIZES[..], &SIZES[..2]);
    let rows = transfers(sizes);
    if !run.wants_any(rows.iter().map(|row| &row.question)) {
        return Ok(());
    }
    run.tell("E4: start");
    let most = run.size(BYTES.1, BYTES.0);
    let mut cluster = Cluster::up(run.path(), "e4", u16::from(WIDTH), ("raid0", WIDTH)).await?;
    let mut metered = Metered::start(&cluster).await?;
    let mut files = Vec::new();
    for scheme in SCHEMES {
        cluster.turn_to(scheme, (scheme, WIDTH)).await?;
        files.push((scheme, fill(&mut cluster, &mut metered.client, most.max(BYTES.0)).await?));
    }
    for row in rows {
        let file_of = |scheme| files.iter().find(|(name, _)| *name == scheme).map(|(_, file)| file);
        let Some(own) = file_of(row.scheme) else { continue };
        let Some(other) = file_of("raid0") else { continue };
        let bytes = sample_bytes(row.bytes, (BYTES.0, most));
        run.pairs(&row.question, async |which| {
            let file = if which == Which::First { own } else { other };
            metered.rate(&one_by_one(file, bytes, row.bytes, row.is_read)).await
        })
        .await?;
    }
    drop(metered);
    cluster.down().await
}

/// A case of a lost drive: the scheme, and whether its parity column is lost (of raid4, the last).
struct Lost {
    scheme: &'static str,
    what: &'static str,
    /// Columns of which one is to be the lost drive's.
    columns: std::ops::Range<usize>,
}

const LOST: [Lost; 3] = [
    Lost { scheme: "raid5", what: "a drive lost", columns: 0..5 },
    Lost { scheme: "raid4", what: "a data drive lost", columns: 0..4 },
    Lost { scheme: "raid4", what: "the parity drive lost", columns: 4..5 },
];

async fn lost(run: &mut Run) -> Result<(), Failure> {
    let question = |case: &Lost, is_read: bool| {
        let act = if is_read { "read" } else { "write" };
        let row =
            Question::rates("E4", format!("{act}, {}, {}", case.scheme, case.what), ["degraded", "healthy"]);
        let goal = if is_read { row.goal(Of::Ratio, Goal::AtLeast(0.97)) } else { row };
        goal.paper("degraded RAID-5 about equal")
    };
    for (number, case) in LOST.iter().enumerate() {
        let rows = [true, false].map(|is_read| (question(case, is_read), is_read));
        if !run.wants_any(rows.iter().map(|(row, _)| row)) {
            continue;
        }
        run.tell(format!("E4, {}, {}: start", case.scheme, case.what));
        let bytes = run.size(BYTES.1, BYTES.0);
        let name = format!("e4-lost-{number}");
        let mut cluster = Cluster::up(run.path(), &name, DRIVES, (case.scheme, WIDTH)).await?;
        let mut metered = Metered::start(&cluster).await?;
        let healthy = fill(&mut cluster, &mut metered.client, bytes).await?;
        let is_hit = |drives: &[String], victims: &[String]| {
            drives
                .iter()
                .position(|drive| victims.contains(drive))
                .is_some_and(|at| case.columns.contains(&at))
        };
        let (hit, victims) =
            healthy_and_hit(&mut cluster, &mut metered.client, &healthy, bytes, is_hit).await?;
        for victim in &victims {
            cluster.kill(victim).await?;
        }
        metered.look_again(&cluster)?;
        // Reads first: what is written now is laid out without the drive, and stays so.
        for (row, is_read) in &rows {
            run.pairs(row, async |which| {
                let file = if which == Which::First { &hit } else { &healthy };
                let work = if *is_read { read(file, bytes) } else { write(file, bytes) };
                metered.rate(&work).await
            })
            .await?;
        }
        drop(metered);
        cluster.down().await?;
    }
    Ok(())
}

/// The part of a write's time that parity arithmetic takes. No build is without parity: its spans are added
/// up, in the one task that sends, and so are no other's time.
async fn parity(run: &mut Run) -> Result<(), Failure> {
    let row =
        Question::value("E5", "parity arithmetic, of a large write's time", Unit::Share, "by its spans")
            .goal(Of::Value, Goal::AtMost(0.03))
            .paper("200 of 560 KB/s");
    if !run.wants(&row) {
        return Ok(());
    }
    run.tell("E5: start");
    let bytes = run.size(PARITY_BYTES.0, PARITY_BYTES.1);
    let mut cluster = Cluster::up(run.path(), "e5", u16::from(WIDTH), ("raid5", WIDTH)).await?;
    let name = cluster.create().await?;
    let (client, recorder) = cluster.client.analysed();
    let file = client.open(&name, &OpenOptions::new().write(true)).await?;
    let piece = vec![0xa5; usize::try_from(16 * u64::from(UNIT_BYTES)).unwrap_or(0)];
    let long = u64::try_from(piece.len()).unwrap_or(1);
    run.alone(&row, async || {
        recorder.begin();
        for number in 0..bytes / long {
            file.write_at(&piece, number * long).await?;
        }
        let work = recorder.take();
        Ok(Taken::of(part(work.computed_us, work.wall_us)))
    })
    .await?;
    file.close().await?;
    drop(client);
    cluster.down().await
}

fn part(of: u64, whole: u64) -> f64 {
    let as_float = |us: u64| f64::from(u32::try_from(us).unwrap_or(u32::MAX));
    as_float(of) / as_float(whole).max(1.0)
}

/// Rows of RAID-II: as many drives against so many times one drive.
async fn arrays(run: &mut Run) -> Result<(), Failure> {
    let counts = run.size(&ARRAYS[..], &ARRAYS_QUICK[..]);
    let rows = |count: u16| {
        let of = |what: &str| {
            Question::rates(
                "RAID-II",
                format!("{what}, {count} drives"),
                ["together", "one drive, so many times"],
            )
            .goal(Of::Ratio, Goal::AtLeast(0.95))
        };
        [of("random reads of 4 KB").paper("78 % from 1 to 15"), of("reads in order")]
    };
    if !run.wants_any(counts.iter().flat_map(|&count| rows(count)).collect::<Vec<_>>().iter()) {
        return Ok(());
    }
    run.tell("RAID-II: start");
    let mut single = Array::up(run, 1).await?;
    for &count in counts {
        let [random, sequential] = rows(count);
        if !run.wants_any([&random, &sequential]) {
            continue;
        }
        let mut array = Array::up(run, count).await?;
        for (row, is_random) in [(random, true), (sequential, false)] {
            run.pairs(&row, async |which| match which {
                Which::First => array.rate(is_random).await,
                Which::Second => Ok(single.rate(is_random).await?.times(count)),
            })
            .await?;
        }
        array.down().await?;
    }
    single.down().await
}

/// A cluster of modelled disks, with a file over all of them.
struct Array {
    cluster: Cluster,
    metered: Metered,
    file: Name,
    drives: u16,
    bytes: u64,
    pieces: u64,
    seed: u64,
}

impl Array {
    async fn up(run: &Run, drives: u16) -> Result<Array, Failure> {
        let model = |why| Failure::new(Exit::Usage, "model a disk", why);
        let options = DriveOptions::modelled(DISKS).map_err(model)?;
        let name = format!("array-{drives}");
        let mut cluster = Cluster::up_with(run.path(), &name, drives, options, "600").await?;
        let width = u8::try_from(drives).unwrap_or(u8::MAX);
        cluster.turn_to("array", ("raid0", width)).await?;
        let mut metered = Metered::start(&cluster).await?;
        let bytes = run.size(SEQUENTIAL_EACH.0, SEQUENTIAL_EACH.1) * u64::from(drives);
        let file = fill(&mut cluster, &mut metered.client, bytes).await?;
        let pieces = run.size(PIECES_EACH.0, PIECES_EACH.1) * u64::from(drives);
        Ok(Array { cluster, metered, file, drives, bytes, pieces, seed: 0 })
    }

    async fn rate(&mut self, is_random: bool) -> Result<Taken, Failure> {
        self.seed += 1;
        let depth = READS_EACH * u32::from(self.drives);
        let work = if is_random {
            Work::Pieces {
                within: self.bytes,
                piece_bytes: PIECE_BYTES,
                pieces: self.pieces,
                depth,
                seed: self.seed,
            }
        } else {
            let request_bytes = u64::from(UNIT_BYTES) * u64::from(self.drives);
            Work::Read { bytes: self.bytes, request_bytes, depth: READS_EACH }
        };
        self.metered.rate(&job(&self.file, work)).await
    }

    async fn down(self) -> Result<(), Failure> {
        drop(self.metered);
        self.cluster.down().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_whole_transfers_within_bounds() {
        for (_, size) in SIZES {
            let bytes = sample_bytes(size, BYTES);
            assert!(
                bytes.is_multiple_of(size) && bytes >= BYTES.0 / 2 && bytes <= BYTES.1,
                "{size}: {bytes}"
            );
        }
        assert_eq!(sample_bytes(8 << 10, BYTES), 4 << 20);
        assert_eq!(sample_bytes(64 << 20, (1, 2)), 64 << 20, "at least one");
        assert_eq!((part(1, 4), part(1, 0)), (0.25, 1.0));
    }

    #[test]
    fn each_size_has_a_row_for_each_scheme_and_direction() {
        let rows = transfers(&SIZES);
        assert_eq!(rows.len(), 2 * 2 * SIZES.len());
        let row = rows.iter().find(|row| row.question.name == "write 8 KB, raid5 over raid0").expect("a row");
        assert_eq!((row.question.paper, row.is_read, row.bytes), (Some("53 %"), false, 8192));
    }
}
