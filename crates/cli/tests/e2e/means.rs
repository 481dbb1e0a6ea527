//! How a drive reaches its disk: what is asked for by name is used, shown, or refused with what to do.

use crate::support::{Cluster, Said, braid, run, until};

fn up(cluster: &Cluster, means: &str) -> Said {
    let mut command = braid();
    command.args(["up", "--detach", "--drives", "1", "--dir"]).arg(cluster.dir());
    command.args(means.split_whitespace());
    run(command)
}

/// What the status says of the only drive, once it has told.
fn shown(cluster: &Cluster) -> String {
    let io = || cluster.status()["drives"][0]["io"].as_str().unwrap_or_default().to_owned();
    until("the drive has told", || !io().is_empty());
    io()
}

/// Whether the system has no io_uring, or the tests' directory no O_DIRECT: then that is said, and what to do.
fn refused(said: &Said, remedy: &str) -> bool {
    if said.code != 0 {
        said.failed(1, remedy);
    }
    said.code != 0
}

const NO_URING: &str = "io_uring cannot be had";
const NO_SENDFILE: &str = "leave --send sendfile out";
const NO_DIRECT: &str = "put the drive on another file system, or leave --direct out";

#[test]
fn what_is_asked_for_is_used_and_shown() {
    for (means, expected, no) in [
        ("", "plain, buffered", ""),
        ("--io auto", "plain, buffered", ""),
        ("--io plain", "plain, buffered", ""),
        ("--io uring", "io_uring, buffered", NO_URING),
        ("--direct", "plain, direct", NO_DIRECT),
    ] {
        let cluster = Cluster::nowhere();
        let said = up(&cluster, means);
        if !no.is_empty() && refused(&said, no) {
            // Without it all is as before.
            up(&cluster, "").ok();
            assert_eq!(shown(&cluster), "plain, buffered", "{means}");
            continue;
        }
        said.ok();
        assert_eq!(shown(&cluster), expected, "{means}");
        let file = cluster.make("f", 3 << 20, 3);
        cluster.put(&file, "braid://main/f");
        assert!(cluster.cat("braid://main/f") == std::fs::read(&file).expect("read"), "{means}");
    }
}

/// On one machine a read is copied, and by sendfile if that is asked for.
#[test]
fn reads_leave_as_was_asked() {
    for (means, expected) in [
        ("", "; reads 0 % sendfile,"),
        ("--send copy", "; reads 0 % sendfile,"),
        ("--send sendfile", "; reads 100 % sendfile,"),
    ] {
        let cluster = Cluster::nowhere();
        let said = up(&cluster, means);
        if means == "--send sendfile" && refused(&said, NO_SENDFILE) {
            continue;
        }
        said.ok();
        let file = cluster.make("f", 3 << 20, 3);
        cluster.put(&file, "braid://main/f");
        assert!(cluster.cat("braid://main/f") == std::fs::read(&file).expect("read"), "{means}");
        until(&format!("reads are told: {expected}"), || shown(&cluster).contains(expected));
    }
}

#[test]
fn sendfile_past_the_page_cache_is_refused() {
    let cluster = Cluster::nowhere();
    let said = up(&cluster, "--direct --send sendfile");
    said.failed(1, NO_SENDFILE);
    assert!(said.err.contains("with O_DIRECT nothing is in the page cache"), "{}", said.err);
}

#[test]
fn a_restart_is_told_anew_and_a_wrong_word_is_refused() {
    let cluster = Cluster::nowhere();
    if refused(&up(&cluster, "--io uring"), NO_URING) {
        return;
    }
    assert_eq!(shown(&cluster), "io_uring, buffered");
    cluster.down().ok();
    up(&cluster, "").ok();
    until("it is the new drive that has told", || shown(&cluster) == "plain, buffered");
    cluster.line("drive add --io uring --name more").ok();
    until("the other has told", || {
        let status = cluster.status();
        let drives = status["drives"].as_array().expect("a list");
        drives.iter().any(|drive| drive["name"] == "more" && drive["io"] == "io_uring, buffered")
    });
    assert!(cluster.line("status").ok().text().contains("io_uring, buffered"));
    let wrong = up(&cluster, "--io fast");
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("auto, plain, uring"), "{}", wrong.err);
}

/// Memory offers no O_DIRECT on most kernels; where it does, it is used.
#[test]
fn what_cannot_be_had_is_refused_with_what_to_do() {
    let Ok(place) = tempfile::Builder::new().prefix("braid-test-").tempdir_in("/dev/shm") else { return };
    let dir = place.path().join("cluster");
    let mut command = braid();
    command.args(["up", "--detach", "--drives", "1", "--direct", "--dir"]).arg(&dir);
    let said = run(command);
    if said.code != 0 {
        said.failed(1, NO_DIRECT);
        assert!(said.err.contains("O_DIRECT cannot be had"), "{}", said.err);
    }
    let mut command = braid();
    command.args(["down", "--dir"]).arg(&dir);
    run(command).ok();
}
