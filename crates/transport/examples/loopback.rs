//! Prints the rate of frames over the loopback by TCP and by datagrams, in turn, and the processor time per
//! GiB of both ends together: `loopback [ROUNDS] [MIB] [tcp|udp|both] [KIB_A_FRAME]`.
//!
//! Each end has a runtime of its own, as in two processes; so a profiler sees both.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_datagram::policy::Kind;
use braid_datagram::{Config, Secret};
use braid_transport::{
    Bounds, ConnectionSlots, GivesWay, Limits, Listener, SecretOf, Stream, session_config,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const IDENTITY: &[u8] = b"a capability";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Tcp,
    Udp,
}

/// The rate in MB/s, and processor seconds per GiB.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    rate: f64,
    cost: f64,
}

fn config() -> Config {
    session_config(Kind::Cubic)
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Accepts one connection, and takes all frames of it.
async fn take(listener: Arc<Listener>, slots: ConnectionSlots) -> Result<u64> {
    let stream = listener.accept().await?;
    let slot = slots.take(stream.holder()?, stream.origin()).ok_or("no slot")?;
    let (mut sender, mut receiver) = stream.into_halves();
    receiver.admit(slot);
    let mut bytes = 0;
    let mut payload = Vec::new();
    while let Some((header, _)) = receiver.frame().await? {
        payload.clear();
        receiver.payload_into(&mut payload, header.payload_bytes).await?;
        bytes += u64::from(header.payload_bytes);
        if header.request == 1 {
            sender.send(1, 1, b"", &[]).await?;
            break;
        }
    }
    Ok(bytes)
}

async fn send(address: String, way: Way, frames: u64, payload: Arc<Vec<u8>>) -> Result<()> {
    let limits = Limits::default();
    let stream = match way {
        Way::Tcp => Stream::connect(&address, &limits).await?,
        Way::Udp => {
            let secret = Secret::new([7; 32]);
            Stream::connect_by_datagrams(&address, &limits, config(), IDENTITY, secret).await?
        }
    };
    let (mut sender, mut receiver) = stream.into_halves();
    for left in (1..=frames).rev() {
        sender.send(1, left, b"", &[&payload]).await?;
    }
    receiver.frame().await?.ok_or("the end came too early")?;
    Ok(())
}

fn run(way: Way, frames: u64, frame_bytes: usize) -> Result<Outcome> {
    let serving = runtime()?;
    let asking = runtime()?;
    let listener = serving.block_on(async {
        let secret_of: SecretOf = Arc::new(|_| Some(Secret::new([7; 32])));
        let mut listener = Listener::bind("127.0.0.1:0").await?;
        listener.add_datagrams(&config(), &secret_of)?;
        Ok::<_, Box<dyn Error + Send + Sync>>(Arc::new(listener))
    })?;
    let address = listener.local_address().to_string();
    let slots =
        ConnectionSlots::new(Bounds { all: 9, each: 9, each_here: 9, kept_here: 0 }, GivesWay::Anyone);
    let payload = Arc::new(vec![0x5a; frame_bytes]);
    let cpu = processor_time();
    let began = Instant::now();
    let taking = serving.spawn(take(listener, slots));
    asking.block_on(send(address, way, frames, payload))?;
    let bytes = serving.block_on(taking)??;
    let seconds = began.elapsed().as_secs_f64();
    let cost = (processor_time() - cpu).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let bytes = bytes as f64;
    Ok(Outcome { rate: bytes / seconds / 1e6, cost: cost / bytes * f64::from(1 << 30) })
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let rounds = number(5)?;
    let total = number(1024)? << 20;
    let ways = match arguments.next().as_deref() {
        Some("tcp") => vec![Way::Tcp],
        Some("udp") => vec![Way::Udp],
        _ => vec![Way::Tcp, Way::Udp],
    };
    let frame_bytes = usize::try_from(arguments.next().map_or(Ok(256), |text| text.parse::<u64>())? << 10)?;
    let frames = total / u64::try_from(frame_bytes)?;
    let mut all: Vec<(Way, Outcome)> = Vec::new();
    for _ in 0..rounds {
        for &way in &ways {
            let outcome = run(way, frames, frame_bytes)?;
            println!("{way:?}: {:.0} MB/s, {:.2} s/GiB", outcome.rate, outcome.cost);
            all.push((way, outcome));
        }
    }
    let of = |way, figure: fn(&Outcome) -> f64| {
        median(all.iter().filter(|(of, _)| *of == way).map(|(_, outcome)| figure(outcome)).collect())
    };
    let rate = |outcome: &Outcome| outcome.rate;
    let cost = |outcome: &Outcome| outcome.cost;
    for &way in &ways {
        println!("median {way:?}: {:.0} MB/s, {:.2} s/GiB", of(way, rate), of(way, cost));
    }
    if ways.len() == 2 {
        let ratio = of(Way::Udp, rate) / of(Way::Tcp, rate);
        println!(
            "datagrams / TCP: rate {ratio:.2}, processor {:.2}",
            of(Way::Udp, cost) / of(Way::Tcp, cost)
        );
    }
    Ok(())
}
