//! See `braid_fuzz::control_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::control_reply(bytes));
