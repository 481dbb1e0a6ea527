//! The field codec: fixed-width little-endian fields one after another, lists with a 32-bit count, no
//! padding, no derived encodings.
//!
//! Three macros declare messages, each the only table of its format: `record!` (a struct, fields in order),
//! `choice!` (a closed set of numbered values) and `message_set!` (the messages of one direction, numbered).
//! Decoding never allocates more than the input could hold, and refuses trailing bytes; but a message's body
//! may have fields of a later version after those that this build knows
//! ([`message_set!`](crate::message_set)).

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, EndBound, FileId, Generation, HolderId, LockSession,
    ObjectId, OperationNumber, PartitionId, ReservationId, TokenId, Version, VolumeId, version::Lease,
};

/// The reason why bytes are not the message they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ended inside a field.
    #[error("message ends inside {field}: {needed} more bytes needed")]
    Truncated {
        /// The field's type.
        field: &'static str,
        /// Number of bytes missing.
        needed: usize,
    },
    /// Bytes follow the last field.
    #[error("{0} bytes follow the message's last field")]
    Trailing(usize),
    /// The count of a list is more than the rest of the input could hold, or past the field's bound.
    #[error("list of {count} entries does not fit the {left} bytes left")]
    Count {
        /// Number of entries that the list claims.
        count: u32,
        /// Bytes left in the input.
        left: usize,
    },
    /// A number that has no meaning in this field.
    #[error("{value} is not a value of {field}")]
    Value {
        /// The field's type.
        field: &'static str,
        /// The number found.
        value: u64,
    },
    /// The message's kind is not known in this direction.
    #[error("message kind {0:#06x} is not known here")]
    Kind(u16),
    /// A text is not valid UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// The parts of a layout contradict each other.
    #[error("layout: {0}")]
    Layout(String),
}

/// Maximum number of segments of a layout in a message.
pub const SEGMENTS_MAX: usize = 1024;

/// A value with exactly one encoding.
pub trait Wire: Sized {
    /// Minimum length of an encoding, in bytes; bounds the count that a list may claim.
    const BYTES_MIN: usize;

    /// Maximum number of entries in a list of such values. Values that take far more memory than encoded
    /// bytes need a bound of their own; for all others the bound on the body is enough.
    const LIST_MAX: usize = usize::MAX;

    /// Appends the value's encoding to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes a value from the front of `input` and advances `input` past it.
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError>;

    /// Appends the encodings of several values, one after another.
    fn put_all(many: &[Self], out: &mut Vec<u8>) {
        many.iter().for_each(|one| one.put(out));
    }

    /// Decodes `count` values from the front of `input`, which has at least [`Wire::BYTES_MIN`] bytes for
    /// each.
    fn take_all(input: &mut &[u8], count: usize) -> Result<Vec<Self>, DecodeError> {
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(Self::take(input)?);
        }
        Ok(list)
    }

    /// The encoding of this value alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES_MIN);
        self.put(&mut out);
        out
    }

    /// Decodes the whole of `input`; trailing bytes are an error.
    fn from_bytes(mut input: &[u8]) -> Result<Self, DecodeError> {
        let value = Self::take(&mut input)?;
        if input.is_empty() { Ok(value) } else { Err(DecodeError::Trailing(input.len())) }
    }
}

/// A [`Wire`] struct whose encoding is its fields in order, each with its name and type.
/// `docs/format-wire.md` is checked against these.
pub trait Record: Wire {
    /// The name of the struct.
    const NAME: &'static str;
    /// The name and type of each field, in the order of the encoding.
    const FIELDS: &'static [(&'static str, &'static str)];
}

/// Takes `N` bytes off the front of `input`.
fn array<const N: usize>(input: &mut &[u8], field: &'static str) -> Result<[u8; N], DecodeError> {
    match input.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *input = rest;
            Ok(*head)
        }
        None => Err(DecodeError::Truncated { field, needed: N - input.len() }),
    }
}

macro_rules! wire_integer {
    ($($int:ty),*) => {$(
        impl Wire for $int {
            const BYTES_MIN: usize = size_of::<$int>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
                array(input, stringify!($int)).map(<$int>::from_le_bytes)
            }
        }
    )*};
}
wire_integer!(u16, u32, u64, u128, i64);

impl Wire for u8 {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        array(input, "u8").map(|[byte]: [u8; 1]| byte)
    }
    fn put_all(many: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(many);
    }
    fn take_all(input: &mut &[u8], count: usize) -> Result<Vec<u8>, DecodeError> {
        let truncated = DecodeError::Truncated { field: "u8", needed: count.saturating_sub(input.len()) };
        let (bytes, rest) = input.split_at_checked(count).ok_or(truncated)?;
        *input = rest;
        Ok(bytes.to_vec())
    }
}

macro_rules! wire_newtype {
    ($($name:ident($int:ty)),* $(,)?) => {$(
        impl Wire for $name {
            const BYTES_MIN: usize = size_of::<$int>();
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
                <$int>::take(input).map($name)
            }
        }
    )*};
}
wire_newtype!(
    ClusterId(u128),
    DriveId(u128),
    VolumeId(u64),
    PartitionId(u64),
    FileId(u64),
    ObjectId(u64),
    ClientId(u64),
    HolderId(u64),
    LockSession(u64),
    OperationNumber(u64),
    ReservationId(u64),
    TokenId(u64),
    Generation(u32),
    Lease(u32),
    Column(u8),
    ColumnMask(u64),
);

impl Wire for Version {
    const BYTES_MIN: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        self.g.put(out);
        self.lease.put(out);
        self.n.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Version { g: Wire::take(input)?, lease: Wire::take(input)?, n: Wire::take(input)? })
    }
}

impl Wire for EndBound {
    const BYTES_MIN: usize = 8;
    fn put(&self, out: &mut Vec<u8>) {
        self.least.put(out);
        self.most.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(EndBound { least: Wire::take(input)?, most: Wire::take(input)? })
    }
}

impl Wire for bool {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Value { field: "bool", value: u64::from(other) }),
        }
    }
}

impl<const N: usize> Wire for [u8; N] {
    const BYTES_MIN: usize = N;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        array(input, "bytes")
    }
}

impl<T: Wire> Wire for Vec<T> {
    const BYTES_MIN: usize = 4;
    /// Lists of lists are per segment, and a layout has no more segments than this.
    const LIST_MAX: usize = SEGMENTS_MAX;
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("lists are bounded by the body's size").put(out);
        T::put_all(self, out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let count = u32::take(input)?;
        let entries = usize::try_from(count).unwrap_or(usize::MAX);
        if entries > T::LIST_MAX || entries.saturating_mul(T::BYTES_MIN.max(1)) > input.len() {
            return Err(DecodeError::Count { count, left: input.len() });
        }
        T::take_all(input, entries)
    }
}

impl<T: Wire> Wire for Option<T> {
    const BYTES_MIN: usize = 1;
    /// Lists of options are per column.
    const LIST_MAX: usize = 64;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        if bool::take(input)? { T::take(input).map(Some) } else { Ok(None) }
    }
}

impl Wire for String {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("texts are bounded by the body's size").put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        String::from_utf8(Vec::take(input)?).map_err(|_| DecodeError::Text)
    }
}

/// A last field that a message's body got in a later version. An older peer's body ends before it: then it
/// has its type's default, whose meaning the message's table states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added<T>(pub T);

impl<T: Wire + Default> Wire for Added<T> {
    const BYTES_MIN: usize = 0;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        if input.is_empty() { Ok(Added::default()) } else { T::take(input).map(Added) }
    }
}

impl Wire for () {
    const BYTES_MIN: usize = 0;
    fn put(&self, _: &mut Vec<u8>) {}
    fn take(_: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Declares a struct whose encoding is its fields in order.
#[macro_export]
macro_rules! record {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* pub $field: $type),* }

        impl $crate::codec::Wire for $name {
            const BYTES_MIN: usize = 0 $(+ <$type as $crate::codec::Wire>::BYTES_MIN)*;
            fn put(&self, out: &mut Vec<u8>) {
                let _ = &out; // a record may be empty
                $($crate::codec::Wire::put(&self.$field, out);)*
            }
            fn take(input: &mut &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &input; // a record may be empty
                Ok($name { $($field: <$type as $crate::codec::Wire>::take(input)?),* })
            }
        }

        impl $crate::codec::Record for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [(&'static str, &'static str)] = &[$((stringify!($field), stringify!($type))),*];
        }
    };
}

/// Declares a closed set of numbered values, one byte each. After `else` comes the value that numbers of
/// later versions are decoded as; without it they are an error.
#[macro_export]
macro_rules! choice {
    ($(#[$doc:meta])* $vis:vis enum $name:ident $(else $later:ident)? {
        $($(#[$value_doc:meta])* $value:ident = $number:literal),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        $vis enum $name { $($(#[$value_doc])* $value = $number),* }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$value),*];

            /// The value's number in the format.
            pub const fn number(self) -> u8 {
                match self { $($name::$value => $number),* }
            }

            /// The value's name in the documents.
            pub const fn name(self) -> &'static str {
                match self { $($name::$value => stringify!($value)),* }
            }
        }

        impl $crate::codec::Wire for $name {
            const BYTES_MIN: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                out.push(self.number());
            }
            fn take(input: &mut &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                match u8::take(input)? {
                    $($number => Ok($name::$value),)*
                    $(1.. => Ok($name::$later),)?
                    other => Err($crate::codec::DecodeError::Value { field: stringify!($name), value: u64::from(other) }),
                }
            }
        }
    };
}

/// Declares the messages of one direction: an enum over their bodies, each with its kind number.
#[macro_export]
macro_rules! message_set {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$value_doc:meta])* $value:ident($body:ty) = $number:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis enum $name { $($(#[$value_doc])* $value($body)),* }

        impl $name {
            /// Every kind number of this direction with its name.
            pub const KINDS: &'static [(u16, &'static str)] = &[$(($number, stringify!($value))),*];

            /// Every kind number of this direction with its body's name and fields.
            pub const BODIES: &'static [(u16, &'static str, &'static [(&'static str, &'static str)])] =
                &[$(($number, <$body as $crate::codec::Record>::NAME, <$body as $crate::codec::Record>::FIELDS)),*];

            /// The message's kind number, as in the frame's header.
            pub fn kind(&self) -> u16 {
                match self { $($name::$value(_) => $number),* }
            }

            /// The message's name, for logs and error texts.
            pub fn name(&self) -> &'static str {
                match self { $($name::$value(_) => stringify!($value)),* }
            }

            /// Appends the body's encoding.
            pub fn put_body(&self, out: &mut Vec<u8>) {
                match self { $($name::$value(body) => $crate::codec::Wire::put(body, out)),* }
            }

            /// Decodes a body of the given kind. What follows its last field is of a later version, and
            /// passed over: its sender has seen this build's version, and adds nothing that must be heeded.
            pub fn from_body(kind: u16, mut body: &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                match kind {
                    $($number => <$body as $crate::codec::Wire>::take(&mut body).map($name::$value),)*
                    other => Err($crate::codec::DecodeError::Kind(other)),
                }
            }
        }

        $(impl From<$body> for $name {
            fn from(body: $body) -> Self {
                $name::$value(body)
            }
        })*
    };
}
