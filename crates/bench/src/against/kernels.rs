//! Rates of what any store must do with bytes: copy them, XOR them, compute their checksums. Cold: over more
//! memory than caches hold. Hot: again and again over a little.

use std::time::Instant;

use braid_layout::code::Code;
use braid_layout::{Scheme, Shape};
use braid_store::block_crcs;

use super::report::Taken;
use crate::measure::thread_cpu;

/// Kinds of work in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// A copy of the bytes.
    Copy,
    /// Parity of four units.
    Xor,
    /// CRC32C of each 4 KiB.
    Crc,
}

impl Kernel {
    pub const ALL: [Kernel; 3] = [Kernel::Copy, Kernel::Xor, Kernel::Crc];

    pub fn name(self) -> &'static str {
        match self {
            Kernel::Copy => "memcpy",
            Kernel::Xor => "XOR 4 to 1",
            Kernel::Crc => "CRC32C of 4 KiB blocks",
        }
    }
}

/// Bytes of one call: what one unit's part of a request has.
const PIECE_BYTES: usize = 64 << 10;
/// Memory of hot work, which caches hold.
const HOT_BYTES: usize = 4 * PIECE_BYTES;

/// Runs `kernel` over `bytes` bytes, cold or hot, in this thread. Counts the bytes that are read.
pub fn measure(kernel: Kernel, bytes: usize, cold: bool) -> Taken {
    let around = if cold { bytes.max(HOT_BYTES) } else { HOT_BYTES };
    let source = vec![0xa5_u8; around / HOT_BYTES * HOT_BYTES];
    // Not zeros: the system would map zeroed pages only on first use, within the timed part.
    let mut target = vec![0x5a_u8; source.len()];
    let code = Shape::new(Scheme::Raid5, 4, 1, 64 << 10).map(Code::new).expect("a good shape");
    let cpu = thread_cpu();
    let began = Instant::now();
    let mut done = 0;
    while done < bytes {
        let at = done % source.len();
        let group = &source[at..at + HOT_BYTES];
        let into = &mut target[at..at + HOT_BYTES];
        match kernel {
            Kernel::Copy => into.copy_from_slice(group),
            Kernel::Xor => {
                let data: Vec<&[u8]> = group.chunks(PIECE_BYTES).collect();
                code.encode(&data, &mut [&mut into[..PIECE_BYTES]]);
            }
            Kernel::Crc => {
                std::hint::black_box(block_crcs(0, group));
            }
        }
        done += HOT_BYTES;
    }
    std::hint::black_box(&target);
    let seconds = began.elapsed().as_secs_f64();
    let cpu_us = thread_cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
    Taken::rate(u64::try_from(done).unwrap_or(u64::MAX), seconds, cpu_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_a_rate() {
        for kernel in Kernel::ALL {
            for cold in [true, false] {
                assert!(measure(kernel, 1 << 20, cold).value > 0.0, "{kernel:?}");
            }
        }
    }
}
