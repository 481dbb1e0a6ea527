//! `--transport`: data goes to and from drives by datagrams, or over TCP where they do not come through.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Cluster, braid, noise, not_run, run, runs, signal, until};

const SIZE: usize = 5_000_003;

/// A cluster with a file in it, as its drives serve it.
fn with_file(more: &[&str]) -> Cluster {
    let cluster = Cluster::nowhere();
    cluster.start(&[&["--drives", "5"], more].concat());
    let source = cluster.make("source", SIZE, 7);
    let copied = cluster.braid(["--transport", "auto", "cp", &source.to_string_lossy(), "braid://main/a"]);
    copied.ok();
    cluster
}

/// Reads the file by this transport.
#[track_caller]
fn reads(cluster: &Cluster, transport: &str) {
    let read = cluster.braid(["--transport", transport, "cat", "braid://main/a"]).ok();
    assert!(read.out == noise(SIZE, 7), "the bytes are those that were written");
}

fn transport(cluster: &Cluster, asked: &str) -> Value {
    let said = cluster.braid(["status", "--json", "--transport", asked]);
    assert!([0, 13].contains(&said.code), "{}", said.err);
    said.json()["transport"].clone()
}

/// The ways to all drives.
fn ways(facts: &Value) -> Vec<&Value> {
    facts["drives"].as_array().expect("a list").iter().map(|drive| &drive["way"]).collect()
}

#[test]
fn what_goes_in_by_datagrams_comes_out_the_same_by_either() {
    let cluster = with_file(&[]);
    let source = cluster.make("other", SIZE, 8);
    let target = cluster.file("target");
    let cp = |from: &str, to: &str| cluster.braid(["cp", "--transport", "udp", from, to]).ok();
    cp(&source.to_string_lossy(), "braid://main/b");
    cp("braid://main/b", &target.to_string_lossy());
    assert!(fs::read(&target).expect("it is there") == noise(SIZE, 8));
    assert!(cluster.cat("braid://main/b") == noise(SIZE, 8));
    reads(&cluster, "udp:selective-repeat");
    reads(&cluster, "auto");
    reads(&cluster, "tcp");

    let udp = transport(&cluster, "udp");
    assert_eq!((&udp["asked"], &udp["by"]), (&"udp".into(), &"--transport".into()));
    // A busy machine may answer later than `braid status` waits.
    for asked in ["udp", "auto"] {
        until("all answer in time", || ways(&transport(&cluster, asked)) == ["udp"; 5]);
    }
    let tcp = cluster.line("status --transport tcp");
    assert!(tcp.text().contains("transport: tcp (--transport)\n"), "{}", tcp.text());
    until("the first rail answers in time", || {
        let rails = cluster.line("status --rails --json --transport udp").ok().json();
        rails[0]["rails"][0]["transport"] == "udp"
    });
}

#[test]
fn a_cluster_says_to_all_its_clients_which_transport_they_use() {
    let cluster = Cluster::nowhere();
    cluster.start(&["--drives", "2", "--transport", "auto"]);
    let by = |facts: Value| (facts["asked"].clone(), facts["by"].clone());
    let mut command = cluster.command(["status", "--json"]);
    command.env_remove("BRAID_TRANSPORT");
    assert_eq!(by(run(command).json()["transport"].clone()), ("auto".into(), "cluster.toml".into()));
    // A start that says nothing leaves it.
    cluster.start(&[]);
    let mut command = cluster.command(["status", "--json"]);
    command.env("BRAID_TRANSPORT", "udp:credit");
    assert_eq!(by(run(command).json()["transport"].clone()), ("udp:credit".into(), "BRAID_TRANSPORT".into()));
}

#[test]
fn drives_that_do_not_listen_are_read_over_tcp_or_named() {
    let cluster = with_file(&["--no-udp"]);
    reads(&cluster, "auto");
    let auto = transport(&cluster, "auto");
    assert_eq!(ways(&auto), ["tcp"; 5], "{auto}");
    assert!(auto["drives"][0]["why"].is_string(), "{auto}");

    let refused = cluster.braid(["--transport", "udp", "cat", "braid://main/a"]);
    assert_eq!(refused.code, 8, "{}", refused.err);
    let remedy = "datagrams are filtered or the drive does not listen on UDP: use --transport auto or tcp";
    assert!(refused.err.contains(remedy) && refused.err.contains("127.0.0.1:"), "{}", refused.err);
    let udp = transport(&cluster, "udp");
    assert!(ways(&udp).iter().all(|way| way.is_null()), "{udp}");
}

/// A network of its own, with loopback alone.
struct Network(String);

impl Network {
    /// `None`: this user may make none, or a program is missing.
    fn new() -> Option<Network> {
        let network = Network(format!("braid-udp-{}", std::process::id()));
        let made = Command::new("ip").args(["netns", "add", &network.0]).output();
        if !made.is_ok_and(|made| made.status.success()) || Command::new("nft").arg("-v").output().is_err() {
            return None;
        }
        network.run(&["ip", "link", "set", "lo", "up"]);
        Some(network)
    }

    fn within(&self, command: &Command) -> Command {
        let mut within = Command::new("ip");
        within.args(["netns", "exec", &self.0]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        within.stdin(Stdio::null());
        within
    }

    #[track_caller]
    fn run(&self, words: &[&str]) {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        run(self.within(&command)).ok();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

#[test]
fn where_datagrams_are_filtered_auto_goes_over_tcp() {
    let Some(network) = Network::new() else {
        return not_run("it needs root, ip and nft, for a network that filters datagrams");
    };
    let cluster = Cluster::nowhere();
    let mut up = braid();
    up.args(["up", "--detach", "--no-calibration", "--drives", "3", "--dir"]).arg(cluster.dir());
    run(network.within(&up)).ok();
    let source = cluster.make("source", SIZE, 7);
    let on = |args: &[&str]| run(network.within(&cluster.command(args)));
    on(&["--transport", "udp", "cp", &source.to_string_lossy(), "braid://main/a"]).ok();
    network.run(&["nft", "add table inet t"]);
    network.run(&["nft", "add chain inet t c { type filter hook input priority 0; }"]);
    network.run(&["nft", "add rule inet t c meta l4proto udp drop"]);

    let read = on(&["--transport", "auto", "cat", "braid://main/a"]).ok();
    assert!(read.out == noise(SIZE, 7));
    let status = on(&["--transport", "auto", "status", "--json"]).json();
    assert_eq!(ways(&status["transport"]), ["tcp"; 3], "{status}");
    let refused = on(&["--transport", "udp", "cat", "braid://main/a"]);
    assert_eq!(refused.code, 8, "{}", refused.err);
    assert!(refused.err.contains("datagrams are filtered"), "{}", refused.err);
    network.run(&["nft", "flush ruleset"]);
    let read = on(&["--transport", "udp", "cat", "braid://main/a"]).ok();
    assert!(read.out == noise(SIZE, 7));
    let mut down = braid();
    down.args(["down", "--dir"]).arg(cluster.dir());
    run(network.within(&down)).ok();
}

#[test]
fn a_drive_that_dies_or_hangs_is_read_around() {
    let cluster = with_file(&[]);
    reads(&cluster, "udp");
    let hanging = cluster.drive_pid("drive-2");
    signal(hanging, "STOP");
    reads(&cluster, "udp");
    signal(hanging, "CONT");
    until("it answers again", || ways(&transport(&cluster, "udp")) == ["udp"; 5]);
    reads(&cluster, "udp");
    let pid = cluster.drive_pid("drive-3");
    cluster.kill_drive("drive-3");
    assert!(!runs(pid));
    reads(&cluster, "udp");
    reads(&cluster, "auto");
}

#[test]
fn a_transport_that_there_is_not_is_refused() {
    let mut command = braid();
    command.args(["--transport", "quic", "status"]);
    let said = run(command);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("tcp, udp, auto"), "{}", said.err);
    let mut command = braid();
    command.args(["drive", "serve", "--dir", "/nowhere", "--udp-policy", "bbr"]);
    let said = run(command);
    assert_eq!(said.code, 2, "{}", said.err);

    let cluster = Cluster::up(1);
    let mut command = cluster.command(["ls"]);
    command.env("BRAID_TRANSPORT", "udp:bbr");
    let said = run(command);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("BRAID_TRANSPORT") && said.err.contains("cubic"), "{}", said.err);
}
