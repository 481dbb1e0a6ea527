//! Ways in which a drive sends the bytes of reads: a way that is asked for by name is used and shown, or
//! refused with advice.

use crate::support::{Cluster, Said, braid, run, until};

fn up(cluster: &Cluster, options: &str) -> Said {
    let mut command = braid();
    command.args(["up", "--detach", "--drives", "1", "--dir"]).arg(cluster.dir());
    command.args(options.split_whitespace());
    run(command)
}

/// The way that the status shows for a drive, once the drive has reported its first read.
fn shown(cluster: &Cluster, drive: usize) -> String {
    let io = || cluster.status()["drives"][drive]["io"].as_str().unwrap_or_default().to_owned();
    until("the drive has told", || !io().is_empty());
    io()
}

/// Writes a file and reads it back.
fn use_it(cluster: &Cluster, name: &str, what: &str) {
    let file = cluster.make(name, 3 << 20, 3);
    let remote = format!("braid://main/{name}");
    cluster.put(&file, &remote);
    // What goes by datagrams is never sent by sendfile.
    let read = cluster.braid(["--transport", "tcp", "cat", &remote]).ok().out;
    assert!(read == std::fs::read(&file).expect("read"), "{what}");
}

/// Returns true if the drive refused, with advice, because the system does not tell what is in the page
/// cache.
fn refused(said: &Said) -> bool {
    if said.code != 0 {
        said.failed(1, "leave --send sendfile out");
    }
    said.code != 0
}

/// On one machine a read is copied unless sendfile was measured to be cheaper, and sent by sendfile if that
/// is asked for. Nothing of a modelled disk comes from the page cache.
#[test]
fn reads_leave_as_was_asked() {
    for (options, expected) in [
        ("--no-calibration", "reads 0 % sendfile,"),
        ("--send copy", "reads 0 % sendfile,"),
        ("--send sendfile", "reads 100 % sendfile,"),
        ("--disk-model flash,iops=20000,read=1GB/s,write=1GB/s", "modelled disk; reads 0 % sendfile,"),
    ] {
        let cluster = Cluster::nowhere();
        let said = up(&cluster, options);
        if options == "--send sendfile" && refused(&said) {
            continue;
        }
        said.ok();
        use_it(&cluster, "f", options);
        until(&format!("reads are told: {expected}"), || shown(&cluster, 0).starts_with(expected));
    }
}

#[test]
fn a_restart_is_told_anew_and_a_wrong_word_is_refused() {
    let cluster = Cluster::nowhere();
    if refused(&up(&cluster, "--send sendfile")) {
        return;
    }
    use_it(&cluster, "f", "by sendfile");
    until("it sends by sendfile", || shown(&cluster, 0).starts_with("reads 100 % sendfile,"));
    cluster.down().ok();
    up(&cluster, "--send copy").ok();
    use_it(&cluster, "g", "by copies");
    until("it is the new drive that has told", || shown(&cluster, 0).starts_with("reads 0 % sendfile,"));
    assert!(cluster.line("status").ok().text().contains("reads 0 % sendfile,"));
    let wrong = up(&cluster, "--send fast");
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("auto, copy, sendfile"), "{}", wrong.err);
    let wrong = up(&cluster, "--disk-model tape,read=1MB/s");
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("neither spindle nor flash"), "{}", wrong.err);
}
