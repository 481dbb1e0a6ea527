//! Pieces of a file that are read before a reader in order asks for them.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::PIECE_BYTES;
use crate::error::Result;

/// Pieces that are on their way or here at most.
const PIECES_MAX: usize = 4;
/// Reads that follow one another before anything is read ahead of the next: a program that reads a header
/// and jumps is none that reads in order.
const IN_ORDER_MIN: u32 = 2;

/// The pieces read ahead of one reader. A read that does not go on where the last one ended drops it.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// Offset at which the last read ended.
    next: u64,
    /// Number of reads that followed one another.
    in_order: u32,
    /// The pieces from `next` on, without gaps.
    pieces: VecDeque<Piece>,
    /// The tasks that fetch pieces. One ends early when its piece is dropped.
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    /// Bytes that were asked for; fewer come at the end of the file.
    length: usize,
    asked: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    OnItsWay(oneshot::Receiver<Result<Vec<u8>>>),
    Here(Vec<u8>),
}

impl ReadAhead {
    /// Age of bytes that were read ahead, beyond which they are read anew: others may have written since.
    pub const AGE_MAX: Duration = Duration::from_secs(1);

    /// Reads what was read ahead into `buffer`, and has the next pieces fetched. `None`: the caller is to
    /// read by itself, since the reads are not in order, or so long that there is nothing to gain. In both
    /// cases it then tells [`ReadAhead::reached`]. `fetch` reads bytes from an offset, fewer only at the end
    /// of the file; it runs in tasks of its own.
    pub async fn read<F, R>(&mut self, fetch: F, buffer: &mut [u8], offset: u64) -> Option<usize>
    where
        F: Fn(u64, usize) -> R,
        R: Future<Output = Result<Vec<u8>>> + Send + 'static,
    {
        if offset != self.next {
            self.forget();
        }
        // Until it is told how far this read came: it may be given up midway.
        self.next = u64::MAX;
        if buffer.len() >= PIECE_BYTES || self.in_order < IN_ORDER_MIN {
            self.pieces.clear();
            return None;
        }
        if self.pieces.front().is_some_and(|piece| piece.asked.elapsed() > Self::AGE_MAX) {
            self.pieces.clear();
        }
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + u64::try_from(filled).expect("a buffer is below 2^64 bytes");
            self.fill_up(&fetch, at);
            let Some(piece) = self.pieces.front_mut() else { break };
            let is_last = {
                let from = usize::try_from(at - piece.offset).expect("it is in the piece");
                let length = piece.length;
                let bytes = match piece.bytes().await {
                    Ok(bytes) => bytes,
                    // Perhaps not in the bytes that are wanted: the caller reads these by itself.
                    Err(error) => {
                        tracing::debug!(%error, "bytes could not be read ahead");
                        self.forget();
                        break;
                    }
                };
                let rest = bytes.get(from..).unwrap_or_default();
                let count = rest.len().min(buffer.len() - filled);
                buffer[filled..filled + count].copy_from_slice(&rest[..count]);
                filled += count;
                if count < rest.len() {
                    break;
                }
                bytes.len() < length
            };
            self.pieces.pop_front();
            if is_last {
                // Others may make the file longer: its end is looked for anew.
                self.pieces.clear();
                break;
            }
        }
        (filled > 0).then_some(filled)
    }

    /// Has pieces fetched that are not, from `at` on.
    fn fill_up<F, R>(&mut self, fetch: &F, at: u64)
    where
        F: Fn(u64, usize) -> R,
        R: Future<Output = Result<Vec<u8>>> + Send + 'static,
    {
        while self.pieces.len() < PIECES_MAX {
            let last = self.pieces.back();
            let offset = last.map_or(at, |last| last.offset + u64::try_from(last.length).expect("a piece"));
            // Pieces end at multiples of their length, as stripes do.
            let piece = u64::try_from(PIECE_BYTES).expect("it is small");
            let length = usize::try_from(piece - offset % piece).expect("at most a piece");
            while self.tasks.try_join_next().is_some() {}
            let (mut told, fetched) = oneshot::channel();
            let fetching = fetch(offset, length);
            self.tasks.spawn(async move {
                tokio::select! {
                    bytes = fetching => drop(told.send(bytes)),
                    () = told.closed() => {}
                }
            });
            let asked = Instant::now();
            self.pieces.push_back(Piece { offset, length, asked, state: State::OnItsWay(fetched) });
        }
    }

    /// Records that the last read ended there.
    pub fn reached(&mut self, offset: u64) {
        self.in_order = self.in_order.saturating_add(1);
        self.next = offset;
    }

    /// Drops what was read ahead.
    pub fn forget(&mut self) {
        self.pieces.clear();
        self.in_order = 0;
    }

    /// Drops what was read ahead, and waits until nothing is on its way any more.
    pub(super) async fn end(&mut self) {
        self.pieces.clear();
        self.tasks.shutdown().await;
    }
}

impl Piece {
    async fn bytes(&mut self) -> Result<&[u8]> {
        if let State::OnItsWay(fetched) = &mut self.state {
            // The sender is dropped untold only if the task panicked or the runtime ends.
            let bytes = fetched.await.unwrap_or_else(|_| Ok(Vec::new()))?;
            self.state = State::Here(bytes);
        }
        match &self.state {
            State::Here(bytes) => Ok(bytes),
            State::OnItsWay(_) => unreachable!("it was waited for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    /// A file of this many bytes; each is its offset.
    struct Fake {
        bytes: usize,
        fetched: Arc<AtomicUsize>,
    }

    fn byte(offset: u64) -> u8 {
        u8::try_from(offset % 251).expect("small")
    }

    impl Fake {
        fn fetch(&self, offset: u64, length: usize) -> impl Future<Output = Result<Vec<u8>>> + 'static {
            self.fetched.fetch_add(1, Ordering::Relaxed);
            let end = (usize::try_from(offset).expect("small") + length).min(self.bytes);
            async move { Ok((offset..u64::try_from(end).expect("small")).map(byte).collect()) }
        }

        /// Reads as [`super::super::Sequential`] does. Returns the bytes read, and whether they were ahead.
        async fn read(&self, ahead: &mut ReadAhead, offset: u64, length: usize) -> (usize, bool) {
            let mut buffer = vec![0; length];
            let read = ahead.read(|at, length| self.fetch(at, length), &mut buffer, offset).await;
            let count =
                read.unwrap_or_else(|| length.min(self.bytes - usize::try_from(offset).expect("small")));
            if read.is_some() {
                let all = (offset..).zip(&buffer[..count]);
                assert!(all.into_iter().all(|(at, found)| *found == byte(at)), "from {offset}");
            }
            ahead.reached(offset + u64::try_from(count).expect("small"));
            (count, read.is_some())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_in_order_finds_all_bytes_ahead_after_its_first_reads() {
        let file = Fake { bytes: 9 << 20, fetched: Arc::default() };
        let mut ahead = ReadAhead::default();
        let mut at = 0;
        let mut by_itself = 0;
        while at < 9 << 20 {
            let (count, was_ahead) = file.read(&mut ahead, at, 60_000).await;
            by_itself += usize::from(!was_ahead);
            at += u64::try_from(count).expect("small");
        }
        assert_eq!((by_itself, at), (2, 9 << 20));
        // One for each piece, the last of which is beyond the end.
        assert!(file.fetched.load(Ordering::Relaxed) <= 5 + PIECES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_ahead_long_ago_is_read_anew() {
        let file = Fake { bytes: 9 << 20, fetched: Arc::default() };
        let mut ahead = ReadAhead::default();
        for at in 0..3 {
            file.read(&mut ahead, at * 1000, 1000).await;
        }
        assert_eq!(file.fetched.load(Ordering::Relaxed), PIECES_MAX);
        tokio::time::advance(ReadAhead::AGE_MAX / 2).await;
        file.read(&mut ahead, 3000, 1000).await;
        assert_eq!(file.fetched.load(Ordering::Relaxed), PIECES_MAX);
        tokio::time::advance(ReadAhead::AGE_MAX).await;
        assert!(file.read(&mut ahead, 4000, 1000).await.1);
        assert_eq!(file.fetched.load(Ordering::Relaxed), 2 * PIECES_MAX);
    }

    #[tokio::test]
    async fn random_and_long_reads_have_nothing_fetched() {
        let file = Fake { bytes: 9 << 20, fetched: Arc::default() };
        let mut ahead = ReadAhead::default();
        for at in [5_000_000, 0, 3_000_000, 3_100_000, 60_000] {
            assert!(!file.read(&mut ahead, at, 50_000).await.1, "at {at}");
        }
        for at in 0..4 {
            assert!(!file.read(&mut ahead, at * (2 << 20), 2 << 20).await.1);
        }
        assert_eq!(file.fetched.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_read_ahead_is_left_to_the_reader() {
        let mut ahead = ReadAhead { in_order: 9, ..ReadAhead::default() };
        let mut buffer = [0; 10];
        let fails = |_, _| async { Err(Error::NoDrive("d1".to_owned())) };
        assert_eq!(ahead.read(fails, &mut buffer, 0).await, None);
        ahead.reached(10);
        assert!(ahead.pieces.is_empty() && ahead.in_order == 1);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_read_that_was_given_up_the_next_finds_the_right_bytes() {
        let file = Fake { bytes: 9 << 20, fetched: Arc::default() };
        let mut ahead = ReadAhead::default();
        let mut at = 0;
        for _ in 0..3 {
            at += u64::try_from(file.read(&mut ahead, at, 1_000_000).await.0).expect("small");
        }
        // It has used up the first piece, and waits for the second.
        ahead.pieces.truncate(1);
        let mut buffer = vec![0; 1_500_000];
        let never = |_, _| std::future::pending();
        let given_up = ahead.read(never, &mut buffer, at);
        tokio::time::timeout(Duration::from_millis(1), given_up).await.expect_err("it waits");
        for _ in 0..4 {
            at += u64::try_from(file.read(&mut ahead, at, 60_000).await.0).expect("small");
        }
        assert!(file.read(&mut ahead, at, 60_000).await.1);
    }
}
