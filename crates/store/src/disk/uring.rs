//! Reads, writes and syncs by io_uring.
//!
//! A ring is lent to the thread that has something to do, which waits for the answer itself: a call costs one system call,
//! as without a ring, and no thread has to wake another. Rings are kept for the next call.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use io_uring::{IoUring, Probe, opcode, squeue, types};

/// Entries of a ring: one call is under way in it at a time.
const ENTRIES: u32 = 2;
/// Rings kept for the next call.
const KEPT_MAX: usize = 64;

/// Rings that nobody uses now.
pub(crate) struct Rings(Mutex<Vec<IoUring>>);

impl Rings {
    /// An error where the kernel does not have io_uring, or a policy forbids it.
    pub(crate) fn new() -> io::Result<Rings> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
        if needed.iter().all(|&code| probe.is_supported(code)) {
            Ok(Rings(Mutex::new(vec![ring])))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub(crate) fn read(&self, file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = u32::try_from(to.len()).unwrap_or(u32::MAX);
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to.as_mut_ptr(), length).offset(offset);
        self.run(&read.build())
    }

    pub(crate) fn write(&self, file: &File, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let count = u32::try_from(buffers.len()).unwrap_or(u32::MAX);
        // The standard library promises that an `IoSlice` is an `iovec`.
        let vectors = buffers.as_ptr().cast::<libc::iovec>();
        let write = opcode::Writev::new(types::Fd(file.as_raw_fd()), vectors, count).offset(offset);
        self.run(&write.build())
    }

    /// Bytes and length alone if that is enough (`data`), else everything about the file.
    pub(crate) fn sync(&self, file: &File, data: bool) -> io::Result<()> {
        let flags = if data { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        self.run(&opcode::Fsync::new(types::Fd(file.as_raw_fd())).flags(flags).build()).map(drop)
    }

    /// Do what `entry` says and wait for it. What it points to is the caller's, who waits here.
    fn run(&self, entry: &squeue::Entry) -> io::Result<usize> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ring = kept.map_or_else(|| IoUring::new(ENTRIES), Ok)?;
        #[expect(unsafe_code, reason = "the ring takes addresses")]
        // SAFETY: the memory and the file that the entry names are borrowed by the caller of this function, which does not
        // return before the kernel has given the entry back, or has never seen it.
        unsafe {
            ring.submission().push(entry).map_err(|_| io::ErrorKind::WouldBlock)?;
        }
        let result = loop {
            let entered = ring.submit_and_wait(1);
            if let Some(done) = ring.completion().next() {
                break done.result();
            }
            match entered {
                // The entry was not taken, and the ring goes with it.
                Err(error) if !is_passing(&error) && !ring.submission().is_empty() => return Err(error),
                _ => {}
            }
        };
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT_MAX {
            idle.push(ring);
        }
        drop(idle);
        usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
    }
}

/// Whether it is to be tried again at once.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}
