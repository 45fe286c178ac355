//! SSE4.2: 128 bits. Multiplies and adds with two roundings.

use crate::F16;
use crate::half::REBIAS;
use std::arch::x86_64::*;

type F = [__m128; 4];
type D = [__m128d; 8];

#[inline]
#[target_feature(enable = "sse4.2")]
fn zero32() -> F {
    [_mm_setzero_ps(); 4]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn zero64() -> D {
    [_mm_setzero_pd(); 8]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn pair32(pair: &[f32; 2]) -> F {
    // SAFETY: the pair has the 8 bytes that are read.
    let both = unsafe { pair.as_ptr().cast::<f64>().read_unaligned() };
    [_mm_castpd_ps(_mm_set1_pd(both)); 4]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn pair64(pair: &[f64; 2]) -> D {
    // SAFETY: the pair has the 16 bytes that are read.
    [unsafe { _mm_loadu_pd(pair.as_ptr()) }; 8]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn fma32(a: F, b: F, mut sum: F) -> F {
    for lane in 0..4 {
        sum[lane] = _mm_add_ps(sum[lane], _mm_mul_ps(a[lane], b[lane]));
    }
    sum
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn fma64(a: D, b: D, mut sum: D) -> D {
    for lane in 0..8 {
        sum[lane] = _mm_add_pd(sum[lane], _mm_mul_pd(a[lane], b[lane]));
    }
    sum
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn rows32(sum: F) -> [f32; 8] {
    let mut rows = [0.0; 8];
    let (low, high) = rows.split_at_mut(4);
    let sums = _mm_hadd_ps(sum[0], sum[1]);
    // SAFETY: there is room for four.
    unsafe { _mm_storeu_ps(low.as_mut_ptr(), sums) };
    let sums = _mm_hadd_ps(sum[2], sum[3]);
    // SAFETY: there is room for four.
    unsafe { _mm_storeu_ps(high.as_mut_ptr(), sums) };
    rows
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn rows64(sum: D) -> [f64; 8] {
    let mut rows = [0.0; 8];
    for (two, sums) in rows.as_chunks_mut::<2>().0.iter_mut().zip(sum.as_chunks::<2>().0) {
        let sums = _mm_hadd_pd(sums[0], sums[1]);
        // SAFETY: there is room for two.
        unsafe { _mm_storeu_pd(two.as_mut_ptr(), sums) };
    }
    rows
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn load_f32(unit: &[f32; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        // SAFETY: a quarter has four numbers.
        *to = unsafe { _mm_loadu_ps(quarter.as_ptr()) };
    }
    loaded
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn load_f64(unit: &[f64; 16]) -> D {
    let mut loaded = zero64();
    for (two, to) in unit.as_chunks::<2>().0.iter().zip(&mut loaded) {
        // SAFETY: the chunk has two numbers.
        *to = unsafe { _mm_loadu_pd(two.as_ptr()) };
    }
    loaded
}

/// Loads four numbers of 16 bits into the low half.
#[inline]
#[target_feature(enable = "sse4.2")]
fn words<T>(quarter: &[T; 4]) -> __m128i {
    const { assert!(size_of::<T>() == 2) };
    // SAFETY: a quarter has four numbers of two bytes.
    unsafe { _mm_loadl_epi64(quarter.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn load_f16(unit: &[F16; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        let bits = _mm_cvtepu16_epi32(words(quarter));
        let magnitude = _mm_slli_epi32::<13>(_mm_and_si128(bits, _mm_set1_epi32(0x7fff)));
        let sign = _mm_slli_epi32::<16>(_mm_and_si128(bits, _mm_set1_epi32(0x8000)));
        let unbounded = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7bff << 13));
        let unbounded = _mm_and_si128(unbounded, _mm_set1_epi32(0x7f80_0000));
        let value = _mm_mul_ps(_mm_castsi128_ps(magnitude), _mm_set1_ps(REBIAS));
        *to = _mm_or_ps(value, _mm_castsi128_ps(_mm_or_si128(sign, unbounded)));
    }
    loaded
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn load_i16(unit: &[i16; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        *to = _mm_cvtepi32_ps(_mm_cvtepi16_epi32(words(quarter)));
    }
    loaded
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn load_u16(unit: &[u16; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        *to = _mm_cvtepi32_ps(_mm_cvtepu16_epi32(words(quarter)));
    }
    loaded
}

crate::panels::multiply_kernels!([target_feature(enable = "sse4.2")], 2, 1);

/// A line of a sub-aperture.
type L = [__m128; 2];

#[inline]
#[target_feature(enable = "sse4.2")]
fn splat(value: f32) -> L {
    [_mm_set1_ps(value); 2]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn line(values: &[f32; 8]) -> L {
    let (left, right) = values.split_at(4);
    // SAFETY: a half has four numbers.
    let left = unsafe { _mm_loadu_ps(left.as_ptr()) };
    // SAFETY: as above.
    let right = unsafe { _mm_loadu_ps(right.as_ptr()) };
    [left, right]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn widened(pixels: &[u16; 8]) -> L {
    // SAFETY: the line has 8 numbers of two bytes.
    let words = unsafe { _mm_loadu_si128(pixels.as_ptr().cast()) };
    [_mm_cvtepi32_ps(_mm_cvtepu16_epi32(words)), _mm_cvtepi32_ps(_mm_cvtepu16_epi32(_mm_srli_si128::<8>(words)))]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn plus(a: L, b: L) -> L {
    [_mm_add_ps(a[0], b[0]), _mm_add_ps(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn minus(a: L, b: L) -> L {
    [_mm_sub_ps(a[0], b[0]), _mm_sub_ps(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn times(a: L, b: L) -> L {
    [_mm_mul_ps(a[0], b[0]), _mm_mul_ps(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn not_below_zero(a: L) -> L {
    a.map(|half| _mm_max_ps(half, _mm_setzero_ps()))
}

/// Pairwise sum of each of eight lines.
#[inline]
#[target_feature(enable = "sse4.2")]
fn sums(lines: &[L; 8]) -> [f32; 8] {
    let mut sums = [0.0; 8];
    for (four, to) in lines.as_chunks::<4>().0.iter().zip(sums.as_chunks_mut::<4>().0) {
        let half = |side: usize| {
            _mm_hadd_ps(_mm_hadd_ps(four[0][side], four[1][side]), _mm_hadd_ps(four[2][side], four[3][side]))
        };
        let both = _mm_add_ps(half(0), half(1));
        // SAFETY: there is room for four.
        unsafe { _mm_storeu_ps(to.as_mut_ptr(), both) };
    }
    sums
}

crate::centroids::centre_kernel!([target_feature(enable = "sse4.2")], L);

/// Eight integer sums.
type I = [__m128i; 2];

#[inline]
#[target_feature(enable = "sse4.2")]
fn none() -> I {
    [_mm_setzero_si128(); 2]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn both(&[even, odd]: &[i16; 2]) -> I {
    [_mm_set1_epi32((i32::from(odd) << 16) | i32::from(even.cast_unsigned())); 2]
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn dot([unit]: &[[i8; 16]; 1], x: I, sum: I) -> I {
    // SAFETY: the unit has 16 numbers of a byte.
    let bytes = unsafe { _mm_loadu_si128(unit.as_ptr().cast()) };
    let words = [_mm_cvtepi8_epi16(bytes), _mm_cvtepi8_epi16(_mm_srli_si128::<8>(bytes))];
    std::array::from_fn(|half| _mm_add_epi32(sum[half], _mm_madd_epi16(words[half], x[half])))
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn eight(sum: I) -> [[i32; 8]; 1] {
    let mut all = [0; 8];
    for (four, sum) in all.as_chunks_mut::<4>().0.iter_mut().zip(sum) {
        // SAFETY: there is room for four.
        unsafe { _mm_storeu_si128(four.as_mut_ptr().cast(), sum) };
    }
    [all]
}

/// Prefetches 2 KiB ahead, beyond the slice. The hardware prefetcher stops at a page of 4 KiB.
#[inline]
#[target_feature(enable = "sse4.2")]
fn ahead(bytes: &[i8]) {
    for line in bytes.chunks(64) {
        // A prefetch from an invalid address is ignored.
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(2048));
    }
}

crate::scaled::scaled_kernel!([target_feature(enable = "sse4.2")], 1, group::<1>);
