//! See `braid_fuzz::datagram`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::datagram(bytes));
