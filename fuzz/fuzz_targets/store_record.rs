//! See `braid_fuzz::store_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::store_record(bytes));
