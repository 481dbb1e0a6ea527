//! A file of an NFS server, read in this process: as much of NFSv3 over TCP (RFC 1813) as that takes. The
//! kernel here need not know NFS.
//!
//! A read of a chunk is sent as requests of 512 KiB all at once, and their answers are taken in order.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes of one request.
const REQUEST_BYTES: usize = 512 << 10;
/// The longest message that a server may send.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Longest wait for an answer.
const WAIT: Duration = Duration::from_secs(60);
/// Bytes of a file's attributes in an answer.
const ATTRIBUTES_BYTES: usize = 84;

/// The place of a file on a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Address of the server, without a port.
    pub server: String,
    /// Port of the program that serves files.
    pub nfs_port: u16,
    /// Port of the program that answers for exports.
    pub mount_port: u16,
    /// Path of the export.
    pub export: String,
    /// Name of the file in it.
    pub file: String,
}

/// A connection to the server of one file.
#[derive(Debug)]
pub struct Nfs {
    connection: Connection,
    file: Vec<u8>,
}

/// A procedure: its program and version, and its number.
#[derive(Debug, Clone, Copy)]
struct Procedure(u32, u32, u32);

const MOUNT: Procedure = Procedure(100_005, 3, 1);
const LOOKUP: Procedure = Procedure(100_003, 3, 3);
const READ: Procedure = Procedure(100_003, 3, 6);

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    number: u32,
}

impl Nfs {
    /// Connects, and finds the file.
    pub fn open(place: &Place) -> io::Result<Nfs> {
        let mut mount = Connection::to(&place.server, place.mount_port)?;
        let mut answer = mount.ask(MOUNT, &Words::default().opaque(place.export.as_bytes()))?;
        answer.status("mount the export")?;
        let export = answer.opaque()?.to_vec();
        let mut connection = Connection::to(&place.server, place.nfs_port)?;
        let asked = &Words::default().opaque(&export).opaque(place.file.as_bytes());
        let mut answer = connection.ask(LOOKUP, asked)?;
        answer.status("look the file up")?;
        let file = answer.opaque()?.to_vec();
        Ok(Nfs { connection, file })
    }

    /// Fills `into` with the file's bytes from `offset` on.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for part in into.chunks(REQUEST_BYTES) {
            self.ask_for(at, part.len())?;
            at += wide(part.len());
        }
        let mut short = Vec::new();
        for (number, part) in into.chunks_mut(REQUEST_BYTES).enumerate() {
            let from = number * REQUEST_BYTES;
            let read = self.take(part)?;
            short.extend((read < part.len()).then_some(from + read..from + part.len()));
        }
        // What a server leaves out of its answers is asked for again.
        for mut rest in short {
            while !rest.is_empty() {
                let at = offset + wide(rest.start);
                self.ask_for(at, rest.len())?;
                match self.take(&mut into[rest.clone()])? {
                    0 => {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            format!("the file ends at {at}"),
                        ));
                    }
                    read => rest.start += read,
                }
            }
        }
        Ok(())
    }

    fn ask_for(&mut self, offset: u64, bytes: usize) -> io::Result<()> {
        let bytes = u32::try_from(bytes).map_err(io::Error::other)?;
        let asked = &Words::default().opaque(&self.file).long(offset).word(bytes);
        self.connection.send(READ, asked).map(drop)
    }

    /// Takes the next answer to a read. Returns the number of its bytes.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut answer = self.connection.receive()?;
        answer.status("read")?;
        if answer.word()? != 0 {
            answer.skip(ATTRIBUTES_BYTES)?;
        }
        // Its count, and whether the file ends with it.
        answer.skip(8)?;
        let bytes = answer.opaque()?;
        let place = into.get_mut(..bytes.len()).ok_or_else(|| wrong("it sent more bytes than asked for"))?;
        place.copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

impl Connection {
    fn to(server: &str, port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((server, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        Ok(Connection { stream, number: 0 })
    }

    fn ask(&mut self, procedure: Procedure, asked: &Words) -> io::Result<Answer> {
        let number = self.send(procedure, asked)?;
        let answer = self.receive()?;
        if answer.number == number { Ok(answer) } else { Err(wrong("it answered another request")) }
    }

    fn send(&mut self, procedure: Procedure, asked: &Words) -> io::Result<u32> {
        self.number += 1;
        let call = call(self.number, procedure, &asked.0);
        self.stream.write_all(&call)?;
        Ok(self.number)
    }

    fn receive(&mut self) -> io::Result<Answer> {
        let mut message = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let length = usize::try_from(mark & 0x7fff_ffff).map_err(io::Error::other)?;
            let from = message.len();
            if from + length > MESSAGE_BYTES_MAX {
                return Err(wrong("its answer is too long"));
            }
            message.resize(from + length, 0);
            self.stream.read_exact(&mut message[from..])?;
            if mark >> 31 == 1 {
                return Answer::of(message);
            }
        }
    }
}

/// A call as it is sent: a record of one fragment, for user and group 0.
fn call(number: u32, procedure: Procedure, asked: &[u8]) -> Vec<u8> {
    let Procedure(program, version, procedure) = procedure;
    let user = Words::default().word(0).opaque(b"braid-lab").word(0).word(0).word(0);
    let head = Words::default().word(number).word(0).word(2).word(program).word(version).word(procedure);
    let Words(mut body) = head.word(1).opaque(&user.0).word(0).word(0);
    body.extend_from_slice(asked);
    let mark = u32::try_from(body.len()).expect("a call is short") | 1 << 31;
    let mut call = mark.to_be_bytes().to_vec();
    call.append(&mut body);
    call
}

/// Values as XDR has them.
#[derive(Debug, Default)]
struct Words(Vec<u8>);

impl Words {
    fn word(mut self, word: u32) -> Words {
        self.0.extend_from_slice(&word.to_be_bytes());
        self
    }

    fn long(mut self, long: u64) -> Words {
        self.0.extend_from_slice(&long.to_be_bytes());
        self
    }

    /// Bytes with their length, filled up to whole words.
    fn opaque(self, bytes: &[u8]) -> Words {
        let Words(mut all) = self.word(u32::try_from(bytes.len()).expect("it is short"));
        all.extend_from_slice(bytes);
        all.resize(all.len().next_multiple_of(4), 0);
        Words(all)
    }
}

/// An answer, of which the head has been taken.
#[derive(Debug)]
struct Answer {
    number: u32,
    message: Vec<u8>,
    at: usize,
}

impl Answer {
    fn of(message: Vec<u8>) -> io::Result<Answer> {
        let mut answer = Answer { number: 0, message, at: 0 };
        answer.number = answer.word()?;
        if answer.word()? != 1 || answer.word()? != 0 {
            return Err(wrong("it denied a request"));
        }
        answer.word()?;
        answer.opaque()?;
        match answer.word()? {
            0 => Ok(answer),
            why => Err(wrong(&format!("it did not run a request, for reason {why}"))),
        }
    }

    fn status(&mut self, doing: &str) -> io::Result<()> {
        match self.word()? {
            0 => Ok(()),
            status => Err(io::Error::other(format!("failed to {doing}: the NFS server said {status}"))),
        }
    }

    fn word(&mut self) -> io::Result<u32> {
        let bytes = self.message.get(self.at..).and_then(|rest| rest.first_chunk()).ok_or_else(ended)?;
        let word = u32::from_be_bytes(*bytes);
        self.at += 4;
        Ok(word)
    }

    fn skip(&mut self, bytes: usize) -> io::Result<()> {
        self.at += bytes;
        if self.at > self.message.len() { Err(ended()) } else { Ok(()) }
    }

    fn opaque(&mut self) -> io::Result<&[u8]> {
        let length = usize::try_from(self.word()?).map_err(io::Error::other)?;
        let from = self.at;
        self.skip(length.next_multiple_of(4))?;
        Ok(&self.message[from..from + length])
    }
}

fn ended() -> io::Error {
    wrong("its answer is too short")
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the NFS server: {what}"))
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("memory is shorter than 2^64 bytes")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Sends an answer as a server does, in two fragments.
    fn answer(stream: &mut TcpStream, number: u32, results: Words) {
        let Words(mut body) = Words::default().word(number).word(1).word(0).word(0).word(0).word(0);
        body.extend(results.0);
        let (first, last) = body.split_at(8);
        for (part, bit) in [(first, 0), (last, 1_u32 << 31)] {
            let mark = u32::try_from(part.len()).expect("short") | bit;
            stream.write_all(&mark.to_be_bytes()).and_then(|()| stream.write_all(part)).expect("sent");
        }
    }

    /// Takes a call: its number, its procedure, and what is asked.
    fn taken(stream: &mut TcpStream) -> (u32, u32, Vec<u8>) {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).expect("a call");
        let length = usize::try_from(u32::from_be_bytes(mark) & 0x7fff_ffff).expect("short");
        let mut call = vec![0; length];
        stream.read_exact(&mut call).expect("a call");
        let word = |at: usize| u32::from_be_bytes(*call[at..].first_chunk().expect("a word"));
        let credential = usize::try_from(word(28)).expect("short");
        (word(0), word(20), call[40 + credential..].to_vec())
    }

    #[test]
    fn a_chunk_is_read_whole_from_short_answers() {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let [mount, nfs] = [listen(), listen()];
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let place = Place {
            server: "127.0.0.1".into(),
            nfs_port: port(&nfs),
            mount_port: port(&mount),
            export: "/export".into(),
            file: "sales".into(),
        };
        let content: Vec<u8> =
            (0..700_000_u32).map(|byte| u8::try_from(byte % 251).expect("small")).collect();
        let served = content.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = mount.accept().expect("a client");
            let (number, procedure, asked) = taken(&mut stream);
            assert_eq!((procedure, asked), (1, Words::default().opaque(b"/export").0));
            answer(&mut stream, number, Words::default().word(0).opaque(b"root").word(0));
            let (mut stream, _) = nfs.accept().expect("a client");
            let (number, procedure, asked) = taken(&mut stream);
            assert_eq!((procedure, asked), (3, Words::default().opaque(b"root").opaque(b"sales").0));
            answer(&mut stream, number, Words::default().word(0).opaque(b"handle").word(0).word(0));
            // Two requests, the second of which is answered in part, and the rest of it.
            for given in [REQUEST_BYTES, 1000, usize::MAX] {
                let (number, procedure, asked) = taken(&mut stream);
                let offset = u64::from_be_bytes(*asked[12..].first_chunk().expect("an offset"));
                let count = u32::from_be_bytes(*asked[20..].first_chunk().expect("a count"));
                let from = usize::try_from(offset).expect("small");
                let bytes = &served[from..][..usize::try_from(count).expect("small").min(given)];
                assert_eq!(procedure, 6);
                let head = Words::default().word(0).word(0).word(0).word(0);
                answer(&mut stream, number, head.opaque(bytes));
            }
            let (number, ..) = taken(&mut stream);
            answer(&mut stream, number, Words::default().word(5));
        });
        let mut file = Nfs::open(&place).expect("opened");
        let mut read = vec![0; content.len() - 10];
        file.read(10, &mut read).expect("read");
        assert!(read == content[10..]);
        let refused = file.read(0, &mut read[..1]).expect_err("refused").to_string();
        assert!(refused.contains("failed to read: the NFS server said 5"), "{refused}");
        server.join().expect("the server's checks hold");
    }
}
