//! Small files: read whole, written whole. The pipeline for large files would cost more than their bytes.

use std::fs::File as LocalFile;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use braid_client::File as RemoteFile;

use super::pipeline::gone;
use super::zeros;
use crate::output::exit::{Doing, Failure};
use crate::output::rate::Progress;

/// Maximum size of a small file in bytes. Holes are not looked for in small files, except in a file that is
/// nothing but a hole.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// Copies a local file of `expected` bytes. Returns false, with nothing written, if the pipeline must copy
/// it: its length has changed, or it is all zeros and may be a hole.
pub(super) async fn put(
    file: &LocalFile,
    expected: u64,
    name: &str,
    to: &RemoteFile,
    progress: &Progress,
) -> Result<bool, Failure> {
    let what = || format!("read {name}");
    let from = file.try_clone().doing(what)?;
    let length = usize::try_from(expected).unwrap_or(usize::MAX);
    let reading = tokio::task::spawn_blocking(move || read_whole(&from, length));
    let Some(bytes) = reading.await.map_err(io::Error::other).doing(what)?.doing(what)? else {
        return Ok(false);
    };
    to.write_at(&bytes, 0).await?;
    progress.add(bytes.len());
    Ok(true)
}

/// Copies a remote file of `size` bytes to a new local one. Returns false, with nothing written, if the
/// pipeline must copy it: the file is shorter than `size`, or all zeros and may be a hole.
pub(super) async fn get(
    from: &Arc<RemoteFile>,
    size: u64,
    to: &LocalFile,
    name: &str,
    progress: &Progress,
) -> Result<bool, Failure> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        let at = u64::try_from(filled).unwrap_or(u64::MAX);
        match from.read_at(&mut bytes[filled..], at).await.map_err(|error| gone(from, error))? {
            0 => return Ok(false),
            more => filled += more,
        }
    }
    if zeros::is_all(&bytes) {
        return Ok(false);
    }
    let what = || format!("write {name}");
    let file = to.try_clone().doing(what)?;
    let length = bytes.len();
    let writing = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, 0));
    writing.await.map_err(io::Error::other).doing(what)?.doing(what)?;
    progress.add(length);
    Ok(true)
}

/// Reads all of a file. Returns `None` if it has not this length or is all zeros.
fn read_whole(file: &LocalFile, length: usize) -> io::Result<Option<Vec<u8>>> {
    // One byte more tells whether it has grown.
    let mut bytes = vec![0; length + 1];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], u64::try_from(filled).unwrap_or(u64::MAX)) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok((filled == length && !zeros::is_all(&bytes)).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_left_to_others() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("f");
        std::fs::write(&path, b"abc").expect("written");
        let file = LocalFile::open(&path).expect("opened");
        assert_eq!(read_whole(&file, 3).expect("read").as_deref(), Some(&b"abc"[..]));
        assert_eq!(read_whole(&file, 2).expect("read"), None, "it has grown");
        assert_eq!(read_whole(&file, 4).expect("read"), None, "it has shrunk");
        std::fs::write(&path, [0; 3]).expect("written");
        assert_eq!(read_whole(&file, 3).expect("read"), None, "it may be a hole");
    }
}
