//! Finds sequential reads, and says what to read ahead for them: a machine without files, threads or clocks.
//!
//! # How streams are found
//!
//! A read that begins where another one of its object ended goes on with it; so does one that passes over the
//! parity between two units. After [`RUN`] of these in a row it is a *stream*. Reads at random places hardly
//! ever go on, so nothing is read ahead for them. Each stream is found by its place, so streams of one
//! object, and of many, may be interleaved as they like (NASD, figure 9).
//!
//! # What is read ahead
//!
//! A stream has a *window*, which doubles with every chunk, from an eighth of a maximum up to it. As soon as
//! less than a window is ahead of the reader, the next chunk is due: up to two windows ahead of it. So a disk
//! with one head moves once for a whole window, and reads the next one while this one is being sent.
//!
//! # Bounds
//!
//! Bytes that are ahead, or on their way, and not read yet: at most [`Bounds::bytes_max`] of all streams. The
//! more streams there are, the smaller are their windows. A stream that was not read for [`IDLE_NS`] is
//! forgotten, and beyond [`STREAMS_MAX`] the one that was read longest ago is.
//!
//! The machine says what was *asked* to be in memory. What is there, and whether it is still the content of
//! the object, it does not know: that is looked up for every read.

use std::collections::VecDeque;
use std::ops::Range;

use braid_layout::{ObjectId, PartitionId};

use crate::connections::convert::ObjectRef;

/// Reads that must go on where the last one ended before they are a stream.
const RUN: u32 = 2;
/// Bytes that these must have: some short reads go on by chance.
const RUN_BYTES: u64 = 32 << 10;
/// A stream reads at least this part of the bytes that it comes past. (Of a mirror's units a reader takes
/// each from another column.)
const READ_PART: u64 = 8;
/// Streams at most.
const STREAMS_MAX: usize = 64;
/// Places for reads that are remembered because another may go on there.
const CANDIDATES_MAX: usize = 256;
/// Bytes of the smallest chunk.
const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// The largest window is so many times the first.
const FIRST_PART: u64 = 8;
/// Time after which a stream that is not read makes room for others.
const IDLE_NS: u64 = 10_000_000_000;

/// Limits of all streams together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes ahead of their readers; 0: nothing is read ahead.
    pub(crate) bytes_max: u64,
}

/// Queue of a read whose bytes are in a chunk that has not had its turn at the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// It waits for the chunk: that is before it in the same queue.
    Same,
    /// It takes its own turn: it has a better one.
    Other,
}

/// A read of an object's bytes `range`, its units one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) object: ObjectRef,
    pub(crate) range: Range<u64>,
    pub(crate) queue: Queue,
    pub(crate) unit_bytes: u64,
    /// Bytes of the parity units between two of data, which a reader passes over.
    pub(crate) passed_over: u64,
}

/// Facts that are of use only for reads in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// True if the unit is parity.
    pub(crate) is_parity: bool,
    /// Largest window that pays on the disk.
    pub(crate) window_bytes_max: u64,
}

/// Name of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkId(u64);

impl ChunkId {
    /// Name of a sweep of an area, which is no stream's.
    pub(super) fn of_area(sweep: u64) -> ChunkId {
        ChunkId(sweep | 1 << 63)
    }
}

/// Bytes of an object to be read ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) id: ChunkId,
    pub(crate) object: ObjectRef,
    pub(crate) range: Range<u64>,
    /// True if the reader was seen to read parity too.
    pub(crate) with_parity: bool,
}

/// Place where the bytes of a read should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the disk.
    Disk,
    /// In memory: they were read ahead.
    Memory,
    /// On their way to memory: they are there when this chunk has ended.
    Coming(ChunkId),
}

/// Consequences of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) place: Place,
    /// The next chunk.
    pub(crate) due: Option<Due>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
    Ended,
}

#[derive(Debug)]
struct Chunk {
    id: ChunkId,
    range: Range<u64>,
    state: State,
    /// A read waits for it.
    is_awaited: bool,
}

/// A read that another may go on with.
#[derive(Debug)]
struct Candidate {
    object: ObjectRef,
    next: u64,
    /// Reads that went on.
    run: u32,
    /// Bytes of these, and of the first.
    bytes: u64,
}

#[derive(Debug)]
struct Stream {
    object: ObjectRef,
    /// One past the last byte that was read.
    next: u64,
    /// One past the last byte that was ever due.
    ahead_to: u64,
    window: u64,
    with_parity: bool,
    /// Bytes that were read since the last chunk was due, and the place up to which they were then.
    read: u64,
    read_from: u64,
    /// In order; those that were read are gone.
    chunks: VecDeque<Chunk>,
    used_ns: u64,
}

/// The streams of one drive.
#[derive(Debug)]
pub(crate) struct Streams {
    bounds: Bounds,
    /// Each is at the place that follows from its object and its end, so that random reads cost little; a
    /// later one takes an earlier one's place.
    candidates: Vec<Option<Candidate>>,
    streams: Vec<Stream>,
    chunks: u64,
}

impl Streams {
    pub(crate) fn new(bounds: Bounds) -> Streams {
        let candidates = (0..CANDIDATES_MAX).map(|_| None).collect();
        Streams { bounds, candidates, streams: Vec::new(), chunks: 0 }
    }

    /// A read has come. If it is one of a stream, `facts` tells more.
    pub(crate) fn handle_read(&mut self, now_ns: u64, seen: &Seen, facts: impl FnOnce() -> Facts) -> Step {
        let nothing = Step { place: Place::Disk, due: None };
        if self.bounds.bytes_max == 0 || seen.range.is_empty() {
            return nothing;
        }
        self.streams.retain(|stream| now_ns.saturating_sub(stream.used_ns) < IDLE_NS);
        let found = self.streams.iter().position(|stream| stream.has(seen));
        let Some(at) = found.or_else(|| self.handle_candidate(now_ns, seen)) else { return nothing };
        let Facts { is_parity, window_bytes_max } = facts();
        let stream = &mut self.streams[at];
        stream.used_ns = now_ns;
        stream.with_parity |= is_parity;
        let place = stream.handle_read(seen);
        stream.read += seen.range.end - seen.range.start;
        stream.next = stream.next.max(seen.range.end);
        stream.drop_read();
        Step { place, due: self.due(at, seen, window_bytes_max) }
    }

    /// A chunk's turn at the disk has come. Returns what is to be read of it; `None`: nothing any more.
    pub(crate) fn begin(&mut self, id: ChunkId) -> Option<Range<u64>> {
        let has = |stream: &&mut Stream| stream.chunks.iter().any(|chunk| chunk.id == id);
        let stream = self.streams.iter_mut().find(has)?;
        let chunk = stream.chunk(id).filter(|chunk| chunk.state == State::Waiting)?;
        chunk.state = State::Begun;
        (!chunk.range.is_empty()).then(|| chunk.range.clone())
    }

    /// A chunk is in memory.
    pub(crate) fn handle_end(&mut self, id: ChunkId) {
        for stream in &mut self.streams {
            if let Some(chunk) = stream.chunk(id) {
                chunk.state = State::Ended;
                stream.drop_read();
            }
        }
    }

    /// A chunk was not read: the object ends before it, or is gone, or the disk has no time. Its stream is
    /// found anew if it goes on.
    pub(crate) fn handle_failed(&mut self, id: ChunkId) {
        self.streams.retain(|stream| stream.chunks.iter().all(|chunk| chunk.id != id));
    }

    /// Returns true if this chunk is not there yet and will come, or be given up.
    pub(crate) fn is_coming(&self, id: ChunkId) -> bool {
        let mut chunks = self.streams.iter().flat_map(|stream| &stream.chunks);
        chunks.any(|chunk| chunk.id == id && chunk.state != State::Ended)
    }

    /// Bytes that are ahead of their readers, or on their way.
    pub(crate) fn bytes_ahead(&self) -> u64 {
        self.streams.iter().map(Stream::bytes_ahead).sum()
    }

    /// A read that belongs to no stream. Returns the stream that it has become, if it has.
    fn handle_candidate(&mut self, now_ns: u64, seen: &Seen) -> Option<usize> {
        let before = self.take_candidate(seen);
        let run = before.as_ref().map_or(0, |candidate| candidate.run + 1);
        let bytes = before.map_or(0, |candidate| candidate.bytes) + (seen.range.end - seen.range.start);
        let object = seen.object;
        let next = seen.range.end;
        if run < RUN || bytes < RUN_BYTES {
            self.candidates[place_of(object, next)] = Some(Candidate { object, next, run, bytes });
            return None;
        }
        if self.streams.len() >= STREAMS_MAX {
            let oldest = (0..self.streams.len()).min_by_key(|&at| self.streams[at].used_ns);
            oldest.map(|at| self.streams.swap_remove(at));
        }
        self.streams.push(Stream {
            object,
            next,
            ahead_to: next,
            window: WINDOW_BYTES_MIN,
            with_parity: false,
            read: 0,
            read_from: next,
            chunks: VecDeque::new(),
            used_ns: now_ns,
        });
        Some(self.streams.len() - 1)
    }

    /// Takes out the read that this one goes on with.
    fn take_candidate(&mut self, seen: &Seen) -> Option<Candidate> {
        let start = seen.range.start;
        let unit_bytes = seen.unit_bytes.max(1);
        // It may have ended before parity, which is passed over.
        let units = if start.is_multiple_of(unit_bytes) { seen.passed_over / unit_bytes } else { 0 };
        (0..=units).find_map(|units| {
            let next = start.checked_sub(units * unit_bytes)?;
            let at = place_of(seen.object, next);
            self.candidates[at].take_if(|candidate| candidate.object == seen.object && candidate.next == next)
        })
    }

    /// The next chunk of a stream that was read just now, if it is time.
    fn due(&mut self, at: usize, seen: &Seen, window_bytes_max: u64) -> Option<Due> {
        let streams = u64::try_from(self.streams.len()).unwrap_or(u64::MAX);
        let share = self.bounds.bytes_max / streams.saturating_mul(2).max(1);
        let window_max = window_bytes_max.max(WINDOW_BYTES_MIN).min(share);
        let first = (window_max / FIRST_PART).max(WINDOW_BYTES_MIN);
        let room = self.bounds.bytes_max.saturating_sub(self.bytes_ahead());
        let stream = &mut self.streams[at];
        let window = stream.window.max(first).min(window_max);
        let from = stream.ahead_to.max(stream.next);
        if from - stream.next > window {
            return None;
        }
        if stream.read.saturating_mul(READ_PART) < stream.next - stream.read_from {
            // These are reads at random places, which began like a stream.
            self.streams.swap_remove(at);
            return None;
        }
        let mut to = stream.next.saturating_add(2 * window);
        if window >= seen.unit_bytes {
            // Units are read in one piece.
            to = to / seen.unit_bytes.max(1) * seen.unit_bytes;
        }
        let bytes = to.saturating_sub(from).min(room);
        if bytes < window_max.clamp(1, WINDOW_BYTES_MIN) {
            return None;
        }
        let range = from..from + bytes;
        stream.window = (2 * window).min(window_max);
        stream.ahead_to = range.end;
        stream.read = 0;
        stream.read_from = stream.next;
        self.chunks += 1;
        let id = ChunkId(self.chunks);
        stream.chunks.push_back(Chunk { id, range: range.clone(), state: State::Waiting, is_awaited: false });
        Some(Due { id, object: stream.object, range, with_parity: stream.with_parity })
    }
}

impl Stream {
    /// Returns true if the read is one of this stream's: of a client that has several under way it may come a
    /// little early or late.
    fn has(&self, seen: &Seen) -> bool {
        let from = self.next.saturating_sub(self.window);
        let to = self.ahead_to.max(self.next + seen.passed_over);
        self.object == seen.object && (from..=to).contains(&seen.range.start)
    }

    fn chunk(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.chunks.iter_mut().find(|chunk| chunk.id == id)
    }

    /// Returns the place where the bytes of a read should be. If it reads from the disk itself, that is not
    /// read ahead any more.
    fn handle_read(&mut self, seen: &Seen) -> Place {
        let place = self.place(seen);
        let to = seen.range.end;
        match place {
            Place::Coming(id) => self.chunk(id).into_iter().for_each(|chunk| chunk.is_awaited = true),
            Place::Disk => {
                let begins = |chunk: &&mut Chunk| seen.range.contains(&chunk.range.start);
                let waiting = |chunk: &&mut Chunk| chunk.state == State::Waiting && !chunk.is_awaited;
                for chunk in self.chunks.iter_mut().filter(waiting).filter(begins) {
                    chunk.range.start = to.min(chunk.range.end);
                }
            }
            Place::Memory => {}
        }
        place
    }

    fn place(&self, seen: &Seen) -> Place {
        let mut at = seen.range.start;
        let mut place = Place::Memory;
        while at < seen.range.end {
            let Some(chunk) = self.chunks.iter().find(|chunk| chunk.range.contains(&at)) else {
                return Place::Disk;
            };
            match (chunk.state, seen.queue) {
                (State::Waiting, Queue::Other) => return Place::Disk,
                // The last one ends last.
                (State::Waiting, Queue::Same) | (State::Begun, _) => place = Place::Coming(chunk.id),
                (State::Ended, _) => {}
            }
            at = chunk.range.end;
        }
        place
    }

    /// Forgets chunks that were read, but none that a read waits for.
    fn drop_read(&mut self) {
        let next = self.next;
        let comes = |chunk: &Chunk| match chunk.state {
            State::Waiting => chunk.is_awaited,
            State::Begun => true,
            State::Ended => false,
        };
        self.chunks.retain(|chunk| chunk.range.end > next || comes(chunk));
    }

    fn bytes_ahead(&self) -> u64 {
        let left = |chunk: &Chunk| chunk.range.end.saturating_sub(chunk.range.start.max(self.next));
        self.chunks.iter().map(left).sum()
    }
}

/// The place of a read of this object that ended there.
fn place_of(object: ObjectRef, next: u64) -> usize {
    let (PartitionId(partition), ObjectId(number)) = object;
    let mixed = (partition ^ number.rotate_left(20) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 56).expect("8 bits")
}

const _: () = assert!(CANDIDATES_MAX == 1 << 8, "a place has 8 bits");

#[cfg(test)]
mod tests;
