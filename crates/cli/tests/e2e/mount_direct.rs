//! Asynchronous writes past the kernel's pages (`O_DIRECT`), whose end a program learns later. Meanwhile
//! other programs of the same mount read by pages.

use std::fs::{self, File, OpenOptions};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mount::Mounted;
use crate::support::Cluster;

const PAGE: usize = 4096;
/// Offset of the page that is written.
const AT: u32 = 4096;
/// `IOCB_CMD_PWRITE` of `linux/aio_abi.h`.
const PWRITE: u16 = 1;

#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// `struct iocb` of `linux/aio_abi.h`, on little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_descriptor: u32,
}

/// A queue of asynchronous requests.
struct Queue(libc::c_ulong);

fn call(done: libc::c_long) -> libc::c_long {
    assert!(done >= 0, "{}", Error::last_os_error());
    done
}

impl Queue {
    fn new() -> Queue {
        let mut queue: libc::c_ulong = 0;
        // SAFETY: the kernel writes to the number only while the call lasts.
        #[expect(unsafe_code, reason = "the system's calls for asynchronous requests have no safe form")]
        call(unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut queue) });
        Queue(queue)
    }

    /// Writes a page, and waits for the report that it is written.
    fn write(&self, file: &File, page: &Page, offset: i64) {
        let mut request = Request {
            opcode: PWRITE,
            descriptor: u32::try_from(file.as_raw_fd()).expect("a descriptor"),
            buffer: u64::try_from(page.0.as_ptr().addr()).expect("an address"),
            length: PAGE as u64,
            offset,
            ..Request::default()
        };
        let mut requests = [&raw mut request];
        let mut events = [[0_u64; 4]];
        // SAFETY: request, page and events outlive both calls, the second of which waits for the first's end.
        #[expect(unsafe_code, reason = "the system's calls for asynchronous requests have no safe form")]
        unsafe {
            assert_eq!(call(libc::syscall(libc::SYS_io_submit, self.0, 1, requests.as_mut_ptr())), 1);
            let none = std::ptr::null::<libc::timespec>();
            let done = libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, events.as_mut_ptr(), none);
            assert_eq!(call(done), 1);
        }
        assert_eq!(events[0][2], PAGE as u64, "bytes written");
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: no request is under way in the queue.
        #[expect(unsafe_code, reason = "the system's calls for asynchronous requests have no safe form")]
        unsafe {
            libc::syscall(libc::SYS_io_destroy, self.0)
        };
    }
}

#[test]
fn who_reads_by_pages_sees_what_was_written_past_them() {
    let cluster = Cluster::up(5);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let path = mounted.at.join("f");
    fs::write(&path, [0; 4 * PAGE]).expect("written");
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let writer = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&path).expect("opened");
    let reader = File::open(&path).expect("opened");
    let queue = Queue::new();
    let read = || {
        let mut seen = [0; PAGE];
        reader.read_exact_at(&mut seen, u64::from(AT)).map(|()| seen).expect("read")
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // While a write is under way, the old page is read again and again.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                read();
            }
        });
        let rounds = (1..=60_u8).filter(|round| {
            queue.write(&writer, &Page([*round; PAGE]), i64::from(AT));
            read() == [*round; PAGE]
        });
        let right = rounds.count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(right, 60, "rounds in which the new page was read");
    });
}
