//! Tables of fields, and the encoding that follows from them.
//!
//! `fields!` states a structure once, one row per field, in the order and with the names of the document:
//!
//! - `.name "text" 0..4,` is the struct's field `name`. It is encoded as its type says (`Value`).
//! - `NAME "text" 4..8,` is encoded by hand: `NAME` is its byte range. A row may have both.
//! - `"reserved" 8..12,` must be zero, which is checked.
//! - `"text" 12..16,` is a field that all structures of its sort have (`seal`).
//!
//! With `TABLE of Type`, the type gets its `Value` from the table.

use std::ops::Range;

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, EndBound, Generation, Lease, ObjectId, OperationNumber,
    PartitionId, Version,
};

use super::{DecodeError, FORMAT_VERSION, FORMAT_VERSION_MIN, LOG_BLOCK};
use crate::crc::crc32c;

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field's name in `docs/format-store.md`.
    pub name: &'static str,
    /// The field's byte range in the structure.
    pub bytes: Range<usize>,
}

/// A type with one encoding of a fixed width.
pub(crate) trait Value {
    const BYTES: usize;

    /// Writes the value to `to`, which has the width. Bytes for which a structure has no value are left as
    /// they are.
    fn put(&self, to: &mut [u8]);

    /// Takes the value that `from` holds, and checks it.
    fn take(&mut self, from: &[u8]) -> Result<(), DecodeError>;
}

/// States a structure: see the module.
macro_rules! fields {
    ($(#[$doc:meta])* $table:ident of $of:ty: $($rows:tt)*) => {
        $crate::format::field::fields! { $(#[$doc])* $table: $($rows)* }
        $crate::format::field::fields! { @value $table $of: $($rows)* }
    };
    ($(#[$doc:meta])* $table:ident:
     $($(.$($field:tt).+)? $($name:ident)? $text:literal $from:literal .. $to:literal,)*) => {
        $($(pub(crate) const $name: std::ops::Range<usize> = $from..$to;)?)*
        $(#[$doc])*
        pub const $table: &[$crate::format::Field] =
            &[$($crate::format::Field { name: $text, bytes: $from..$to }),*];
    };
    (@value $table:ident $of:ty:
     $($(.$($field:tt).+)? $($name:ident)? $text:literal $from:literal .. $to:literal,)*) => {
        impl $crate::format::field::Value for $of {
            const BYTES: usize = $table[$table.len() - 1].bytes.end;

            fn put(&self, to: &mut [u8]) {
                $($($crate::format::field::Value::put(&self.$($field).+, &mut to[$from..$to]);)?)*
            }

            fn take(&mut self, from: &[u8]) -> Result<(), $crate::format::DecodeError> {
                $(if const { $crate::format::field::is_reserved($text) } {
                    $crate::format::field::check_zero(&from[$from..$to])?;
                })*
                $($($crate::format::field::Value::take(&mut self.$($field).+, &from[$from..$to])?;)?)*
                Ok(())
            }
        }
    };
}
pub(crate) use fields;

/// An enum whose numbers are part of the format, stored as a byte.
macro_rules! numbered {
    ($(#[$meta:meta])* $of:ident: $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal,)*) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $of { $($(#[$doc])* $variant,)* }

        impl $of {
            /// All variants, with their numbers and names in the document.
            pub const ALL: &[($of, u8, &str)] = &[$(($of::$variant, $number, $text),)*];

            pub(crate) fn number(self) -> u8 {
                match self { $($of::$variant => $number,)* }
            }

            pub(crate) fn from_number(number: u8) -> Option<$of> {
                match number { $($number => Some($of::$variant),)* _ => None }
            }
        }

        $crate::format::field::stored! { $of as u8: $of::number, $of::from_number; }
    };
}
pub(crate) use numbered;

/// Types that are stored as an integer. The first function gives the integer. The second gives the value, or
/// `None` if no value has that integer.
macro_rules! stored {
    ($($of:ty as $integer:ident: $to:expr, $from:expr;)*) => {$(
        impl $crate::format::field::Value for $of {
            const BYTES: usize = size_of::<$integer>();

            fn put(&self, to: &mut [u8]) {
                let integer: fn($of) -> $integer = $to;
                to.copy_from_slice(&integer(*self).to_le_bytes());
            }

            fn take(&mut self, from: &[u8]) -> Result<(), $crate::format::DecodeError> {
                let value: fn($integer) -> Option<$of> = $from;
                let integer = $integer::from_le_bytes(from.try_into().expect("a field's width is its type's"));
                let unknown = $crate::format::DecodeError::Malformed(concat!("unknown value: ", stringify!($of)));
                *self = value(integer).ok_or(unknown)?;
                Ok(())
            }
        }
    )*};
}
pub(crate) use stored;

stored! {
    u8 as u8: |value| value, Some;
    u16 as u16: |value| value, Some;
    u32 as u32: |value| value, Some;
    u64 as u64: |value| value, Some;
    bool as u8: u8::from, |byte| (byte < 2).then_some(byte == 1);
    ClientId as u64: |id| id.0, |id| Some(ClientId(id));
    OperationNumber as u64: |number| number.0, |number| Some(OperationNumber(number));
    ClusterId as u128: |id| id.0, |id| Some(ClusterId(id));
    DriveId as u128: |id| id.0, |id| Some(DriveId(id));
    PartitionId as u64: |id| id.0, |id| Some(PartitionId(id));
    ObjectId as u64: |id| id.0, |id| Some(ObjectId(id));
    Generation as u32: |g| g.0, |g| Some(Generation(g));
    Lease as u32: |lease| lease.0, |lease| Some(Lease(lease));
    Column as u8: |column| column.0, |column| (column < 64).then_some(Column(column));
    ColumnMask as u64: |mask| mask.0, |mask| Some(ColumnMask(mask));
    // A bound; there is none: all ones.
    Option<u64> as u64: |bound| bound.unwrap_or(u64::MAX), |bound| Some((bound != u64::MAX).then_some(bound));
}

fields! {
    VERSION_FIELDS of Version:
    .g "g" 0..4,
    .lease "lease" 4..8,
    .n "n" 8..16,
}

fields! {
    /// The bounds that a write gives for the end of a data unit's bytes.
    END_BOUND_FIELDS of EndBound:
    .least "least" 0..4,
    .most "most" 4..8,
}

/// Writes a field by hand.
pub(crate) fn put<T: Value>(to: &mut [u8], field: Range<usize>, value: T) {
    value.put(&mut to[field]);
}

/// Reads a field by hand.
pub(crate) fn get<T: Value + Default>(from: &[u8], field: Range<usize>) -> Result<T, DecodeError> {
    decode(&from[field])
}

/// Writes values one after another to the start of `to`.
pub(crate) fn put_list<T: Value>(to: &mut [u8], values: &[T]) {
    to.chunks_exact_mut(T::BYTES).zip(values).for_each(|(to, value)| value.put(to));
}

/// Appends a value.
pub(crate) fn append<T: Value>(to: &mut Vec<u8>, value: &T) {
    append_list(to, std::slice::from_ref(value));
}

pub(crate) fn append_list<T: Value>(to: &mut Vec<u8>, values: &[T]) {
    let at = to.len();
    to.resize(at + T::BYTES * values.len(), 0);
    put_list(&mut to[at..], values);
}

/// The value that `bytes` hold.
pub(crate) fn decode<T: Value + Default>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut value = T::default();
    value.take(bytes)?;
    Ok(value)
}

/// The value that is all of `bytes`.
pub(crate) fn exactly<T: Value + Default>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() == T::BYTES { decode(bytes) } else { Err(SHORT) }
}

/// The values that fill `bytes`.
pub(crate) fn decode_list<T: Value + Default + Clone>(bytes: &[u8]) -> Result<Vec<T>, DecodeError> {
    let from = bytes.chunks_exact(T::BYTES);
    if !from.remainder().is_empty() {
        return Err(SHORT);
    }
    // Not collected as results, which is slower: a long write has many checksums.
    let mut values = vec![T::default(); from.len()];
    values.iter_mut().zip(from).try_for_each(|(value, from)| value.take(from))?;
    Ok(values)
}

/// The value at the start of `bytes`, and the rest.
pub(crate) fn split<T: Value + Default>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    let (value, rest) = bytes.split_at_checked(T::BYTES).ok_or(SHORT)?;
    Ok((decode(value)?, rest))
}

/// The `count` values at the start of `bytes`, and the rest.
pub(crate) fn split_list<T: Value + Default + Clone>(
    bytes: &[u8],
    count: usize,
) -> Result<(Vec<T>, &[u8]), DecodeError> {
    let length = count.checked_mul(T::BYTES);
    let (values, rest) = length.and_then(|length| bytes.split_at_checked(length)).ok_or(SHORT)?;
    Ok((decode_list(values)?, rest))
}

/// A list's length, as it is stored.
pub(crate) fn length(length: usize) -> u32 {
    u32::try_from(length).expect("lists are bounded")
}

/// A list's length, as it was stored.
pub(crate) fn count(length: u32) -> usize {
    usize::try_from(length).expect("at least 32 bits")
}

pub(crate) const SHORT: DecodeError = DecodeError::Malformed("a structure's length");
pub(crate) const RESERVED: DecodeError = DecodeError::Malformed("reserved bytes are not zero");

/// Returns true if a row of a table is reserved bytes.
pub(crate) const fn is_reserved(text: &str) -> bool {
    matches!(text.as_bytes(), b"reserved")
}

/// Checks that bytes are zero.
pub(crate) fn check_zero(bytes: &[u8]) -> Result<(), DecodeError> {
    // Without an early exit: testing all bytes at once is several times as fast.
    if bytes.iter().fold(0, |all, byte| all | byte) == 0 { Ok(()) } else { Err(RESERVED) }
}

/// Byte ranges of the fields that are the same in all blocks that stand alone (the superblock, a segment's
/// header, those of a checkpoint).
const MAGIC: Range<usize> = 0..8;
const VERSION: Range<usize> = 8..10;
const CRC: Range<usize> = LOG_BLOCK - 4..LOG_BLOCK;

/// Adds magic, format version and checksum to a block that has everything else.
pub(crate) fn seal(block: &mut [u8; LOG_BLOCK], magic: [u8; 8]) {
    block[MAGIC].copy_from_slice(&magic);
    put(block, VERSION, FORMAT_VERSION);
    let crc = crc32c(&block[..CRC.start]);
    put(block, CRC, crc);
}

/// The block at the start of `bytes`, with its magic, checksum and format version checked.
pub(crate) fn unseal(bytes: &[u8], magic: [u8; 8]) -> Result<&[u8], DecodeError> {
    let block = bytes.get(..LOG_BLOCK).ok_or(DecodeError::Short(LOG_BLOCK))?;
    if block[MAGIC] != magic {
        return Err(DecodeError::Magic);
    }
    if crc32c(&block[..CRC.start]) != get(block, CRC)? {
        return Err(DecodeError::Checksum);
    }
    check_version(get(block, VERSION)?)?;
    Ok(block)
}

/// Checks the format version of a structure.
pub(crate) fn check_version(version: u16) -> Result<(), DecodeError> {
    let known = FORMAT_VERSION_MIN..=FORMAT_VERSION;
    if known.contains(&version) { Ok(()) } else { Err(DecodeError::Version(version)) }
}
