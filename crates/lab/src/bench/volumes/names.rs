//! Names that outlive the manager: its state is lost, and made anew of what the drives hold.

use std::process::Stdio;
use std::time::Duration;

use braid_bench::stripes::Goal;
use braid_cli::machine::down::stop_all;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_client::{Client, Name, Parents};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::Run;
use super::tasks::make_files;
use crate::bench::cluster::{Cluster, name};

pub(super) const GROUP: &str = "names at the drives";
const ROW: &str = "names that come back from the drives alone, of all";

const DRIVES: u16 = 5;
const FILES: u64 = 100_000;
const FILES_QUICK: u64 = 300;
const DIRECTORIES: u64 = 100;
const FILE_BYTES: usize = 1000;
/// Longest wait for the drives to have all names, and for the new manager to have compared its state.
const KEPT_MAX: Duration = Duration::from_secs(120);
const COMPARED_MAX: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(200);

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if !run.wants(ROW) {
        return Ok(());
    }
    let files = run.size(FILES, FILES_QUICK);
    run.tell(format!("{GROUP}: {files} files"));
    let mut cluster = Cluster::up(run.path(), "names", DRIVES, ("raid5", 5)).await?;
    let mut names = Vec::new();
    for directory in 0..DIRECTORIES {
        cluster.client.mkdir(&name(&format!("many/{directory}"))?, Parents::Make).await?;
        for number in 0..files / DIRECTORIES {
            names.push(name(&format!("many/{directory}/{number}"))?);
        }
    }
    make_files(&cluster.client, names, FILE_BYTES).await?;
    until_kept(&cluster.client).await?;
    let before = listed(&cluster.client).await?;

    run.tell(format!("{GROUP}: made anew"));
    stop_all(std::mem::take(&mut cluster.running.servers)).await?;
    let manager = cluster.running.dir.manager();
    std::fs::remove_dir_all(&manager).doing(|| format!("remove {}", manager.display()))?;
    let began = Instant::now();
    rebuild(&cluster).await?;
    let made = began.elapsed();
    cluster.start_all().await?;
    let after = until_compared(&cluster.client).await?;
    let found = format!(
        "{} of {}; {:.0} s for the state, {:.0} s until all files were compared and listed",
        after.iter().filter(|name| before.binary_search(name).is_ok()).count(),
        before.len(),
        made.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let share =
        if after == before { 1.0 } else { after.len().min(before.len()) as f64 / before.len() as f64 };
    run.add(ROW, found, share, Some(Goal::AtLeast(1.0)));
    cluster.down().await
}

/// Waits until the drives have all names.
async fn until_kept(client: &Client) -> Result<(), Failure> {
    let end = Instant::now() + KEPT_MAX;
    while Instant::now() < end {
        let names = client.status().await?.names;
        if names.behind_ms == 0 && !names.drives.is_empty() {
            return Ok(());
        }
        sleep(POLL).await;
    }
    Err(Failure::new(Exit::Timeout, "wait for the names at the drives", "they are behind the manager"))
}

/// All files, in order.
async fn listed(client: &Client) -> Result<Vec<Vec<u8>>, Failure> {
    let mut found = Vec::new();
    for directory in 0..DIRECTORIES {
        let directory: Name = name(&format!("many/{directory}"))?;
        let entries = client.list(&directory).all().await?;
        found.extend(entries.into_iter().map(|entry| [directory.path(), b"/", &entry.name].concat()));
    }
    found.sort();
    Ok(found)
}

/// Waits until the new manager answers, and lists the files.
async fn until_compared(client: &Client) -> Result<Vec<Vec<u8>>, Failure> {
    let end = Instant::now() + COMPARED_MAX;
    loop {
        match listed(client).await {
            Ok(found) => return Ok(found),
            Err(failure) if Instant::now() > end => return Err(failure),
            Err(_) => sleep(POLL).await,
        }
    }
}

/// Runs `braid manager rebuild` on the directories of all drives.
async fn rebuild(cluster: &Cluster) -> Result<(), Failure> {
    let doing = || "make the manager's state anew".to_owned();
    let dir = &cluster.running.dir;
    let mut command = Command::new(std::env::current_exe().doing(doing)?);
    command.args(["manager", "rebuild", "--yes", "--dir"]).arg(dir.manager()).arg("--from-drives");
    command.args(cluster.running.cluster.drives.iter().map(|drive| dir.drive(drive)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = command.spawn().doing(doing)?.wait_with_output().await.doing(doing)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, doing(), String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
