//! Reserved reads and writes beside clients that take what they get, healthy and through a lost drive, with
//! reservations and without.

use std::time::Duration;

use braid_bench::promises::{Goal, Job, Marks, Plot, Summary};
use braid_cli::operate::heal::REPORTED;
use braid_cli::output::exit::Failure;
use braid_client::{DataDirection, Name};
use braid_wire::control::ReservationRow;
use tokio::time::{Instant, sleep};

use super::Run;
use super::rebuild::{Rebuilt, rebuilt};
use super::setup::{self, Disks, Terms, calibrate, due, greatest, greedy, part, real, show};
use crate::bench::client::{ClientProcess, during};
use crate::bench::cluster::{Cluster, UNIT_BYTES, name};
use crate::bench::stripes::fill;

const SHAPE: (&str, u8) = ("raid5", 5);
const STRIPE: u64 = 4 * UNIT_BYTES as u64;
/// Share of the greatest rate that each direction has: together 0.7.
const EACH: f64 = 0.35;
/// Number of files that the load reads, and of those that it writes.
const LOAD_FILES: usize = 4;
/// Number of the load's processes.
const LOADS: usize = 2;
/// Requests of a stripe that each process has in flight for each of its files.
const DEPTH: u32 = 3;

const BESIDE: &str = "reserved reads and writes at 0.7, beside overload";
const KILLED: &str = "the same, a drive killed and rebuilt";
const UNRESERVED: &str = "beside overload, without reservations";
const UNRESERVED_KILLED: &str = "a drive killed and rebuilt, without reservations";
const ETA: &str = "rebuild's time left as told over what it was";
const NAMES: [&str; 5] = [BESIDE, KILLED, UNRESERVED, UNRESERVED_KILLED, ETA];

/// A cluster with its files and clients.
struct Mixed {
    cluster: Cluster,
    /// The client of the streams that are due, and those of the load.
    clients: Vec<ClientProcess>,
    jobs: Vec<Job>,
    reserved: [Reserved; 2],
    seconds: f64,
}

/// A file with its reservation.
struct Reserved {
    file: Name,
    row: ReservationRow,
    greatest: u64,
}

/// Common name of the rows.
pub(super) const GROUP: &str = "the rest of what is beside overload";

pub(super) async fn measure(run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
    if !run.wants(&NAMES, disks.name) {
        return Ok(());
    }
    let mut mixed = Mixed::up(run, disks).await?;
    let rates = mixed.reserved.each_ref().map(|one| show(real(one.row.rate))).join(" and ");
    let most = mixed.reserved.each_ref().map(|one| show(real(one.greatest))).join(" and ");
    let say = |sum: &Summary, load: f64| {
        format!(
            "{rates} of at most {most}; {}; delivered {}, others got {}",
            sum.words(),
            show(real(sum.rate)),
            show(load)
        )
    };
    run.tell(format!("{}: {BESIDE}", disks.name));
    let (beside, load) = mixed.healthy().await?;
    let causes = mixed.causes().await?;
    run.add(BESIDE, disks.name, say(&beside, load) + &causes, beside.late_periods(), Some(Goal::NoneLate));
    mixed.end_reservations().await?;
    run.tell(format!("{}: {UNRESERVED}", disks.name));
    let (without, load) = mixed.healthy().await?;
    run.add(UNRESERVED, disks.name, say(&without, load), without.late_periods(), None);
    run.plot(Plot {
        name: format!("promises-{}", disks.name),
        title: format!("Lateness beside overload, {} disks", disks.name),
        runs: vec![
            ("reserved".to_owned(), beside, Marks::new()),
            ("not reserved".to_owned(), without, Marks::new()),
        ],
    });
    run.tell(format!("{}: {KILLED}", disks.name));
    mixed.reserve_again().await?;
    let first = mixed.through_a_loss(&[]).await?;
    let causes = mixed.causes().await?;
    let found = say(&first.sum, first.load) + &causes;
    run.add(KILLED, disks.name, found, first.sum.late_periods(), Some(Goal::NoneLate));
    eta(run, disks, &first.rebuilt);
    mixed.end_reservations().await?;
    let directory = mixed.cluster.running.dir.drive(&first.victim);
    mixed.cluster.start(&first.victim, &directory).await?;
    run.tell(format!("{}: {UNRESERVED_KILLED}", disks.name));
    let second = mixed.through_a_loss(&[first.victim]).await?;
    run.add(UNRESERVED_KILLED, disks.name, say(&second.sum, second.load), second.sum.late_periods(), None);
    let runs = vec![
        ("reserved".to_owned(), first.sum, first.marks),
        ("not reserved".to_owned(), second.sum, second.marks),
    ];
    run.plot(Plot {
        name: format!("promises-{}-killed", disks.name),
        title: format!("Lateness beside overload, a drive killed and rebuilt, {} disks", disks.name),
        runs,
    });
    let Mixed { cluster, clients, .. } = mixed;
    drop(clients);
    cluster.down().await
}

fn eta(run: &mut Run, disks: &'static Disks, rebuilt: &Rebuilt) {
    match rebuilt.eta {
        Some((told, left)) => run.add(
            ETA,
            disks.name,
            format!(
                "{told:.1} s told, {left:.1} s left, of {:.1} s in all, {:.0} MB",
                rebuilt.took.as_secs_f64(),
                real(rebuilt.bytes) / 1e6
            ),
            told / left.max(0.001),
            Some(Goal::Within(0.9, 1.1)),
        ),
        None if !rebuilt.left.is_empty() => {
            let why = format!("not rebuilt after {:.0} s: {}", rebuilt.took.as_secs_f64(), rebuilt.left);
            run.leave_out(ETA, disks.name, why);
        }
        None => run.leave_out(ETA, disks.name, "no time left was told before it ended"),
    }
}

/// A run through a loss.
struct Lost {
    sum: Summary,
    marks: Marks,
    victim: String,
    rebuilt: Rebuilt,
    load: f64,
}

impl Mixed {
    async fn up(run: &Run, disks: &Disks) -> Result<Mixed, Failure> {
        run.tell(format!("{}: start", disks.name));
        let mut cluster = setup::up(run.path(), disks.name, disks, "2").await?;
        cluster.make_volume(SHAPE, UNIT_BYTES).await?;
        calibrate(&cluster).await?;
        run.tell(format!("{}: fill", disks.name));
        let mut clients = Vec::new();
        for _ in 0..=LOADS {
            clients.push(cluster.client_process().await?);
        }
        let read_bytes = run.size(20, 10) * STRIPE;
        let read = fill(&mut cluster, &mut clients[0], read_bytes).await?;
        let bytes = run.size(10, 5) * STRIPE;
        let mut load = Vec::new();
        for _ in 0..LOAD_FILES {
            let file = fill(&mut cluster, &mut clients[0], bytes).await?;
            load.push(greedy(&file, false, STRIPE, bytes, DEPTH));
            let file = cluster.create().await?;
            load.push(greedy(&file, true, STRIPE, bytes, DEPTH));
        }
        let written = name("reserved")?;
        let [reads, writes] = [DataDirection::Read, DataDirection::Write].map(Terms::one);
        let most = [greatest(&cluster, &read, reads).await?, greatest(&cluster, &written, writes).await?];
        let read_row = setup::reserve(&cluster, &read, reads, part(most[0], EACH)).await?;
        let write_row = setup::reserve(&cluster, &written, writes, part(most[1], EACH)).await?;
        cluster.create_at(&written).await?;
        let shape = &write_row.plan.shape;
        let stripe = u64::from(shape.k) * u64::from(shape.unit_bytes);
        let streams =
            vec![due(&read, &read_row, STRIPE, read_bytes), due(&written, &write_row, stripe, 64 << 20)];
        let mut jobs = vec![Job { streams }];
        jobs.extend((0..LOADS).map(|_| Job { streams: load.clone() }));
        let reserved = [
            Reserved { file: read, row: read_row, greatest: most[0] },
            Reserved { file: written, row: write_row, greatest: most[1] },
        ];
        Ok(Mixed { cluster, clients, jobs, reserved, seconds: run.size(10.0, 3.0) })
    }

    async fn end_reservations(&self) -> Result<(), Failure> {
        for one in &self.reserved {
            self.cluster.client.end_reservation(one.row.reservation).await?;
        }
        Ok(())
    }

    /// Reserves the same rates again.
    async fn reserve_again(&mut self) -> Result<(), Failure> {
        for one in &mut self.reserved {
            let terms = Terms::one(one.row.direction);
            one.row = setup::reserve(&self.cluster, &one.file, terms, one.row.rate).await?;
        }
        Ok(())
    }

    /// The causes that drives tell of requests that were late under the reservations since these were made;
    /// empty if none was.
    async fn causes(&self) -> Result<String, Failure> {
        // Drives and clients report every other second.
        sleep(REPORTED * 2).await;
        let rows = self.cluster.client.reservations().await?.reservations;
        let causes = rows.iter().filter_map(|row| {
            let of = row.lateness;
            let is_late = of.beyond_rate + of.in_queue + of.at_disk > 0;
            is_late.then(|| {
                let direction = if row.direction == DataDirection::Read { "reads" } else { "writes" };
                format!(
                    "; {direction} late at drives until then: {} beyond the rate, {} behind others, {} at a disk",
                    of.beyond_rate, of.in_queue, of.at_disk
                )
            })
        });
        Ok(causes.collect())
    }

    /// A run beside the load with all drives there, and the load's rate.
    async fn healthy(&mut self) -> Result<(Summary, f64), Failure> {
        let time = Duration::from_secs_f64(1.0 + self.seconds);
        let (done, ()) = during(&mut self.clients, &self.jobs, async || {
            sleep(time).await;
            Ok(())
        })
        .await?;
        let sum = Summary::of(&done);
        let load = sum.greedy_rate(1.5, time.as_secs_f64());
        Ok((sum, load))
    }

    /// A run in the middle of which a drive dies that both files have columns on, until it is rebuilt.
    async fn through_a_loss(&mut self, not: &[String]) -> Result<Lost, Failure> {
        let [read, written] = &self.reserved;
        let on = self.cluster.drives_of(&read.file).await?;
        let both = self.cluster.drives_of(&written.file).await?;
        let victim = on
            .iter()
            .find(|drive| both.contains(drive) && !not.contains(drive))
            .or(on.iter().find(|drive| !not.contains(drive)))
            .cloned()
            .unwrap_or_default();
        let cluster = &mut self.cluster;
        let before = Duration::from_secs_f64(1.0 + self.seconds / 3.0);
        let mut marks = Marks::new();
        let mut end = 0.0;
        let (done, rebuilt) = during(&mut self.clients, &self.jobs, async || {
            let began = Instant::now();
            sleep(before).await;
            marks.push((began.elapsed().as_secs_f64(), format!("{victim} killed")));
            cluster.kill(&victim).await?;
            let rebuilt = rebuilt(cluster, &victim).await?;
            end = began.elapsed().as_secs_f64();
            marks.push((end, if rebuilt.left.is_empty() { "rebuilt" } else { "not rebuilt" }.to_owned()));
            sleep(Duration::from_secs(1)).await;
            Ok(rebuilt)
        })
        .await?;
        let sum = Summary::of(&done);
        let load = sum.greedy_rate(1.5, end);
        Ok(Lost { sum, marks, victim, rebuilt, load })
    }
}
