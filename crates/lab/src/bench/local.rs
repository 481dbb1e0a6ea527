//! `braid-lab bench local`: one client and drives on this machine, raid5 4+1 with units of 512 KiB. What is
//! beside each row is plain processes that move as many bytes, or what the row is a part of.

use braid_bench::against::{Goal, Of, Question, Taken};
use braid_bench::stripes::{RECORD_BYTES, RECORDS_AT_ONCE, Work};
use braid_bench::touch_memory;
use braid_cli::output::exit::Failure;
use braid_cli::output::report::Report;
use braid_client::Name;

use super::cluster::{Cluster, name};
use super::mounted::Mounted;
use super::plain::Plain;
use super::ratios::{self, Bench, Metered, Run};
use super::run::Which;
use super::stripes::{fill, healthy_and_hit, job, read, write};
use crate::args::BenchCluster;
use crate::demo::peer::Order;

const BENCH: Bench =
    Bench { name: "local", title: "Large transfers against a fair bound", needed: (12 << 30, 1 << 30) };
const DRIVES: u16 = 6;
const SHAPE: (&str, u8) = ("raid5", 5);
const WIDTH: usize = 5;
/// The part of all bytes written that is the user's.
const DATA_PART: f64 = 4.0 / 5.0;
const BYTES: (u64, u64) = (1 << 30, 16 << 20);
const PIECE_BYTES: u64 = 1 << 20;
const PIECES_AT_ONCE: u32 = 16;
const MIB: f64 = 1_048_576.0;

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    ratios::run(BENCH, asked, report, async |run| rows(run).await).await
}

/// The rows. Plain processes write as many bytes as the drives: of what they write, 4/5 counts.
struct Rows {
    read: Question,
    write: Question,
    overwrite: Question,
    hard: Question,
    mount_write: Question,
    mount_read: Question,
    degraded: Question,
}

impl Rows {
    fn all() -> Rows {
        let row = |name, second| Question::rates("local", name, ["braid", second]);
        Rows {
            read: row("sequential read", "plain, by sendfile")
                .goal(Of::Ratio, Goal::AtLeast(0.9))
                .goal(Of::Cpu, Goal::AtMost(0.4)),
            write: row("sequential write", "plain writers, 4/5 of it")
                .goal(Of::Ratio, Goal::AtLeast(0.9))
                .goal(Of::Cpu, Goal::AtMost(0.8)),
            overwrite: row("random overwrite 1 MiB, 16 in flight", "sequential write")
                .goal(Of::Ratio, Goal::AtLeast(0.4)),
            hard: row("records of 47,008 bytes, one handle, 16 in flight", "plain writers, 4/5 of it")
                .goal(Of::Value, Goal::AtLeast(500.0 * MIB)),
            mount_write: row("mount, sequential write", "native").goal(Of::Ratio, Goal::AtLeast(0.7)),
            mount_read: row("mount, sequential read", "native").goal(Of::Ratio, Goal::AtLeast(0.8)),
            degraded: row("degraded read", "healthy")
                .goal(Of::Ratio, Goal::AtLeast(0.9))
                .paper("degraded RAID-5 about equal"),
        }
    }
}

async fn rows(run: &mut Run) -> Result<(), Failure> {
    let rows = Rows::all();
    let of_all = [
        &rows.read,
        &rows.write,
        &rows.overwrite,
        &rows.hard,
        &rows.mount_write,
        &rows.mount_read,
        &rows.degraded,
    ];
    if !run.wants_any(of_all) {
        return Ok(());
    }
    let bytes = run.size(BYTES.0, BYTES.1);
    run.tell("local: start");
    let mut plain = Plain::start(run.path(), WIDTH)?;
    let mut cluster = Cluster::up(run.path(), "local", DRIVES, SHAPE).await?;
    let mut metered = Metered::start(&cluster).await?;
    let file = fill(&mut cluster, &mut metered.client, bytes).await?;
    run.pairs(&rows.read, async |which| match which {
        Which::First => metered.rate(&read(&file, bytes)).await,
        Which::Second => plain.run(Order::GiveSendfile, bytes),
    })
    .await?;
    run.pairs(&rows.write, async |which| match which {
        Which::First => written(&mut metered, &file, bytes).await,
        Which::Second => plainly_written(&mut plain, bytes),
    })
    .await?;
    let mut seed = 0;
    run.pairs(&rows.overwrite, async |which| {
        if which == Which::Second {
            return written(&mut metered, &file, bytes).await;
        }
        seed += 1;
        let pieces = bytes / PIECE_BYTES / 2;
        touch_memory(bytes);
        metered
            .rate(&job(
                &file,
                Work::Updates {
                    within: bytes,
                    piece_bytes: PIECE_BYTES,
                    pieces,
                    depth: PIECES_AT_ONCE,
                    seed,
                },
            ))
            .await
    })
    .await?;
    let batch = u64::from(RECORDS_AT_ONCE);
    let records = (bytes / 4 / RECORD_BYTES / batch).max(1) * batch;
    run.pairs(&rows.hard, async |which| {
        if which == Which::Second {
            return plainly_written(&mut plain, bytes);
        }
        let file = cluster.create().await?;
        touch_memory(bytes / 4);
        let taken = metered.rate(&job(&file, Work::Records { client: 0, clients: 1, records })).await?;
        cluster.remove(&[file]).await?;
        Ok(taken)
    })
    .await?;
    mount(run, &rows, &cluster, &mut metered, bytes).await?;
    if run.wants(&rows.degraded) {
        let is_hit = |drives: &[String], victims: &[String]| victims.iter().all(|one| drives.contains(one));
        let (hit, victims) = healthy_and_hit(&mut cluster, &mut metered.client, &file, bytes, is_hit).await?;
        for victim in &victims {
            cluster.kill(victim).await?;
        }
        metered.look_again(&cluster)?;
        run.pairs(&rows.degraded, async |which| {
            let file = if which == Which::First { &hit } else { &file };
            metered.rate(&read(file, bytes)).await
        })
        .await?;
    }
    drop((metered, plain));
    cluster.down().await
}

/// A write of the file from the beginning. The memory that it takes is touched before.
async fn written(metered: &mut Metered, file: &Name, bytes: u64) -> Result<Taken, Failure> {
    touch_memory(bytes / 4 * 5);
    metered.rate(&write(file, bytes)).await
}

/// The rate at which plain processes write the user's bytes.
fn plainly_written(plain: &mut Plain, bytes: u64) -> Result<Taken, Failure> {
    touch_memory(bytes / 4 * 5);
    Ok(plain.run(Order::Take, bytes / 4 * 5)?.part(DATA_PART))
}

/// The rows of a mount, against the native client on the same file.
async fn mount(
    run: &mut Run,
    rows: &Rows,
    cluster: &Cluster,
    metered: &mut Metered,
    bytes: u64,
) -> Result<(), Failure> {
    if !run.wants_any([&rows.mount_write, &rows.mount_read]) {
        return Ok(());
    }
    if let Some(why) = Mounted::lacking() {
        run.leave_out(&rows.mount_write, why.clone());
        run.leave_out(&rows.mount_read, why);
        return Ok(());
    }
    let by_mount = "by-mount";
    let native = name("native")?;
    cluster.create_at(&native).await?;
    let mounted = Mounted::up(cluster, run.path()).await?;
    // Both files are there, whichever rows are asked for.
    tokio::task::block_in_place(|| mounted.write(by_mount, bytes))?;
    written(metered, &native, bytes).await?;
    run.pairs(&rows.mount_write, async |which| {
        if which == Which::Second {
            return written(metered, &native, bytes).await;
        }
        touch_memory(bytes / 4 * 5);
        metered.around(&mounted, || Ok((mounted.write(by_mount, bytes)?, bytes))).await
    })
    .await?;
    mounted.down().await?;
    let parent = run.path().to_owned();
    run.pairs(&rows.mount_read, async |which| {
        if which == Which::Second {
            return metered.rate(&read(&native, bytes)).await;
        }
        // The kernel may keep pages of a file as long as its volume is mounted. A new mount has none, so
        // that all bytes come from the drives. It connects to them as it reads the other file.
        let mounted = Mounted::up(cluster, &parent).await?;
        tokio::task::block_in_place(|| mounted.read("native"))?;
        let taken = metered.around(&mounted, || mounted.read(by_mount)).await?;
        mounted.down().await?;
        Ok(taken)
    })
    .await
}
