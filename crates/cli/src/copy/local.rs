//! The local end of a copy. Holes are neither read nor written.
//!
//! SEEK_DATA tells where a file has data; everything else is a hole. A file that grows during the copy is
//! copied to its new end; one that shrinks is an error. A pipe gets zeros where a file would have a hole.

use std::fs::File as LocalFile;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::pipeline::{Coming, CopyChunk, Feed, Free};
use super::zeros::{self, ZEROS};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::Progress;

/// Runs of zeros of this length, at aligned offsets, become holes in a file: the block size of most file
/// systems.
const BLOCK_BYTES: usize = 4096;

/// Reads a pipe to its end.
pub(super) fn read_stream(mut file: LocalFile, name: &str, mut feed: Feed) {
    let mut offset = 0;
    while let Some(mut buffer) = feed.pool.blocking_recv() {
        buffer.resize(feed.bytes, 0);
        let read = fill(|into, _| file.read(into), &mut buffer).doing(|| format!("read {name}"));
        let bytes = *read.as_ref().unwrap_or(&0);
        let last = bytes < feed.bytes;
        let coming = read.map(|bytes| CopyChunk { offset, buffer, bytes, may_have_holes: false });
        if feed.send.blocking_send(Coming::Here(coming)).is_err() || last {
            return;
        }
        offset += long(bytes);
    }
}

/// Reads a file that had `expected` bytes when it was opened. Skips holes in whole multiples of `granule`.
pub(super) fn read_file(file: &LocalFile, expected: u64, name: &str, granule: u64, mut feed: Feed) {
    match read_data(file, expected, name, granule, &mut feed) {
        Ok(Some(size)) => {
            // Tells where the file ends, in case it ends with a hole.
            let end = CopyChunk { offset: size, buffer: Vec::new(), bytes: 0, may_have_holes: false };
            let _ = feed.send.blocking_send(Coming::Here(Ok(end)));
        }
        // The receiver of the chunks is gone.
        Ok(None) => {}
        Err(failure) => drop(feed.send.blocking_send(Coming::Here(Err(failure)))),
    }
}

/// Sends the file's data. Returns the size at the end; `None` if the receiver of the chunks is gone.
fn read_data(
    file: &LocalFile,
    expected: u64,
    name: &str,
    granule: u64,
    feed: &mut Feed,
) -> Result<Option<u64>, Failure> {
    let what = || format!("read {name}");
    let mut offset = 0;
    loop {
        // Read before the search for data: what is appended meanwhile must not count as a hole.
        let size = file.metadata().doing(what)?.len();
        let Some(data) = next_data(file, offset, size, granule).doing(what)? else {
            let now = file.metadata().doing(what)?.len();
            return if size >= expected.max(offset) && now >= size {
                Ok(Some(size))
            } else {
                Err(shrunk(name, expected.max(offset).max(size), now.min(size)))
            };
        };
        offset = data.start;
        while offset < data.end {
            let Some(mut buffer) = feed.pool.blocking_recv() else { return Ok(None) };
            let want = usize::try_from(data.end - offset).unwrap_or(usize::MAX).min(feed.bytes);
            if buffer.len() < want {
                buffer.resize(want, 0);
            }
            let at = |into: &mut [u8], filled| file.read_at(into, offset + long(filled));
            let bytes = fill(at, &mut buffer[..want]).doing(what)?;
            if bytes < want {
                return Err(shrunk(name, expected.max(data.end), offset + long(bytes)));
            }
            let chunk = CopyChunk { offset, buffer, bytes, may_have_holes: false };
            if feed.send.blocking_send(Coming::Here(Ok(chunk))).is_err() {
                return Ok(None);
            }
            offset += long(bytes);
        }
    }
}

/// The next data at or after `offset`, rounded outward to multiples of `granule`, of a file of `size` bytes.
fn next_data(file: &LocalFile, offset: u64, size: u64, granule: u64) -> io::Result<Option<Range<u64>>> {
    if offset >= size {
        return Ok(None);
    }
    let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(at) => at..rustix::fs::seek(file, SeekFrom::Hole(at))?,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not support SEEK_DATA: all bytes count as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => offset..size,
        Err(error) => return Err(error.into()),
    };
    let granule = granule.max(1);
    let end = data.end.checked_next_multiple_of(granule).unwrap_or(u64::MAX).min(size.max(data.end));
    Ok(Some((data.start / granule * granule).max(offset)..end))
}

/// Reads until the buffer is full or the file ends. `read` gets the number of bytes already there.
fn fill(mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], filled) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn shrunk(name: &str, from: u64, to: u64) -> Failure {
    let why = format!("it shrank from {from} to {to} bytes while it was copied");
    Failure::new(Exit::Failed, format!("copy {name}"), why).remedy("nothing was stored; copy it again")
}

/// Writes chunks in order to a pipe, terminal or device, which cannot seek. Returns the bytes written.
pub(super) async fn write_stream(
    mut file: LocalFile,
    name: &str,
    mut chunks: mpsc::Receiver<Coming>,
    free: Free,
    progress: &Progress,
) -> Result<u64, Failure> {
    let mut written = 0;
    while let Some(coming) = chunks.recv().await {
        let chunk = coming.arrive().await?;
        let hole = chunk.offset - written;
        let end = chunk.end();
        let writing = tokio::task::spawn_blocking(move || {
            let result = write_zeros(&mut file, hole).and_then(|()| file.write_all(chunk.data()));
            (file, chunk.buffer, result)
        });
        let (back, buffer, result) =
            writing.await.map_err(io::Error::other).doing(|| format!("write {name}"))?;
        file = back;
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Failure::closed_pipe()),
            result => result.doing(|| format!("write {name}"))?,
        }
        let _ = free.try_send(buffer);
        progress.add(short(end - written));
        written = end;
    }
    Ok(written)
}

fn write_zeros(file: &mut LocalFile, mut bytes: u64) -> io::Result<()> {
    while bytes > 0 {
        let piece = short(bytes).min(ZEROS.len());
        file.write_all(&ZEROS[..piece])?;
        bytes -= long(piece);
    }
    Ok(())
}

/// Writes chunks at their offsets in a new, empty file; blocks of zeros become holes. Returns its size.
pub(super) async fn write_file(
    mut file: LocalFile,
    name: &str,
    mut chunks: mpsc::Receiver<Coming>,
    free: Free,
    progress: &Progress,
) -> Result<u64, Failure> {
    let what = || format!("write {name}");
    let mut size = 0;
    while let Some(coming) = chunks.recv().await {
        let chunk = coming.arrive().await?;
        let end = chunk.end();
        let writing = tokio::task::spawn_blocking(move || {
            let mut runs = zeros::data_runs(chunk.data(), BLOCK_BYTES).into_iter();
            let result = runs.try_for_each(|run| {
                file.write_all_at(&chunk.data()[run.clone()], chunk.offset + long(run.start))
            });
            (file, chunk.buffer, result)
        });
        let (back, buffer, result) = writing.await.map_err(io::Error::other).doing(what)?;
        file = back;
        result.doing(what)?;
        let _ = free.try_send(buffer);
        progress.add(short(end - size));
        size = end;
    }
    file.set_len(size).doing(what)?;
    Ok(size)
}

fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn short(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_in_whole_granules_and_holes_are_passed_over() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 40).expect("sparse");
        file.write_all_at(&[1; 5000], 3 << 20).expect("written");
        file.write_all_at(b"end", (1 << 40) - 3).expect("written");
        let size = 1 << 40;
        let at = |offset| next_data(&file, offset, size, 1 << 20).expect("told");
        assert_eq!(at(0), Some(3 << 20..4 << 20));
        assert_eq!(at((3 << 20) + 9), Some((3 << 20) + 9..4 << 20));
        assert_eq!(at(4 << 20), Some(size - (1 << 20)..size));
        assert_eq!(at(size), None);
    }
}
