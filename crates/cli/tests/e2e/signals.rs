//! Signals to servers: SIGHUP is ignored, SIGTERM ends them, and the log names the signal.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::support::{Cluster, braid, finish, run, runs, said, signal, until};

#[test]
fn a_hangup_ends_no_server_and_every_end_is_logged() {
    let cluster = Cluster::nowhere();
    cluster.start(&["--drives", "2"]);
    let status = cluster.status();
    let manager = u32::try_from(status["manager"]["pid"].as_u64().expect("a number")).expect("a pid");
    let servers = [("manager", manager), ("drive-1", cluster.drive_pid("drive-1"))];
    let log = |name: &str| fs::read_to_string(cluster.dir().join(format!("logs/{name}.log"))).expect("a log");
    for (name, pid) in servers {
        signal(pid, "HUP");
        until("the hangup is logged", || log(name).contains("SIGHUP is ignored"));
    }
    // The servers still serve, as the same processes.
    assert_eq!(cluster.drive_pid("drive-1"), servers[1].1);
    cluster.put(&cluster.make("f", 100_000, 1), "braid://main/f");
    for (name, pid) in servers.into_iter().rev() {
        signal(pid, "TERM");
        until("it has ended", || !runs(pid));
        let log = log(name);
        assert!(log.contains("stopping") && log.contains("SIGTERM"), "{name}: {log}");
    }
}

#[test]
fn a_hangup_does_not_end_up_in_the_foreground_but_ends_a_command() {
    let cluster = Cluster::nowhere();
    let mut command = braid();
    command.args(["up", "--drives", "1", "--dir"]).arg(cluster.dir());
    let mut up = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(up.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("running")), "it serves");
    let mut words = BufReader::new(up.stderr.take().expect("piped"));
    signal(up.id(), "HUP");
    let mut word = String::new();
    words.read_line(&mut word).expect("it says something");
    assert!(word.contains("SIGHUP is ignored"), "{word}");
    cluster.line("mkdir braid://main/d").ok();
    // A command ends at SIGHUP as at Ctrl-C; this one waits for its input.
    let mut command = cluster.command(["cp", "-", "braid://main/x"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut copy = command.spawn().expect("it starts");
    let input = copy.stdin.take();
    until("it listens to signals", || handles_hangup(copy.id()));
    signal(copy.id(), "HUP");
    assert_eq!(said(finish(copy)).code, 130);
    drop(input);
    signal(up.id(), "TERM");
    let mut rest = String::new();
    words.read_to_string(&mut rest).expect("read");
    assert!(lines.any(|line| line == "stopping: SIGTERM"));
    assert_eq!(said(finish(up)).code, 0, "{rest}");
    run(cluster.command(["ls", "braid://main"])).failed_with_output(5);
}

/// Returns true if the process has a handler for SIGHUP.
fn handles_hangup(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & 1 != 0)
}
