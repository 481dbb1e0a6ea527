//! E15: small writes into units that exist, from one client. One ratio counts the bytes that its sessions
//! send, per byte written. The other compares rates: unit writes against updates that the client computes
//! itself, for which it reads old data and old parity and sends both anew.

use braid_bench::stripes::{Done, Goal, Question, Unit, Work};
use braid_cli::output::exit::Failure;
use braid_client::Name;

use super::files::{filled, job, rate_of};
use super::{Run, Which};
use crate::bench::client::{ClientProcess, alone};
use crate::bench::cluster::Cluster;
use crate::bench::hosts::{Hosts, Links};

const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
/// Bytes of the file: so large that small writes seldom meet in one stripe.
const WITHIN: u64 = 256 << 20;
const WITHIN_QUICK: u64 = 16 << 20;
const PIECE_BYTES: u64 = 4096;
const DEPTH: u32 = 16;
/// Number of writes of a sample.
const PIECES: u64 = 4000;
const PIECES_LIMITED: u64 = 800;
const PIECES_QUICK: u64 = 200;
/// Limit of the clients' link in bits a second, where it is limited: below what the processors of this
/// machine can do.
const LINK_BITS: u64 = 20_000_000;

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let sent = |name: &str, goal| Question {
        experiment: "E15",
        name: name.into(),
        unit: Unit::Bytes,
        first: "sent to drives",
        second: "written",
        goal,
    };
    let units = sent("4 KiB updates, bytes on the link", Some(Goal::AtMost(1.1)));
    let stripes = sent("the same computed by the client", None);
    let rate = |name: &str, goal| Question {
        experiment: "E15",
        name: name.into(),
        unit: Unit::BytesPerSecond,
        first: "unit writes",
        second: "computed by the client",
        goal,
    };
    let loopback = rate("4 KiB updates, rate on the loopback", None);
    let limited = rate("4 KiB updates, rate on a limited link", Some(Goal::AtLeast(1.8)));
    if [&units, &stripes, &loopback].into_iter().any(|question| run.wants(question)) {
        run.tell("E15: start");
        let cluster = Cluster::up(run.path(), "e15", DRIVES, SHAPE).await?;
        let mut updates = Updates::of(run, cluster, run.size(PIECES, PIECES_QUICK)).await?;
        for (question, by_stripe) in [(&units, false), (&stripes, true)] {
            run.pairs(question, async |which| match which {
                Which::First => Ok(super::catch_up::bytes(updates.sample(by_stripe).await?.sent_bytes)),
                Which::Second => Ok(super::catch_up::bytes(updates.pieces * PIECE_BYTES)),
            })
            .await?;
        }
        updates.rate(run, &loopback).await?;
        updates.down().await?;
    }
    if run.wants(&limited) && run.may_limit(&limited) {
        run.tell("E15, limited link: start");
        let hosts = Hosts::up(usize::from(DRIVES))?;
        let cluster = Cluster::up_on(&hosts, run.path(), "e15-limited", DRIVES, SHAPE).await?;
        let mut updates = Updates::of(run, cluster, PIECES_LIMITED).await?;
        hosts.limit(Links::Clients, LINK_BITS)?;
        updates.rate(run, &limited).await?;
        updates.down().await?;
    }
    Ok(())
}

struct Updates {
    cluster: Cluster,
    client: ClientProcess,
    file: Name,
    within: u64,
    pieces: u64,
    seed: u64,
}

impl Updates {
    async fn of(run: &Run, mut cluster: Cluster, pieces: u64) -> Result<Updates, Failure> {
        let mut client = cluster.client_process().await?;
        let within = run.size(WITHIN, WITHIN_QUICK);
        let file = filled(&mut cluster, &mut client, within).await?;
        Ok(Updates { cluster, client, file, within, pieces, seed: 0 })
    }

    async fn rate(&mut self, run: &mut Run, question: &Question) -> Result<(), Failure> {
        run.pairs(question, async |which| Ok(rate_of(self.sample(which == Which::Second).await?))).await
    }

    async fn sample(&mut self, by_stripe: bool) -> Result<Done, Failure> {
        // Each sample writes to other places.
        self.seed += 1;
        let within = self.within;
        let pieces = self.pieces;
        let seed = self.seed;
        let work = Work::Updates { within, piece_bytes: PIECE_BYTES, pieces, depth: DEPTH, seed };
        let mut job = job(&self.file, work);
        job.by_stripe = by_stripe;
        alone(&mut self.client, &job).await
    }

    async fn down(self) -> Result<(), Failure> {
        drop(self.client);
        self.cluster.down().await
    }
}
