//! What the groups share: a file over drives on hosts of their own, written and read whole, and plain TCP
//! over the same links.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::mpsc;

use braid_bench::plain::{self, Way};
use braid_bench::stripes::{Job, Work};
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Doing, Exit, Failure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Run;
use crate::bench::client::{ClientProcess, alone};
use crate::bench::cluster::Cluster;
use crate::bench::hosts::Hosts;

/// Rate of a limited link, in bits a second.
pub(super) const LINK_BITS: u64 = 100_000_000;
/// Bytes of a unit: a request of one stripe has many.
const UNIT_BYTES: u32 = 64 << 10;
/// Bytes of a request, and requests in flight.
const REQUEST: (u64, u32) = (8 << 20, 4);

/// A cluster of drives on hosts, with a client's process.
pub(super) struct Set {
    cluster: Cluster,
    client: Vec<ClientProcess>,
}

/// Bytes a second in both directions.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    pub(super) write: f64,
    pub(super) read: f64,
    /// Share of each rail in what was written, and in what was read; none of plain TCP.
    pub(super) shares: [Vec<f64>; 2],
}

impl Set {
    /// Brings up this many drives, each on a host of its own and at its first `rails` addresses.
    pub(super) async fn up(
        run: &Run,
        hosts: &Hosts,
        name: &str,
        drives: u16,
        rails: usize,
    ) -> Result<Set, Failure> {
        let options = DriveOptions::default().reading_ahead(0);
        let cluster = Cluster::railed_on(hosts, run.path(), name, drives, options, rails).await?;
        cluster.make_volume(("raid0", u8::try_from(drives).unwrap_or(u8::MAX)), UNIT_BYTES).await?;
        let client = vec![cluster.client_process().await?];
        Ok(Set { cluster, client })
    }

    /// Writes a file of about this many bytes and reads it.
    pub(super) async fn rates(&mut self, run: &Run, bytes: u64) -> Result<Rates, Failure> {
        let (request_bytes, depth) = REQUEST;
        let bytes = bytes.next_multiple_of(request_bytes);
        let file = self.cluster.create().await?;
        let job = |work| Job { file: file.to_string(), by_stripe: false, work };
        run.tell("write");
        let written = alone(&mut self.client[0], &job(Work::Write { bytes, request_bytes, depth })).await?;
        run.tell("read");
        let read = alone(&mut self.client[0], &job(Work::Read { bytes, request_bytes, depth })).await?;
        self.cluster.remove(&[file]).await?;
        let shares = [shares(&written.rail_bytes), shares(&read.rail_bytes)];
        Ok(Rates { write: rate(bytes, written.seconds), read: rate(bytes, read.seconds), shares })
    }

    pub(super) async fn down(self) -> Result<(), Failure> {
        drop(self.client);
        self.cluster.down().await
    }
}

/// Rates of plain TCP between here and the first hosts, on their first rails, all at once.
pub(super) async fn plain(hosts: &Hosts, drives: usize, rails: usize, bytes: u64) -> Result<Rates, Failure> {
    let mut addresses = Vec::new();
    for host in 0..drives {
        for rail in 0..rails {
            addresses.push(listen_on(hosts, host, rail)?);
        }
    }
    let each = bytes / addresses.len() as u64;
    let measured = move || {
        let all = each * addresses.len() as u64;
        let both = [Way::Write, Way::Read].map(|way| plain::measure(&addresses, each, way));
        let [write, read] = both;
        let shares = [Vec::new(), Vec::new()];
        Ok::<Rates, std::io::Error>(Rates { write: rate(all, write?), read: rate(all, read?), shares })
    };
    let measured = tokio::task::spawn_blocking(measured).await.map_err(std::io::Error::other);
    measured.flatten().doing(|| "measure plain TCP over the links".into())
}

/// Starts a thread in a host's namespace that serves plain TCP; it ends with this process. Returns its
/// address.
fn listen_on(hosts: &Hosts, host: usize, rail: usize) -> Result<String, Failure> {
    let what = || format!("serve plain TCP on host {host}");
    let name = hosts.name(host);
    let address = hosts.address_on(Some(host), rail);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let listening = || {
            let namespace = std::fs::File::open(format!("/run/netns/{name}"))?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpListener::bind(format!("{address}:0"))
        };
        match listening() {
            Ok(listener) => {
                let _ = tell.send(listener.local_addr());
                plain::serve(&listener);
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    });
    let gone = |_| Failure::new(Exit::Failed, what(), "its thread has ended");
    Ok(told.recv().map_err(gone)?.doing(what)?.to_string())
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds.max(1e-9)
}

fn shares(bytes: &[u64]) -> Vec<f64> {
    let all: u64 = bytes.iter().sum();
    bytes.iter().map(|&one| rate(one, 1.0) / rate(all.max(1), 1.0)).collect()
}

/// A rate in MB/s.
pub(super) fn show(rate: f64) -> String {
    format!("{:.2} MB/s", rate / 1e6)
}
