//! Rates that others get beside a reserved rate, the part that is admitted of what is carried, and rates
//! predicted against measured. All files lie on all drives, so that each drive has the same part of each.

use std::time::Duration;

use braid_bench::promises::{Goal, Job, Stream, Summary};
use braid_cli::output::exit::{Exit, Failure};
use braid_client::{DataDirection, Name};
use braid_wire::control::ReservationRow;
use tokio::time::sleep;

use super::Run;
use super::setup::{self, Disks, Terms, ask, calibrate, due, due_at, greatest, greedy, part, real, show};
use crate::bench::client::{ClientProcess, during};
use crate::bench::cluster::{Cluster, UNIT_BYTES};
use crate::bench::stripes::fill;

const SHAPE: (&str, u8) = ("raid5", 6);
const STRIPE: u64 = 5 * UNIT_BYTES as u64;
/// Share of the greatest rate beside which others are measured.
const RESERVED: f64 = 0.7;
/// Stripes in flight of each greedy stream.
const DEPTH: u32 = 16;
/// Shares of the predicted rate that are offered to find the greatest that is carried.
const OFFERED: [f64; 7] = [0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0];

const REST: &str = "best effort beside a reserved rate, over what is left";
const CARRIED: &str = "greatest rate admitted over greatest carried";
const HEALTHY_READ: &str = "predicted over measured, healthy, read";
const HEALTHY_WRITE: &str = "predicted over measured, healthy, write";
const DEGRADED_READ: &str = "predicted over measured, a drive away, read";
const PREDICTED: Option<Goal> = Some(Goal::Within(0.9, 1.1));

/// Common name of the rows.
pub(super) const GROUP: &str = "the rest of the limits";

struct Limits {
    cluster: Cluster,
    /// Processes of clients: one that has reserved, and one that has not.
    clients: Vec<ClientProcess>,
    file: Name,
    other: Name,
    written: Name,
    bytes: u64,
    time: Duration,
}

pub(super) async fn measure(run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
    if !run.wants(&[REST, CARRIED, HEALTHY_READ, HEALTHY_WRITE, DEGRADED_READ], disks.name) {
        return Ok(());
    }
    run.tell("limits: start");
    // A lost drive stays away: there is no other for its columns.
    let mut cluster = setup::up(run.path(), "limits", disks, "600").await?;
    cluster.make_volume(SHAPE, UNIT_BYTES).await?;
    calibrate(&cluster).await?;
    let mut clients = vec![cluster.client_process().await?, cluster.client_process().await?];
    let bytes = run.size(24, 12) * STRIPE;
    let file = fill(&mut cluster, &mut clients[0], bytes).await?;
    let other = fill(&mut cluster, &mut clients[0], bytes).await?;
    let written = fill(&mut cluster, &mut clients[0], bytes).await?;
    let time = Duration::from_secs_f64(run.size(5.0, 2.0));
    let mut limits = Limits { cluster, clients, file, other, written, bytes, time };
    limits.rest(run, disks).await?;
    limits.carried(run, disks).await?;
    limits.predicted(run, disks).await?;
    drop(limits.clients);
    limits.cluster.down().await
}

impl Limits {
    /// Runs a stream in each of the client processes.
    async fn streams(&mut self, streams: Vec<Stream>) -> Result<Summary, Failure> {
        let jobs: Vec<Job> = streams.into_iter().map(|stream| Job { streams: vec![stream] }).collect();
        let time = self.time + Duration::from_secs(1);
        let (done, ()) = during(&mut self.clients, &jobs, async || {
            sleep(time).await;
            Ok(())
        })
        .await?;
        Ok(Summary::of(&done))
    }

    /// The rate of a greedy stream alone.
    async fn greedy_rate(&mut self, file: &Name, write: bool) -> Result<f64, Failure> {
        let sum = self.streams(vec![greedy(file, write, STRIPE, self.bytes, DEPTH)]).await?;
        Ok(self.steady(&sum))
    }

    fn steady(&self, sum: &Summary) -> f64 {
        sum.greedy_rate(1.5, 1.0 + self.time.as_secs_f64())
    }

    async fn rest(&mut self, run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
        if !run.wants(&[REST], disks.name) {
            return Ok(());
        }
        run.tell(REST);
        let other = self.other.clone();
        let all = self.greedy_rate(&other, false).await?;
        let terms = Terms::one(DataDirection::Read);
        let rate = part(greatest(&self.cluster, &self.file, terms).await?, RESERVED);
        let row = setup::reserve(&self.cluster, &self.file, terms, rate).await?;
        let streams =
            vec![due(&self.file, &row, STRIPE, self.bytes), greedy(&other, false, STRIPE, self.bytes, DEPTH)];
        let sum = self.streams(streams).await?;
        let rest = self.steady(&sum);
        self.cluster.client.end_reservation(row.reservation).await?;
        let found = format!(
            "{} beside {} reserved ({}), of {} alone",
            show(rest),
            show(real(rate)),
            sum.words(),
            show(all)
        );
        run.add(REST, disks.name, found, rest / (all - real(rate)).max(1.0), Some(Goal::AtLeast(0.9)));
        Ok(())
    }

    /// Offers more and more without a reservation, until something is late.
    async fn carried(&mut self, run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
        if !run.wants(&[CARRIED], disks.name) {
            return Ok(());
        }
        run.tell(CARRIED);
        let terms = Terms { survive: 0, ..Terms::one(DataDirection::Read) };
        let admitted = greatest(&self.cluster, &self.file, terms).await?;
        let plan = self.trial(&self.file.clone(), terms, admitted).await?;
        let capacity = healthy(&plan);
        let mut carried = 0;
        for share in OFFERED {
            let rate = part(capacity, share);
            let file = self.file.clone();
            let sum = self.streams(vec![due_at(&file, &plan, rate, STRIPE, self.bytes)]).await?;
            if sum.late_periods() > 0.0 {
                break;
            }
            carried = rate;
        }
        let found = format!(
            "{} admitted, {} carried, {} predicted for all of the disks' time",
            show(real(admitted)),
            show(real(carried)),
            show(real(capacity))
        );
        let ratio = real(admitted) / real(carried.max(1));
        run.add(CARRIED, disks.name, found, ratio, Some(Goal::Within(0.85, 1.0)));
        Ok(())
    }

    /// The plan of a rate that is not booked.
    async fn trial(&self, file: &Name, terms: Terms, rate: u64) -> Result<ReservationRow, Failure> {
        let reply = ask(&self.cluster, file, terms, rate, true).await?;
        let why = "what was offered is refused";
        let refused = || Failure::new(Exit::NotAdmitted, format!("plan {rate} B/s for {file}"), why);
        reply.admitted.ok_or_else(refused)
    }

    async fn predicted(&mut self, run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
        if !run.wants(&[HEALTHY_READ, HEALTHY_WRITE, DEGRADED_READ], disks.name) {
            return Ok(());
        }
        run.tell(HEALTHY_READ);
        let [file, written] = [self.file.clone(), self.written.clone()];
        let reads = Terms::one(DataDirection::Read);
        let plan = self.trial(&file, reads, greatest(&self.cluster, &file, reads).await?).await?;
        let measured = self.greedy_rate(&file, false).await?;
        against(run, HEALTHY_READ, disks, healthy(&plan), measured);
        run.tell(HEALTHY_WRITE);
        let writes = Terms::one(DataDirection::Write);
        let of_writes =
            self.trial(&written, writes, greatest(&self.cluster, &written, writes).await?).await?;
        let measured = self.greedy_rate(&written, true).await?;
        against(run, HEALTHY_WRITE, disks, healthy(&of_writes), measured);
        run.tell(DEGRADED_READ);
        let victim = self.cluster.drives_of(&file).await?.remove(0);
        self.cluster.kill(&victim).await?;
        let measured = self.greedy_rate(&file, false).await?;
        against(run, DEGRADED_READ, disks, worst(&plan), measured);
        Ok(())
    }
}

fn against(run: &mut Run, name: &str, disks: &'static Disks, predicted: u64, measured: f64) {
    let found = format!("{} predicted, {} measured", show(real(predicted)), show(measured));
    run.add(name, disks.name, found, real(predicted) / measured.max(1.0), PREDICTED);
}

/// The rate that would take all of the time of the busiest disk, with all drives there.
fn healthy(plan: &ReservationRow) -> u64 {
    let busiest = plan.plan.drives.iter().map(|drive| drive.healthy_permille).max().unwrap_or(0);
    plan.rate * 1000 / u64::from(busiest.max(1))
}

/// The same in the worst state that the plan survives.
fn worst(plan: &ReservationRow) -> u64 {
    let busiest = plan.plan.drives.iter().map(|drive| drive.worst_permille).max().unwrap_or(0);
    plan.rate * 1000 / u64::from(busiest.max(1))
}
