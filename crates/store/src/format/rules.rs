//! The rules that every record must meet beyond its own CRC: bounds, and the requirements of each kind.

use super::record::{INLINE_BYTES_MAX, Kind, Record, flags};
use super::subject::TOGETHER_MAX;
use super::{DecodeError, body};
use crate::crc::block_count;

/// Checks that a decoded header is possible.
pub(super) fn check(record: &Record) -> Result<(), DecodeError> {
    let fail = |what| Err(DecodeError::Malformed(what));
    if record.flags & !flags::ALL != 0 {
        return fail("unknown flags");
    }
    if record.cover.len() > 64
        || record.data >= 64
        || record.inline.len() > INLINE_BYTES_MAX
        || record.before.len() >= TOGETHER_MAX
    {
        return fail("a list, a column or inline bytes past their bound");
    }
    if record.before.iter().any(|before| before.kind.is_none())
        || record.prior.kind.is_none() && !record.before.is_empty()
    {
        return fail("an earlier record without a kind, or with none before it");
    }
    let misplaced = record.is(flags::OWED) && record.kind != Kind::Data
        || record.is(flags::FOLDED) && record.kind != Kind::ParityBase
        || record.is(flags::BELOW) && !record.is(flags::INSTALLED)
        || record.is(flags::DROPPED) && record.kind != Kind::Fence
        || record.is(flags::WHOLE)
            && (record.kind != Kind::Data || record.is(flags::INSTALLED) || record.is(flags::OWED))
        || record.kind == Kind::Delta && record.previous >= record.version
        || record.kind != Kind::Delta && record.end > 0
        || record.ends.iter().any(|end| !end.is_possible())
        || (record.is(flags::INSTALLED) || record.is(flags::FOLDED))
            && record.ends.iter().any(|end| !end.is_exact());
    if misplaced {
        return fail("flags, versions or ends that the kind does not have");
    }
    if record.sequence == 0 || record.synced_to >= record.sequence || record.commit_first > record.sequence {
        return fail("sequence");
    }
    if !record.kind.has_range() {
        let plain = record.payload_bytes == 0 && record.crcs.is_empty() && record.from == 0 && record.to == 0;
        return if plain { body::check(record) } else { fail("a payload on a kind that has none") };
    }
    if record.from >= record.to || record.to > braid_layout::scheme::UNIT_BYTES_MAX || record.units != 1 {
        return fail("range");
    }
    if record.kind == Kind::Move {
        if record.is(flags::HOLE) {
            return fail("a move without bytes");
        }
        body::check(record)?;
    } else if record.version.is_zero() && !is_never_written(record) || !record.inline.is_empty() {
        return fail("a write without a version, or with a body");
    }
    let (bytes, blocks) = if record.is(flags::HOLE) {
        (0, 0)
    } else {
        (record.to - record.from, block_count(record.from, record.to))
    };
    if record.payload_bytes != bytes || u32::try_from(record.crcs.len()) != Ok(blocks) {
        return fail("payload and range differ");
    }
    Ok(())
}

/// Returns true if the record makes a lost unit one that was never written.
fn is_never_written(record: &Record) -> bool {
    let nothing_counted = record.cover.iter().all(|version| version.is_zero());
    record.is(flags::INSTALLED) && record.is(flags::HOLE) && nothing_counted
}
