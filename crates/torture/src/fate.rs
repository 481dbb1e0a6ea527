//! Random numbers and time from the seed: the random numbers that the C library would take from the system,
//! and the clock that the standard library reads. So hash maps, tokio's `select!`, identities and nonces
//! are the same each time.
//!
//! Both functions here replace those of the C library in every program that has this crate. In a thread
//! that runs no seed they ask the system.

use std::cell::Cell;

use crate::random::Random;

thread_local! {
    /// State of the thread's stream of random numbers; `None`: the system's numbers are used.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    /// Time of the thread in nanoseconds, if it has a seed.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Makes this thread take its random numbers and its time from `seed` from now on.
pub(crate) fn begin(seed: u64) {
    SEED.set(Some(seed));
}

/// Sets this thread's time.
pub(crate) fn set_now_ms(now_ms: u64) {
    NOW.set(now_ms.saturating_mul(1_000_000));
}

/// Replaces the C library's function of this name.
///
/// # Safety
/// `to` must be valid for writes of `length` bytes, as the system demands.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the C library's interface: its caller gives a pointer and a length")]
pub(crate) unsafe extern "C" fn getrandom(
    to: *mut libc::c_void,
    length: usize,
    flags: libc::c_uint,
) -> isize {
    let Some(seed) = SEED.get() else {
        // SAFETY: the caller's arguments go to the system unchanged.
        let done = unsafe { libc::syscall(libc::SYS_getrandom, to, length, flags) };
        return isize::try_from(done).unwrap_or(-1);
    };
    let mut random = Random::new(seed);
    // SAFETY: the caller owns `length` bytes there. Bytes of any value may be written, so it does not matter
    // whether they were initialised: they are written first.
    let bytes = unsafe {
        to.cast::<u8>().write_bytes(0, length);
        std::slice::from_raw_parts_mut(to.cast::<u8>(), length)
    };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.draw().to_le_bytes()[..chunk.len()]);
    }
    SEED.set(Some(random.draw()));
    isize::try_from(length).unwrap_or(-1)
}

/// Replaces the C library's function of this name.
///
/// # Safety
/// `to` must be valid for a write, as the system demands.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the C library's interface: its caller gives a pointer")]
pub(crate) unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    to: *mut libc::timespec,
) -> libc::c_int {
    if SEED.get().is_none() {
        // SAFETY: the caller's arguments go to the system unchanged.
        let done = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) };
        return libc::c_int::try_from(done).unwrap_or(-1);
    }
    let now = NOW.get();
    let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    // SAFETY: the caller owns a timespec there.
    unsafe {
        to.write(libc::timespec { tv_sec: part(now / 1_000_000_000), tv_nsec: part(now % 1_000_000_000) });
    }
    0
}
