//! Reserved reads and writes where links are scarce and disks are not: each drive on a host of its own, its
//! link limited by `tc tbf` in both directions, and its rate told to the drive.

use std::time::Duration;

use braid_bench::promises::{Goal, Job, Summary};
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Exit, Failure};
use braid_client::DataDirection;
use tokio::time::sleep;

use super::Run;
use super::setup::{self, Disks, Terms, calibrate, due, greatest, greedy, part, real, show};
use crate::bench::client::during;
use crate::bench::cluster::{Cluster, UNIT_BYTES, name};
use crate::bench::hosts::{Hosts, Links};
use crate::bench::stripes::fill;

const SHAPE: (&str, u8) = ("raid5", 5);
const STRIPE: u64 = 4 * UNIT_BYTES as u64;
const DRIVES: u16 = 6;
/// Rate of each drive's link, in bits a second.
const LINK_BITS: u64 = 200_000_000;
/// Share of the greatest rate that is reserved in each direction. A link carries both at once.
const SHARE: f64 = 0.7;
/// Requests in flight of each greedy stream.
const DEPTH: u32 = 16;

const BESIDE: &str = "reserved reads and writes at 0.7 of links of 200 Mbit/s, beside overload";
const UNRESERVED: &str = "beside overload of links, without reservations";

/// Common name of the rows.
pub(super) const GROUP: &str = "links";

pub(super) async fn measure(run: &mut Run, disks: &'static Disks) -> Result<(), Failure> {
    if !run.wants(&[BESIDE, UNRESERVED], disks.name) {
        return Ok(());
    }
    if let Some(why) = Hosts::lacking() {
        run.leave_out(GROUP, disks.name, why);
        return Ok(());
    }
    run.tell("links: start");
    let hosts = Hosts::up(usize::from(DRIVES))?;
    let rail = LINK_BITS / 8;
    let options = DriveOptions::modelled(disks.model)
        .and_then(|options| options.on_rail(rail))
        .map_err(|why| Failure::new(Exit::Usage, "model a disk", why))?
        .reading_ahead(0);
    let mut cluster = Cluster::bare_on(&hosts, run.path(), "links", DRIVES, options).await?;
    cluster.make_volume(SHAPE, UNIT_BYTES).await?;
    calibrate(&cluster).await?;
    let mut clients = vec![cluster.client_process().await?, cluster.client_process().await?];
    let bytes = run.size(20, 10) * STRIPE;
    let read = fill(&mut cluster, &mut clients[0], bytes).await?;
    let other = fill(&mut cluster, &mut clients[0], bytes).await?;
    let rewritten = cluster.create().await?;
    let written = name("reserved")?;
    let [reads, writes] = [DataDirection::Read, DataDirection::Write].map(Terms::one);
    let read_rate = part(greatest(&cluster, &read, reads).await?, SHARE);
    let read_row = setup::reserve(&cluster, &read, reads, read_rate).await?;
    let write_rate = part(greatest(&cluster, &written, writes).await?, SHARE);
    let write_row = setup::reserve(&cluster, &written, writes, write_rate).await?;
    cluster.create_at(&written).await?;
    hosts.limit(Links::Drives, LINK_BITS)?;
    let shape = &write_row.plan.shape;
    let stripe = u64::from(shape.k) * u64::from(shape.unit_bytes);
    let jobs = [
        Job {
            streams: vec![due(&read, &read_row, STRIPE, bytes), due(&written, &write_row, stripe, 64 << 20)],
        },
        Job {
            streams: vec![
                greedy(&other, false, STRIPE, bytes, DEPTH),
                greedy(&rewritten, true, STRIPE, bytes, DEPTH),
            ],
        },
    ];
    let time = Duration::from_secs_f64(1.0 + run.size(10.0, 3.0));
    for is_reserved in [true, false] {
        let what = if is_reserved { BESIDE } else { UNRESERVED };
        run.tell(what);
        if !is_reserved {
            for row in [&read_row, &write_row] {
                cluster.client.end_reservation(row.reservation).await?;
            }
        }
        let (done, ()) = during(&mut clients, &jobs, async || {
            sleep(time).await;
            Ok(())
        })
        .await?;
        let sum = Summary::of(&done);
        let found = format!(
            "{} and {} over links of {}; {}; delivered {}, others got {}",
            show(real(read_rate)),
            show(real(write_rate)),
            show(real(rail)),
            sum.words(),
            show(real(sum.rate)),
            show(sum.greedy_rate(1.5, time.as_secs_f64()))
        );
        run.add(what, disks.name, found, sum.late_periods(), is_reserved.then_some(Goal::NoneLate));
    }
    drop(clients);
    cluster.down().await
}
