//! Many slow streams that begin at random times, as in RAID-II's video store.

use std::time::Duration;

use braid_bench::promises::{Goal, Job, Marks, Plot, Stream, Summary};
use braid_cli::output::exit::Failure;
use braid_client::{DataDirection, Parents};
use tokio::time::sleep;

use super::Run;
use super::setup::{self, Disks, Terms, ask, calibrate, due, show};
use crate::bench::client::{alone, during};
use crate::bench::cluster::name;
use crate::bench::stripes::write;

const SHAPE: (&str, u8) = ("raid5", 5);
const UNIT: u32 = 64 << 10;
const STRIPE: u64 = 4 * UNIT as u64;
/// Rate of a stream in bytes a second: 8 Mbit/s.
const RATE: u64 = 1_000_000;
const PERIOD_MS: u32 = 500;
/// Number of client processes.
const CLIENTS: usize = 2;
/// Streams that read one file each, at different places.
const SHARE: usize = 4;
/// Time within which streams begin.
const BEGIN_WITHIN_MS: u64 = 3000;

/// Common name of the rows.
pub(super) const GROUP: &str = "many streams";

pub(super) async fn measure(run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
    let count: usize = run.size(200, 20);
    let what = format!("{count} streams of 8 Mbit/s");
    let first = format!("{what}: longest start over the promised");
    if !run.wants(&[&what, &first], disks.name) {
        return Ok(());
    }
    run.tell(format!("{what}: start"));
    let cluster = setup::up(run.path(), "streams", disks, "600").await?;
    cluster.make_volume(SHAPE, UNIT).await?;
    calibrate(&cluster).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(cluster.client_process().await?);
    }
    let directory = name("streams")?;
    cluster.client.mkdir(&directory, Parents::MustExist).await?;
    let bytes = 16 * STRIPE;
    let mut files = Vec::new();
    for number in 0..count.div_ceil(SHARE) {
        let file = name(&format!("streams/{number}"))?;
        cluster.create_at(&file).await?;
        alone(&mut clients[0], &write(&file, bytes)).await?;
        files.push(file);
    }
    let streams = u32::try_from(count).unwrap_or(1);
    let terms = Terms { direction: DataDirection::Read, streams, period_ms: PERIOD_MS, survive: 1 };
    let reply = ask(&cluster, &directory, terms, RATE * u64::from(streams), false).await?;
    let Some(row) = reply.admitted else {
        let why = reply.refused.map(|refused| refused.detail).unwrap_or_default();
        run.leave_out(&what, disks.name, why);
        drop(clients);
        return cluster.down().await;
    };
    let mut jobs = vec![Job { streams: Vec::new() }; CLIENTS];
    for number in 0..count {
        // Spread without a pattern, and the same in each run.
        let place = u64::try_from(number).unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let stream = due(&files[number / SHARE], &row, STRIPE, bytes);
        let begins_ms = 1000 + place % BEGIN_WITHIN_MS;
        jobs[number % CLIENTS].streams.push(Stream { begins_ms, first: place % 16, ..stream });
    }
    run.tell(&what);
    let time = Duration::from_secs_f64(run.size(12.0, 4.0));
    let (done, ()) = during(&mut clients, &jobs, async || {
        sleep(Duration::from_millis(1000 + BEGIN_WITHIN_MS) + time).await;
        Ok(())
    })
    .await?;
    let sum = Summary::of(&done);
    let found = format!(
        "{} of {} streams late: {}; {}",
        sum.late_streams,
        sum.streams,
        sum.words(),
        show(setup::real(sum.rate))
    );
    run.add(&what, disks.name, found, sum.late_periods(), Some(Goal::NoneLate));
    let [start, promised] = [sum.start_us, row.plan.start_us].map(|us| setup::real(us) / 1000.0);
    let found = format!("{start:.1} ms, {promised:.1} ms promised");
    run.add(&first, disks.name, found, start / promised.max(0.001), Some(Goal::Within(0.0, 1.0)));
    run.plot(Plot {
        name: "promises-streams".to_owned(),
        title: format!("Lateness of {what}"),
        runs: vec![("reserved".to_owned(), sum, Marks::new())],
    });
    drop(clients);
    cluster.down().await
}
