//! Reading from a disk with unreadable sectors.
//!
//! An unreadable sector is damage like any other: it affects only the bytes that lie on it. While a store is
//! opened or checked such bytes read as zeros, and their positions are reported. Zeros are no valid structure
//! of the format, and no valid payload but one of zeros.

use std::io;

use super::{DiskFile, read_full};
use crate::format::DecodeError;

/// The least that a system reads: next to a bad sector, no byte of the same page can be read.
const PAGE_BYTES: usize = 4096;
/// The most unreadable pages of one read. With more, the disk or its cable has failed, and the missing bytes
/// prove nothing about the store.
const UNREADABLE_MAX: usize = 16;
/// The errors of reading a bad sector: page caches report EIO, devices may be more specific.
const UNREADABLE: [i32; 4] = [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EBADMSG];

/// The result of a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SalvageRead {
    /// Bytes, fewer than asked for only at the file's end.
    pub(crate) bytes: usize,
    /// The offsets of the pages that could not be read. They are zeros in the buffer.
    pub(crate) unreadable: Vec<u64>,
}

impl SalvageRead {
    /// The number of bytes, if all of them could be read.
    pub(crate) fn all(self) -> Result<usize, DecodeError> {
        if self.unreadable.is_empty() { Ok(self.bytes) } else { Err(DecodeError::Unreadable) }
    }
}

/// Returns true if one of the unreadable pages overlaps the `bytes` from `offset` on.
pub(crate) fn hits(unreadable: &[u64], offset: u64, bytes: u64) -> bool {
    unreadable.iter().any(|page| *page < offset.saturating_add(bytes) && offset < page + PAGE_BYTES as u64)
}

/// Fill `to` from `offset`, up to the file's end. A few unreadable pages are filled with zeros.
pub(crate) fn salvage_read(file: &dyn DiskFile, to: &mut [u8], offset: u64) -> io::Result<SalvageRead> {
    match read_full(file, to, offset) {
        Ok(bytes) => return Ok(SalvageRead { bytes, unreadable: Vec::new() }),
        Err(error) if !is_unreadable(&error) => return Err(error),
        Err(_) => {}
    }
    let length = file.length()?;
    let mut got = SalvageRead::default();
    while got.bytes < to.len() {
        let at = offset + u64::try_from(got.bytes).expect("a length");
        let within = usize::try_from(at % PAGE_BYTES as u64).expect("small");
        let left = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX);
        let count = (PAGE_BYTES - within).min(to.len() - got.bytes).min(left);
        let part = &mut to[got.bytes..got.bytes + count];
        match read_full(file, part, at) {
            Ok(0) => break,
            Ok(bytes) => got.bytes += bytes,
            Err(error) if is_unreadable(&error) => {
                got.unreadable.push(at - at % PAGE_BYTES as u64);
                if got.unreadable.len() > UNREADABLE_MAX {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("{error}, from byte {at} on and elsewhere"),
                    ));
                }
                part.fill(0);
                got.bytes += count;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| UNREADABLE.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::super::{Disk, write_full};
    use super::*;

    #[test]
    fn bad_pages_are_zeros_and_told_and_too_many_are_an_error() {
        let disk = Memory::new(1);
        let file = disk.create("f").expect("made");
        let bytes: Vec<u8> = (0..40_u8).flat_map(|page| [page + 1; PAGE_BYTES]).collect();
        write_full(&*file, &[&bytes[..39 * PAGE_BYTES + 100]], 0).expect("written");
        disk.spoil("f", 2 * 4096 + 1000..2 * 4096 + 1001);
        disk.spoil("f", 39 * 4096..40 * 4096);
        let mut to = vec![9; 3 * PAGE_BYTES];
        assert!(read_full(&*file, &mut to, 4096 + 10).is_err());
        let got = salvage_read(&*file, &mut to, 4096 + 10).expect("the rest");
        assert_eq!(got, SalvageRead { bytes: to.len(), unreadable: vec![2 * 4096] });
        let mut expected = bytes[4096 + 10..][..to.len()].to_vec();
        expected[4086..4086 + PAGE_BYTES].fill(0);
        assert!(to == expected);
        let end = salvage_read(&*file, &mut to, 38 * 4096).expect("the end");
        assert_eq!(end, SalvageRead { bytes: PAGE_BYTES + 100, unreadable: vec![39 * 4096] });
        assert!(hits(&end.unreadable, 39 * 4096 - 1, 2) && hits(&end.unreadable, 39 * 4096 + 4095, 1));
        assert!(!hits(&end.unreadable, 39 * 4096 - 1, 1) && !hits(&end.unreadable, 40 * 4096, 1));
        disk.spoil("f", 4 * 4096..20 * 4096);
        let mut all = vec![0; bytes.len()];
        let failed = salvage_read(&*file, &mut all, 0).expect_err("too many");
        assert!(failed.to_string().contains("from byte 77824 on"), "{failed}");
        let some = salvage_read(&*file, &mut all[..19 * PAGE_BYTES], 3 * 4096).expect("just not too many");
        assert_eq!(some.unreadable.len(), UNREADABLE_MAX);
    }
}
