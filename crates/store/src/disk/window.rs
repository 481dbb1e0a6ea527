//! Bytes of a file in this process's memory, and what happens when they cannot be had.
//!
//! A page behind a map that is cut off the file, or that the medium does not give, is told by a signal (SIGBUS), which ends
//! the process unless somebody handles it. Here it breaks the window: zeros take its place, and whoever copied from it learns
//! that it got nothing. Signals about other memory go to whom they would have gone without this.

use std::fs::File;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// Address space of a window, from the file's beginning: a segment and its last commit, however long. It may reach past the file's end.
pub(crate) const WINDOW_BYTES: usize = 640 << 20;
/// Windows at a time, in all stores of the process.
const WINDOWS_MAX: usize = 2048;

/// All windows, where a signal's handler finds them: nothing can be locked or allocated there.
static SLOTS: [Slot; WINDOWS_MAX] =
    [const { Slot { begin: AtomicUsize::new(FREE), broken: AtomicBool::new(false) } }; _];
/// What was done about the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// `Slot::begin` of one that nobody has, and of one that is being made; neither is the address of a page.
const FREE: usize = 0;
const TAKEN: usize = 1;

struct Slot {
    /// The window's address.
    begin: AtomicUsize,
    /// A page of it could not be had.
    broken: AtomicBool,
}

/// The first [`WINDOW_BYTES`] of a file.
pub(crate) struct Window {
    memory: *mut libc::c_void,
    slot: &'static Slot,
}

#[expect(unsafe_code, reason = "raw addresses are neither by themselves")]
// SAFETY: the memory is only read, and the slot is made of atomics.
unsafe impl Send for Window {}
#[expect(unsafe_code, reason = "raw addresses are neither by themselves")]
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// `None` where the system does not let us have one: too little address space, no such files, too many windows.
    pub(crate) fn of(file: &File) -> Option<Window> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if !may_map() {
            return None;
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let take = |slot: &&Slot| {
            slot.begin.load(Ordering::Relaxed) == FREE
                && slot.begin.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let slot = (0..WINDOWS_MAX).map(|n| &SLOTS[next.wrapping_add(n) % WINDOWS_MAX]).find(take)?;
        slot.broken.store(false, Ordering::Relaxed);
        #[expect(unsafe_code, reason = "a map is made of raw memory")]
        // SAFETY: a new map, which nobody knows but this window. Only `copy` reads it.
        let memory = unsafe {
            rustix::mm::mmap(ptr::null_mut(), WINDOW_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0)
        };
        let Ok(memory) = memory else {
            slot.begin.store(FREE, Ordering::Release);
            return None;
        };
        slot.begin.store(memory.addr(), Ordering::Release);
        let window = Window { memory, slot };
        // What is not there is read alone: the pages around it, of which nobody knows that they are wanted, would push out others.
        window.advise(0..WINDOW_BYTES, Advice::Random);
        Some(window)
    }

    /// Whether bytes of it could not be had: nothing can be copied from it any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.slot.broken.load(Ordering::Relaxed)
    }

    /// Fill `to` with the file's bytes from `from` on. False: they could not all be had, and `to` may hold anything. They must
    /// lie in the window.
    pub(crate) fn copy(&self, to: &mut [u8], from: usize) -> bool {
        assert!(from <= WINDOW_BYTES && to.len() <= WINDOW_BYTES - from, "past the window");
        if self.is_broken() {
            return false;
        }
        #[expect(unsafe_code, reason = "mapped memory has no reference: the file may change under it")]
        // SAFETY: the window is as long as was checked and there until `self` is dropped; where no page is behind it
        // the signal's handler puts one while this waits. `to` is the caller's alone.
        unsafe {
            ptr::copy_nonoverlapping(self.memory.cast::<u8>().add(from), to.as_mut_ptr(), to.len());
        }
        // The handler says so before it puts zeros in place.
        fence(Ordering::Acquire);
        !self.is_broken()
    }

    /// Let go of the pages that begin in `range`, which the system cannot drop while they are mapped. They come back when they
    /// are read.
    pub(crate) fn release(&self, range: Range<usize>) {
        self.advise(range, Advice::LinuxDontNeed);
    }

    fn advise(&self, range: Range<usize>, advice: Advice) {
        let page_bytes = rustix::param::page_size();
        let range = range.start / page_bytes * page_bytes..range.end.min(WINDOW_BYTES);
        if range.is_empty() || self.is_broken() {
            return;
        }
        #[expect(unsafe_code, reason = "a map is made of raw memory")]
        // SAFETY: within the window, which is only read: its pages come back as they are in the file.
        let _ = unsafe { rustix::mm::madvise(self.memory.byte_add(range.start), range.len(), advice) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // First, so that the handler takes nobody else's memory there for ours.
        self.slot.begin.store(TAKEN, Ordering::Relaxed);
        #[expect(unsafe_code, reason = "a map is made of raw memory")]
        // SAFETY: the whole of the map that `of` made; nobody reads it any more.
        let _ = unsafe { rustix::mm::munmap(self.memory, WINDOW_BYTES) };
        self.slot.begin.store(FREE, Ordering::Release);
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").finish_non_exhaustive()
    }
}

/// Whether files can be mapped: the address space is not so small that others would lack it, and the signal is handled, from
/// now on.
fn may_map() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let is_bounded = getrlimit(Resource::As).current.is_some();
        cfg!(target_pointer_width = "64") && !is_bounded && handle_signals()
    })
}

fn handle_signals() -> bool {
    #[expect(unsafe_code, reason = "no library wraps a handler that passes on what is not its own")]
    // SAFETY: the structures are zeroed, which is a valid value of each, and outlive the calls. The handler does only what may
    // be done in one: atomics and system calls.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 {
            return false;
        }
        let _ = BEFORE.set(before);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = (on_signal as *const ()).addr();
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) == 0
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    #[expect(unsafe_code, reason = "a signal's handler gets raw addresses")]
    // SAFETY: the kernel hands over a valid `info`, which has an address where its code says that memory is the cause.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // Of the thread that is here: it copies, or has nothing to do with any window.
    let is_access = matches!(code, libc::BUS_ADRERR | libc::BUS_MCEERR_AR);
    if !(is_access && break_window(address)) {
        pass_on(signal, info, context);
    }
}

/// Break the window that `address` lies in, and put zeros in its place. False: it is in none.
fn break_window(address: usize) -> bool {
    let begin_of = |slot: &Slot| {
        let begin = slot.begin.load(Ordering::Acquire);
        let is_hit = begin > TAKEN && address.checked_sub(begin).is_some_and(|offset| offset < WINDOW_BYTES);
        is_hit.then_some(begin)
    };
    let Some((slot, begin)) = SLOTS.iter().find_map(|slot| Some((slot, begin_of(slot)?))) else {
        return false;
    };
    slot.broken.store(true, Ordering::SeqCst);
    #[expect(unsafe_code, reason = "a map is made of raw memory")]
    // SAFETY: all of our own window, which is unmapped as a whole when its owner is dropped, who waits for the copy that is
    // interrupted here. All of it, so that there is one signal and not one for each page.
    let mapped = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        libc::mmap(ptr::with_exposed_provenance_mut(begin), WINDOW_BYTES, libc::PROT_READ, flags, -1, 0)
    };
    mapped != libc::MAP_FAILED
}

/// Do what was done about the signal before.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    let with_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    #[expect(unsafe_code, reason = "a handler is an address")]
    // SAFETY: `info` as in `on_signal`. The address is of a handler of that kind, as its flags say: the system would have called
    // it so.
    unsafe {
        // Sent by a process: the standard library's handler, made for stacks that overflow, would put the default in place of
        // ours and go on.
        let is_sent = (*info).si_code <= 0;
        if is_sent && handler == libc::SIG_IGN {
            return;
        }
        if is_sent || handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, ptr::null_mut());
            // It comes when this returns; about memory it comes again anyway.
            libc::raise(signal);
        } else if with_info {
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("written");
        file
    }

    /// Run the test `name` in a process of its own; `None`: this is that process.
    fn elsewhere(name: &str) -> Option<Output> {
        const ELSEWHERE: &str = "BRAID_TEST_ELSEWHERE";
        if std::env::var_os(ELSEWHERE).is_some() {
            return None;
        }
        let test = std::env::current_exe().expect("this test");
        let name = format!("disk::window::tests::{name}");
        Some(Command::new(test).args(["--exact", &name]).env(ELSEWHERE, "1").output().expect("run"))
    }

    #[test]
    fn what_cannot_be_had_breaks_its_window_and_no_other() {
        let (good, cut) = (file(&[7; 100_000]), file(&[9; 100_000]));
        let (good_window, window) =
            (Window::of(&good).expect("a window"), Window::of(&cut).expect("a window"));
        let mut bytes = [0; 5000];
        assert!(window.copy(&mut bytes, 3000) && bytes == [9; 5000]);
        cut.set_len(50_000).expect("cut");
        assert!(window.copy(&mut bytes, 3000) && bytes == [9; 5000], "that is still there");
        assert!(!window.copy(&mut bytes, 60_000));
        assert!(!window.copy(&mut bytes, 3000), "it stays broken");
        assert!(good_window.copy(&mut bytes, 3000) && bytes == [7; 5000]);
        drop(window);
        let again = Window::of(&cut).expect("a window");
        assert!(again.copy(&mut bytes, 3000) && bytes == [9; 5000]);
    }

    #[test]
    fn all_threads_that_copy_learn_of_it() {
        let cut = file(&[9; 1 << 20]);
        let window = Window::of(&cut).expect("a window");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut bytes = [0; 4096];
                    while window.copy(&mut bytes, 512 << 10) {
                        assert!(bytes == [9; 4096], "what is copied is the file's");
                    }
                });
            }
            cut.set_len(4096).expect("cut");
        });
    }

    /// The others' tests need windows too.
    #[test]
    fn windows_come_to_an_end_and_come_back() {
        if let Some(output) = elsewhere("windows_come_to_an_end_and_come_back") {
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let file = file(b"a few");
        let windows: Vec<Window> = std::iter::from_fn(|| Window::of(&file)).collect();
        assert!(!windows.is_empty() && windows.len() <= WINDOWS_MAX);
        drop(windows);
        assert!(Window::of(&file).is_some());
    }

    /// And so does a signal that was sent.
    #[test]
    fn a_signal_that_was_sent_is_passed_on() {
        if let Some(output) = elsewhere("a_signal_that_was_sent_is_passed_on") {
            assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
            return;
        }
        let file = file(&[1; 4096]);
        let _window = Window::of(&file).expect("a window");
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::BUS).expect("sent");
        panic!("it went on");
    }

    /// Who has little address space keeps it.
    #[test]
    fn where_address_space_is_bounded_nothing_is_mapped() {
        if let Some(output) = elsewhere("where_address_space_is_bounded_nothing_is_mapped") {
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let limit = getrlimit(Resource::As);
        let bounded = rustix::process::Rlimit { current: Some(64 << 30), ..limit };
        rustix::process::setrlimit(Resource::As, bounded).expect("bounded");
        assert!(Window::of(&file(b"a few")).is_none());
    }

    /// Other memory that cannot be had ends the process by the signal, as without this.
    #[test]
    fn a_signal_about_other_memory_is_passed_on() {
        if let Some(output) = elsewhere("a_signal_about_other_memory_is_passed_on") {
            assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
            return;
        }
        let (ours, other) = (file(&[1; 4096]), file(&[]));
        let _window = Window::of(&ours).expect("a window");
        #[expect(unsafe_code, reason = "the test needs memory that cannot be had")]
        // SAFETY: a new map, of which a byte is read that is past the file's end: the process ends there.
        unsafe {
            let map = rustix::mm::mmap(ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &other, 0);
            let byte = map.expect("mapped").cast::<u8>().read_volatile();
            panic!("a byte that is not there: {byte}");
        }
    }
}
