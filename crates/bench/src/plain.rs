//! Plain TCP over the same links: the yardstick of what a link carries. One connection to each address, all
//! at once, and nothing but bytes on it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of one call of the system.
const PIECE: usize = 256 << 10;
/// Longest wait for a peer's next byte.
const SILENCE: Duration = Duration::from_secs(30);

/// Direction of the bytes, as the caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Write,
    Read,
}

/// Serves connections until the listener fails: takes or sends as many bytes as a peer asks for, each in a
/// thread of its own.
pub fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        std::thread::spawn(move || drop(answer(stream)));
    }
}

/// A request is a byte for the way and the number of bytes.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut way = [0];
    stream.read_exact(&mut way)?;
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    let bytes = u64::from_le_bytes(bytes);
    match way {
        [0] => {
            take(&mut stream, bytes)?;
            stream.write_all(&[1])
        }
        _ => give(&mut stream, bytes),
    }
}

/// Moves this many bytes to or from each of these addresses, all at once. Returns the seconds until the last
/// was there.
pub fn measure(addresses: &[String], bytes_each: u64, way: Way) -> io::Result<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let one = |address: &String| {
            let address = address.clone();
            scope.spawn(move || exchange(&address, bytes_each, way))
        };
        let running: Vec<_> = addresses.iter().map(one).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread panicked"))?)
    })?;
    Ok(began.elapsed().as_secs_f64())
}

fn exchange(address: &str, bytes: u64, way: Way) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.write_all(&[u8::from(way == Way::Read)])?;
    stream.write_all(&bytes.to_le_bytes())?;
    match way {
        Way::Write => {
            give(&mut stream, bytes)?;
            // The far end has all of them.
            stream.read_exact(&mut [0])
        }
        Way::Read => take(&mut stream, bytes),
    }
}

fn give(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let piece = vec![0x5a; PIECE];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        stream.write_all(&piece[..now])?;
        left -= now as u64;
    }
    Ok(())
}

fn take(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        stream.read_exact(&mut piece[..now])?;
        left -= now as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_both_ways_to_all_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || serve(&listener));
        for way in [Way::Write, Way::Read] {
            let seconds = measure(&[address.clone(), address.clone()], 600_000, way).expect("moved");
            assert!(seconds > 0.0);
        }
        measure(&["127.0.0.1:1".to_owned()], 1, Way::Read).expect_err("nobody listens there");
    }
}
