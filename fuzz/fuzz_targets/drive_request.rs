//! See `braid_fuzz::drive_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::drive_request(bytes));
