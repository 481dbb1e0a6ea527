//! A module for `braid run wasm` that merges: it counts lines and words, as `wc -lw` does.
//!
//!     rustc --edition 2024 --target wasm32-unknown-unknown -O -C target-feature=+simd128 \
//!         -C strip=symbols --crate-type cdylib contrib/methods/words.rs -o words.wasm
//!     braid run wasm braid://main/log module=./words.wasm
//!
//! Whatever the drives hold, each block has whole lines, and a word ends with its line at the latest. So the
//! numbers of all blocks can be added in any order.

#![no_std]

use core::cell::UnsafeCell;
use core::panic::PanicInfo;

/// Bytes of a block at most: a piece of a file, or a record.
const INPUT_BYTES: usize = 1 << 20;

#[link(wasm_import_module = "braid")]
unsafe extern "C" {
    fn emit(at: *const u8, length: usize);
    fn fail(at: *const u8, length: usize) -> !;
}

struct State {
    input: [u8; INPUT_BYTES],
    lines: u64,
    words: u64,
    out: [u8; 48],
}

/// The state of this instance, which has one thread.
struct Instance(UnsafeCell<State>);
unsafe impl Sync for Instance {}

static INSTANCE: Instance =
    Instance(UnsafeCell::new(State { input: [0; INPUT_BYTES], lines: 0, words: 0, out: [0; 48] }));

fn state() -> &'static mut State {
    // The host calls one function at a time.
    unsafe { &mut *INSTANCE.0.get() }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// Says for which interface the module is made.
#[unsafe(no_mangle)]
pub extern "C" fn braid_abi_1() {}

/// Where the next input is to be written.
#[unsafe(no_mangle)]
pub extern "C" fn alloc(length: usize) -> *mut u8 {
    if length > INPUT_BYTES {
        core::arch::wasm32::unreachable();
    }
    state().input.as_mut_ptr()
}

/// Takes a block of whole lines.
#[unsafe(no_mangle)]
pub extern "C" fn block(at: *const u8, length: usize, _offset: u64) {
    let bytes = unsafe { core::slice::from_raw_parts(at, length) };
    let state = state();
    let mut lines = 0_u64;
    let mut words = 0_u64;
    let mut is_between = true;
    for &byte in bytes {
        let is_space = byte == b' ' || byte.wrapping_sub(9) < 5;
        words += u64::from(is_between & !is_space);
        is_between = is_space;
        lines += u64::from(byte == b'\n');
    }
    state.lines += lines;
    state.words += words;
}

/// Takes a partial answer.
#[unsafe(no_mangle)]
pub extern "C" fn merge(at: *const u8, length: usize) {
    let bytes = unsafe { core::slice::from_raw_parts(at, length) };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum: u64, &byte| sum << 8 | u64::from(byte));
    if bytes.len() != 16 {
        let message = b"a partial answer has 16 bytes";
        unsafe { fail(message.as_ptr(), message.len()) }
    }
    state().lines += number(&bytes[..8]);
    state().words += number(&bytes[8..]);
}

/// Emits the partial answer: two numbers of 8 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn finish() {
    let state = state();
    state.out[..8].copy_from_slice(&state.lines.to_le_bytes());
    state.out[8..16].copy_from_slice(&state.words.to_le_bytes());
    unsafe { emit(state.out.as_ptr(), 16) }
}

/// Emits the answer for people: both numbers as text.
#[unsafe(no_mangle)]
pub extern "C" fn answer() {
    let state = state();
    let mut at = state.out.len();
    let numbers = [(state.words, b'\n'), (state.lines, b' ')];
    for (number, end) in numbers {
        let mut left = number;
        at -= 1;
        state.out[at] = end;
        loop {
            at -= 1;
            state.out[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
    }
    unsafe { emit(state.out.as_ptr().add(at), state.out.len() - at) }
}
