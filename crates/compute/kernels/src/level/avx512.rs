//! AVX-512 (F, BW, DQ, VL, VNNI) with FMA and F16C: 512 bits.

use super::avx2;
use crate::F16;
use std::arch::x86_64::*;

type F = __m512;
type D = [__m512d; 2];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn zero32() -> F {
    _mm512_setzero_ps()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn zero64() -> D {
    [_mm512_setzero_pd(); 2]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn pair32(pair: &[f32; 2]) -> F {
    // SAFETY: the pair has the 8 bytes that are read.
    let both = unsafe { pair.as_ptr().cast::<f64>().read_unaligned() };
    _mm512_castpd_ps(_mm512_set1_pd(both))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn pair64(pair: &[f64; 2]) -> D {
    // SAFETY: the pair has the 16 bytes that are read.
    let both = unsafe { _mm_loadu_pd(pair.as_ptr()) };
    [_mm512_broadcast_f64x2(both); 2]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn fma32(a: F, b: F, sum: F) -> F {
    _mm512_fmadd_ps(a, b, sum)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn fma64(a: D, b: D, sum: D) -> D {
    [_mm512_fmadd_pd(a[0], b[0], sum[0]), _mm512_fmadd_pd(a[1], b[1], sum[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn rows32(sum: F) -> [f32; 8] {
    avx2::rows32([_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps::<1>(sum)])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn rows64(sum: D) -> [f64; 8] {
    avx2::rows64([
        _mm512_castpd512_pd256(sum[0]),
        _mm512_extractf64x4_pd::<1>(sum[0]),
        _mm512_castpd512_pd256(sum[1]),
        _mm512_extractf64x4_pd::<1>(sum[1]),
    ])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn load_f32(unit: &[f32; 16]) -> F {
    // SAFETY: the unit has 16 numbers.
    unsafe { _mm512_loadu_ps(unit.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn load_f64(unit: &[f64; 16]) -> D {
    // SAFETY: the unit has 16 numbers.
    let low = unsafe { _mm512_loadu_pd(unit.as_ptr()) };
    // SAFETY: as above, for the second eight numbers.
    let high = unsafe { _mm512_loadu_pd(unit[8..].as_ptr()) };
    [low, high]
}

/// Loads sixteen numbers of 16 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn words<T>(unit: &[T; 16]) -> __m256i {
    const { assert!(size_of::<T>() == 2) };
    // SAFETY: the unit has 16 numbers of two bytes.
    unsafe { _mm256_loadu_si256(unit.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn load_f16(unit: &[F16; 16]) -> F {
    _mm512_cvtph_ps(words(unit))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn load_i16(unit: &[i16; 16]) -> F {
    _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(words(unit)))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn load_u16(unit: &[u16; 16]) -> F {
    _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(words(unit)))
}

crate::panels::multiply_kernels!(
    [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")],
    8,
    4
);

/// Eight integer sums for each of two panels.
type I = __m512i;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn none() -> I {
    _mm512_setzero_si512()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn both(&[even, odd]: &[i16; 2]) -> I {
    _mm512_set1_epi32((i32::from(odd) << 16) | i32::from(even.cast_unsigned()))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn dot(units: &[[i8; 16]; 2], x: I, sum: I) -> I {
    // SAFETY: the units have 32 numbers of a byte.
    let bytes = unsafe { _mm256_loadu_si256(units.as_ptr().cast()) };
    _mm512_dpwssd_epi32(sum, _mm512_cvtepi8_epi16(bytes), x)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn eight(sum: I) -> [[i32; 8]; 2] {
    let mut all = [[0; 8]; 2];
    // SAFETY: there is room for sixteen.
    unsafe { _mm512_storeu_si512(all.as_mut_ptr().cast(), sum) };
    all
}

/// Prefetches 2 KiB ahead, beyond the slice. The hardware prefetcher stops at a page of 4 KiB.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn ahead(bytes: &[i8]) {
    for line in bytes.chunks(64) {
        // A prefetch from an invalid address is ignored.
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(2048));
    }
}

crate::scaled::scaled_kernel!(
    [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")],
    2,
    avx2::group::<1>
);
