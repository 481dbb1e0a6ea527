//! Known answers: HMAC-SHA256 by RFC 4231, CRC32C by RFC 3720 and against an independent implementation.

use braid_wire::Key;
use braid_wire::checksum::{BLOCK_BYTES, block_count, block_crcs, block_lengths, crc32c, verify_blocks};
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// Makes a key of an RFC test case. HMAC pads short keys with zeros, so the RFC's keys of up to 32 bytes
/// can be used as they are. HMAC hashes longer keys first, so those are given as their hash.
fn key(bytes: &[u8]) -> Key {
    let mut secret = [0; 32];
    secret[..bytes.len()].copy_from_slice(bytes);
    Key::new(secret)
}

#[test]
fn hmac_rfc_4231() {
    let long_key = {
        use sha2::{Digest, Sha256};
        Sha256::digest([0xaa; 131]).to_vec()
    };
    let cases: [(&[u8], &[u8], &str); 6] = [
        (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b 881dc200c9833da726e9376c2e32cff7"),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c7 5a003f089d2739839dec58b964ec3843",
        ),
        (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a7 2959098b3ef8c122d9635514ced565fe"),
        (
            &hex("0102030405060708090a0b0c0d0e0f10111213141516171819"),
            &[0xcd; 50],
            "82558a389a443c0ea4cc819899f2083a 85f0faa3e578f8077a2e3ff46729665b",
        ),
        (
            &long_key,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f 8e0bc6213728c5140546040f0ee37f54",
        ),
        (
            &long_key,
            b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be \
              hashed before being used by the HMAC algorithm.",
            "9b09ffa71b942fcb27635fbcd5b0e944 bfdc63644f0713938a7f51535c3a35e2",
        ),
    ];
    for (secret, message, expected) in cases {
        assert_eq!(key(secret).hmac(&[message])[..], hex(expected));
        let (head, tail) = message.split_at(message.len() / 2);
        assert_eq!(key(secret).hmac(&[head, &[], tail])[..], hex(expected), "parts are one message");
    }
}

#[test]
fn crc32c_rfc_3720() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    for (bytes, expected) in [
        (vec![0; 32], 0x8a91_36aa),
        (vec![0xff; 32], 0x62a8_ab43),
        (ascending, 0x46dd_794e),
        (descending, 0x113f_db5c),
    ] {
        assert_eq!(crc32c(&bytes), expected);
    }
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(b""), 0);
}

proptest! {
    #[test]
    fn crc32c_is_the_other_crates(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert_eq!(crc32c(&bytes), crc32c::crc32c(&bytes));
    }

    #[test]
    fn blocks_are_cut_at_the_units_multiples(from in 0..3 * BLOCK_BYTES, length in 0..4 * 4096usize, flip: usize) {
        let bytes: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).expect("below 256")).collect();
        let to = from + u32::try_from(length).expect("small");
        let crcs = block_crcs(from, &bytes);
        prop_assert_eq!(crcs.len(), block_count(from, to));
        prop_assert_eq!(block_lengths(from, to).sum::<usize>(), length);
        prop_assert_eq!(verify_blocks(from, &bytes, &crcs), Ok(()));
        let mut at = from;
        let mut starts = Vec::new();
        for bytes in block_lengths(from, to) {
            starts.push(at);
            at += u32::try_from(bytes).expect("small");
            prop_assert!(at == to || at % BLOCK_BYTES == 0);
        }
        if length > 0 {
            let mut bytes = bytes;
            let flip = flip % length;
            bytes[flip] ^= 0x10;
            let position = from + u32::try_from(flip).expect("small");
            let first = starts.iter().copied().filter(|&start| start <= position).max();
            prop_assert_eq!(verify_blocks(from, &bytes, &crcs).err(), first);
            prop_assert!(verify_blocks(from, &bytes, &crcs[1..]).is_err());
        }
    }
}
