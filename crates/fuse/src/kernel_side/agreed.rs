//! Settings agreed with the kernel before its first request.

use fuser::{InitFlags, KernelConfig};

use crate::files::buffers::BUFFER_BYTES;

/// Maximum length in bytes of a read or write that the kernel requests at once.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!(REQUEST_BYTES_MAX as usize == BUFFER_BYTES);
/// Maximum number of reads ahead and writes of mappings that the kernel has under way.
const BACKGROUND_MAX: u16 = 64;

/// Asks the kernel for the features that a mount uses. The mount does without those that the kernel lacks.
pub(crate) fn with(config: &mut KernelConfig) {
    let as_near = |asked: Result<u32, u32>| asked.err();
    if let Some(most) = as_near(config.set_max_write(REQUEST_BYTES_MAX)) {
        let _ = config.set_max_write(most);
    }
    // The kernel offers no more than it would read ahead by default; `readahead` has it read further.
    if let Some(most) = as_near(config.set_max_readahead(REQUEST_BYTES_MAX * 8)) {
        let _ = config.set_max_readahead(most);
    }
    let _ = config.set_max_background(BACKGROUND_MAX);
    for wanted in [
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_DONT_MASK,
        InitFlags::FUSE_POSIX_LOCKS,
        InitFlags::FUSE_FLOCK_LOCKS,
        // Numbers are permanent: a file that the kernel has forgotten is found again by its number.
        InitFlags::FUSE_EXPORT_SUPPORT,
    ] {
        let _ = config.add_capabilities(wanted);
    }
}
