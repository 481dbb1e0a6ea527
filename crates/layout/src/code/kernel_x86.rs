//! The vector loops for x86-64: GFNI on 64-byte and on 32-byte registers, and byte shuffles on 32-byte registers.
//!
//! `unsafe` is here for one thing only: moving whole registers from and to arrays of exactly their size.

use std::arch::x86_64::*;

use super::field::{AFFINE, NIBBLES};
use super::kernel::Start;

/// Bytes of each slice that one turn of a loop handles: two or four registers per output hide the latency of the
/// products, and sixteen registers still hold the sums of four outputs (AVX2) with room for the products.
const STEP: usize = 128;

/// Defines a loop over `STEP`-byte steps of all slices that returns the bytes it has done. What is left, less than one
/// step, is the caller's. One macro because a closure or a trait would leave the target feature behind.
macro_rules! sum {
    ($name:ident, $features:literal, $lanes:literal, $zero:ident, $load:ident, $store:ident, $xor:ident, $times:ident) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name<const M: usize>(
            coefficients: &[[u8; M]],
            sources: &[&[u8]],
            outputs: &mut [&mut [u8]; M],
            start: Start,
        ) -> usize {
            const LANE: usize = STEP / $lanes;
            let steps = outputs[0].len() / STEP;
            for step in 0..steps {
                let mut sums = [[$zero(); $lanes]; M];
                if start == Start::Onto {
                    for (sums, output) in sums.iter_mut().zip(outputs.iter()) {
                        let (lanes, _) = output.as_chunks::<STEP>().0[step].as_chunks::<LANE>();
                        for (sum, lane) in sums.iter_mut().zip(lanes) {
                            *sum = $load(lane);
                        }
                    }
                }
                for (coefficients, source) in coefficients.iter().zip(sources) {
                    let (lanes, _) = source.as_chunks::<STEP>().0[step].as_chunks::<LANE>();
                    for (l, lane) in lanes.iter().enumerate() {
                        let bytes = $load(lane);
                        for (sums, coefficient) in sums.iter_mut().zip(coefficients) {
                            sums[l] = $xor(sums[l], $times(bytes, *coefficient));
                        }
                    }
                }
                for (sums, output) in sums.iter().zip(outputs.iter_mut()) {
                    let (lanes, _) = output.as_chunks_mut::<STEP>().0[step].as_chunks_mut::<LANE>();
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
    sum_gfni_avx512,
    "gfni,avx512f,avx512bw",
    2,
    _mm512_setzero_si512,
    load_64,
    store_64,
    _mm512_xor_si512,
    times_gfni_64
);
sum!(sum_gfni_avx2, "gfni,avx2", 4, _mm256_setzero_si256, load_32, store_32, _mm256_xor_si256, times_gfni_32);
sum!(sum_avx2, "avx2", 4, _mm256_setzero_si256, load_32, store_32, _mm256_xor_si256, times_shuffle);

#[inline]
#[target_feature(enable = "gfni,avx512f")]
fn times_gfni_64(bytes: __m512i, coefficient: u8) -> __m512i {
    let matrix = AFFINE[usize::from(coefficient)].cast_signed();
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, _mm512_set1_epi64(matrix))
}

#[inline]
#[target_feature(enable = "gfni,avx2")]
fn times_gfni_32(bytes: __m256i, coefficient: u8) -> __m256i {
    let matrix = AFFINE[usize::from(coefficient)].cast_signed();
    _mm256_gf2p8affine_epi64_epi8::<0>(bytes, _mm256_set1_epi64x(matrix))
}

#[inline]
#[target_feature(enable = "avx2")]
fn times_shuffle(bytes: __m256i, coefficient: u8) -> __m256i {
    let tables = load_32(&NIBBLES[usize::from(coefficient)]);
    let low_products = _mm256_permute2x128_si256::<0x00>(tables, tables);
    let high_products = _mm256_permute2x128_si256::<0x11>(tables, tables);
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_and_si256(bytes, nibble);
    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), nibble);
    _mm256_xor_si256(_mm256_shuffle_epi8(low_products, low), _mm256_shuffle_epi8(high_products, high))
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
