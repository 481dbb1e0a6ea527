//! See `braid_fuzz::hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::hello(bytes));
