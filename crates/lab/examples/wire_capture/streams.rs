//! The bytes that were sent in each direction of each connection, put together from a pcap file.
//!
//! A byte counts once, however often it was sent or seen: packets of the loopback are seen twice. What is not
//! TCP is a stream of its own for each pair of addresses, packet after packet.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use crate::Result;

const FILE_HEAD: usize = 24;
const RECORD_HEAD: usize = 16;
const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

pub(crate) struct Streams {
    pub(crate) all: Vec<Stream>,
    /// Bytes of a packet at the end that was not written whole.
    cut: usize,
}

/// One direction of a connection.
pub(crate) struct Stream {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that were sent and are not in the file.
    lacks: u64,
    /// True if it was seen from its first byte on.
    is_whole: bool,
}

/// Pieces of a stream as they were found.
struct Pieces {
    from: SocketAddr,
    to: SocketAddr,
    /// Number before that of the first byte; `None`: no beginning was seen, or there are no numbers.
    first: Option<u32>,
    numbered: bool,
    /// The last piece's place and number: from there places go on beyond 32 bits.
    last: (i64, u32),
    pieces: Vec<(i64, Range<usize>)>,
}

struct Segment {
    number: u32,
    begins: bool,
}

impl Streams {
    pub(crate) fn of_pcap(file: &[u8]) -> Result<Streams> {
        if file.get(..4) != Some(&0xa1b2_c3d4_u32.to_le_bytes()) {
            return Err("it is not a capture by `record`".into());
        }
        let mut streams: Vec<Pieces> = Vec::new();
        let mut newest: HashMap<(SocketAddr, SocketAddr, bool), usize> = HashMap::new();
        let mut at = FILE_HEAD;
        while let Some(length) = word(file, at + 8).filter(|length| at + RECORD_HEAD + length <= file.len()) {
            let packet = at + RECORD_HEAD..at + RECORD_HEAD + length;
            at = packet.end;
            let Some((from, to, segment, payload)) = parts(file, packet) else { continue };
            let key = (from, to, segment.is_some());
            let known = newest.get(&key).map(|&index| &mut streams[index]);
            let known = known.filter(|known| !segment.as_ref().is_some_and(|it| known.is_over(it)));
            let stream = match known {
                Some(known) => known,
                None => {
                    newest.insert(key, streams.len());
                    streams.push(Pieces::begin(from, to, segment.as_ref()));
                    streams.last_mut().ok_or("no stream")?
                }
            };
            stream.add(segment.as_ref(), payload);
        }
        let cut = file.len() - at;
        Ok(Streams { all: streams.into_iter().map(|stream| stream.join(file)).collect(), cut })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|stream| stream.bytes.len()).sum()
    }

    /// Says what the capture lacks. Returns true if it lacks anything.
    pub(crate) fn report_lacks(&self) -> bool {
        let mut lacks = false;
        for stream in &self.all {
            if stream.lacks > 0 || !stream.is_whole {
                let Stream { from, to, lacks: bytes, .. } = stream;
                println!("NOT WHOLE: {from} to {to}: its beginning or {bytes} bytes are not in the capture");
                lacks = true;
            }
        }
        if self.cut > 0 {
            println!("the last packet was cut short by the end of the recording");
        }
        lacks
    }
}

impl Pieces {
    fn begin(from: SocketAddr, to: SocketAddr, segment: Option<&Segment>) -> Pieces {
        let first = segment.filter(|it| it.begins).map(|it| it.number);
        let number = segment.map_or(0, |it| it.number);
        // Where no beginning was seen, the first packet's is taken for it.
        let place = if first.is_some() { -1 } else { 0 };
        Pieces { from, to, first, numbered: segment.is_some(), last: (place, number), pieces: Vec::new() }
    }

    /// True if this segment begins another connection between the same ports.
    fn is_over(&self, segment: &Segment) -> bool {
        segment.begins && self.first != Some(segment.number)
    }

    fn add(&mut self, segment: Option<&Segment>, payload: Range<usize>) {
        let place = match segment {
            None => {
                self.pieces.last().map_or(0, |(place, bytes)| place + i64::try_from(bytes.len()).unwrap_or(0))
            }
            Some(it) => {
                let number = if it.begins { it.number.wrapping_add(1) } else { it.number };
                self.last.0 + i64::from(number.wrapping_sub(self.last.1).cast_signed())
            }
        };
        if payload.is_empty() {
            return;
        }
        if let Some(it) = segment {
            self.last = (place, if it.begins { it.number.wrapping_add(1) } else { it.number });
        }
        self.pieces.push((place, payload));
    }

    fn join(mut self, file: &[u8]) -> Stream {
        self.pieces.sort_by_key(|(place, _)| *place);
        let mut bytes = Vec::new();
        let mut lacks = 0;
        let mut next = self.pieces.first().map_or(0, |(place, _)| (*place).min(0));
        for (place, piece) in self.pieces {
            if place > next {
                lacks += place.abs_diff(next);
                next = place;
            }
            let known = usize::try_from(next - place).unwrap_or(usize::MAX);
            let new = file[piece].get(known..).unwrap_or_default();
            bytes.extend_from_slice(new);
            next += i64::try_from(new.len()).unwrap_or(i64::MAX);
        }
        let is_whole = self.first.is_some() || !self.numbered || bytes.is_empty();
        Stream { from: self.from, to: self.to, bytes, lacks, is_whole }
    }
}

/// The ends of a packet, its number in its stream, and where its payload is.
fn parts(
    file: &[u8],
    packet: Range<usize>,
) -> Option<(SocketAddr, SocketAddr, Option<Segment>, Range<usize>)> {
    let of = |range: Range<usize>| file.get(range);
    let network = packet.start + ETHERNET;
    let (from, to, protocol, transport, end) = match file.get(packet.start + 12..network)? {
        [0x08, 0x00] => {
            let head = of(network..network + 20)?;
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let end = if length == 0 { packet.end } else { packet.end.min(network + length) };
            let ip =
                |at: usize| IpAddr::V4(Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]));
            (ip(12), ip(16), head[9], network + usize::from(head[0] & 15) * 4, end)
        }
        [0x86, 0xdd] => {
            let ip = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = of(network + at..network + at + 16)?.try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(bytes)))
            };
            (ip(8)?, ip(24)?, *file.get(network + 6)?, network + 40, packet.end)
        }
        _ => {
            let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
            return Some((nobody, nobody, None, network..packet.end));
        }
    };
    let port = |at: usize| Some(u16::from_be_bytes(of(transport + at..transport + at + 2)?.try_into().ok()?));
    let (from_port, to_port) = match protocol {
        TCP | UDP => (port(0)?, port(2)?),
        _ => (0, 0),
    };
    let ends = (SocketAddr::new(from, from_port), SocketAddr::new(to, to_port));
    if protocol != TCP {
        return Some((ends.0, ends.1, None, transport..end.max(transport)));
    }
    let head = of(transport..transport + 20)?;
    let number = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let payload = transport + usize::from(head[12] >> 4) * 4;
    let segment = Segment { number, begins: head[13] & 2 != 0 };
    Some((ends.0, ends.1, Some(segment), payload..end.max(payload)))
}

fn word(file: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; 4] = file.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}
