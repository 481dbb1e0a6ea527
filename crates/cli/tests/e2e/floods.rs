//! Many unauthenticated peers: they take little memory and keep nobody out.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use braid_wire::FrameHeader;
use braid_wire::frame::BODY_BYTES_MAX;

use crate::support::{Cluster, until};

/// Number of peers at each server.
const PEERS: usize = 500;
/// Bytes that each peer sends of the body that it announces.
const SENT_BYTES: usize = 256 << 10;
/// Maximum growth of a server's memory by all peers, in bytes: less than half of what they send.
const GROWTH_BYTES_MAX: u64 = 60 << 20;

#[test]
fn large_frames_before_a_proof_take_no_memory_and_nobodys_place() {
    let cluster = Cluster::up(2);
    cluster.put(&cluster.make("f", 300_000, 1), "braid://main/f");
    let status = cluster.status();
    let manager = fs::read_to_string(cluster.dir().join("cluster.toml")).expect("a cluster file");
    let address = manager.lines().find_map(|line| line.strip_prefix("manager = ")).expect("its address");
    let drive = &status["drives"][0];
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let servers = [
        (address.trim_matches('"').to_owned(), number(&status["manager"]["pid"])),
        (drive["address"].as_str().expect("text").to_owned(), number(&drive["pid"])),
    ];
    let mut frame = FrameHeader::new(0x0102, 1, &vec![7; usize::try_from(BODY_BYTES_MAX).expect("1 MiB")], 0)
        .emit()
        .to_vec();
    frame.resize(SENT_BYTES, 7);
    let mut flood = Vec::new();
    for (address, pid) in &servers {
        let before = resident_bytes(*pid);
        for _ in 0..PEERS {
            let mut socket = TcpStream::connect(address).expect("it listens");
            // A connection that the server closes at once cannot send everything.
            let _ = socket.write_all(&frame);
            flood.push(socket);
        }
        let most = resident_bytes(*pid).saturating_sub(before);
        assert!(most < GROWTH_BYTES_MAX, "{most} bytes for {PEERS} peers at {address}");
        println!("{address}: {} KiB before, {} KiB more with {PEERS} peers", before >> 10, most >> 10);
    }
    // Done while the peers are connected, unless the server has closed them.
    assert_eq!(cluster.cat("braid://main/f").len(), 300_000);
    cluster.line("mkdir braid://main/d").ok();
}

/// Number of connections of the address that says nothing: more than its share of places.
const SILENT: usize = 200;

#[test]
fn silent_connections_of_one_address_keep_no_other_out_and_end() {
    let cluster = Cluster::up(2);
    cluster.put(&cluster.make("f", 300_000, 1), "braid://main/f");
    let manager = fs::read_to_string(cluster.dir().join("cluster.toml")).expect("a cluster file");
    let manager = manager.lines().find_map(|line| line.strip_prefix("manager = ")).expect("its address");
    let status = cluster.status();
    let drive = status["drives"][0]["address"].as_str().expect("text").to_owned();
    let mut silent = Vec::new();
    for address in [manager.trim_matches('"'), &drive] {
        let connections: Vec<TcpStream> = (0..SILENT).map(|_| connect_from("127.0.0.2:0", address)).collect();
        silent.push(connections);
    }
    assert_eq!(cluster.cat("braid://main/f").len(), 300_000);
    cluster.line("mkdir braid://main/d").ok();
    // A peer that proves nothing has some seconds.
    for connection in silent.iter().flatten() {
        until("it is closed", || !is_open(connection));
    }
    for log in ["manager", status["drives"][0]["name"].as_str().expect("a name")] {
        let log = fs::read_to_string(cluster.dir().join("logs").join(format!("{log}.log"))).expect("a log");
        let said =
            log.lines().filter(|line| line.contains("127.0.0.2") && line.contains("its share of places"));
        assert_eq!(said.count(), 1, "once in a minute: {log}");
    }
}

/// Connects from a local address of choice.
fn connect_from(from: &str, to: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let connection = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(from.parse().expect("an address")).expect("Linux has all of 127/8");
        socket.connect(to.parse().expect("an address")).await.expect("it listens")
    });
    // It is read without waiting.
    connection.into_std().expect("a socket")
}

/// Returns true if the peer has not closed the connection. What it sent is read and dropped.
fn is_open(mut connection: &TcpStream) -> bool {
    loop {
        match connection.read(&mut [0; 512]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// A process's own memory in bytes: mapped files do not count.
fn resident_bytes(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
    kibibytes << 10
}
