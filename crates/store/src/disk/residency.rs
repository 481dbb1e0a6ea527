//! Tells which bytes of a file are in the page cache, so that sending them does not wait for the disk.
//!
//! `cachestat(2)`, Linux 6.5. If the kernel lacks it or a container forbids it, the answer is unknown.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Number of the system call, the same on every architecture like those of all newer calls.
const CACHESTAT: libc::c_long = 451;

/// The kernel's `struct cachestat_range`, in bytes.
#[repr(C)]
struct Span {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`, in pages.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// True if every page of `length` bytes from `offset` on is in the page cache now; `None`: unknown.
pub(crate) fn are_resident(file: &File, offset: u64, length: u64) -> Option<bool> {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let expected = if length == 0 { 0 } else { (offset + length).div_ceil(page) - offset / page };
    Some(resident_pages(file, offset, length)? >= expected)
}

/// Returns true if the system tells which bytes of files are in the page cache. Otherwise nothing is sent by
/// `sendfile`, as that might wait for the disk.
pub fn is_residency_told() -> bool {
    // No file is passed: a system that has the call reports a bad file descriptor.
    static TOLD: LazyLock<bool> =
        LazyLock::new(|| stat(-1, Span { offset: 0, length: 1 }) == Err(Errno::BADF));
    *TOLD
}

fn resident_pages(file: &File, offset: u64, length: u64) -> Option<u64> {
    static NOT_OFFERED: AtomicBool = AtomicBool::new(false);
    if length == 0 {
        return Some(0);
    }
    if NOT_OFFERED.load(Ordering::Relaxed) {
        return None;
    }
    let pages = stat(file.as_raw_fd(), Span { offset, length });
    // No file will get an answer: do not ask again.
    if matches!(pages, Err(Errno::NOSYS | Errno::PERM)) {
        NOT_OFFERED.store(true, Ordering::Relaxed);
    }
    Some(pages.ok()?.cached)
}

fn stat(file: RawFd, span: Span) -> Result<Pages, Errno> {
    let mut pages = Pages::default();
    #[expect(unsafe_code, reason = "no library wraps this system call")]
    // SAFETY: both structures have the kernel's layout and outlive the call, which retains neither.
    let result =
        unsafe { libc::syscall(CACHESTAT, file, &raw const span, &raw mut pages, 0 as libc::c_uint) };
    if result == 0 { Ok(pages) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_just_written_is_resident_and_what_never_was_is_not() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[7; 20_000]).expect("written");
        assert_eq!(are_resident(&file, 0, 0), Some(true));
        // A kernel without the call answers for no file.
        assert_eq!(are_resident(&file, 0, 20_000).is_some(), is_residency_told());
        if is_residency_told() {
            assert_eq!(are_resident(&file, 0, 20_000), Some(true));
            assert_eq!(are_resident(&file, 5000, 100), Some(true));
            file.set_len(1 << 20).expect("longer");
            assert_eq!(are_resident(&file, 0, 1 << 20), Some(false), "holes have no pages");
            assert_eq!(are_resident(&file, 512 << 10, 4096), Some(false));
        }
    }
}
