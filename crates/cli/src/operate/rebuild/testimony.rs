//! A drive's testimony in a file, to be carried to the machine where a manager is rebuilt. The format is in
//! docs/format-names.md.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use braid_layout::{ClusterId, DriveId, FileId, ObjectId};
use braid_manager::catalogue::rebuild::{Age, Component, Known, Witness};
use braid_wire::capability::Key;
use braid_wire::checksum::RunningCrc;
use serde::{Deserialize, Serialize};

use super::witness::Who;

const MAGIC: [u8; 8] = *b"BRAIDTS\x01";
const END: u8 = 0;
const FRAME: u8 = 1;
const COMPONENT: u8 = 2;
const UNREADABLE: u8 = 3;
/// Most bytes of a frame, or of the head.
const PART_BYTES_MAX: u32 = 16 << 20;

/// The head of the file, as JSON.
#[derive(Serialize, Deserialize)]
struct Head {
    cluster: String,
    drive: String,
    name: String,
    manager: Option<String>,
    master_key: String,
    key_number: u32,
    instance: u64,
    directory: String,
    seen_term: u64,
    seen_changes: u64,
}

/// Writes all that a drive can tell, readable to its owner only. Returns the file's length.
pub(super) fn write(path: &Path, witness: &(impl Witness + Who)) -> io::Result<u64> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = write_to(BufWriter::new(file), witness);
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

fn write_to(file: BufWriter<File>, witness: &(impl Witness + Who)) -> io::Result<u64> {
    let known = witness.known();
    let head = Head {
        cluster: format!("{:032x}", witness.cluster().0),
        drive: format!("{:032x}", known.drive.0),
        name: known.name.clone(),
        manager: witness.manager().map(str::to_owned),
        master_key: hex(known.master.secret()),
        key_number: known.key_number,
        instance: known.instance,
        directory: known.directory.clone(),
        seen_term: known.seen.term,
        seen_changes: known.seen.changes,
    };
    let mut out = Summed { inner: file, crc: RunningCrc::new(), bytes: 0 };
    out.write_all(&MAGIC)?;
    let head = serde_json::to_vec(&head)?;
    out.write_all(&length(&head)?.to_le_bytes())?;
    out.write_all(&head)?;
    for stream in witness.streams().map_err(io::Error::other)? {
        for number in 0..witness.frames(stream).map_err(io::Error::other)? {
            // A missing one is told by those after it.
            let (kind, bytes) = match witness.frame(stream, number) {
                Ok(Some(bytes)) => (FRAME, bytes),
                Ok(None) => continue,
                Err(why) => (UNREADABLE, why.into_bytes()),
            };
            out.write_all(&[kind])?;
            out.write_all(&stream.0.to_le_bytes())?;
            out.write_all(&number.to_le_bytes())?;
            out.write_all(&length(&bytes)?.to_le_bytes())?;
            out.write_all(&bytes)?;
        }
    }
    let mut failed = None;
    let mut each = |component: Component| {
        let wrote = out.write_all(&[COMPONENT]).and_then(|()| out.write_all(&component.file.0.to_le_bytes()));
        failed = failed.take().or(wrote.err());
    };
    witness.components(&mut each).map_err(io::Error::other)?;
    if let Some(error) = failed {
        return Err(error);
    }
    out.write_all(&[END])?;
    let crc = out.crc.value();
    out.write_all(&crc.to_le_bytes())?;
    let bytes = out.bytes;
    out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(bytes)
}

/// A frame in the file.
enum Part {
    Frame {
        offset: u64,
        bytes: u32,
    },
    /// The drive could not read it, for this reason.
    Unreadable(String),
}

/// A testimony in a file.
pub(super) struct FileWitness {
    file: File,
    cluster: ClusterId,
    known: Known,
    manager: Option<String>,
    /// The frames, by stream and number.
    frames: BTreeMap<(ObjectId, u64), Part>,
    components: Vec<FileId>,
}

impl FileWitness {
    /// Reads a testimony to its end. The error says what is wrong with it.
    pub(super) fn open(path: &Path) -> io::Result<FileWitness> {
        let file = File::open(path)?;
        let mut input = SummedInput { inner: BufReader::new(&file), crc: RunningCrc::new(), at: 0 };
        if input.array::<8>()? != MAGIC {
            return Err(damaged("it is no testimony of a drive, or of another version"));
        }
        let head_bytes = input.length()?;
        let head: Head = serde_json::from_slice(&input.bytes(head_bytes)?)
            .map_err(|error| damaged(&format!("its head cannot be read: {error}")))?;
        let mut frames = BTreeMap::new();
        let mut components = Vec::new();
        loop {
            match input.array::<1>()? {
                [END] => break,
                [kind @ (FRAME | UNREADABLE)] => {
                    let stream = ObjectId(u64::from_le_bytes(input.array()?));
                    let number = u64::from_le_bytes(input.array()?);
                    let bytes = input.length()?;
                    let offset = input.at;
                    let contents = input.bytes(bytes)?;
                    let part = match kind {
                        FRAME => Part::Frame { offset, bytes },
                        _ => Part::Unreadable(String::from_utf8_lossy(&contents).into_owned()),
                    };
                    frames.insert((stream, number), part);
                }
                [COMPONENT] => components.push(FileId(u64::from_le_bytes(input.array()?))),
                [other] => return Err(damaged(&format!("it has a part of kind {other}, which is unknown"))),
            }
        }
        let crc = input.crc.value();
        if u32::from_le_bytes(input.array()?) != crc {
            return Err(damaged("its checksum is wrong: it is damaged"));
        }
        let id = |text: &str| {
            u128::from_str_radix(text, 16).map_err(|_| damaged(&format!("{text:?} is no identity")))
        };
        let known = Known {
            drive: DriveId(id(&head.drive)?),
            name: head.name,
            master: Key::new(unhex(&head.master_key).ok_or_else(|| damaged("its key is none"))?),
            key_number: head.key_number,
            instance: head.instance,
            directory: head.directory,
            seen: Age { term: head.seen_term, changes: head.seen_changes },
        };
        let cluster = ClusterId(id(&head.cluster)?);
        Ok(FileWitness { file, cluster, known, manager: head.manager, frames, components })
    }
}

impl Who for FileWitness {
    fn manager(&self) -> Option<&str> {
        self.manager.as_deref()
    }
}

impl Witness for FileWitness {
    fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn known(&self) -> &Known {
        &self.known
    }

    fn streams(&self) -> Result<Vec<ObjectId>, String> {
        let mut streams: Vec<ObjectId> = self.frames.keys().map(|(stream, _)| *stream).collect();
        streams.dedup();
        Ok(streams)
    }

    fn frames(&self, stream: ObjectId) -> Result<u64, String> {
        let last = self.frames.range((stream, 0)..=(stream, u64::MAX)).next_back();
        Ok(last.map_or(0, |((_, number), _)| number.saturating_add(1)))
    }

    fn frame(&self, stream: ObjectId, number: u64) -> Result<Option<Vec<u8>>, String> {
        match self.frames.get(&(stream, number)) {
            None => Ok(None),
            Some(Part::Unreadable(why)) => Err(why.clone()),
            Some(Part::Frame { offset, bytes }) => {
                let mut frame = vec![0; usize::try_from(*bytes).unwrap_or(0)];
                self.file.read_exact_at(&mut frame, *offset).map_err(|error| error.to_string())?;
                Ok(Some(frame))
            }
        }
    }

    fn components(&self, each: &mut dyn FnMut(Component)) -> Result<(), String> {
        self.components.iter().for_each(|file| each(Component { file: *file }));
        Ok(())
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// A writer that counts and checksums all bytes.
struct Summed<W> {
    inner: W,
    crc: RunningCrc,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.crc.update(&bytes[..count]);
        self.bytes += u64::try_from(count).unwrap_or(u64::MAX);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A reader that counts and checksums all bytes.
struct SummedInput<R> {
    inner: R,
    crc: RunningCrc,
    at: u64,
}

impl<R: Read> SummedInput<R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn length(&mut self) -> io::Result<u32> {
        let length = u32::from_le_bytes(self.array()?);
        if length > PART_BYTES_MAX {
            return Err(damaged(&format!("it has a part of {length} bytes: it is damaged")));
        }
        Ok(length)
    }

    fn bytes(&mut self, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("it ends too early: it is cut short"),
            _ => error,
        })?;
        self.crc.update(bytes);
        self.at += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(Known);

    impl Who for Fake {
        fn manager(&self) -> Option<&str> {
            None
        }
    }

    impl Witness for Fake {
        fn cluster(&self) -> ClusterId {
            ClusterId(0xc1)
        }
        fn known(&self) -> &Known {
            &self.0
        }
        fn streams(&self) -> Result<Vec<ObjectId>, String> {
            Ok(vec![ObjectId(5)])
        }
        fn frames(&self, _: ObjectId) -> Result<u64, String> {
            Ok(4)
        }
        fn frame(&self, _: ObjectId, number: u64) -> Result<Option<Vec<u8>>, String> {
            match number {
                0 | 3 => Ok(Some(vec![7; 9])),
                1 => Ok(None),
                _ => Err("the unit is damaged".to_owned()),
            }
        }
        fn components(&self, _: &mut dyn FnMut(Component)) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_frame_that_is_missing_or_cannot_be_read_is_so_in_the_file_too() {
        let known = Known {
            drive: DriveId(1),
            name: "d1".to_owned(),
            master: Key::new([3; 32]),
            key_number: 1,
            instance: 1,
            directory: String::new(),
            seen: Age::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d1.testimony");
        write(&path, &Fake(known.clone())).unwrap();
        let read = FileWitness::open(&path).unwrap();
        let stream = ObjectId(5);
        assert_eq!(read.frames(stream), Ok(4));
        for number in 0..5 {
            let there = if number < 4 { Fake(known.clone()).frame(stream, number) } else { Ok(None) };
            assert_eq!(read.frame(stream, number), there, "{number}");
        }
    }
}
