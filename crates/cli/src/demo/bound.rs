//! The bound: what bare sockets do between as many processes, measured in the same run.
//!
//! Each of `width` peers is a process that sends zeros or takes bytes and drops them; this process talks to all of them at
//! once, a thread and a reused buffer for each, with no protocol but a 9-byte order. For writes the peers take what the
//! drives would: data and parity. Rates count the user's bytes, so they compare with a copy's.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::exit::{Doing, Failure};
use crate::rate::Rate;

/// A send or receive.
const PIECE_BYTES: usize = 1 << 20;
/// Each direction is measured this often; the median counts.
const ROUNDS: usize = 3;
/// Fewer bytes than this say nothing about a rate, more take too long.
const BYTES_MIN: u64 = 64 << 20;
const BYTES_MAX: u64 = 1 << 30;
/// No progress for this long is an error.
const STALL: Duration = Duration::from_secs(20);

const TAKE: u8 = b'w';
const GIVE: u8 = b'r';

/// User bytes in a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) write: f64,
    pub(crate) read: f64,
    /// User bytes of one measurement.
    pub(crate) bytes: u64,
}

/// Measures both directions for `bytes` of the user's, striped over `k + m` peers.
pub(crate) fn measure(k: u64, m: u64, bytes: u64) -> Result<Bound, Failure> {
    let what = || "measure the bound".to_owned();
    let bytes = bytes.clamp(BYTES_MIN, BYTES_MAX);
    let peers = (0..k + m).map(|_| Peer::start()).collect::<io::Result<Vec<Peer>>>().doing(what)?;
    let write = median(&peers, TAKE, bytes / k, bytes).doing(what)?;
    let read = median(&peers, GIVE, bytes / (k + m), bytes).doing(what)?;
    Ok(Bound { write, read, bytes })
}

fn median(peers: &[Peer], order: u8, each: u64, user_bytes: u64) -> io::Result<f64> {
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut streams = peers.iter().map(Peer::connect).collect::<io::Result<Vec<TcpStream>>>()?;
        let began = Instant::now();
        std::thread::scope(|scope| {
            let ends: Vec<_> =
                streams.iter_mut().map(|stream| scope.spawn(|| exchange(stream, order, each))).collect();
            ends.into_iter()
                .try_for_each(|end| end.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed"))))
        })?;
        rates.push(Rate { bytes: user_bytes, time: began.elapsed() }.bytes_per_second());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[ROUNDS / 2])
}

/// The client's side with one peer.
fn exchange(stream: &mut TcpStream, order: u8, bytes: u64) -> io::Result<()> {
    stream.write_all(&[&[order], bytes.to_le_bytes().as_slice()].concat())?;
    let mut buffer = vec![0; PIECE_BYTES];
    match order {
        TAKE => {
            give(stream, bytes, &buffer)?;
            // The peer says that it has all of it.
            stream.read_exact(&mut [0])
        }
        _ => take(stream, bytes, &mut buffer),
    }
}

fn give(stream: &mut TcpStream, bytes: u64, buffer: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let piece = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        stream.write_all(&buffer[..piece])?;
        left -= u64::try_from(piece).map_err(io::Error::other)?;
    }
    Ok(())
}

fn take(stream: &mut TcpStream, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match stream.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= u64::try_from(read).map_err(io::Error::other)?,
        }
    }
    Ok(())
}

/// A peer's process. It ends with this one: its standard input does.
struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    fn start() -> io::Result<Peer> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("demo-peer").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut peer = Peer { child: command.spawn()?, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        let mut port = [0; 2];
        peer.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut port)?;
        peer.address.set_port(u16::from_le_bytes(port));
        Ok(peer)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, STALL)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STALL))?;
        stream.set_write_timeout(Some(STALL))?;
        Ok(stream)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `braid demo-peer`: prints its port as two bytes, serves one connection after another until standard input ends.
pub(crate) fn peer() -> Result<(), Failure> {
    serve().doing(|| "serve as a peer".into())
}

fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    io::stdout().write_all(&listener.local_addr()?.port().to_le_bytes())?;
    io::stdout().flush()?;
    std::thread::spawn(|| {
        let _ = io::stdin().lock().read(&mut [0]);
        std::process::exit(0);
    });
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut order = [0; 9];
        stream.read_exact(&mut order)?;
        let [kind, bytes @ ..] = order;
        let bytes = u64::from_le_bytes(bytes);
        if kind == TAKE {
            take(&mut stream, bytes, &mut buffer)?;
            stream.write_all(&[1])?;
        } else {
            give(&mut stream, bytes, &buffer)?;
        }
    }
}
