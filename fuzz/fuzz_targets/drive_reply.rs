//! See `braid_fuzz::drive_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::drive_reply(bytes));
