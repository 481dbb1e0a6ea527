//! Pieces of files that several streams play at about the same time: each is read once.
//!
//! Who comes first for a piece reads it; others who come meanwhile wait for that. If the first one fails or
//! gives up, the next reads. The pieces that were asked for last stay, up to a number of bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

/// A piece: number of its file, and its index there.
pub(crate) type Key = (u64, u64);

type Cell = Arc<OnceCell<Arc<Vec<u8>>>>;

/// The pieces that are there or being read.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: HashMap<Key, Entry>,
    /// Keys, by the time of their last use.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: u64,
    hits: u64,
}

#[derive(Debug)]
struct Entry {
    cell: Cell,
    bytes: u64,
    used: u64,
}

impl Pieces {
    /// Keeps this many bytes at most.
    pub(crate) fn new(bytes_max: u64) -> Pieces {
        Pieces { bytes_max, kept: Mutex::default() }
    }

    /// The piece of this many bytes, which `read` brings if nobody has it.
    pub(crate) async fn get<E>(
        &self,
        key: Key,
        bytes: u64,
        read: impl Future<Output = Result<Vec<u8>, E>>,
    ) -> Result<Arc<Vec<u8>>, E> {
        let cell = self.kept().cell(key, bytes, self.bytes_max);
        cell.get_or_try_init(|| async { read.await.map(Arc::new) }).await.map(Arc::clone)
    }

    /// Number of pieces that were there, or on their way, when they were asked for.
    pub(crate) fn hits(&self) -> u64 {
        self.kept().hits
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn cell(&mut self, key: Key, bytes: u64, bytes_max: u64) -> Cell {
        self.uses += 1;
        if let Some(entry) = self.by_key.get_mut(&key) {
            self.hits += 1;
            self.by_use.remove(&entry.used);
            entry.used = self.uses;
            self.by_use.insert(self.uses, key);
            return Arc::clone(&entry.cell);
        }
        let cell = Cell::default();
        if bytes <= bytes_max {
            self.make_room(bytes_max - bytes);
            self.bytes += bytes;
            self.by_use.insert(self.uses, key);
            self.by_key.insert(key, Entry { cell: Arc::clone(&cell), bytes, used: self.uses });
        }
        cell
    }

    /// Drops what was used longest ago, until no more than this is left. Who waits for a piece gets it.
    fn make_room(&mut self, bytes: u64) {
        while self.bytes > bytes {
            let Some((_, key)) = self.by_use.pop_first() else { return };
            self.bytes -= self.by_key.remove(&key).map_or(0, |entry| entry.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Notify;

    use super::*;

    async fn read(count: &AtomicU64, byte: u8) -> Result<Vec<u8>, ()> {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(vec![byte; 10])
    }

    #[tokio::test]
    async fn who_comes_meanwhile_waits_for_the_same_read() {
        let pieces = Pieces::new(100);
        let count = AtomicU64::new(0);
        let go = Notify::new();
        let slow = async {
            go.notified().await;
            read(&count, 7).await
        };
        let both = tokio::join!(pieces.get((1, 0), 10, slow), async {
            go.notify_one();
            pieces.get((1, 0), 10, read(&count, 8)).await
        });
        assert_eq!((both.0.unwrap()[0], both.1.unwrap()[0]), (7, 7));
        assert_eq!((count.into_inner(), pieces.hits()), (1, 1));
    }

    #[tokio::test]
    async fn a_read_that_failed_is_tried_by_the_next() {
        let pieces = Pieces::new(100);
        let count = AtomicU64::new(0);
        assert_eq!(pieces.get((1, 0), 10, async { Err("away") }).await, Err("away"));
        assert_eq!(*pieces.get((1, 0), 10, read(&count, 3)).await.unwrap(), [3; 10]);
        assert_eq!(*pieces.get((1, 0), 10, read(&count, 4)).await.unwrap(), [3; 10]);
        assert_eq!(count.into_inner(), 1);
    }

    #[tokio::test]
    async fn what_was_used_longest_ago_makes_room() {
        let pieces = Pieces::new(30);
        let count = AtomicU64::new(0);
        for index in [0, 1, 2, 0, 3, 0, 1] {
            pieces.get((1, index), 10, read(&count, 0)).await.unwrap();
            assert!(pieces.kept().bytes <= 30);
        }
        // 1 had to go for 3, and 2 for the second 1.
        assert_eq!((count.into_inner(), pieces.hits()), (5, 2));
        let kept = pieces.kept();
        assert_eq!(kept.by_key.len(), kept.by_use.len());
    }

    #[tokio::test]
    async fn a_piece_larger_than_all_is_not_kept() {
        let pieces = Pieces::new(5);
        let count = AtomicU64::new(0);
        for _ in 0..2 {
            pieces.get((1, 0), 10, read(&count, 0)).await.unwrap();
        }
        assert_eq!((count.into_inner(), pieces.kept().bytes), (2, 0));
    }
}
