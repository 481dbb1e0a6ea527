//! Numbers of volumes, files and objects, never used twice.
//!
//! A state that is put back from an older copy does not know which numbers were given since. If it only
//! counted, it would give them again, and a new file would find another's bytes. So numbers come in blocks:
//! the upper 39 bits are random and drawn anew at every start, the lower 24 count. The highest bit stays
//! zero, for readers that keep numbers signed.

use crate::records::kv::KvError;
use crate::records::schema::key;
use crate::records::tx::Tx;

/// Bits of a number that count within a block. When they are used up, the next block is drawn.
const COUNT_BITS: u32 = 24;
/// Random bits of a block.
const BLOCK_BITS: u32 = 39;

impl Tx {
    /// Returns a number never given before, for a volume, a file or an object. It is never zero.
    pub fn next_number(&mut self) -> Result<u64, KvError> {
        let next = match self.number("next")? {
            // There is no block yet, or it is used up.
            last if last == 0 || (last + 1) % (1 << COUNT_BITS) == 0 => draw_block(self)? + 1,
            last => last + 1,
        };
        self.set(key::meta("next"), &next);
        Ok(next)
    }

    /// Draws a new block. Called at every start, as the state may be an older copy.
    pub fn begin_block(&mut self) -> Result<(), KvError> {
        let before = draw_block(self)?;
        self.set(key::meta("next"), &before);
        Ok(())
    }
}

/// Draws a block that this state has never drawn, and returns the number before its first.
fn draw_block(tx: &mut Tx) -> Result<u64, KvError> {
    loop {
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("the system gives random bytes");
        let block = u64::from_le_bytes(random) >> (u64::BITS - BLOCK_BITS);
        let row = key::block(block);
        if block > 0 && tx.get(&row)?.is_none() {
            tx.mark(row);
            return Ok(block << COUNT_BITS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;

    fn give(db: &Db, count: usize) -> Vec<u64> {
        db.write(|tx| Ok((0..count).map(|_| tx.next_number()).collect::<Result<_, _>>()?)).unwrap()
    }

    fn start(kv: &MemoryKv) -> Db {
        let db = Db::new(Arc::new(kv.clone()));
        db.write(|tx| Ok(tx.begin_block()?)).unwrap();
        db
    }

    #[test]
    fn a_state_put_back_gives_other_numbers_than_the_one_that_it_is_a_copy_of() {
        let kv = MemoryKv::new();
        let before = give(&start(&kv), 3);
        let copy = kv.restarted();
        let later = give(&start(&kv), 100);
        let after = give(&start(&copy), 100);
        let all: BTreeSet<u64> = before.iter().chain(&later).chain(&after).copied().collect();
        assert_eq!(all.len(), 203);
        assert!(all.iter().all(|&number| number > 0 && number <= u64::MAX >> 1));
    }

    #[test]
    fn numbers_of_a_block_follow_each_other_and_the_next_block_is_another() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let first = give(&db, 2);
        assert_eq!(first[1], first[0] + 1);
        let last = first[0] | ((1 << COUNT_BITS) - 1);
        db.write(|tx| {
            tx.set(key::meta("next"), &(last - 1));
            Ok(())
        })
        .unwrap();
        let across = give(&db, 2);
        assert_eq!(across[0], last);
        assert_ne!(across[1] >> COUNT_BITS, across[0] >> COUNT_BITS);
    }
}
