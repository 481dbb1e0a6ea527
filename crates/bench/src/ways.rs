//! The store's own ways compared, each the other's plain system: what its defaults rest on.
//!
//! Sending: a unit's bytes go from the file to a socket by `sendfile`, or are read into a buffer and sent. Both are what a
//! drive does between looking up and the wire, without frames; the far end reads and forgets, and its processor time is not counted:
//! it is the client's, and on a real wire a network card's work.
//! Reaching the disk: past the page cache (`Options::direct`), or through it; by io_uring, or by ordinary calls ([`rings`]).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_store::Options;

use crate::crew::{Random, Work};
use crate::error::{Doing, Error};
use crate::machine::Place;
use crate::measure::{Limit, Question, Sample, thread_cpu};
use crate::report::{Cache, Experiment};
use crate::rings;
use crate::store::{Bench, STREAM_DEPTH, before, payloads};
use crate::subject::{At, Object, Subject};

pub(crate) const UNIT: u32 = 1 << 20;
/// What is sent at a time.
const SENT: [u32; 7] = [UNIT, 512 << 10, 256 << 10, 128 << 10, 64 << 10, 16 << 10, 4096];
/// Reads past the page cache: name, bytes, at a time, where the other way finds them.
const READS: [(&str, u32, u32, Cache); 4] = [
    ("O_DIRECT, read whole units", UNIT, 1, Cache::Miss),
    ("O_DIRECT, random read", 4096, 1, Cache::Miss),
    ("O_DIRECT, random read", 4096, 32, Cache::Miss),
    ("O_DIRECT, random read", 4096, 32, Cache::Hit),
];

/// How many rows there are for a place.
pub(crate) fn rows(place: &Place) -> u64 {
    // One of writing past the page cache, and those of reading.
    let direct = if compares_direct(place) { 1 + READS.len() } else { 0 };
    u64::try_from(SENT.len() + direct).expect("few") + rings::rows(place)
}

fn compares_direct(place: &Place) -> bool {
    place.direct && !place.memory
}

/// All of them.
pub(crate) fn measure(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    sending(bench)?;
    if compares_direct(bench.place) {
        writing(bench)?;
        reading(bench)?;
    }
    rings::measure(bench)
}

pub(crate) fn question(
    name: &'static str,
    against: &'static str,
    request_bytes: u32,
    depth: u32,
) -> Question {
    let (experiment, cache, target, times) = (Experiment::Ways, None, None, 1);
    Question { experiment, name, against, request_bytes, depth, cache, target, times, memory_bytes: 0 }
}

/// A store of an object with some units.
fn filled(bench: &Bench<'_, '_>, name: &str, direct: bool) -> Result<(Subject, Object, u64), Error> {
    let mut subject = Subject::with(&bench.place.directory, name, Options { direct, ..Options::default() })?;
    let units = bench.scale.hit_bytes / u64::from(UNIT);
    let object = subject.filled(&payloads(UNIT).0, units, STREAM_DEPTH, bench.pairs.watch.stop)?;
    Ok((subject, object, units))
}

/// From the page cache to a socket.
fn sending(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    let (subject, object, units) = filled(bench, "store", false)?;
    let stop = bench.pairs.watch.stop;
    for request_bytes in SENT {
        let asked = question("sendfile", "read into a buffer, and sent", request_bytes, 1);
        let asked = Question { cache: Some(Cache::Hit), ..asked };
        if bench.pairs.leaves_out(&asked) {
            continue;
        }
        let limit = Limit { time: bench.scale.time, operations: bench.operations(request_bytes) };
        let plan = Work { depth: 1, limit, turn: 1, request_bytes };
        let send = |way: Way, round: u64| -> Result<Sample, Error> {
            let mut wire = Wire::new()?;
            let slots = u64::from(UNIT / request_bytes);
            let hire = |_| {
                let mut random = Random::new(round);
                let mut buffer = vec![0; usize::try_from(request_bytes).expect("memory")];
                let (subject, wire) = (&subject, &wire);
                move || {
                    let slot = random.below(units * slots);
                    let from = u32::try_from(slot % slots).expect("below a unit") * request_bytes;
                    match way {
                        Way::Sendfile => wire.send_file(subject, object, slot / slots, from, request_bytes),
                        Way::Copy => {
                            subject.read(object, slot / slots, from, &mut buffer)?;
                            (&wire.near).write_all(&buffer).doing("send")
                        }
                    }
                }
            };
            let sample = crate::crew::work(plan, stop, hire)?;
            let far = wire.end();
            Ok(Sample { cpu: sample.cpu.saturating_sub(far), ..sample })
        };
        let label = &bench.place.label;
        let row = bench.pairs.row(
            label,
            asked,
            |round| send(Way::Sendfile, round),
            |round| send(Way::Copy, round),
        )?;
        bench.rows.push(row);
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Sendfile,
    Copy,
}

/// A connection to ourselves whose far end reads and forgets.
struct Wire {
    near: TcpStream,
    /// Gives its processor time.
    far: Option<JoinHandle<Duration>>,
}

impl Wire {
    fn new() -> Result<Wire, Error> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).doing("listen on the loopback")?;
        let address = listener.local_addr().doing("listen on the loopback")?;
        let near = TcpStream::connect(address).doing("connect to the loopback")?;
        let (mut far, _) = listener.accept().doing("accept from the loopback")?;
        let read = move || {
            let mut buffer = vec![0; 1 << 20];
            while far.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
            thread_cpu()
        };
        Ok(Wire { near, far: Some(std::thread::spawn(read)) })
    }

    fn send_file(
        &self,
        subject: &Subject,
        object: Object,
        unit: u64,
        from: u32,
        bytes: u32,
    ) -> Result<(), Error> {
        let view = subject.view(object, unit, from..from + bytes)?;
        for piece in view.pieces() {
            let file = piece.lend().ok_or(std::io::ErrorKind::Unsupported);
            let file = file.map_err(std::io::Error::from).doing("send from a file")?;
            let (mut at, end) = (piece.offset, piece.offset + u64::from(piece.length));
            while at < end {
                let left = usize::try_from(end - at).expect("a unit");
                let sent = rustix::fs::sendfile(&self.near, file, Some(&mut at), left);
                if sent.doing("send from a file")? == 0 {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))
                        .doing("send from a file");
                }
            }
        }
        Ok(())
    }

    /// Ends it; what processor time the far end took.
    fn end(&mut self) -> Duration {
        let _ = self.near.shutdown(std::net::Shutdown::Both);
        self.far.take().and_then(|far| far.join().ok()).unwrap_or_default()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.end();
    }
}

fn writing(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    let by = |direct| Options { direct, ..Options::default() };
    writes(bench, ("O_DIRECT, write whole units", "through the page cache"), (by(true), by(false)))
}

/// Whole units appended, durably, to a store with the first of two options and with the second.
pub(crate) fn writes(
    bench: &mut Bench<'_, '_>,
    (name, against): (&'static str, &'static str),
    (first, second): (Options, Options),
) -> Result<(), Error> {
    let asked = question(name, against, UNIT, STREAM_DEPTH);
    if bench.pairs.leaves_out(&asked) {
        return Ok(());
    }
    let (payloads, _) = payloads(UNIT);
    let limit = Limit { time: bench.scale.time * 10, operations: bench.scale.stream_bytes / u64::from(UNIT) };
    let (directory, stop) = (&bench.place.directory, bench.pairs.watch.stop);
    let write = |options: &Options| {
        let mut subject = Subject::with(directory, "store", options.clone())?;
        let object = subject.object(UNIT)?;
        let mut units = 0..;
        let place = || At { unit: units.next().unwrap_or(0), from: 0 };
        subject.writes(object, &payloads, STREAM_DEPTH, limit, stop, place)
    };
    let row = bench.pairs.row(&bench.place.label, asked, |_| write(&first), |_| write(&second))?;
    bench.rows.push(row);
    Ok(())
}

/// Whole units and random parts of them.
fn reading(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    let (direct, direct_object, units) = filled(bench, "direct", true)?;
    let (buffered, buffered_object, _) = filled(bench, "buffered", false)?;
    let stop = bench.pairs.watch.stop;
    for (name, request_bytes, depth, cache) in READS {
        let asked = question(name, "through the page cache", request_bytes, depth);
        let asked = Question { cache: Some(cache), ..asked };
        if bench.pairs.leaves_out(&asked) {
            continue;
        }
        let whole = request_bytes == UNIT;
        let (time, operations) =
            if whole { (bench.scale.time * 10, units) } else { (bench.scale.time, bench.operations(4096)) };
        let plan = Work { depth, limit: Limit { time, operations }, turn: 1, request_bytes };
        let read = |subject: &Subject, object, round| {
            if whole {
                subject.sequential_reads(object, 0, plan, stop)
            } else {
                subject.random_reads(object, units, plan, round, stop)
            }
        };
        if cache == Cache::Hit {
            let all = Work { depth: 1, limit: Limit::operations(units), turn: 1, request_bytes: UNIT };
            buffered.sequential_reads(buffered_object, 0, all, stop)?;
        }
        let row = bench.pairs.row(
            &bench.place.label,
            asked,
            |round| read(&direct, direct_object, round),
            |round| {
                before(cache, || buffered.forget())?;
                read(&buffered, buffered_object, round)
            },
        )?;
        bench.rows.push(row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bytes::Bytes;

    use super::*;
    use crate::subject::Payload;

    #[test]
    fn both_ways_send_the_same_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let stop = AtomicBool::new(false);
        let mut subject = Subject::make(dir.path(), "store").expect("made");
        let bytes = Bytes::from(Random::new(3).bytes(64 << 10));
        let payload = Payload::new(bytes.clone());
        let object = subject.filled(&[payload], 2, 2, &stop).expect("filled");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("listening");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (mut far, _) = listener.accept().expect("accepted");
        let wire = Wire { near, far: None };
        wire.send_file(&subject, object, 1, 8192, 16 << 10).expect("sent");
        let mut got = vec![0; 16 << 10];
        far.read_exact(&mut got).expect("received");
        assert_eq!(got, bytes[8192..8192 + (16 << 10)]);
        assert!(wire.send_file(&subject, object, 1, 0, 65 << 10).is_err(), "more than the unit has");
    }
}
