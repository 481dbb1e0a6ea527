//! Makes sure that memory is present before a sample needs it.
//!
//! The host of a virtual machine may take back memory that the machine does not use, and returns it page by
//! page when it is touched. A sample that uses such memory costs three times the processor time of one that
//! does not, on either side.

use crate::machine;

/// Only one in this many bytes of available memory is touched, so that no process is killed for it.
const PART: u64 = 4;

/// Makes the system provide `bytes` of memory, or as much as is harmless, and frees it, so that the next
/// sample gets pages that are present. Returns the number of bytes.
pub fn touch(bytes: u64) -> u64 {
    const PAGE_BYTES: usize = 4096;
    let bytes = harmless(bytes, machine::available_bytes());
    let mut memory = vec![0_u8; usize::try_from(bytes).expect("memory")];
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
    bytes
}

fn harmless(bytes: u64, available: u64) -> u64 {
    bytes.min(available / PART)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Page faults of this process so far.
    fn faults() -> u64 {
        let stat = fs::read_to_string("/proc/self/stat").expect("read");
        // The fields after the name, which may contain spaces: the state, six numbers, then the page
        // faults.
        let fields = stat.rsplit(')').next().expect("fields");
        fields.split_whitespace().nth(7).and_then(|field| field.parse().ok()).expect("a number")
    }

    #[test]
    fn every_page_is_touched() {
        let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let page = if huge.contains("[always]") { 2 << 20 } else { 4096 };
        let pages = (16 << 20) / page;
        let before = faults();
        touch(16 << 20);
        assert!(faults() - before >= pages, "{} of {pages}", faults() - before);
    }

    #[test]
    fn no_more_is_touched_than_there_is() {
        assert!(machine::available_bytes() >= 64 << 20, "the test above needs some");
        assert_eq!((harmless(1 << 30, 512 << 20), harmless(64 << 20, 512 << 20)), (128 << 20, 64 << 20));
        assert_eq!(harmless(1 << 30, 0), 0);
    }
}
