//! Properties of every message. A value has one encoding, in both directions. No prefix and no extension of a
//! message is a message. Any bytes decode to an error or to a value that encodes to the same bytes; decoding
//! never panics.

use braid_wire::control::{ControlReply, ControlRequest};
use braid_wire::data::{DriveReply, DriveRequest, HELLO, Hello};
use braid_wire::frame::{BODY_BYTES_MAX, FrameError, FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use braid_wire::token::Token;
use braid_wire::{DecodeError, Record, Wire};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::schema::{Fields, Pool, concatenate, emit_fields};

/// Decodes a body of any direction and encodes it again.
fn recode(kind: u16, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    macro_rules! recode {
        ($($set:ident),*) => {
            $(if $set::KINDS.iter().any(|&(known, _)| known == kind) {
                let value = $set::from_body(kind, bytes)?;
                let mut out = Vec::new();
                value.put_body(&mut out);
                assert_eq!($set::from_body(kind, &out).as_ref(), Ok(&value), "not itself when decoded again");
                return Ok(out);
            })*
        };
    }
    recode!(DriveRequest, DriveReply, ControlRequest, ControlReply);
    assert_eq!(kind, HELLO, "a kind of some direction");
    Hello::from_bytes(bytes).map(|hello| hello.to_bytes())
}

fn all() -> Vec<(u16, Fields)> {
    let sets = [DriveRequest::BODIES, DriveReply::BODIES, ControlRequest::BODIES, ControlReply::BODIES]
        .into_iter()
        .flatten();
    sets.map(|&(kind, _, fields)| (kind, fields)).chain([(HELLO, Hello::FIELDS)]).collect()
}

/// A message's kind and an encoding of it, from a pool of random bytes.
fn message() -> impl Strategy<Value = (u16, Vec<u8>)> {
    (any::<Index>(), proptest::collection::vec(any::<u8>(), 0..1500)).prop_map(|(index, pool)| {
        let (kind, fields) = *index.get(&all());
        (kind, concatenate(&emit_fields(fields, &mut Pool(&pool))))
    })
}

/// Texts of which some are tokens, and most are nearly.
const TOKEN_LIKE: &str = "(braid1)?\\.?(admin|client|drive|join)?\\.?[0-9a-f]{63,64}\\.[0-9a-f+]{16}\\.[0-9a-fä]{64}\\.?[-0-9+]{0,22}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoding_is_the_inverse_of_encoding((kind, bytes) in message()) {
        prop_assert_eq!(recode(kind, &bytes), Ok(bytes));
    }

    #[test]
    fn a_part_of_a_message_is_none((kind, bytes) in message(), cut in any::<Index>()) {
        if !bytes.is_empty() {
            prop_assert!(recode(kind, &bytes[..cut.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn a_message_and_more_is_none((kind, mut bytes) in message(), more in 1..40usize) {
        bytes.extend(std::iter::repeat_n(0, more));
        prop_assert!(recode(kind, &bytes).is_err());
    }

    #[test]
    fn flipped_bits_are_another_message_or_none((kind, mut bytes) in message(), flips in proptest::collection::vec(any::<Index>(), 1..4)) {
        if !bytes.is_empty() {
            for flip in flips {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if let Ok(again) = recode(kind, &bytes) {
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn random_bytes_are_a_message_or_none(index in any::<Index>(), bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (kind, _) = *index.get(&all());
        if let Ok(again) = recode(kind, &bytes) {
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn a_header_is_itself_again(
        kind: u16, request: u64, body_bytes in 0..=BODY_BYTES_MAX, payload_bytes in 0..=PAYLOAD_BYTES_MAX, body_crc: u32,
        flip in 0..HEADER_BYTES * 8,
    ) {
        let header = FrameHeader { kind, request, body_bytes, payload_bytes, body_crc };
        let mut bytes = header.emit();
        prop_assert_eq!(FrameHeader::parse(&bytes), Ok(header));
        bytes[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(FrameHeader::parse(&bytes).is_err());
    }

    #[test]
    fn a_token_is_itself_again(
        role in any::<Index>(), pin: [u8; 32], id: u64, secret: [u8; 32], expires_s: u64, flip in any::<Index>(),
    ) {
        let role = *role.get(braid_wire::token::TokenRole::ALL);
        let id = braid_layout::TokenId(id);
        let token = Token { role, pin, id, secret: braid_wire::Key::new(secret), expires_s };
        let text = token.to_string();
        prop_assert_eq!(text.parse(), Ok(token.clone()));
        let mut other = text.into_bytes();
        let at = flip.index(other.len());
        other[at] = if other[at] == b'0' { b'1' } else { b'0' };
        if let Ok(other) = String::from_utf8_lossy(&other).parse::<Token>() {
            prop_assert_ne!(other, token);
        }
    }

    #[test]
    fn any_text_is_a_token_or_none(text in TOKEN_LIKE) {
        if let Ok(token) = text.parse::<Token>() {
            prop_assert_eq!(token.to_string(), text.trim());
        }
    }
}

#[test]
fn headers_over_the_bounds_are_refused() {
    for (body_bytes, payload_bytes) in
        [(BODY_BYTES_MAX + 1, 0), (0, PAYLOAD_BYTES_MAX + 1), (u32::MAX, u32::MAX)]
    {
        let header = FrameHeader { kind: 1, request: 1, body_bytes, payload_bytes, body_crc: 0 };
        assert_eq!(
            FrameHeader::parse(&header.emit()),
            Err(FrameError::Oversized { body_bytes, payload_bytes })
        );
    }
}

/// Checks counts that the input could hold, but whose values would take a hundred times the input's memory.
#[test]
fn lists_that_would_take_much_memory_are_refused() {
    let mut options = 65u32.to_le_bytes().to_vec();
    options.extend([0; 65]);
    assert_eq!(Vec::<Option<u128>>::from_bytes(&options), Err(DecodeError::Count { count: 65, left: 65 }));
    let mut lists = 1025u32.to_le_bytes().to_vec();
    lists.extend([0; 4 * 1025]);
    assert_eq!(Vec::<Vec<u8>>::from_bytes(&lists), Err(DecodeError::Count { count: 1025, left: 4100 }));
    let many = u32::MAX.to_le_bytes();
    assert_eq!(Vec::<u64>::from_bytes(&many), Err(DecodeError::Count { count: u32::MAX, left: 0 }));
}
