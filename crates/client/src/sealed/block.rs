//! A sealed block: a head of 32 bytes and up to 4064 bytes of the file, by AES-256-GCM.
//!
//! | offset | bytes | name | meaning |
//! |---|---|---|---|
//! | 0 | 2 | shape | 4 bits format (1), 12 bits number of bytes that are sealed (1 to 4064); little-endian |
//! | 2 | 2 | salt | drawn for each write; the block's key follows from the file's and it |
//! | 4 | 12 | nonce | drawn for each write, and one more for each block of it |
//! | 16 | 16 | tag | of the sealed bytes and of what is associated with them |
//! | 32 | up to 4064 | | the sealed bytes; what is behind them in the block counts for nothing |
//!
//! Associated with the bytes are the volume, the file, the block's number (8 bytes each), and the head's
//! first 4. So a block does not open elsewhere. A block of zeros is a hole. As the head tells the length, a
//! block stays what it is where the file grows beyond it.
//!
//! A nonce that is drawn twice under one key would tell both writes' difference, and let tags be forged. Salt
//! and nonce are 112 drawn bits: for n writes of one block each the chance is n^2 / 2^113, so 2^-33 for 2^40
//! blocks, which are 4 PiB written to one file; less for writes of more blocks.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use braid_layout::{FileId, VolumeId};

use crate::error::{Error, Result};
use crate::sealed::geometry::{HEAD_BYTES, PLAIN_BYTES, length};
use crate::sealed::keys::DataKey;

const FORMAT: u16 = 1;
const HEAD: usize = 32;
const NONCE_BYTES: usize = 12;
const _: () = assert!(HEAD as u64 == HEAD_BYTES && PLAIN_BYTES < 1 << 12);

/// The key of one file, from which those of its blocks follow.
pub(crate) struct FileSeals {
    volume: VolumeId,
    file: FileId,
    key: hmac::Key,
}

/// Seals the blocks of one write.
pub(crate) struct Sealer<'a> {
    seals: &'a FileSeals,
    salt: [u8; 2],
    key: LessSafeKey,
    nonce: u128,
}

/// Opens blocks of one file.
pub(crate) struct Opener<'a> {
    seals: &'a FileSeals,
    /// The last key, which the next block of the same write has too.
    key: Option<([u8; 2], LessSafeKey)>,
}

/// The block does not open: it is damaged, of another place, or sealed by another key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotSealed;

impl FileSeals {
    pub(crate) fn new(data_key: &DataKey, volume: VolumeId, file: FileId) -> FileSeals {
        FileSeals { volume, file, key: data_key.of_file(file) }
    }

    pub(crate) fn sealer(&self) -> Result<Sealer<'_>> {
        let mut drawn = [0; 2 + NONCE_BYTES];
        getrandom::fill(&mut drawn).map_err(|error| Error::Answer {
            subject: "this machine's random numbers".to_owned(),
            why: error.to_string(),
        })?;
        let salt = [drawn[0], drawn[1]];
        let mut nonce = [0; 16];
        nonce[..NONCE_BYTES].copy_from_slice(&drawn[2..]);
        Ok(Sealer { seals: self, salt, key: self.block_key(salt), nonce: u128::from_le_bytes(nonce) })
    }

    pub(crate) fn opener(&self) -> Opener<'_> {
        Opener { seals: self, key: None }
    }

    fn block_key(&self, salt: [u8; 2]) -> LessSafeKey {
        let key = hmac::sign(&self.key, &salt);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("an HMAC-SHA256 has 32 bytes"))
    }

    fn associated(&self, block: u64, head: [u8; 4]) -> Aad<[u8; 28]> {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.file.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&block.to_le_bytes());
        bytes[24..].copy_from_slice(&head);
        Aad::from(bytes)
    }
}

impl Sealer<'_> {
    /// Seals 1 to 4064 bytes, and appends head and sealed bytes.
    pub(crate) fn seal(&mut self, block: u64, plain: &[u8], out: &mut Vec<u8>) {
        let bytes = u16::try_from(plain.len()).expect("a block has at most 4064 bytes");
        assert!(bytes > 0 && u64::from(bytes) <= PLAIN_BYTES, "a block of {bytes} bytes");
        let shape = (FORMAT << 12 | bytes).to_le_bytes();
        let head = [shape[0], shape[1], self.salt[0], self.salt[1]];
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&self.nonce.to_le_bytes()[..NONCE_BYTES]);
        self.nonce = self.nonce.wrapping_add(1);
        let begin = out.len();
        out.extend_from_slice(&head);
        out.extend_from_slice(&nonce);
        out.resize(begin + HEAD, 0);
        out.extend_from_slice(plain);
        let associated = self.seals.associated(block, head);
        let sealed = &mut out[begin + HEAD..];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, associated, sealed).expect("it is short");
        out[begin + HEAD - 16..begin + HEAD].copy_from_slice(tag.as_ref());
    }
}

impl Opener<'_> {
    /// Opens a block, stored as these bytes, into `plain` of 4064 bytes: what it holds, and zeros. Returns
    /// how many bytes it holds; 0: it is a hole.
    pub(crate) fn open(
        &mut self,
        block: u64,
        stored: &[u8],
        plain: &mut [u8],
    ) -> std::result::Result<usize, NotSealed> {
        assert_eq!(plain.len(), length(PLAIN_BYTES), "a whole block is opened");
        let head: &[u8; HEAD] = stored.first_chunk().ok_or(NotSealed)?;
        if *head == [0; HEAD] {
            if stored.iter().any(|byte| *byte != 0) {
                return Err(NotSealed);
            }
            plain.fill(0);
            return Ok(0);
        }
        let shape = u16::from_le_bytes([head[0], head[1]]);
        let bytes = usize::from(shape & 0xfff);
        if shape >> 12 != FORMAT || bytes == 0 || bytes > plain.len() {
            return Err(NotSealed);
        }
        let sealed = stored.get(HEAD..HEAD + bytes).ok_or(NotSealed)?;
        let salt = [head[2], head[3]];
        let key = match self.key.take() {
            Some((of, key)) if of == salt => key,
            _ => self.seals.block_key(salt),
        };
        let nonce = Nonce::try_assume_unique_for_key(&head[4..16]).expect("a nonce has 12 bytes");
        let associated = self.seals.associated(block, [head[0], head[1], head[2], head[3]]);
        let opened = key.open_separate_gather(nonce, associated, sealed, &head[16..], &mut plain[..bytes]);
        self.key = Some((salt, key));
        plain[bytes..].fill(0);
        match opened {
            Ok(()) => Ok(bytes),
            Err(_) => {
                plain.fill(0);
                Err(NotSealed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: usize = 4064;

    fn seals(key: u8, volume: u64, file: u64) -> FileSeals {
        FileSeals::new(&DataKey::new([key; 32].into()), VolumeId(volume), FileId(file))
    }

    fn open(seals: &FileSeals, block: u64, stored: &[u8]) -> std::result::Result<Vec<u8>, NotSealed> {
        let mut plain = vec![9; PLAIN];
        let bytes = seals.opener().open(block, stored, &mut plain)?;
        assert!(plain[bytes..].iter().all(|byte| *byte == 0));
        plain.truncate(bytes);
        Ok(plain)
    }

    fn sealed(seals: &FileSeals, block: u64, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        seals.sealer().expect("random numbers").seal(block, plain, &mut out);
        assert_eq!(out.len(), HEAD + plain.len());
        out
    }

    #[test]
    fn what_is_sealed_opens_at_its_place_only() {
        let own = seals(1, 2, 3);
        let text: Vec<u8> = (0..PLAIN).map(|at| u8::try_from(at % 251).expect("small")).collect();
        for length in [1, 100, PLAIN] {
            let stored = sealed(&own, 7, &text[..length]);
            assert_eq!(open(&own, 7, &stored).as_deref(), Ok(&text[..length]));
            // As drives hold it once the file goes on behind it.
            let mut whole = stored.clone();
            whole.resize(4096, 0);
            assert_eq!(open(&own, 7, &whole).as_deref(), Ok(&text[..length]));
            for (seals, block) in
                [(seals(1, 2, 3), 8), (seals(9, 2, 3), 7), (seals(1, 9, 3), 7), (seals(1, 2, 9), 7)]
            {
                assert_eq!(open(&seals, block, &stored), Err(NotSealed));
            }
            assert_eq!(open(&own, 7, &stored[..stored.len() - 1]), Err(NotSealed));
        }
    }

    #[test]
    fn each_flipped_bit_is_found() {
        let own = seals(1, 2, 3);
        let stored = sealed(&own, 0, b"forty bytes or so of text that is sealed");
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&own, 0, &flipped), Err(NotSealed), "bit {bit}");
        }
    }

    #[test]
    fn zeros_are_a_hole_and_other_bytes_without_a_head_are_none() {
        let own = seals(1, 2, 3);
        assert_eq!(open(&own, 0, &[0; 4096]), Ok(Vec::new()));
        let mut stored = vec![0; 4096];
        stored[4095] = 1;
        assert_eq!(open(&own, 0, &stored), Err(NotSealed));
        assert_eq!(open(&own, 0, &[1; 16]), Err(NotSealed));
    }

    #[test]
    fn the_same_bytes_are_sealed_differently_each_time() {
        let own = seals(1, 2, 3);
        let one = sealed(&own, 0, &[0; 100]);
        assert_ne!(one, sealed(&own, 0, &[0; 100]));
        let mut both = Vec::new();
        let mut sealer = own.sealer().expect("random numbers");
        sealer.seal(0, &[0; 100], &mut both);
        sealer.seal(0, &[0; 100], &mut both);
        assert_ne!(both[4..16], both[136..148], "no nonce is used twice");
        assert!(!both.windows(8).any(|some| some == [0; 8]));
    }
}
