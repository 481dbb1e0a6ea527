//! `checksum`: a hash of all bytes of a file.
//!
//! BLAKE3 is a tree of hashes, so pieces are hashed wherever they are, all at once ([`crate::tree`]). SHA-256
//! goes from the first byte to the last: its state, 32 bytes, is handed from one piece to the next.

use sha2::block_api::compress256;

use crate::answer::Answer;
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Order, Program, Running};
use crate::records::{Records, wide};
use crate::tree::{CHUNK_BYTES, Nodes};

/// Bytes that SHA-256 takes at a time.
const BLOCK_BYTES: usize = 64;
/// The state with which SHA-256 begins (FIPS 180-4, section 5.3.3).
const BEGINNING: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Checksum {
    size: u64,
    is_sha256: bool,
}

impl Checksum {
    pub(crate) fn parse(arguments: &Arguments, size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("checksum", &["algorithm"])?;
        let is_sha256 = match arguments.get("algorithm") {
            None | Some("blake3") => false,
            Some("sha256") => true,
            Some(value) => return Err(wrong("algorithm", value, "give blake3 or sha256")),
        };
        Ok(Box::new(Checksum { size, is_sha256 }))
    }
}

impl Program for Checksum {
    fn name(&self) -> &'static str {
        "checksum"
    }

    fn records(&self) -> Records {
        Records::Fixed(if self.is_sha256 { 64 } else { CHUNK_BYTES })
    }

    fn order(&self) -> Order {
        if self.is_sha256 { Order::Sequential } else { Order::Any }
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        if self.is_sha256 {
            let size = self.size;
            return Box::new(Sha256 { size, state: BEGINNING, taken: 0, rest: Vec::new() });
        }
        Box::new(Blake3(Nodes::new(self.size, u32::MAX)))
    }
}

struct Blake3(Nodes);

impl Running for Blake3 {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        self.0.feed(offset, block)
    }

    fn partial(&self) -> Vec<u8> {
        self.0.partial()
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        self.0.absorb(partial)
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        Ok(Answer::Digest { algorithm: "blake3", digest: self.0.root()? })
    }
}

/// SHA-256 of the first `taken` bytes, a multiple of 64 until the last.
struct Sha256 {
    size: u64,
    state: [u32; 8],
    taken: u64,
    /// Last bytes of the file, fewer than a block.
    rest: Vec<u8>,
}

impl Running for Sha256 {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        if offset != self.taken || !self.rest.is_empty() {
            return Err(MethodError::Incomplete);
        }
        let (blocks, rest) = block.as_chunks::<BLOCK_BYTES>();
        compress256(&mut self.state, blocks);
        self.taken += wide(block.len());
        self.rest = rest.to_vec();
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        out.number(self.taken);
        self.state.iter().for_each(|word| out.0.extend_from_slice(&word.to_be_bytes()));
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        let taken = input.number()?;
        if taken < self.taken || taken > self.size {
            return Err(MethodError::Partial);
        }
        for word in &mut self.state {
            *word = u32::from_be_bytes(*input.take(4)?.first_chunk().expect("it has this length"));
        }
        self.taken = taken;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        if self.taken != self.size {
            return Err(MethodError::Incomplete);
        }
        // A one, zeros, and the length in bits.
        let mut last = self.rest;
        last.push(0x80);
        while last.len() % BLOCK_BYTES != BLOCK_BYTES - 8 {
            last.push(0);
        }
        last.extend_from_slice(&self.size.wrapping_mul(8).to_be_bytes());
        let mut state = self.state;
        compress256(&mut state, last.as_chunks::<BLOCK_BYTES>().0);
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *bytes = word.to_be_bytes();
        }
        Ok(Answer::Digest { algorithm: "sha256", digest })
    }
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    #[test]
    fn a_state_that_is_handed_on_gives_the_hash_of_all() {
        for size in [0_usize, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 4096] {
            let content: Vec<u8> = (0..size).map(|at| u8::try_from(at % 256).expect("a byte")).collect();
            let program = Checksum { size: wide(size), is_sha256: true };
            let mut state = program.begin().partial();
            let mut last = program.begin();
            for at in (0..size).step_by(128) {
                let mut running = program.begin();
                running.absorb(&state).expect("it is sound");
                running.feed(wide(at), &content[at..size.min(at + 128)]).expect("it is next");
                state = running.partial();
                last = running;
            }
            let digest = sha2::Sha256::digest(&content).into();
            let expected = Answer::Digest { algorithm: "sha256", digest };
            assert_eq!(last.finish(), Ok(expected), "{size}");
        }
    }

    #[test]
    fn bytes_out_of_order_are_refused() {
        let program = Checksum { size: 128, is_sha256: true };
        let mut running = program.begin();
        assert_eq!(running.feed(64, &[0; 64]), Err(MethodError::Incomplete));
        assert_eq!(running.finish(), Err(MethodError::Incomplete));
    }
}
