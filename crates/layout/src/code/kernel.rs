//! The inner loops: sums of products over slices, and XOR, using the best instructions this processor has.
//!
//! Every loop computes `output[i] = sum over j of coefficients[j][i] * source[j]`, for up to four outputs at
//! once. The vector loops take a few registers of every source in turn and keep the sums of all outputs in
//! registers, so each source is read once and each output written once, whatever the cache sizes. All loops
//! give the same bytes; tests force each in turn.

use super::field::PRODUCTS;

/// The kind of processor instructions that the inner loops use. A value proves that this processor has them,
/// as it can only be obtained by detecting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Path);

/// Content of an output before the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The output has no content yet: it is overwritten.
    Fresh,
    /// The output has content that the sum is added to.
    Onto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    #[cfg(target_arch = "x86_64")]
    GfniAvx512,
    #[cfg(target_arch = "x86_64")]
    GfniAvx2,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Scalar,
}

/// Bytes of an output that the scalar and XOR loops process at a time, so that they stay in the first-level
/// cache.
const BLOCK: usize = 4 << 10;

impl Kernel {
    /// Plain Rust, on any processor. The reference for the others.
    pub const SCALAR: Kernel = Kernel(Path::Scalar);

    /// Every kernel that this processor can run, the fastest first; the last is [`Kernel::SCALAR`].
    pub fn detected() -> Vec<Kernel> {
        #[cfg(target_arch = "x86_64")]
        let mut kernels = x86();
        #[cfg(not(target_arch = "x86_64"))]
        let mut kernels = Vec::new();
        kernels.push(Kernel::SCALAR);
        kernels
    }

    /// The fastest kernel that this processor can run.
    pub fn best() -> Kernel {
        Kernel::detected()[0]
    }

    /// A name for logs and benchmarks.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Path::GfniAvx512 => "gfni+avx512",
            #[cfg(target_arch = "x86_64")]
            Path::GfniAvx2 => "gfni+avx2",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "avx2",
            Path::Scalar => "scalar",
        }
    }

    /// Computes the sums of products for `M` outputs. All slices have one length.
    pub(super) fn sum<const M: usize>(
        self,
        coefficients: &[[u8; M]],
        sources: &[&[u8]],
        outputs: &mut [&mut [u8]; M],
        start: Start,
    ) {
        let length = outputs[0].len();
        assert!(outputs.iter().all(|output| output.len() == length), "outputs have one length");
        assert!(sources.iter().all(|source| source.len() == length), "sources are as long as the outputs");
        assert_eq!(coefficients.len(), sources.len(), "one row of coefficients per source");
        if coefficients.iter().flatten().all(|&coefficient| coefficient == 1) {
            for output in outputs {
                self.xor(sources, output, start);
            }
            return;
        }
        // The vector loops process whole steps from the beginning.
        let done = match self.0 {
            #[cfg(target_arch = "x86_64")]
            #[expect(
                unsafe_code,
                reason = "the processor has these instructions: the kernel's value is the proof"
            )]
            // SAFETY: `x86` made this value after it had found gfni, avx512f and avx512bw.
            Path::GfniAvx512 => unsafe {
                super::kernel_x86::sum_gfni_avx512(coefficients, sources, outputs, start)
            },
            #[cfg(target_arch = "x86_64")]
            #[expect(
                unsafe_code,
                reason = "the processor has these instructions: the kernel's value is the proof"
            )]
            // SAFETY: `x86` made this value after it had found gfni and avx2.
            Path::GfniAvx2 => unsafe {
                super::kernel_x86::sum_gfni_avx2(coefficients, sources, outputs, start)
            },
            #[cfg(target_arch = "x86_64")]
            #[expect(
                unsafe_code,
                reason = "the processor has these instructions: the kernel's value is the proof"
            )]
            // SAFETY: `x86` made this value after it had found avx2.
            Path::Avx2 => unsafe { super::kernel_x86::sum_avx2(coefficients, sources, outputs, start) },
            Path::Scalar => 0,
        };
        if done < length {
            sum_scalar(coefficients, sources, outputs, start, done);
        }
    }

    /// Computes the XOR of `sources`. All slices have one length.
    pub(super) fn xor(self, sources: &[&[u8]], output: &mut [u8], start: Start) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            #[expect(
                unsafe_code,
                reason = "the processor has these instructions: the kernel's value is the proof"
            )]
            // SAFETY: `x86` made a value with any of these paths after it had found avx2.
            Path::GfniAvx512 | Path::GfniAvx2 | Path::Avx2 => unsafe { xor_avx2(sources, output, start) },
            Path::Scalar => xor_blocks(sources, output, start),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn x86() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    if is_x86_feature_detected!("avx2") {
        if is_x86_feature_detected!("gfni") {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                kernels.push(Kernel(Path::GfniAvx512));
            }
            kernels.push(Kernel(Path::GfniAvx2));
        }
        kernels.push(Kernel(Path::Avx2));
    }
    kernels
}

/// Computes the sums from byte `from` on: everything without vector kernels, otherwise the last bytes.
fn sum_scalar<const M: usize>(
    coefficients: &[[u8; M]],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]; M],
    start: Start,
    from: usize,
) {
    let length = outputs[0].len();
    for at in (from..length).step_by(BLOCK) {
        let to = (at + BLOCK).min(length);
        for (i, output) in outputs.iter_mut().enumerate() {
            let output = &mut output[at..to];
            if start == Start::Fresh {
                output.fill(0);
            }
            for (coefficients, source) in coefficients.iter().zip(sources) {
                let products = &PRODUCTS[usize::from(coefficients[i])];
                for (out, byte) in output.iter_mut().zip(&source[at..to]) {
                    *out ^= products[usize::from(*byte)];
                }
            }
        }
    }
}

/// The loop of `xor_blocks`, which the compiler vectorizes for 32-byte registers: it runs at the rate of the
/// cache.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn xor_avx2(sources: &[&[u8]], output: &mut [u8], start: Start) {
    xor_blocks(sources, output, start);
}

#[inline(always)]
fn xor_blocks(sources: &[&[u8]], output: &mut [u8], start: Start) {
    let length = output.len();
    for at in (0..length).step_by(BLOCK) {
        let to = (at + BLOCK).min(length);
        let output = &mut output[at..to];
        let mut sources = sources;
        if start == Start::Fresh {
            match sources.split_first() {
                Some((first, others)) => {
                    output.copy_from_slice(&first[at..to]);
                    sources = others;
                }
                None => output.fill(0),
            }
        }
        let (fours, others) = sources.as_chunks::<4>();
        for [a, b, c, d] in fours {
            let inputs = a[at..to].iter().zip(&b[at..to]).zip(&c[at..to]).zip(&d[at..to]);
            for (out, (((a, b), c), d)) in output.iter_mut().zip(inputs) {
                *out ^= a ^ b ^ c ^ d;
            }
        }
        for source in others {
            for (out, byte) in output.iter_mut().zip(&source[at..to]) {
                *out ^= byte;
            }
        }
    }
}
