//! AVX2 with FMA and F16C: 256 bits.

use crate::F16;
use std::arch::x86_64::*;

type F = [__m256; 2];
type D = [__m256d; 4];

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn zero32() -> F {
    [_mm256_setzero_ps(); 2]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn zero64() -> D {
    [_mm256_setzero_pd(); 4]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pair32(pair: &[f32; 2]) -> F {
    // SAFETY: the pair has the 8 bytes that are read.
    let both = unsafe { pair.as_ptr().cast::<f64>().read_unaligned() };
    [_mm256_castpd_ps(_mm256_set1_pd(both)); 2]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pair64(pair: &[f64; 2]) -> D {
    // SAFETY: the pair has the 16 bytes that are read.
    let both = unsafe { _mm_loadu_pd(pair.as_ptr()) };
    [_mm256_set_m128d(both, both); 4]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fma32(a: F, b: F, sum: F) -> F {
    [_mm256_fmadd_ps(a[0], b[0], sum[0]), _mm256_fmadd_ps(a[1], b[1], sum[1])]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fma64(a: D, b: D, sum: D) -> D {
    [
        _mm256_fmadd_pd(a[0], b[0], sum[0]),
        _mm256_fmadd_pd(a[1], b[1], sum[1]),
        _mm256_fmadd_pd(a[2], b[2], sum[2]),
        _mm256_fmadd_pd(a[3], b[3], sum[3]),
    ]
}

/// Adds neighbours and returns eight rows in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn rows32(sum: F) -> [f32; 8] {
    let halves = _mm256_castps_pd(_mm256_hadd_ps(sum[0], sum[1]));
    let ordered = _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(halves));
    let mut rows = [0.0; 8];
    // SAFETY: there is room for eight.
    unsafe { _mm256_storeu_ps(rows.as_mut_ptr(), ordered) };
    rows
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn rows64(sum: D) -> [f64; 8] {
    let mut rows = [0.0; 8];
    let (low, high) = rows.split_at_mut(4);
    let ordered = _mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_hadd_pd(sum[0], sum[1]));
    // SAFETY: there is room for four.
    unsafe { _mm256_storeu_pd(low.as_mut_ptr(), ordered) };
    let ordered = _mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_hadd_pd(sum[2], sum[3]));
    // SAFETY: there is room for four.
    unsafe { _mm256_storeu_pd(high.as_mut_ptr(), ordered) };
    rows
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f32(unit: &[f32; 16]) -> F {
    // SAFETY: the unit has 16 numbers.
    let low = unsafe { _mm256_loadu_ps(unit.as_ptr()) };
    // SAFETY: as above, for the second eight numbers.
    let high = unsafe { _mm256_loadu_ps(unit[8..].as_ptr()) };
    [low, high]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f64(unit: &[f64; 16]) -> D {
    let mut loaded = zero64();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        // SAFETY: a quarter has four numbers.
        *to = unsafe { _mm256_loadu_pd(quarter.as_ptr()) };
    }
    loaded
}

/// Loads eight numbers of 16 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn words<T>(unit: &[T; 16], half: usize) -> __m128i {
    const { assert!(size_of::<T>() == 2) };
    let part = &unit[8 * half..][..8];
    // SAFETY: the part has 8 numbers of two bytes.
    unsafe { _mm_loadu_si128(part.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f16(unit: &[F16; 16]) -> F {
    [_mm256_cvtph_ps(words(unit, 0)), _mm256_cvtph_ps(words(unit, 1))]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_i16(unit: &[i16; 16]) -> F {
    [
        _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words(unit, 0))),
        _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words(unit, 1))),
    ]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_u16(unit: &[u16; 16]) -> F {
    [
        _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(words(unit, 0))),
        _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(words(unit, 1))),
    ]
}

crate::panels::multiply_kernels!([target_feature(enable = "avx2,fma,f16c")], 6, 3);

/// A line of a sub-aperture.
type L = __m256;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn splat(value: f32) -> L {
    _mm256_set1_ps(value)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn line(values: &[f32; 8]) -> L {
    // SAFETY: the line has 8 numbers.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widened(pixels: &[u16; 8]) -> L {
    // SAFETY: the line has 8 numbers of two bytes.
    let words = unsafe { _mm_loadu_si128(pixels.as_ptr().cast()) };
    _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(words))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn plus(a: L, b: L) -> L {
    _mm256_add_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn minus(a: L, b: L) -> L {
    _mm256_sub_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn times(a: L, b: L) -> L {
    _mm256_mul_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn not_below_zero(a: L) -> L {
    _mm256_max_ps(a, _mm256_setzero_ps())
}

/// Pairwise sum of each of eight lines.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums(lines: &[L; 8]) -> [f32; 8] {
    let four = |at: usize| {
        let pairs = [_mm256_hadd_ps(lines[at], lines[at + 1]), _mm256_hadd_ps(lines[at + 2], lines[at + 3])];
        _mm256_hadd_ps(pairs[0], pairs[1])
    };
    // Low part: left halves of four lines. High part: their right halves.
    let (low, high) = (four(0), four(4));
    let left = _mm256_permute2f128_ps::<0x20>(low, high);
    let right = _mm256_permute2f128_ps::<0x31>(low, high);
    let all = _mm256_add_ps(left, right);
    let mut sums = [0.0; 8];
    // SAFETY: there is room for eight.
    unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), all) };
    sums
}

crate::centroids::centre_kernel!([target_feature(enable = "avx2,fma,f16c")], L);

/// Eight integer sums.
type I = __m256i;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn none() -> I {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn both(&[even, odd]: &[i16; 2]) -> I {
    _mm256_set1_epi32((i32::from(odd) << 16) | i32::from(even.cast_unsigned()))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot([unit]: &[[i8; 16]; 1], x: I, sum: I) -> I {
    // SAFETY: the unit has 16 numbers of a byte.
    let bytes = unsafe { _mm_loadu_si128(unit.as_ptr().cast()) };
    _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), x))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eight(sum: I) -> [[i32; 8]; 1] {
    let mut all = [0; 8];
    // SAFETY: there is room for eight.
    unsafe { _mm256_storeu_si256(all.as_mut_ptr().cast(), sum) };
    [all]
}

/// Prefetches 2 KiB ahead, beyond the slice. The hardware prefetcher stops at a page of 4 KiB.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn ahead(bytes: &[i8]) {
    for line in bytes.chunks(64) {
        // A prefetch from an invalid address is ignored.
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(2048));
    }
}

crate::scaled::scaled_kernel!([target_feature(enable = "avx2,fma,f16c")], 1, group::<1>);
