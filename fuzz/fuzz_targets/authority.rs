//! See `braid_fuzz::authority`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::authority(bytes));
