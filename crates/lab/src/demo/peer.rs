//! A peer of the bound: a process with one file, which uses disk and network as a drive does, and does no
//! more.
//!
//! A peer serves one connection after another. Each begins with an order of 9 bytes: the kind of work, and
//! the number of bytes. The peer prepares and answers with one byte. The next byte from the other side starts
//! the work, and the clock.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use braid_cli::output::exit::{Doing, Failure};

/// Maximum bytes of one send, receive, read or write.
const PIECE_BYTES: usize = 1 << 20;
/// Number of received bytes between two syncs, which run while more arrives, as in a drive's group commit.
const SYNC_BYTES: u64 = 8 << 20;
/// Time without progress that is an error.
const STALL: Duration = Duration::from_secs(60);
const READY: u8 = 1;

/// Kind of work that a peer is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Order {
    /// Receive bytes into a new file, and report when they are durable.
    Take = b'w',
    /// Receive bytes and drop them.
    Drop = b'd',
    /// Read the bytes from the file and send them.
    GiveCopied = b'r',
    /// Send the bytes from the file by sendfile.
    GiveSendfile = b's',
}

/// A peer's process. It ends with this process, because its standard input does.
pub(crate) struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    /// Starts a peer that keeps its bytes in this file.
    pub(crate) fn start(file: &Path) -> io::Result<Peer> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("demo-peer").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut peer = Peer { child: command.spawn()?, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        let mut port = [0; 2];
        peer.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut port)?;
        peer.address.set_port(u16::from_le_bytes(port));
        Ok(peer)
    }

    /// Process id of the peer.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order, and waits until the peer is ready for it.
    pub(crate) fn order(&self, order: Order, bytes: u64) -> io::Result<Session> {
        let mut stream = TcpStream::connect_timeout(&self.address, STALL)?;
        prepare(&stream)?;
        stream.write_all(&[&[order as u8], bytes.to_le_bytes().as_slice()].concat())?;
        stream.read_exact(&mut [0])?;
        Ok(Session { stream, order, bytes })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An order that a peer is ready for.
pub(crate) struct Session {
    stream: TcpStream,
    order: Order,
    bytes: u64,
}

impl Session {
    /// Starts the work and does the client's part. The bytes come from or go to `memory`, which is used
    /// repeatedly if it is smaller.
    pub(crate) fn run(&mut self, memory: &mut [u8]) -> io::Result<()> {
        self.stream.write_all(&[READY])?;
        let mut left = self.bytes;
        let mut at = 0;
        while left > 0 {
            let piece = short(left).min(PIECE_BYTES).min(memory.len() - at);
            let window = &mut memory[at..at + piece];
            let moved = match self.order {
                Order::Take | Order::Drop => self.stream.write(window)?,
                Order::GiveCopied | Order::GiveSendfile => self.stream.read(window)?,
            };
            if moved == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= long(moved);
            at = (at + moved) % memory.len();
        }
        match self.order {
            // The peer reports that all bytes are durable.
            Order::Take | Order::Drop => self.stream.read_exact(&mut [0]),
            _ => Ok(()),
        }
    }
}

/// Runs `braid-lab demo-peer`: prints its port as two bytes, serves one order after another until standard
/// input ends.
pub(crate) fn peer(file: &Path) -> Result<(), Failure> {
    serve(file).doing(|| "serve as a peer".into())
}

fn serve(path: &Path) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    io::stdout().write_all(&listener.local_addr()?.port().to_le_bytes())?;
    io::stdout().flush()?;
    std::thread::spawn(|| {
        let _ = io::stdin().lock().read(&mut [0]);
        std::process::exit(0);
    });
    // Touched before, so that page faults are not timed.
    let mut buffer = vec![0xa5; PIECE_BYTES];
    loop {
        let (mut stream, _) = listener.accept()?;
        prepare(&stream)?;
        let mut order = [0; 9];
        stream.read_exact(&mut order)?;
        let [kind, bytes @ ..] = order;
        let bytes = u64::from_le_bytes(bytes);
        let file = if kind == Order::Take as u8 {
            File::create(path)?
        } else if kind == Order::Drop as u8 {
            File::open("/dev/null")?
        } else {
            File::open(path)?
        };
        stream.write_all(&[READY])?;
        stream.read_exact(&mut [0])?;
        if kind == Order::Take as u8 {
            take(&mut stream, &file, bytes, &mut buffer)?;
            stream.write_all(&[READY])?;
        } else if kind == Order::Drop as u8 {
            drop_all(&mut stream, bytes, &mut buffer)?;
            stream.write_all(&[READY])?;
        } else if kind == Order::GiveSendfile as u8 {
            give_by_sendfile(&stream, &file, bytes)?;
        } else {
            give_copied(&mut stream, &file, bytes, &mut buffer)?;
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))
}

/// Receives bytes and writes them into the page cache. Syncs run in parallel, with a last one at the end.
fn take(stream: &mut TcpStream, file: &File, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (written, is_written) = mpsc::channel::<()>();
        let syncing = scope.spawn(move || {
            while is_written.recv().is_ok() {
                // One sync covers everything written so far.
                while is_written.try_recv().is_ok() {}
                file.sync_data()?;
            }
            file.sync_data()
        });
        let mut at = 0;
        let mut synced = 0;
        while at < bytes {
            let most = short(bytes - at).min(buffer.len());
            let read = match stream.read(&mut buffer[..most])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            file.write_all_at(&buffer[..read], at)?;
            at += long(read);
            if at - synced >= SYNC_BYTES {
                synced = at;
                // Fails only after a failed sync, which is reported at the end.
                let _ = written.send(());
            }
        }
        drop(written);
        syncing.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
    })
}

fn drop_all(stream: &mut TcpStream, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let most = short(left).min(buffer.len());
        match stream.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= long(read),
        }
    }
    Ok(())
}

fn give_copied(stream: &mut TcpStream, file: &File, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let piece = short(bytes - at).min(buffer.len());
        file.read_exact_at(&mut buffer[..piece], at)?;
        stream.write_all(&buffer[..piece])?;
        at += long(piece);
    }
    Ok(())
}

fn give_by_sendfile(stream: &TcpStream, file: &File, bytes: u64) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let piece = short(bytes - at).min(PIECE_BYTES);
        if rustix::fs::sendfile(stream, file, Some(&mut at), piece)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn short(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
