//! Base64 (RFC 4648, section 4): the form in which a key command is given keys, and answers.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text, padded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            // A chunk of n bytes makes n + 1 digits.
            let digit = usize::try_from(bits >> shift & 63).expect("six bits");
            text.push(if index <= chunk.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

/// The bytes of a text, padded or not; `None` if it is none. Two texts of the same length have different
/// bytes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for digit in chunk {
            let value = ALPHABET.iter().position(|known| known == digit)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        bits <<= 6 * (4 - chunk.len());
        let bits = bits.to_be_bytes();
        bytes.extend_from_slice(&bits[1..chunk.len()]);
        if bits[chunk.len()..].iter().any(|rest| *rest != 0) {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decode(text.trim_end_matches('=')).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode(&encode(&[0xff, 0xfb, 0xf0])).as_deref(), Some(&[0xff, 0xfb, 0xf0][..]));
        for wrong in ["Z", "Zm9v!", "Zg===", "Zm 9", "Zh==", "Zm9="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
