//! The client's side: servers on hosts or on the loopback, and connections to them.

use std::process::Stdio;
use std::time::Duration;

use braid_cli::machine::process::CpuTicks;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_datagram::Secret;
use braid_transport::{Limits, Receiver, Sender, Stream, TransportError, session_config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::server::{BYTES_MAX, IDENTITY, KIND, PORT, SECRET};
use super::way::Way;
use crate::bench::hosts::Hosts;

/// Time limit for a server to serve.
const START_BOUND: Duration = Duration::from_secs(20);
/// Time limit for an answer.
const ANSWER_BOUND: Duration = Duration::from_secs(60);

/// A server's process. Dropping it kills the process.
pub(super) struct Server {
    child: Child,
    host: String,
    ways: Vec<Way>,
}

/// A connection to a server.
pub(super) struct Peer {
    inner: Inner,
    /// That which is sent, and that which came.
    pub(super) buffer: Vec<u8>,
}

enum Inner {
    Stream { sender: Box<Sender>, receiver: Box<Receiver>, request: u64 },
    Plain(TcpStream),
}

/// Bytes of a request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) out: usize,
    pub(super) back: usize,
}

impl Exchange {
    pub(super) fn read(bytes: usize) -> Exchange {
        Exchange { out: 0, back: bytes }
    }

    /// The answer has a byte, so that what was written is known to have arrived.
    pub(super) fn write(bytes: usize) -> Exchange {
        Exchange { out: bytes, back: 1 }
    }

    /// Bytes of the block.
    pub(super) fn bytes(self) -> usize {
        self.out.max(self.back)
    }
}

impl Server {
    /// Starts a server of these ways: on a host, or on the loopback without hosts.
    pub(super) fn start(on: Option<(&Hosts, usize)>, ways: &[Way]) -> Result<Server, Failure> {
        Server::start_held(on, ways, Duration::ZERO)
    }

    /// The same, with each datagram held for so long in each direction.
    fn start_held(on: Option<(&Hosts, usize)>, ways: &[Way], held: Duration) -> Result<Server, Failure> {
        let doing = || "start a server of streams".to_owned();
        let program = std::env::current_exe().doing(doing)?;
        let (mut command, host) = match on {
            // `ip netns exec` becomes the program: no process is in between.
            Some((hosts, index)) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &hosts.name(index)]).arg(program);
                (command, hosts.address(Some(index)))
            }
            None => (Command::new(program), "127.0.0.1".to_owned()),
        };
        command.args(["bench-streams", &host, "--held-ms", &held.as_millis().to_string()]);
        command.args(ways.iter().map(Way::to_string));
        // Not in this process group: Ctrl-C goes to this process, which kills it.
        command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        Ok(Server { child: command.spawn().doing(doing)?, host, ways: ways.to_vec() })
    }

    /// Starts a server on each of the first hosts.
    pub(super) fn on_each(hosts: &Hosts, count: usize, ways: &[Way]) -> Result<Vec<Server>, Failure> {
        Server::on_each_held(hosts, count, ways, Duration::ZERO)
    }

    /// The same, with each datagram held for so long in each direction.
    pub(super) fn on_each_held(
        hosts: &Hosts,
        count: usize,
        ways: &[Way],
        held: Duration,
    ) -> Result<Vec<Server>, Failure> {
        (0..count).map(|host| Server::start_held(Some((hosts, host)), ways, held)).collect()
    }

    /// Connects by one of its ways, once it serves.
    pub(super) async fn connect(&self, way: Way) -> Result<Peer, Failure> {
        let doing = || format!("connect to {} by {way}", self.host);
        let index = self.ways.iter().position(|&served| served == way).and_then(|at| u16::try_from(at).ok());
        let index = index.ok_or_else(|| Failure::new(Exit::Failed, doing(), "it serves other ways"))?;
        let address = format!("{}:{}", self.host, PORT + index);
        let until = Instant::now() + START_BOUND;
        loop {
            match Peer::connect(&address, way).await {
                Ok(peer) => return Ok(peer),
                Err(why) if Instant::now() >= until => return Err(Failure::new(Exit::Failed, doing(), why)),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Processor time of the process so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64, Failure> {
        let doing = || "look at a server's processor time".to_owned();
        let ended = || Failure::new(Exit::Failed, doing(), "it has ended");
        let ticks = CpuTicks::of(self.child.id().ok_or_else(ended)?).doing(doing)?;
        let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        Ok(f64::from(u32::try_from(ticks.user + ticks.kernel).unwrap_or(u32::MAX)) / f64::from(a_second))
    }
}

impl Peer {
    async fn connect(address: &str, way: Way) -> Result<Peer, String> {
        let limits = Limits::default();
        let failed = |error: TransportError| error.to_string();
        let stream = match way {
            Way::TcpOfSystem => {
                let connecting = async {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Ok(stream)
                };
                let connected = timeout(limits.connect, connecting).await;
                let stream = connected.map_err(std::io::Error::from).flatten();
                let inner = Inner::Plain(stream.map_err(|error: std::io::Error| error.to_string())?);
                return Ok(Peer { inner, buffer: vec![0x5a; BYTES_MAX] });
            }
            Way::Tcp => Stream::connect(address, &limits).await.map_err(failed)?,
            Way::Datagrams(policy) => {
                let secret = Secret::new(SECRET);
                let config = session_config(policy);
                let connecting = Stream::connect_by_datagrams(address, &limits, config, IDENTITY, secret);
                connecting.await.map_err(failed)?
            }
        };
        let (sender, receiver) = stream.into_halves();
        let inner = Inner::Stream { sender: Box::new(sender), receiver: Box::new(receiver), request: 0 };
        Ok(Peer { inner, buffer: vec![0x5a; BYTES_MAX] })
    }

    /// Tells the server how much it may have in flight, where the way knows that.
    pub(super) fn set_window(&self, bytes: u64) {
        if let Inner::Stream { receiver, .. } = &self.inner {
            receiver.tell_window(Some(bytes));
        }
    }

    /// Returns true if segments of the connection were lost lately.
    pub(super) fn has_lost(&mut self) -> bool {
        match &mut self.inner {
            Inner::Stream { receiver, .. } => receiver.has_lost(),
            Inner::Plain(_) => false,
        }
    }

    /// Sends a request.
    pub(super) async fn ask(&mut self, exchange: Exchange) -> Result<(), Failure> {
        let bytes = &self.buffer[..exchange.out];
        let back = u32::try_from(exchange.back).unwrap_or(u32::MAX).to_le_bytes();
        match &mut self.inner {
            Inner::Stream { sender, request, .. } => {
                *request += 1;
                sender.send(KIND, *request, &back, &[bytes]).await.map_err(failed)
            }
            Inner::Plain(stream) => {
                let out = u32::try_from(exchange.out).unwrap_or(u32::MAX).to_le_bytes();
                let doing = || "send a plain request".to_owned();
                stream.write_all(&[out, back].concat()).await.doing(doing)?;
                stream.write_all(bytes).await.doing(doing)
            }
        }
    }

    /// Receives the answer to the oldest request that has none.
    pub(super) async fn answer(&mut self, exchange: Exchange) -> Result<(), Failure> {
        match timeout(ANSWER_BOUND, self.answered(exchange)).await {
            Ok(answered) => answered,
            Err(_) => {
                let why = format!("none came in {} s", ANSWER_BOUND.as_secs());
                Err(Failure::new(Exit::Timeout, "wait for an answer", why))
            }
        }
    }

    async fn answered(&mut self, exchange: Exchange) -> Result<(), Failure> {
        let into = &mut self.buffer[..exchange.back];
        match &mut self.inner {
            Inner::Stream { receiver, .. } => {
                let ended = || Failure::new(Exit::Failed, "wait for an answer", "the server has ended");
                receiver.frame().await.map_err(failed)?.ok_or_else(ended)?;
                receiver.payload(into).await.map_err(failed)
            }
            Inner::Plain(stream) => stream.read_exact(into).await.map(drop).doing(|| "read an answer".into()),
        }
    }

    pub(super) async fn exchange(&mut self, exchange: Exchange) -> Result<(), Failure> {
        self.ask(exchange).await?;
        self.answer(exchange).await
    }
}

fn failed(error: TransportError) -> Failure {
    Failure::new(Exit::Failed, "exchange blocks", error.to_string())
}
