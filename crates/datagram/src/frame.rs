//! Frames: what is sealed in a Data, one after another.

use std::ops::Range;

use crate::codec::{Reader, low};

/// The longest reason of a Close, in bytes.
pub const REASON_BYTES_MAX: usize = 200;
/// Bytes of a Stream frame before its content.
pub(crate) const STREAM_HEAD_BYTES: usize = 13;
/// Bytes of an Ack with one range.
const ACK_HEAD_BYTES: usize = 18;
/// Bytes of each further range of an Ack.
const ACK_RANGE_BYTES: usize = 8;
/// Maximum number of ranges of an Ack.
const ACK_RANGES_MAX: usize = 32;

/// The first byte of each kind of frame.
pub mod kind {
    /// A byte that says nothing.
    pub const PADDING: u8 = 0;
    /// Asks for an acknowledgement.
    pub const PING: u8 = 1;
    /// Acknowledges datagrams by number.
    pub const ACK: u8 = 2;
    /// Bytes of a stream.
    pub const STREAM: u8 = 3;
    /// Raises the bound of a stream.
    pub const CREDIT: u8 = 4;
    /// Says how much may be in flight to the sender of the frame.
    pub const WINDOW: u8 = 5;
    /// Asks an address for a response.
    pub const CHALLENGE: u8 = 6;
    /// Answers a challenge.
    pub const RESPONSE: u8 = 7;
    /// Ends the connection.
    pub const CLOSE: u8 = 8;
    /// Counts the datagrams that came marked.
    pub const MARKED: u8 = 9;
}

/// A frame of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Asks for an acknowledgement.
    Ping,
    /// Acknowledges datagrams by number.
    Ack(Ack),
    /// Bytes of a stream.
    Stream {
        /// The stream that it is about.
        stream: u16,
        /// Position of the first byte in the stream.
        offset: u64,
        /// The bytes; never none.
        bytes: &'a [u8],
    },
    /// The stream's bytes before this offset may be sent.
    Credit {
        /// The stream that it is about.
        stream: u16,
        /// One past the last byte.
        limit: u64,
    },
    /// So many bytes may be in flight to the sender of the frame.
    Window {
        /// Number of those bytes.
        bytes: u64,
    },
    /// Asks an address for a response.
    Challenge([u8; 8]),
    /// Answers a challenge.
    Response([u8; 8]),
    /// Ends the connection.
    Close {
        /// 0: no fault.
        code: u16,
        /// For people, UTF-8.
        reason: &'a [u8],
    },
    /// So many datagrams have come that a queue had marked.
    Marked {
        /// Their number since the connection began.
        total: u64,
    },
}

/// Datagrams that have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Time between the arrival of the highest and this acknowledgement, in microseconds.
    pub delay_us: u32,
    /// The numbers, highest range first; at least one, none touches another.
    pub ranges: Vec<Range<u64>>,
}

impl Ack {
    /// The highest number.
    pub fn largest(&self) -> u64 {
        self.ranges.first().map_or(0, |range| range.end - 1)
    }
}

/// Decodes the frames of a datagram's content, in order. `None` stands for what is no frame, after which
/// nothing can be decoded.
pub fn decode_frames(content: &[u8]) -> impl Iterator<Item = Option<Frame<'_>>> {
    let mut input = Some(Reader(content));
    std::iter::from_fn(move || {
        let mut rest = input?;
        while rest.0.first() == Some(&kind::PADDING) {
            rest.0 = &rest.0[1..];
        }
        if rest.0.is_empty() {
            return None;
        }
        let frame = take(&mut rest);
        input = frame.is_some().then_some(rest);
        Some(frame)
    })
}

fn take<'a>(input: &mut Reader<'a>) -> Option<Frame<'a>> {
    Some(match input.u8()? {
        kind::PING => Frame::Ping,
        kind::ACK => Frame::Ack(take_ack(input)?),
        kind::STREAM => {
            let stream = input.u16()?;
            let offset = input.u64()?;
            let length = usize::from(input.u16()?);
            let bytes = input.bytes(length)?;
            let ends = offset.checked_add(u64::try_from(length).ok()?);
            (length > 0 && ends.is_some()).then_some(Frame::Stream { stream, offset, bytes })?
        }
        kind::CREDIT => Frame::Credit { stream: input.u16()?, limit: input.u64()? },
        kind::WINDOW => Frame::Window { bytes: input.u64()? },
        kind::CHALLENGE => Frame::Challenge(input.array()?),
        kind::RESPONSE => Frame::Response(input.array()?),
        kind::CLOSE => {
            let code = input.u16()?;
            let length = usize::from(input.u8()?);
            let reason = input.bytes(length)?;
            (length <= REASON_BYTES_MAX).then_some(Frame::Close { code, reason })?
        }
        kind::MARKED => Frame::Marked { total: input.u64()? },
        _ => return None,
    })
}

fn take_ack(input: &mut Reader<'_>) -> Option<Ack> {
    let largest = input.u64()?;
    let delay_us = input.u32()?;
    let further = usize::from(input.u8()?);
    if further >= ACK_RANGES_MAX {
        return None;
    }
    let end = largest.checked_add(1)?;
    let first = input.u32()?;
    let mut ranges = Vec::with_capacity(1 + further);
    let mut start = end.checked_sub(u64::from(first)).filter(|_| first > 0)?;
    ranges.push(start..end);
    for _ in 0..further {
        let gap = input.u32()?;
        let length = input.u32()?;
        let end = start.checked_sub(u64::from(gap))?;
        start = end.checked_sub(u64::from(length)).filter(|_| gap > 0 && length > 0)?;
        ranges.push(start..end);
    }
    Some(Ack { delay_us, ranges })
}

impl Frame<'_> {
    /// Returns true if the datagram that has it is to be acknowledged.
    pub(crate) fn asks(&self) -> bool {
        !matches!(self, Frame::Ack(_) | Frame::Close { .. } | Frame::Marked { .. })
    }

    /// Appends the frame. Of an acknowledgement that is too long the lower ranges are left out.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Ping => out.push(kind::PING),
            Frame::Ack(ack) => ack.put(usize::MAX, out),
            Frame::Stream { stream, offset, bytes } => {
                let length = u16::try_from(bytes.len()).expect("a datagram is shorter than 64 KiB");
                put_stream_head(*stream, *offset, length, out);
                out.extend_from_slice(bytes);
            }
            Frame::Credit { stream, limit } => {
                out.push(kind::CREDIT);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&limit.to_le_bytes());
            }
            Frame::Window { bytes } => {
                out.push(kind::WINDOW);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Frame::Challenge(challenge) => {
                out.push(kind::CHALLENGE);
                out.extend_from_slice(challenge);
            }
            Frame::Response(response) => {
                out.push(kind::RESPONSE);
                out.extend_from_slice(response);
            }
            Frame::Close { code, reason } => {
                let reason = &reason[..reason.len().min(REASON_BYTES_MAX)];
                out.push(kind::CLOSE);
                out.extend_from_slice(&code.to_le_bytes());
                out.push(u8::try_from(reason.len()).expect("at most 200"));
                out.extend_from_slice(reason);
            }
            Frame::Marked { total } => {
                out.push(kind::MARKED);
                out.extend_from_slice(&total.to_le_bytes());
            }
        }
    }
}

impl Ack {
    /// Appends the frame, with as many of the highest ranges as fit into `room` bytes; nothing if none fits.
    pub(crate) fn put(&self, room: usize, out: &mut Vec<u8>) {
        let Some(first) = self.ranges.first() else { return };
        if room < ACK_HEAD_BYTES {
            return;
        }
        let fit = (room - ACK_HEAD_BYTES) / ACK_RANGE_BYTES;
        // A range or a gap that 32 bits do not hold ends the list: what is so old is not in flight.
        let steps = self.ranges.windows(2).map_while(|pair| {
            let gap = u32::try_from(pair[0].start - pair[1].end).ok()?;
            let length = u32::try_from(pair[1].end - pair[1].start).ok()?;
            Some([gap, length])
        });
        let steps: Vec<[u32; 2]> = steps.take(fit.min(ACK_RANGES_MAX - 1)).collect();
        let first_bytes = low((first.end - first.start).min(u64::from(u32::MAX)));
        let is_whole = u64::from(first_bytes) == first.end - first.start;
        let steps = if is_whole { &steps[..] } else { &[] };
        out.push(kind::ACK);
        out.extend_from_slice(&self.largest().to_le_bytes());
        out.extend_from_slice(&self.delay_us.to_le_bytes());
        out.push(u8::try_from(steps.len()).expect("at most 31"));
        out.extend_from_slice(&first_bytes.to_le_bytes());
        steps.iter().flatten().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
}

/// Appends all of a Stream frame but its content.
pub(crate) fn put_stream_head(stream: u16, offset: u64, length: u16, out: &mut Vec<u8>) {
    out.push(kind::STREAM);
    out.extend_from_slice(&stream.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
}
