//! A directory is removed or replaced under running servers: they stop, and say why.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::support::{Cluster, braid, finish, run, runs, said, signal, until};

/// Process ids of all servers of a cluster.
fn pids(cluster: &Cluster) -> Vec<u32> {
    let status = cluster.status();
    let drives = status["drives"].as_array().expect("a list").iter().map(|drive| drive["pid"].as_u64());
    let all = drives.chain([status["manager"]["pid"].as_u64()]);
    all.map(|pid| u32::try_from(pid.expect("a pid")).expect("small")).collect()
}

/// Removes a directory while processes still create files in it.
fn remove(dir: &Path) {
    until("it is removed", || fs::remove_dir_all(dir).is_ok() || !dir.exists());
}

#[test]
fn a_cluster_whose_directory_is_removed_stops() {
    let cluster = Cluster::up(3);
    let pids = pids(&cluster);
    assert_eq!(pids.len(), 4);
    remove(&cluster.dir());
    until("all have stopped", || pids.iter().all(|&pid| !runs(pid)));
    let down = cluster.down();
    down.failed(5, "there is no such directory");
    assert!(down.err.contains("stop by themselves"), "{}", down.err);
}

#[test]
fn up_in_the_foreground_ends_with_its_directory() {
    let cluster = Cluster::nowhere();
    let mut command = braid();
    command.args(["up", "--drives", "3", "--dir"]).arg(cluster.dir());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let said_so = BufReader::new(child.stdout.take().expect("piped")).lines();
    said_so.map(|line| line.expect("text")).find(|line| line.starts_with("running")).expect("it serves");
    let mut pids = pids(&cluster);
    // A drive that cannot be started again does not end the others.
    let lost = cluster.drive_pid("drive-2");
    remove(&cluster.dir().join("drive-2/store"));
    signal(lost, "KILL");
    let log = cluster.dir().join("logs/drive-2.log");
    until("it cannot be started", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("has lost its store"))
    });
    pids.retain(|&pid| pid != lost);
    assert!(pids.iter().all(|&pid| runs(pid)), "another has ended");
    // Another directory takes its place: writes by name would go there.
    let kept = cluster.file("kept");
    fs::rename(cluster.dir(), &kept).expect("renamed");
    fs::create_dir(cluster.dir()).expect("made");
    let ended = said(finish(child));
    ended.failed_with_output(14);
    assert!(ended.err.contains("was removed or replaced while it was in use"), "{}", ended.err);
    assert!(ended.err.contains("`braid drive replace drive-2 NEW`"), "{}", ended.err);
    until("all have stopped", || pids.iter().all(|&pid| !runs(pid)));
    assert_eq!(
        fs::read_dir(cluster.dir()).expect("read").count(),
        0,
        "something wrote to the other directory"
    );
}

fn manager(dir: &Path, pid_file: &Path) -> Child {
    let mut command = braid();
    command.args(["manager", "serve", "--listen", "127.0.0.1:0", "--dir"]).arg(dir);
    command.arg("--pid-file").arg(pid_file).env("BRAID_LOG", "off");
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started")
}

#[test]
fn a_manager_whose_lock_is_replaced_ends_with_an_error_of_its_own() {
    let cluster = Cluster::nowhere();
    let dir = cluster.file("m");
    let pid_file = cluster.file("pid");
    let first = manager(&dir, &pid_file);
    until("it serves", || pid_file.exists());
    fs::remove_file(dir.join("LOCK")).expect("removed");
    // Nothing keeps a second manager out now, so the first must stop.
    let second = manager(&dir, &cluster.file("pid2"));
    let ended = said(finish(first));
    ended.failed(14, "its LOCK file was removed or replaced");
    let mut stop = std::process::Command::new("kill");
    stop.arg(second.id().to_string());
    run(stop).ok();
    // The second manager came up only if the first released its state in time.
    let _ = finish(second);
}
