//! See `braid_fuzz::token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::token(bytes));
