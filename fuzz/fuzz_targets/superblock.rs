//! See `braid_fuzz::superblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| braid_fuzz::superblock(bytes));
