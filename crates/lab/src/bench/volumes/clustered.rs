//! Small files near each other: a tree that was written in another order than it is read in, by a reader that
//! reads one file after the other, as `grep -r` does.
//!
//! The files of all directories are made by turns, in a tree that is clustered by directory and in one that
//! is not. When the drives have gathered what they want to, they are started anew, with modelled disks:
//! nothing is in memory then, and such a disk has nothing in its page cache but what was read ahead.

use std::time::Duration;

use braid_bench::stripes::Goal;
use braid_cli::DriveOptions;
use braid_cli::connect::connect;
use braid_cli::output::exit::{Exit, Failure};
use braid_client::{Name, Parents};
use braid_wire::control::Clustering;
use tokio::time::{Instant, sleep};

use super::Run;
use super::tasks::{make_files, read_files};
use crate::bench::cluster::{Cluster, UNIT_BYTES, name};
use crate::bench::promises::{SPINDLE, calibrate};

pub(super) const GROUP: &str = "small files near each other";
const ROW: &str = "small files read one by one, cold, clustered by directory against not, spindle";

const DRIVES: u16 = 5;
const DIRECTORIES: u64 = 20;
const FILES: u64 = 20_000;
const FILES_QUICK: u64 = 200;
const FILE_BYTES: usize = 3000;
/// Directories of the other tree that are read: each file of them takes long.
const SCATTERED_READ: u64 = 2;
/// The drives have gathered all if they have written nothing for so long. The longest wait for that.
const QUIET: Duration = Duration::from_secs(8);
const GATHERED_MAX: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_secs(1);

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if !run.wants(ROW) {
        return Ok(());
    }
    run.tell(format!("{GROUP}: start"));
    let plain = DriveOptions::default();
    let mut cluster = Cluster::up_with(run.path(), "clustered", DRIVES, plain, "600").await?;
    cluster.make_volume(("raid5", 5), UNIT_BYTES).await?;
    let each = run.size(FILES, FILES_QUICK) / DIRECTORIES;
    for tree in ["near", "scattered"] {
        for directory in 0..DIRECTORIES {
            cluster.client.mkdir(&name(&format!("{tree}/{directory}"))?, Parents::Make).await?;
        }
    }
    cluster.client.set_clustering(&name("near")?, Some(Clustering::Directory)).await?;
    run.tell(format!("{GROUP}: {} files", 2 * each * DIRECTORIES));
    let mut names = Vec::new();
    for number in 0..each {
        for directory in 0..DIRECTORIES {
            for tree in ["near", "scattered"] {
                names.push(name(&format!("{tree}/{directory}/{number}"))?);
            }
        }
    }
    make_files(&cluster.client, names, FILE_BYTES).await?;
    run.tell(format!("{GROUP}: the drives gather"));
    gathered(&cluster).await?;
    let model = |why| Failure::new(Exit::Usage, "model a disk", why);
    cluster.running.options = DriveOptions::modelled(SPINDLE.model).map_err(model)?;
    for drive in cluster.running.cluster.drives.clone() {
        cluster.restart(&drive).await?;
    }
    calibrate(&cluster).await?;
    run.tell(format!("{GROUP}: read"));
    let client = connect(&cluster.running.dir, &cluster.running.cluster).await?;
    let near = read_files(&client, &files("near", DIRECTORIES, each)?, FILE_BYTES).await?;
    let scattered = read_files(&client, &files("scattered", SCATTERED_READ, each)?, FILE_BYTES).await?;
    let found = format!("{near:.0} of {scattered:.0} files a second");
    run.add(ROW, found, near / scattered, Some(Goal::AtLeast(3.0)));
    drop(client);
    cluster.down().await
}

/// Names of the files of the first directories, directory by directory.
fn files(tree: &str, directories: u64, each: u64) -> Result<Vec<Name>, Failure> {
    let of = |directory| (0..each).map(move |number| name(&format!("{tree}/{directory}/{number}")));
    (0..directories).flat_map(of).collect()
}

/// Waits until the drives write nothing more.
async fn gathered(cluster: &Cluster) -> Result<(), Failure> {
    let end = Instant::now() + GATHERED_MAX;
    let mut before = 0;
    let mut since = Instant::now();
    while Instant::now() < end {
        let used = cluster.client.status().await?.drives.iter().map(|drive| drive.used_bytes).sum();
        if used != before {
            before = used;
            since = Instant::now();
        }
        if since.elapsed() > QUIET {
            return Ok(());
        }
        sleep(POLL).await;
    }
    Err(Failure::new(Exit::Timeout, "wait for the drives", "they still write"))
}
