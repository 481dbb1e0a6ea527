//! Whether bytes of a file are in the page cache: then sending them waits for no disk.
//!
//! `cachestat(2)`, Linux 6.5. Where the kernel does not have it or a container forbids it, nothing counts as resident.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The same on every architecture, as for all system calls of its time.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Span {
    offset: u64,
    length: u64,
}

/// `struct cachestat`: pages.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether every page of `length` bytes from `offset` on is in the page cache now.
pub(crate) fn is_resident(file: &File, offset: u64, length: u64) -> bool {
    if length == 0 {
        return true;
    }
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let expected = (offset + length).div_ceil(page) - offset / page;
    let (span, mut pages) = (Span { offset, length }, Pages::default());
    #[expect(unsafe_code, reason = "no library wraps this system call")]
    // SAFETY: both structures have the kernel's layout, and outlive the call, which keeps neither.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const span, &raw mut pages, 0 as libc::c_uint)
    };
    result == 0 && pages.cached >= expected
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_just_written_is_resident_and_what_never_was_is_not() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[7; 20_000]).expect("written");
        assert!(is_resident(&file, 0, 0));
        // A kernel without the call answers no to everything.
        if is_resident(&file, 0, 20_000) {
            assert!(is_resident(&file, 5000, 100));
            file.set_len(1 << 20).expect("longer");
            assert!(!is_resident(&file, 0, 1 << 20), "holes have no pages");
            assert!(!is_resident(&file, 512 << 10, 4096));
        }
    }
}
