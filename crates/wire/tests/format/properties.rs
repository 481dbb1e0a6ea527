//! Properties of every message. A value has one encoding, in both directions. No prefix of a message is a
//! message, unless it lacks only a field that a later version added. What follows the last field is passed
//! over, as of a later version. Any bytes decode to an error or to a value that encodes to the same bytes;
//! decoding never panics.

use braid_layout::VolumeId;
use braid_wire::codec::Added;
use braid_wire::control::{ControlReply, ControlRequest, Methods, MethodsRow, VolumeListReply};
use braid_wire::data::{DriveReply, DriveRequest, HELLO, Hello};
use braid_wire::frame::{
    BODY_BYTES_MAX, FrameError, FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX, WIRE_VERSION,
    WIRE_VERSION_OLDEST,
};
use braid_wire::token::Token;
use braid_wire::{DecodeError, Reason, Record, Refusal, Wire, checksum};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::schema::{Fields, Pool, concatenate, emit_fields};

/// Kinds of a drive's and of a manager's refusal.
const DRIVE_REFUSED: u16 = 0x81ff;
const CONTROL_REFUSED: u16 = 0x82ff;

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

/// Returns true if `again` is what this build knows of `bytes`: their beginning, but for a later version's
/// reason of a refusal, or all of them and a field that an older version does not have.
fn is_of(kind: u16, again: &[u8], bytes: &[u8]) -> bool {
    let is_refusal = matches!(kind, DRIVE_REFUSED | CONTROL_REFUSED);
    if is_refusal && again.first() == Some(&Reason::Newer.number()) {
        return bytes[1..].starts_with(&again[1..]);
    }
    bytes.starts_with(again) || again.starts_with(bytes)
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
            let part = &bytes[..cut.index(bytes.len())];
            // Without a field that a later version added, it is what an older peer sends.
            if let Ok(whole) = recode(kind, part) {
                prop_assert!(whole.starts_with(part) && whole.len() > part.len(), "{:?} {:?}", whole, part);
            }
        }
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over((kind, bytes) in message(), more in 1..40usize) {
        let longer: Vec<u8> = bytes.iter().copied().chain(std::iter::repeat_n(7, more)).collect();
        if kind == HELLO {
            prop_assert_eq!(recode(kind, &longer), Err(DecodeError::Trailing(more)), "no version changes it");
        } else {
            prop_assert_eq!(recode(kind, &longer), Ok(bytes));
        }
    }

    #[test]
    fn flipped_bits_are_another_message_or_none((kind, mut bytes) in message(), flips in proptest::collection::vec(any::<Index>(), 1..4)) {
        if !bytes.is_empty() {
            for flip in flips {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if let Ok(again) = recode(kind, &bytes) {
                prop_assert!(is_of(kind, &again, &bytes), "{:?} {:?}", again, bytes);
            }
        }
    }

    #[test]
    fn random_bytes_are_a_message_or_none(index in any::<Index>(), bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (kind, _) = *index.get(&all());
        if let Ok(again) = recode(kind, &bytes) {
            prop_assert!(is_of(kind, &again, &bytes), "{:?} {:?}", again, bytes);
        }
    }

    #[test]
    fn a_header_is_itself_again(
        kind: u16, request: u64, body_bytes in 0..=BODY_BYTES_MAX, payload_bytes in 0..=PAYLOAD_BYTES_MAX, body_crc: u32,
        flip in 0..HEADER_BYTES * 8,
    ) {
        let header = FrameHeader { version: WIRE_VERSION, kind, request, body_bytes, payload_bytes, body_crc };
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
        let header = FrameHeader { body_bytes, payload_bytes, ..FrameHeader::new(1, 1, &[], 0) };
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

#[test]
fn a_later_version_s_reason_leaves_the_text() {
    let mut bytes = Refusal::new(Reason::Busy, "why").to_bytes();
    bytes[0] = 200;
    assert_eq!(Refusal::from_bytes(&bytes), Ok(Refusal::new(Reason::Newer, "why")));
    bytes[0] = 0;
    assert_eq!(Refusal::from_bytes(&bytes), Err(DecodeError::Value { field: "Reason", value: 0 }));
}

#[test]
fn a_later_version_s_frames_are_read_and_an_older_one_s_are_not() {
    let header = FrameHeader::new(1, 1, &[], 0);
    let of = |version: u16| {
        let mut bytes = header.emit();
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let crc = checksum::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        FrameHeader::parse(&bytes)
    };
    assert_eq!(of(WIRE_VERSION + 1), Ok(FrameHeader { version: WIRE_VERSION + 1, ..header }));
    assert_eq!(of(WIRE_VERSION_OLDEST), Ok(FrameHeader { version: WIRE_VERSION_OLDEST, ..header }));
    let older = WIRE_VERSION_OLDEST - 1;
    assert_eq!(of(older), Err(FrameError::Version(older)));
}

#[test]
fn an_older_peer_leaves_an_added_field_away() {
    let row = MethodsRow { volume: VolumeId(7), methods: Methods::Builtin };
    let list = VolumeListReply { volumes: Vec::new(), methods: Added(vec![row]) };
    let bytes = list.to_bytes();
    assert_eq!(VolumeListReply::from_bytes(&bytes), Ok(list.clone()));
    let older = VolumeListReply::from_bytes(&bytes[..4]).expect("a list of version 3");
    assert_eq!(
        (older.methods_of(VolumeId(7)), list.methods_of(VolumeId(7))),
        (Methods::None, Methods::Builtin)
    );
    // One that is cut inside of the field is damaged.
    assert!(VolumeListReply::from_bytes(&bytes[..6]).is_err());
}
