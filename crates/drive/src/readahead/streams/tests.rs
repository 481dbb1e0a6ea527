use braid_layout::{ObjectId, PartitionId};
use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const UNIT: u64 = 512 * KIB;
const BOUNDS: Bounds = Bounds { bytes_max: 64 * MIB };

fn facts() -> Facts {
    Facts { is_parity: false, window_bytes_max: 4 * MIB }
}

fn seen(object: u64, range: Range<u64>) -> Seen {
    Seen {
        object: (PartitionId(1), ObjectId(object)),
        range,
        queue: Queue::Same,
        unit_bytes: UNIT,
        passed_over: UNIT,
    }
}

/// Reads units of an object one after the other; every chunk is in memory at once. Returns the places of the
/// reads, and the chunks.
fn read_units(streams: &mut Streams, object: u64, units: Range<u64>) -> (Vec<Place>, Vec<Range<u64>>) {
    let mut places = Vec::new();
    let mut chunks = Vec::new();
    for unit in units {
        let step = streams.handle_read(0, &seen(object, unit * UNIT..(unit + 1) * UNIT), facts);
        places.push(step.place);
        if let Some(due) = step.due {
            chunks.extend(streams.begin(due.id));
            streams.handle_end(due.id);
        }
    }
    (places, chunks)
}

#[test]
fn the_third_read_makes_a_stream_and_its_window_doubles() {
    let mut streams = Streams::new(BOUNDS);
    let (places, chunks) = read_units(&mut streams, 1, 0..40);
    assert!(places[..3].iter().all(|place| *place == Place::Disk));
    assert!(places[3..].iter().all(|place| *place == Place::Memory), "{places:?}");
    assert_eq!(chunks[0], 3 * UNIT..5 * UNIT);
    assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start), "{chunks:?}");
    let lengths: Vec<u64> = chunks.iter().map(|chunk| chunk.end - chunk.start).collect();
    assert!(lengths.is_sorted() || lengths.iter().all(|length| *length <= 8 * MIB), "{lengths:?}");
    assert_eq!(lengths.iter().max(), Some(&(4 * MIB + UNIT)), "{lengths:?}");
    assert!(streams.bytes_ahead() <= 8 * MIB);
}

#[test]
fn interleaved_streams_do_not_defeat_each_other() {
    let mut streams = Streams::new(BOUNDS);
    let mut disk = [0; 8];
    for unit in 0..100 {
        for object in 0..8 {
            // Two of the eight read one object at two places.
            let (number, from) = if object == 7 { (6, 1000) } else { (object, 0) };
            let (places, _) = read_units(&mut streams, number, from + unit..from + unit + 1);
            disk[usize::try_from(object).expect("small")] +=
                places.iter().filter(|p| **p == Place::Disk).count();
        }
    }
    assert_eq!(disk, [3; 8]);
}

#[test]
fn parity_between_the_units_is_passed_over() {
    let mut streams = Streams::new(BOUNDS);
    let data: Vec<u64> = (0..30).filter(|unit| unit % 5 != 4).collect();
    let places: Vec<Place> =
        data.iter().flat_map(|&unit| read_units(&mut streams, 1, unit..unit + 1).0).collect();
    assert!(places[3..].iter().all(|place| *place == Place::Memory), "{places:?}");
    // Every other unit is no such gap if no parity lies there.
    let mut streams = Streams::new(BOUNDS);
    for unit in (0..30).step_by(2) {
        let read = Seen { passed_over: 0, ..seen(1, unit * UNIT..(unit + 1) * UNIT) };
        assert_eq!(streams.handle_read(0, &read, facts).due, None);
    }
}

/// Makes a stream of units 0 to 2. Returns its first chunk, which is the two units after them.
fn first_chunk(streams: &mut Streams) -> Due {
    read_units(streams, 1, 0..2);
    let due = streams.handle_read(0, &seen(1, 2 * UNIT..3 * UNIT), facts).due.expect("a stream");
    assert_eq!(due.range.start, 3 * UNIT);
    due
}

#[test]
fn reads_wait_for_what_is_on_its_way() {
    let mut streams = Streams::new(BOUNDS);
    let due = first_chunk(&mut streams);
    // All of it is wanted before its turn comes.
    for half in [3 * UNIT..4 * UNIT, 4 * UNIT..5 * UNIT] {
        assert_eq!(streams.handle_read(0, &seen(1, half), facts).place, Place::Coming(due.id));
    }
    assert!(streams.is_coming(due.id));
    assert_eq!(streams.begin(due.id), Some(due.range));
    let promised = Seen { queue: Queue::Other, ..seen(1, 3 * UNIT..4 * UNIT) };
    assert_eq!(streams.handle_read(0, &promised, facts).place, Place::Coming(due.id), "the disk is at it");
    streams.handle_end(due.id);
    assert!(!streams.is_coming(due.id));
    assert_eq!(streams.begin(due.id), None);
}

/// Else a byte would be read twice, and a reservation charged for what best effort has read too.
#[test]
fn what_a_promised_read_takes_in_its_own_turn_is_not_read_ahead() {
    let mut streams = Streams::new(BOUNDS);
    let due = first_chunk(&mut streams);
    let half = 3 * UNIT..3 * UNIT + UNIT / 2;
    let promised = Seen { queue: Queue::Other, ..seen(1, half.clone()) };
    assert_eq!(streams.handle_read(0, &promised, facts).place, Place::Disk);
    assert_eq!(streams.begin(due.id), Some(half.end..due.range.end));
    let mut streams = Streams::new(BOUNDS);
    let due = first_chunk(&mut streams);
    let promised = Seen { queue: Queue::Other, ..seen(1, due.range) };
    assert_eq!(streams.handle_read(0, &promised, facts).place, Place::Disk);
    assert_eq!(streams.begin(due.id), None);
}

#[test]
fn a_chunk_that_failed_ends_its_stream() {
    let mut streams = Streams::new(BOUNDS);
    read_units(&mut streams, 1, 0..2);
    let due = streams.handle_read(0, &seen(1, 2 * UNIT..3 * UNIT), facts).due.expect("a stream");
    streams.handle_failed(due.id);
    assert_eq!((streams.bytes_ahead(), streams.is_coming(due.id)), (0, false));
    assert_eq!(read_units(&mut streams, 1, 3..4).0, [Place::Disk]);
}

/// They would be read ahead of for as long as some of them come by.
#[test]
fn reads_at_random_places_that_began_like_a_stream_end_it() {
    let mut streams = Streams::new(BOUNDS);
    read_units(&mut streams, 1, 0..3);
    let mut chunks = 0;
    for i in 0..50 {
        // The beginning of each unit, and no more.
        let from = (3 + i) * UNIT;
        let step = streams.handle_read(0, &seen(1, from..from + 4 * KIB), facts);
        chunks += usize::from(step.due.is_some());
    }
    assert!(chunks <= 1, "{chunks}");
    assert_eq!(streams.streams.len(), 0);
}

#[test]
fn short_reads_need_a_longer_run() {
    let mut streams = Streams::new(BOUNDS);
    let mut due = |i: u64| streams.handle_read(0, &seen(1, i * 4 * KIB..(i + 1) * 4 * KIB), facts).due;
    let first = (0..20).find(|&i| due(i).is_some());
    assert_eq!(first, Some(7), "32 KiB");
}

#[test]
fn nothing_is_read_ahead_without_memory() {
    let mut streams = Streams::new(Bounds { bytes_max: 0 });
    assert_eq!(read_units(&mut streams, 1, 0..10).1, []);
}

#[test]
fn many_streams_share_the_bound_and_those_that_stop_make_room() {
    let mut streams = Streams::new(Bounds { bytes_max: 8 * MIB });
    for object in 0..100 {
        read_units(&mut streams, object, 0..20);
        assert!(streams.bytes_ahead() <= 8 * MIB);
        assert!(streams.streams.len() <= STREAMS_MAX);
    }
    // All others are idle.
    let later = IDLE_NS + 1;
    for unit in 0..3 {
        streams.handle_read(later, &seen(500, unit * UNIT..(unit + 1) * UNIT), facts);
    }
    assert_eq!(streams.streams.len(), 1);
}

/// An event of the property test.
#[derive(Debug, Clone)]
enum Event {
    /// A reader reads on.
    On {
        reader: usize,
        bytes: u64,
        queue: Queue,
    },
    /// A reader goes elsewhere.
    Jump {
        reader: usize,
        to: u64,
    },
    /// The disk begins, or ends, one of the chunks.
    Begin(usize),
    End(usize),
    Fail(usize),
    Pass,
}

fn event() -> impl Strategy<Value = Event> {
    let reader = 0..6usize;
    prop_oneof![
        12 => (reader.clone(), 1..40u64, any::<bool>()).prop_map(|(reader, n, same)| {
            let queue = if same { Queue::Same } else { Queue::Other };
            Event::On { reader, bytes: n * 16 * KIB, queue }
        }),
        1 => (reader, 0..4000u64).prop_map(|(reader, at)| Event::Jump { reader, to: at * 64 * KIB }),
        3 => (0..8usize).prop_map(Event::Begin),
        3 => (0..8usize).prop_map(Event::End),
        1 => (0..8usize).prop_map(Event::Fail),
        1 => Just(Event::Pass),
    ]
}

proptest! {
    /// Whatever is read: what is ahead stays within its bound; only what was read ahead is said to be in
    /// memory; and no chunk is begun twice.
    #[test]
    fn bounded_and_true(events in proptest::collection::vec(event(), 1..400), bytes_max in 0..40 * MIB) {
        let mut streams = Streams::new(Bounds { bytes_max });
        let mut at = [0u64, 0, 100 * MIB, 0, 50 * MIB, 7 * UNIT];
        let mut now = 0;
        let mut waiting: Vec<Due> = Vec::new();
        let mut begun: Vec<(Due, Range<u64>)> = Vec::new();
        let mut memory: Vec<(ObjectRef, Range<u64>)> = Vec::new();
        for event in events {
            match event {
                Event::On { reader, bytes, queue } => {
                    // A read lies in one unit.
                    let from = at[reader];
                    let to = (from + bytes).min((from / UNIT + 1) * UNIT);
                    at[reader] = to;
                    let read = Seen { queue, ..seen(u64::try_from(reader / 2).expect("small"), from..to) };
                    let step = streams.handle_read(now, &read, facts);
                    if step.place == Place::Memory {
                        let has = |byte: u64| {
                            memory.iter().any(|(object, range)| *object == read.object && range.contains(&byte))
                        };
                        prop_assert!(has(from) && has(to - 1), "{:?}", read.range);
                    }
                    if let Some(due) = step.due {
                        prop_assert!(due.range.start >= to && !due.range.is_empty());
                        prop_assert_eq!(due.object, read.object);
                        waiting.push(due);
                    }
                }
                Event::Jump { reader, to } => at[reader] = to,
                Event::Begin(n) if n < waiting.len() => {
                    let due = waiting.remove(n);
                    if let Some(range) = streams.begin(due.id) {
                        prop_assert!(due.range.start <= range.start && range.end == due.range.end);
                        begun.push((due, range));
                    }
                }
                Event::End(n) if n < begun.len() => {
                    let (due, range) = begun.remove(n);
                    streams.handle_end(due.id);
                    memory.push((due.object, range));
                }
                Event::Fail(n) if n < begun.len() => streams.handle_failed(begun.remove(n).0.id),
                Event::Pass => now += IDLE_NS / 3,
                _ => {}
            }
            prop_assert!(streams.bytes_ahead() <= bytes_max);
            prop_assert!(streams.streams.len() <= STREAMS_MAX && streams.candidates.len() <= CANDIDATES_MAX);
        }
    }

    /// Reads at random places of a large object.
    #[test]
    fn random_reads_start_nothing(places in proptest::collection::vec(0..1u64 << 26, 1..500)) {
        let mut streams = Streams::new(BOUNDS);
        for place in places {
            let from = place * 4 * KIB;
            let step = streams.handle_read(0, &seen(1, from..from + 4 * KIB), facts);
            prop_assert_eq!(step, Step { place: Place::Disk, due: None });
        }
    }
}
