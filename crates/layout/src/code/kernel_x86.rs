//! The vector loops for x86-64: GFNI on 64-byte and on 32-byte registers, and byte shuffles on 32-byte
//! registers.
//!
//! `unsafe` is used for one purpose only: moving whole registers from and to arrays of exactly their size.

use std::arch::x86_64::*;

use super::field::{AFFINE, NIBBLES};
use super::kernel::Start;

/// Defines a loop that processes all slices in steps of a few registers and returns the bytes done. The rest,
/// less than one step, is left to the caller. It is a macro, because a closure or a trait would not carry the
/// target feature.
///
/// Each step has `lanes` registers per slice. As many as possible, because each step loads every
/// coefficient's table again; but the sums of four outputs and the products must also fit (16 registers with
/// AVX2, 32 with AVX-512).
macro_rules! sum {
    (
        $(#[$doc:meta])*
        $name:ident, features $features:literal, lanes $lanes:literal of $bytes:literal bytes,
        $zero:ident, $load:ident, $store:ident, $xor:ident, $table:ident, $times:ident
    ) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        pub(super) fn $name<const M: usize>(
            coefficients: &[[u8; M]],
            sources: &[&[u8]],
            outputs: &mut [&mut [u8]; M],
            start: Start,
        ) -> usize {
            const STEP: usize = $lanes * $bytes;
            let steps = outputs[0].len() / STEP;
            for step in 0..steps {
                let mut sums = [[$zero(); $lanes]; M];
                if start == Start::Onto {
                    for (sums, output) in sums.iter_mut().zip(outputs.iter()) {
                        let (lanes, _) = output.as_chunks::<STEP>().0[step].as_chunks::<$bytes>();
                        for (sum, lane) in sums.iter_mut().zip(lanes) {
                            *sum = $load(lane);
                        }
                    }
                }
                for (coefficients, source) in coefficients.iter().zip(sources) {
                    let (lanes, _) = source.as_chunks::<STEP>().0[step].as_chunks::<$bytes>();
                    let mut bytes = [$zero(); $lanes];
                    for (bytes, lane) in bytes.iter_mut().zip(lanes) {
                        *bytes = $load(lane);
                    }
                    for (sums, coefficient) in sums.iter_mut().zip(coefficients) {
                        let table = $table(*coefficient);
                        for (sum, bytes) in sums.iter_mut().zip(bytes) {
                            *sum = $xor(*sum, $times(bytes, table));
                        }
                    }
                }
                for (sums, output) in sums.iter().zip(outputs.iter_mut()) {
                    let (lanes, _) = output.as_chunks_mut::<STEP>().0[step].as_chunks_mut::<$bytes>();
                    for (sum, lane) in sums.iter().zip(lanes) {
                        $store(lane, *sum);
                    }
                }
            }
            steps * STEP
        }
    };
}

sum!(
    /// Products by bit matrices on 64-byte registers.
    sum_gfni_avx512, features "gfni,avx512f,avx512bw", lanes 4 of 64 bytes,
    _mm512_setzero_si512, load_64, store_64, _mm512_xor_si512, matrix_64, times_matrix_64
);
sum!(
    /// Products by bit matrices on 32-byte registers.
    sum_gfni_avx2, features "gfni,avx2", lanes 2 of 32 bytes,
    _mm256_setzero_si256, load_32, store_32, _mm256_xor_si256, matrix_32, times_matrix_32
);
sum!(
    /// Products by looking up both nibbles of each byte.
    sum_avx2, features "avx2", lanes 2 of 32 bytes,
    _mm256_setzero_si256, load_32, store_32, _mm256_xor_si256, nibbles, times_nibbles
);

#[inline]
#[target_feature(enable = "avx512f")]
fn matrix_64(coefficient: u8) -> __m512i {
    _mm512_set1_epi64(AFFINE[usize::from(coefficient)].cast_signed())
}

#[inline]
#[target_feature(enable = "gfni,avx512f")]
fn times_matrix_64(bytes: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
}

#[inline]
#[target_feature(enable = "avx2")]
fn matrix_32(coefficient: u8) -> __m256i {
    _mm256_set1_epi64x(AFFINE[usize::from(coefficient)].cast_signed())
}

#[inline]
#[target_feature(enable = "gfni,avx2")]
fn times_matrix_32(bytes: __m256i, matrix: __m256i) -> __m256i {
    _mm256_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
}

/// The products of the low nibbles, and of the high nibbles, each in both halves of a register, because
/// shuffles work on halves.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(coefficient: u8) -> [__m256i; 2] {
    let both = load_32(&NIBBLES[usize::from(coefficient)]);
    [_mm256_permute2x128_si256::<0x00>(both, both), _mm256_permute2x128_si256::<0x11>(both, both)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn times_nibbles(bytes: __m256i, [of_low, of_high]: [__m256i; 2]) -> __m256i {
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_and_si256(bytes, nibble);
    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), nibble);
    _mm256_xor_si256(_mm256_shuffle_epi8(of_low, low), _mm256_shuffle_epi8(of_high, high))
}

#[inline]
#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "the intrinsic takes a raw pointer")]
fn load_64(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is 64 readable bytes, and the unaligned load needs no more.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "the intrinsic takes a raw pointer")]
fn store_64(bytes: &mut [u8; 64], register: __m512i) {
    // SAFETY: the array is 64 writable bytes, and the unaligned store needs no more.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), register) }
}

#[inline]
#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "the intrinsic takes a raw pointer")]
fn load_32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array is 32 readable bytes, and the unaligned load needs no more.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "the intrinsic takes a raw pointer")]
fn store_32(bytes: &mut [u8; 32], register: __m256i) {
    // SAFETY: the array is 32 writable bytes, and the unaligned store needs no more.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), register) }
}
