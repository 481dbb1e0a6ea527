//! The requests that a load makes, and their times.

use std::ops::Range;

use crate::number::{SECOND, index, real, whole};
use crate::programs::Kind;
use crate::random::{Source, Stream};
use crate::spec::{Interval, Load, Pattern, Size, Spec};
use crate::trace::Entry;

/// The random choices of one load.
#[derive(Debug)]
pub(super) struct Generator {
    load: Load,
    clients: u64,
    files: u64,
    file_bytes: u64,
    stripe_bytes: u64,
    arrivals: Stream,
    requests: Stream,
    /// Position of each client: an offset, or with n-to-1 the number of its records.
    positions: Vec<u64>,
    /// Index of the trace's next entry.
    entry: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) file: u32,
    pub(super) kind: Kind,
    pub(super) write: bool,
    pub(super) range: Range<u64>,
}

impl Generator {
    pub(super) fn new(spec: &Spec, load: &Load, number: u32) -> Generator {
        let clients = u64::from(spec.cluster.clients);
        let mut generator = Generator {
            load: load.clone(),
            clients,
            files: u64::from(spec.files.count),
            file_bytes: spec.file_bytes(),
            stripe_bytes: spec.shape().expect("the spec was checked").stripe_bytes(),
            arrivals: Stream::new(spec.seed, Source::Arrivals(number)),
            requests: Stream::new(spec.seed, Source::Requests(number)),
            positions: Vec::new(),
            entry: 0,
        };
        generator.positions = (0..clients).map(|client| generator.first_position(client)).collect();
        generator
    }

    /// The offset at which a client begins: clients that share a file begin at different places.
    fn first_position(&self, client: u64) -> u64 {
        match self.load.pattern {
            Pattern::Random | Pattern::NTo1 => 0,
            Pattern::Sequential => {
                let turn = client / self.files;
                let together = self.clients.div_ceil(self.files);
                let share = self.file_bytes / together / self.stripe_bytes * self.stripe_bytes;
                turn * share
            }
        }
    }

    /// Time to the next request of an open load, in nanoseconds.
    pub(super) fn interval(&mut self) -> u64 {
        let mean = SECOND / self.load.rate.expect("the load is open");
        match self.load.interval {
            Interval::Exponential => whole(self.arrivals.exponential(mean)),
            Interval::Constant => whole(mean),
        }
    }

    /// Time from an answer to the next request of a closed load, in nanoseconds.
    pub(super) fn think(&mut self) -> u64 {
        let mean = self.load.think.0;
        if mean == 0 { 0 } else { whole(self.arrivals.exponential(real(mean))) }
    }

    pub(super) fn any_client(&mut self) -> u32 {
        u32::try_from(self.requests.below(self.clients)).expect("clients are counted in 32 bits")
    }

    /// A client's next request.
    pub(super) fn next(&mut self, client: u32) -> Drawn {
        let write = self.requests.unit() >= self.load.read;
        let bytes = self.bytes();
        let (file, start) = match self.load.pattern {
            Pattern::Random => {
                let file = self.requests.below(self.files);
                let align = self.load.align.map_or(bytes, |align| align.0);
                let places = (self.file_bytes - bytes) / align + 1;
                (file, self.requests.below(places) * align)
            }
            Pattern::Sequential => {
                let position = &mut self.positions[index(u64::from(client))];
                if *position + bytes > self.file_bytes {
                    *position = 0;
                }
                let start = *position;
                *position += bytes;
                (u64::from(client) % self.files, start)
            }
            Pattern::NTo1 => {
                // Record number `turn` of each client; all records are as long as this one.
                let turn = &mut self.positions[index(u64::from(client))];
                let records = self.file_bytes / bytes;
                let record = (*turn * self.clients + u64::from(client)) % records;
                *turn += 1;
                (0, record * bytes)
            }
        };
        let kind = self.kind(write);
        let file = u32::try_from(file).expect("files are counted in 32 bits");
        Drawn { file, kind, write, range: start..start + bytes }
    }

    fn kind(&self, write: bool) -> Kind {
        match (write, self.load.pattern, self.load.fresh) {
            (false, ..) => Kind::Read,
            (true, Pattern::NTo1, _) if self.clients > 1 => Kind::SharedUpdate,
            (true, _, true) => Kind::Append,
            (true, _, false) => Kind::Update,
        }
    }

    fn bytes(&mut self) -> u64 {
        let sizes = match &self.load.size {
            Size::One(size) => return size.0,
            Size::Some(sizes) => sizes,
        };
        let all: f64 = sizes.iter().map(|one| one.weight).sum();
        let mut drawn = self.requests.unit() * all;
        let hit = sizes.iter().find(|one| {
            drawn -= one.weight;
            drawn < 0.0
        });
        hit.unwrap_or(&sizes[sizes.len() - 1]).size.0
    }

    /// The trace's next entry, and the time of the one after it.
    pub(super) fn next_entry(&mut self, trace: &[Entry]) -> (Entry, Option<u64>) {
        let entry = trace[self.entry];
        self.entry += 1;
        (entry, trace.get(self.entry).map(|next| next.at))
    }

    /// The request of a trace's entry.
    pub(super) fn of_entry(&self, entry: &Entry) -> Drawn {
        let kind = self.kind(entry.write);
        let range = entry.offset..entry.offset + entry.bytes;
        Drawn { file: entry.file, kind, write: entry.write, range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Weighted;
    use crate::test_spec;
    use crate::units::Bytes;

    fn generator(load: Load) -> Generator {
        let mut spec = test_spec::small();
        spec.cluster.clients = 2;
        spec.load = vec![load];
        Generator::new(&spec, &spec.load[0], 0)
    }

    #[test]
    fn random_requests_are_aligned_and_inside() {
        let mut generator = generator(Load { read: 0.5, ..Load::open("a", 1.0, Bytes(3 << 12)) });
        let drawn: Vec<Drawn> = (0..1000).map(|_| generator.next(0)).collect();
        assert!(drawn.iter().all(|d| d.range.start % (3 << 12) == 0 && d.range.end <= 1 << 20));
        let writes = drawn.iter().filter(|d| d.write).count();
        assert!((400..600).contains(&writes), "{writes}");
    }

    #[test]
    fn sequential_requests_go_on_and_begin_again() {
        let mut generator =
            generator(Load { pattern: Pattern::Sequential, ..Load::open("a", 1.0, Bytes(400 << 10)) });
        let starts: Vec<u64> = (0..4).map(|_| generator.next(0).range.start).collect();
        assert_eq!(starts, [0, 400 << 10, 0, 400 << 10]);
        assert_eq!(generator.next(1).range.start, 512 << 10, "another part of the same file");
    }

    #[test]
    fn records_of_one_file_take_turns() {
        let mut generator =
            generator(Load { pattern: Pattern::NTo1, read: 0.0, ..Load::open("a", 1.0, Bytes(1000)) });
        let starts = [0, 1, 1, 0].map(|client| generator.next(client).range.start);
        assert_eq!(starts, [0, 1000, 3000, 2000]);
        assert_eq!(generator.next(0).kind, Kind::SharedUpdate);
    }

    #[test]
    fn sizes_come_by_their_weights() {
        let weighted = |size, weight| Weighted { size: Bytes(size), weight };
        let sizes = Size::Some(vec![weighted(4096, 3.0), weighted(8192, 1.0)]);
        let mut generator = generator(Load { size: sizes, ..Load::open("a", 1.0, Bytes(1)) });
        let small = (0..4000).filter(|_| generator.bytes() == 4096).count();
        assert!((2880..3120).contains(&small), "{small}");
    }
}
