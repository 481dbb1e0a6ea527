//! The plain program beside Braid's drives: it takes and sends as many bytes as each message says, over TCP
//! with the same congestion control.

use std::process::Stdio;
use std::time::Duration;

use braid_cli::output::exit::{Doing, Exit, Failure};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::bench::hosts::Hosts;

/// Port of the program on each host.
const PORT: u16 = 7100;
/// Time limit for a program to serve.
const START_BOUND: Duration = Duration::from_secs(20);
/// Congestion control, as of Braid's connections.
const CONGESTION: &[u8] = b"cubic";
/// Most bytes of one exchange in each direction.
const BYTES_MAX: usize = 1 << 20;

/// The program on one host. Dropping it kills the process.
pub(super) struct Answering {
    _child: Child,
    address: String,
}

/// A connection to a program.
pub(super) struct Plain {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Answering {
    pub(super) fn start(hosts: &Hosts, host: usize) -> Result<Answering, Failure> {
        let doing = || "start a plain program".to_owned();
        let address = format!("{}:{PORT}", hosts.address(Some(host)));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &hosts.name(host)]);
        command.arg(std::env::current_exe().doing(doing)?).args(["bench-answers", &address]);
        command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        Ok(Answering { _child: command.spawn().doing(doing)?, address })
    }

    pub(super) async fn connect(&self) -> Result<Plain, Failure> {
        let until = Instant::now() + START_BOUND;
        loop {
            match TcpStream::connect(&self.address).await {
                Ok(stream) => {
                    set_up(&stream)?;
                    return Ok(Plain { stream, buffer: vec![0; BYTES_MAX] });
                }
                Err(error) if Instant::now() >= until => {
                    let what = format!("connect to {}", self.address);
                    return Err(Failure::new(Exit::Failed, what, error.to_string()));
                }
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Plain {
    /// Sends `out` bytes and receives `back`.
    pub(super) async fn exchange(&mut self, out: usize, back: usize) -> Result<(), Failure> {
        let doing = || "exchange plain bytes".to_owned();
        let head = [out, back].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()).concat();
        self.stream.write_all(&head).await.doing(doing)?;
        self.stream.write_all(&self.buffer[..out]).await.doing(doing)?;
        self.stream.read_exact(&mut self.buffer[..back]).await.doing(doing)?;
        Ok(())
    }
}

/// Runs `braid-lab bench-answers`, until it is killed.
pub(crate) async fn serve(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await.doing(|| format!("listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await.doing(|| "accept".into())?;
        set_up(&stream)?;
        tokio::spawn(answer(stream));
    }
}

/// Answers on one connection until it ends.
async fn answer(mut stream: TcpStream) {
    let mut buffer = vec![0; BYTES_MAX];
    let mut head = [0; 8];
    while stream.read_exact(&mut head).await.is_ok() {
        let [a, b, c, d, rest @ ..] = head;
        let [out, back] = [[a, b, c, d], rest]
            .map(|bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(BYTES_MAX).min(BYTES_MAX));
        if stream.read_exact(&mut buffer[..out]).await.is_err()
            || stream.write_all(&buffer[..back]).await.is_err()
        {
            return;
        }
    }
}

fn set_up(stream: &TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true).doing(|| "set up a connection".into())?;
    // A kernel without it goes on with its own, for Braid too.
    let _ = SockRef::from(stream).set_tcp_congestion(CONGESTION);
    Ok(())
}
