//! Receives a drive's answer into its buffer: every block is checked against its CRC32C as it arrives, and
//! holes are filled with zeros.

use braid_transport::{Answer, Answers, SmallAnswer, TransportError};
use braid_wire::checksum::{block_count, verify_blocks};
use braid_wire::data::{DriveReply, ReadReply, ReplyHead};

use crate::analysis::SpanOf;
use crate::peers::drive_requests::{Failure, RequestOutcome};

/// Source of an answer's bytes.
enum From<'a> {
    Session(&'a mut Answers),
    Memory(&'a [u8]),
}

impl From<'_> {
    /// Fills `into` with the next bytes. The caller has checked that there are as many.
    async fn take(&mut self, into: &mut [u8]) -> Result<(), TransportError> {
        match self {
            From::Session(answers) => answers.payload(into).await,
            From::Memory(bytes) => {
                let (own, rest) = bytes.split_at(into.len());
                into.copy_from_slice(own);
                *bytes = rest;
                Ok(())
            }
        }
    }
}

/// Receives an answer's bytes into their buffer and checks them. `from`: the first byte in the unit.
pub(crate) async fn land(
    answers: &mut Answers,
    answer: Answer,
    from: u32,
    into: &mut [u8],
    span: SpanOf<'_>,
) -> Result<RequestOutcome, TransportError> {
    let Answer { head, reply, payload_bytes, .. } = answer;
    land_from(From::Session(answers), head, reply, payload_bytes, from, into, span).await
}

/// Like [`land`], for an answer whose bytes are in memory already.
pub(crate) async fn land_small(
    answer: SmallAnswer,
    from: u32,
    into: &mut [u8],
    span: SpanOf<'_>,
) -> Result<RequestOutcome, TransportError> {
    let SmallAnswer { head, reply, payload } = answer;
    let bytes = u32::try_from(payload.bytes().len()).unwrap_or(u32::MAX);
    land_from(From::Memory(payload.bytes()), head, reply, bytes, from, into, span).await
}

async fn land_from(
    mut bytes: From<'_>,
    head: ReplyHead,
    reply: DriveReply,
    payload_bytes: u32,
    from: u32,
    into: &mut [u8],
    span: SpanOf<'_>,
) -> Result<RequestOutcome, TransportError> {
    let reply = match reply {
        DriveReply::Refused(refusal) => {
            let proven = head.mac != [0; 16];
            return Ok(Err(Failure::Refused { refusal, proven }));
        }
        DriveReply::Read(reply) => reply,
        other => return Ok(Ok(other)),
    };
    if let Err(why) = check_extents(&reply, from, into.len(), payload_bytes) {
        return Ok(Err(Failure::Lost(why)));
    }
    let mut crcs = reply.crcs.as_slice();
    let mut rest = into;
    let mut corrupt = None;
    for extent in &reply.extents {
        let length = usize::try_from(extent.to - extent.from).expect("a unit is at most 64 MiB");
        let (place, tail) = rest.split_at_mut(length);
        rest = tail;
        if extent.hole {
            place.fill(0);
            continue;
        }
        bytes.take(place).await?;
        let (own, others) = crcs.split_at(block_count(extent.from, extent.to));
        crcs = others;
        if let Err(at) = span.crc(|| verify_blocks(extent.from, place, own)) {
            corrupt.get_or_insert(at);
        }
    }
    Ok(match corrupt {
        Some(at) => Err(Failure::Corrupt(at)),
        None => Ok(DriveReply::Read(reply)),
    })
}

/// Checks that the extents are contiguous, cover what was asked for, and match the payload and the checksums.
fn check_extents(reply: &ReadReply, from: u32, asked: usize, payload_bytes: u32) -> Result<(), String> {
    let mut covered = 0u64;
    let mut sent = 0u64;
    let mut blocks = 0usize;
    let mut at = from;
    for extent in &reply.extents {
        if at != extent.from || extent.to < extent.from {
            return Err("the extents in its answer leave gaps or overlap".to_owned());
        }
        at = extent.to;
        let bytes = u64::from(extent.to - extent.from);
        covered += bytes;
        if !extent.hole {
            sent += bytes;
            blocks += block_count(extent.from, extent.to);
        }
    }
    let asked = u64::try_from(asked).unwrap_or(u64::MAX);
    if covered != asked || sent != u64::from(payload_bytes) || blocks != reply.crcs.len() {
        return Err(format!(
            "it answered {covered} bytes ({sent} sent, {payload_bytes} announced) where {asked} were asked for"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_layout::{ColumnMask, Version};
    use braid_wire::data::Extent;

    use super::*;

    fn check(extents: &[(u32, u32, bool)], crcs: usize, asked: usize, payload: u32, good: bool) {
        let reply = ReadReply {
            version: Version::ZERO,
            pending: false,
            columns: ColumnMask::EMPTY,
            cover: Vec::new(),
            ends: Vec::new(),
            extents: extents.iter().map(|&(from, to, hole)| Extent { from, to, hole }).collect(),
            crcs: vec![0; crcs],
            times: None,
        };
        let from = extents.first().map_or(0, |first| first.0);
        assert_eq!(check_extents(&reply, from, asked, payload).is_ok(), good, "{extents:?}");
        assert!(check_extents(&reply, from + 1, asked, payload).is_err(), "another beginning");
    }

    #[test]
    fn answers_must_be_what_was_asked_for() {
        check(&[(0, 8192, false)], 2, 8192, 8192, true);
        check(&[(100, 5000, false), (5000, 6000, true)], 2, 5900, 4900, true);
        check(&[(0, 4096, true)], 0, 4096, 0, true);
        check(&[(0, 4096, false), (5000, 9096, false)], 3, 8192, 8192, false);
        check(&[(0, 8192, false)], 1, 8192, 8192, false);
        check(&[(0, 8192, false)], 2, 8192, 4096, false);
        check(&[(0, 4096, false)], 1, 8192, 4096, false);
        check(&[(4096, 0, false)], 1, 4096, 4096, false);
        check(&[], 0, 10, 0, false);
    }
}
