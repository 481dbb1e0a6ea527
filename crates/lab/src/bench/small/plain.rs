//! The plain side: processes that answer messages, one for each server of the cluster.

use braid_bench::small::{Done, Exchange, FarEnd, Job, Limit, Work, serve};
use braid_cli::machine::local::ANY_PORT;
use braid_cli::output::exit::{Doing, Exit, Failure};
use tokio::net::TcpListener;

use super::meter::Meter;
use crate::bench::client::{ClientProcess, go, one, prepare};
use crate::bench::helper::{Helper, order, say};

/// The far ends: helper processes, each with its address. Dropping the value kills them.
pub(super) struct FarEnds {
    manager: (Helper, String),
    drives: Vec<(Helper, String)>,
}

/// Results of a sample of plain exchanges.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainSample {
    pub(super) per_second: f64,
    /// Processor time for one operation, of all processes, in microseconds.
    pub(super) cpu_us: f64,
}

impl FarEnds {
    /// Starts one process for the manager and `drives` for the drives.
    pub(super) async fn start(drives: u16) -> Result<FarEnds, Failure> {
        let manager = far_end().await?;
        let mut ends = Vec::new();
        for _ in 0..drives {
            ends.push(far_end().await?);
        }
        Ok(FarEnds { manager, drives: ends })
    }

    /// Has the client exchange messages over this many sockets, with the manager and with each drive.
    pub(super) async fn sample(
        &self,
        client: &mut ClientProcess,
        meter: &Meter,
        sockets: &(u32, Vec<u32>),
        exchanges: Vec<Exchange>,
        load: (u32, Limit),
    ) -> Result<PlainSample, Failure> {
        let (in_flight, limit) = load;
        let end = |(_, address): &(Helper, String), sockets| FarEnd { address: address.clone(), sockets };
        let drives =
            self.drives.iter().zip(&sockets.1).map(|(drive, &sockets)| end(drive, sockets)).collect();
        let work = Work::Plain { exchanges, manager: end(&self.manager, sockets.0), drives };
        let job = Job { work, in_flight, limit, seed: 0 };
        let mut pids = vec![client.pid()?, self.manager.0.pid()?];
        for (drive, _) in &self.drives {
            pids.push(drive.pid()?);
        }
        let clients = std::slice::from_mut(client);
        prepare(clients, &[job]).await?;
        let before = meter.sum(&pids)?;
        let done: Done = one(go(clients).await?)?;
        let spent = meter.sum(&pids)? - before;
        let operations = f64::from(u32::try_from(done.operations).unwrap_or(u32::MAX)).max(1.0);
        Ok(PlainSample { per_second: operations / done.seconds.max(1e-9), cpu_us: spent / operations })
    }
}

async fn far_end() -> Result<(Helper, String), Failure> {
    let mut process = Helper::start("bench-far-end", "a far end of plain messages")?;
    let address = process.answer().await?;
    Ok((process, address))
}

/// Runs `braid-lab bench-far-end`: writes its address to standard output, and answers until standard input
/// ends.
pub(super) async fn run() -> Result<(), Failure> {
    let what = || "answer plain messages".to_owned();
    let (tell, address) = tokio::sync::oneshot::channel();
    // A single thread waits for all sockets, and does nothing else.
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind(ANY_PORT).await?;
            let _ = tell.send(listener.local_addr()?.to_string());
            serve(listener).await
        })
    };
    std::thread::Builder::new()
        .name("far end".into())
        .spawn(move || {
            let ended: std::io::Result<()> = work();
            ended
        })
        .doing(what)?;
    say(&address.await.map_err(std::io::Error::other).doing(what)?)?;
    match order::<String>().await? {
        None => Ok(()),
        Some(_) => Err(Failure::new(Exit::Usage, what(), "nothing is expected on standard input")),
    }
}
