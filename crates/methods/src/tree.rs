//! `tree`: hashes of blocks, by BLAKE3's tree.
//!
//! BLAKE3 hashes chunks of 1,024 bytes, and joins the hashes of neighbours pairwise. A subtree of a power of
//! two chunks, at a multiple of its length, has a hash of its own (a chaining value). So whoever has some of
//! a file's bytes computes the hashes of the subtrees in them, and these are joined elsewhere: no byte of
//! the file moves. The root is hashed in another way than all below it, so its two children are never joined
//! before the end.

use std::collections::BTreeMap;

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::answer::Answer;
use crate::arguments::{Arguments, ArgumentsError};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, wide};

/// Bytes of a chunk, the leaf of BLAKE3's tree.
pub const CHUNK_BYTES: u32 = 1024;
const CHUNK: u64 = CHUNK_BYTES as u64;
/// Blocks of one answer at most.
const BLOCKS_MAX: u64 = 65_536;
/// Bytes of a chaining value.
const HASH_BYTES: usize = 32;

type Hash = [u8; HASH_BYTES];

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Tree {
    size: u64,
    /// Blocks have two to the power of this many chunks.
    height: u32,
}

/// The subtrees of a file that are known, as large as they can be.
#[derive(Debug)]
pub(crate) struct Nodes {
    size: u64,
    /// Subtrees of this height are not joined any more.
    height_max: u32,
    /// By the first chunk. Each is at a multiple of its length.
    nodes: BTreeMap<u64, Node>,
    /// All bytes of a file of one chunk.
    single: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    height: u32,
    hash: Hash,
}

impl Nodes {
    /// No subtree of a file of `size` bytes; none is to be higher than `height`.
    pub(crate) fn new(size: u64, height: u32) -> Nodes {
        // The root's children: the left one has the greatest power of two below the number of chunks.
        let below_root = size.div_ceil(CHUNK).saturating_sub(1).checked_ilog2().unwrap_or(0);
        Nodes { size, height_max: height.min(below_root), nodes: BTreeMap::new(), single: Vec::new() }
    }

    fn chunks(&self) -> u64 {
        self.size.div_ceil(CHUNK)
    }

    /// Takes whole chunks that begin at byte `offset`, a multiple of a chunk.
    pub(crate) fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        if self.size <= CHUNK {
            self.single = block.to_vec();
            return Ok(());
        }
        let mut at = offset;
        let mut rest = block;
        while !rest.is_empty() {
            let chunk = at / CHUNK;
            // The greatest subtree that begins here and is all in the block; a last, shorter chunk is one.
            let chunks = (wide(rest.len()) / CHUNK).max(1);
            let aligned = if chunk == 0 { u32::MAX } else { chunk.trailing_zeros() };
            let height = aligned.min(chunks.ilog2()).min(self.height_max);
            let bytes = usize::try_from(CHUNK << height).unwrap_or(usize::MAX).min(rest.len());
            let (own, later) = rest.split_at(bytes);
            let mut hasher = blake3::Hasher::new();
            hasher.set_input_offset(at).update(own);
            self.put(chunk, Node { height, hash: hasher.finalize_non_root() })?;
            at += wide(bytes);
            rest = later;
        }
        Ok(())
    }

    /// Adds a subtree, and joins it with its neighbours as far as that goes.
    fn put(&mut self, first: u64, node: Node) -> Result<(), MethodError> {
        let mut first = first;
        let mut node = node;
        while node.height < self.height_max {
            let chunks = 1_u64 << node.height;
            let is_right = first & chunks != 0;
            let beside = if is_right { first - chunks } else { first + chunks };
            match self.nodes.get(&beside) {
                Some(other) if other.height == node.height => {}
                _ => break,
            }
            let other = self.nodes.remove(&beside).expect("it was found");
            let hash = if is_right {
                merge_subtrees_non_root(&other.hash, &node.hash, Mode::Hash)
            } else {
                merge_subtrees_non_root(&node.hash, &other.hash, Mode::Hash)
            };
            first = first.min(beside);
            node = Node { height: node.height + 1, hash };
        }
        match self.nodes.insert(first, node) {
            None => Ok(()),
            Some(_) => Err(MethodError::Partial),
        }
    }

    pub(crate) fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        out.bytes(&self.single);
        for (&first, node) in &self.nodes {
            out.number(first);
            out.number(u64::from(node.height));
            out.0.extend_from_slice(&node.hash);
        }
        out.0
    }

    pub(crate) fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        let single = input.bytes()?;
        if !single.is_empty() {
            self.single = single.to_vec();
        }
        while !input.is_empty() {
            let first = input.number()?;
            let height = input.number()?;
            let hash = *input.take(HASH_BYTES)?.first_chunk().expect("it has this length");
            let height = u32::try_from(height).ok().filter(|height| *height <= self.height_max);
            let height = height.ok_or(MethodError::Partial)?;
            if first >= self.chunks() || first % (1 << height) != 0 {
                return Err(MethodError::Partial);
            }
            self.put(first, Node { height, hash })?;
        }
        Ok(())
    }

    /// The hash of all of the file.
    pub(crate) fn root(&self) -> Result<Hash, MethodError> {
        if self.size <= CHUNK {
            return self.of_single();
        }
        let hashes = self.hashes(0..self.chunks())?;
        let (first, rest) = hashes.split_first().ok_or(MethodError::Incomplete)?;
        Ok(*merge_subtrees_root(first, &join(rest)?, Mode::Hash).as_bytes())
    }

    fn of_single(&self) -> Result<Hash, MethodError> {
        if wide(self.single.len()) != self.size {
            return Err(MethodError::Incomplete);
        }
        Ok(*blake3::hash(&self.single).as_bytes())
    }

    /// The subtrees of these chunks, which they cover without a gap.
    fn hashes(&self, chunks: std::ops::Range<u64>) -> Result<Vec<Hash>, MethodError> {
        let mut next = chunks.start;
        let mut hashes = Vec::new();
        for (&first, node) in self.nodes.range(chunks.clone()) {
            if first != next {
                return Err(MethodError::Incomplete);
            }
            next = first + (1 << node.height);
            hashes.push(node.hash);
        }
        if next < chunks.end.min(self.chunks()) {
            return Err(MethodError::Incomplete);
        }
        Ok(hashes)
    }
}

/// The hash above subtrees of falling heights: those on the right are joined first.
fn join(hashes: &[Hash]) -> Result<Hash, MethodError> {
    let (last, others) = hashes.split_last().ok_or(MethodError::Incomplete)?;
    Ok(others.iter().rev().fold(*last, |right, left| merge_subtrees_non_root(left, &right, Mode::Hash)))
}

impl Tree {
    pub(crate) fn parse(arguments: &Arguments, size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("tree", &["blocks"])?;
        let blocks = arguments.number("blocks", BLOCKS_MAX, 1, BLOCKS_MAX)?;
        let chunks = size.div_ceil(CHUNK).max(1);
        // At least 16 KiB: less is not worth the hash.
        let height = chunks.div_ceil(blocks).next_power_of_two().ilog2().max(4);
        Ok(Box::new(Tree { size, height }))
    }
}

struct Hashing {
    nodes: Nodes,
    height: u32,
}

impl Program for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn records(&self) -> Records {
        Records::Fixed(CHUNK_BYTES)
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Hashing { nodes: Nodes::new(self.size, self.height), height: self.height })
    }
}

impl Running for Hashing {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        self.nodes.feed(offset, block)
    }

    fn partial(&self) -> Vec<u8> {
        self.nodes.partial()
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        self.nodes.absorb(partial)
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        let block_bytes = CHUNK << self.height;
        let nodes = self.nodes;
        if nodes.size <= CHUNK {
            return Ok(Answer::Blocks { block_bytes, digests: vec![nodes.of_single()?] });
        }
        let block = 1_u64 << self.height;
        let blocks = 0..nodes.chunks().div_ceil(block);
        let digest = |number: u64| join(&nodes.hashes(number * block..(number + 1) * block)?);
        Ok(Answer::Blocks { block_bytes, digests: blocks.map(digest).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| u8::try_from(at * 7 % 251).expect("small")).collect()
    }

    #[test]
    fn subtrees_from_anywhere_have_the_root_that_blake3_gives() {
        for size in [0, 1, 1023, 1024, 1025, 2048, 3000, 5 << 10, 8 << 10, (8 << 10) + 1, 100_000, 1 << 20] {
            let content = content(size);
            for step in [1024, 3 * 1024, 16 << 10, 64 << 10] {
                let mut whole = Nodes::new(wide(size), u32::MAX);
                // From the last to the first.
                let mut parts: Vec<usize> = (0..size).step_by(step).collect();
                parts.reverse();
                for at in parts {
                    let mut part = Nodes::new(wide(size), u32::MAX);
                    part.feed(wide(at), &content[at..size.min(at + step)]).expect("it is sound");
                    whole.absorb(&part.partial()).expect("it is sound");
                }
                assert_eq!(whole.root(), Ok(*blake3::hash(&content).as_bytes()), "{size} by {step}");
            }
        }
    }

    #[test]
    fn a_part_that_is_missing_or_comes_twice_is_found_out() {
        let content = content(10_000);
        let mut whole = Nodes::new(10_000, u32::MAX);
        whole.feed(0, &content[..4096]).expect("it is sound");
        assert_eq!(whole.root(), Err(MethodError::Incomplete));
        whole.feed(5120, &content[5120..]).expect("it is sound");
        assert_eq!(whole.root(), Err(MethodError::Incomplete));
        assert_eq!(whole.feed(0, &content[..4096]), Err(MethodError::Partial));
    }
}
