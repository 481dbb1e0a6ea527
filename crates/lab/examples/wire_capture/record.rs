//! Packets of all interfaces, written as they come.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Result;

/// Every protocol (ETH_P_ALL).
const ALL: u16 = 3;
/// Bytes that may wait in the kernel.
const WAITING: usize = 256 << 20;
/// The most bytes of a packet: the kernel hands over what it has not yet cut for the link.
const PACKET_MAX: usize = 1 << 18;
/// A record's header in the file.
const HEAD: usize = 16;

/// Records until the process is ended. Each packet is written at once: nothing is held back.
pub(crate) fn record(path: &Path) -> Result<()> {
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ALL.to_be()))))?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, WAITING)?;
    let mut file = File::create(path)?;
    file.write_all(&file_head())?;
    let mut buffer = vec![0; HEAD + PACKET_MAX];
    loop {
        let bytes = match socket.read(&mut buffer[HEAD..]) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let length = u32::try_from(bytes)?;
        let head = [u32::try_from(now.as_secs())?, now.subsec_micros(), length, length];
        for (place, word) in buffer.chunks_exact_mut(4).zip(head) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        file.write_all(&buffer[..HEAD + bytes])?;
    }
}

/// The head of a pcap file of Ethernet packets.
fn file_head() -> Vec<u8> {
    let mut head = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    head.extend_from_slice(&[2, 0, 4, 0]);
    for word in [0, 0, u32::MAX, 1_u32] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    head
}
