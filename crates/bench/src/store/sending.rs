//! Sending: the bytes of a read go to a socket from the file by `sendfile`, or through a buffer. The
//! comparison is the basis of the drive's default.
//!
//! Both ways are the work of a drive between lookup and network, without frames. The far end reads and
//! discards. Its processor time is not counted, as it is the client's, or on a real network the network
//! card's work.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Doing, Error};
use crate::load_threads::{Random, Work};
use crate::measure::{Limit, Question, Sample, thread_cpu};
use crate::rates::{Bench, STREAM_DEPTH, payloads};
use crate::report::{Cache, Experiment};
use crate::subject::{Object, Subject};

const UNIT: u32 = 1 << 20;
/// Bytes per send.
const SENT: [u32; 7] = [UNIT, 512 << 10, 256 << 10, 128 << 10, 64 << 10, 16 << 10, 4096];
/// Number of rows.
pub(crate) const ROWS: u64 = SENT.len() as u64;

/// Measures all rows.
pub(crate) fn measure(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    let mut subject = Subject::make(&bench.place.directory, "store")?;
    let units = bench.scale.hit_bytes / u64::from(UNIT);
    let stop = bench.pairs.watch.stop;
    let object = subject.filled(&payloads(UNIT).0, units, STREAM_DEPTH, stop)?;
    for request_bytes in SENT {
        let asked = Question {
            experiment: Experiment::Sending,
            name: "sendfile",
            against: "read into a buffer, and sent",
            request_bytes,
            depth: 1,
            cache: Some(Cache::Hit),
            target: None,
            times: 1,
            memory_bytes: 0,
        };
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
                let subject = &subject;
                let wire = &wire;
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
            let sample = crate::load_threads::run(plan, stop, hire)?;
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

/// A connection to this process whose far end reads and discards.
struct Wire {
    near: TcpStream,
    /// Thread of the far end; it returns its processor time.
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
            let mut at = piece.offset;
            let end = piece.offset + u64::from(piece.length);
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

    /// Closes the connection, and returns the processor time of the far end.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bytes::Bytes;

    use super::*;
    use crate::subject::Payload;

    #[test]
    fn sendfile_sends_the_bytes_asked_for() {
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
