//! NEON: 128 bits, available on every AArch64 CPU.

use crate::F16;
use crate::half::REBIAS;
use std::arch::aarch64::*;

type F = [float32x4_t; 4];
type D = [float64x2_t; 8];

#[inline]
#[target_feature(enable = "neon")]
fn zero32() -> F {
    [vdupq_n_f32(0.0); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn zero64() -> D {
    [vdupq_n_f64(0.0); 8]
}

#[inline]
#[target_feature(enable = "neon")]
fn pair32(pair: &[f32; 2]) -> F {
    // SAFETY: the pair has the two numbers that are read.
    let both = unsafe { vld1_f32(pair.as_ptr()) };
    [vcombine_f32(both, both); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn pair64(pair: &[f64; 2]) -> D {
    // SAFETY: the pair has the two numbers that are read.
    [unsafe { vld1q_f64(pair.as_ptr()) }; 8]
}

#[inline]
#[target_feature(enable = "neon")]
fn fma32(a: F, b: F, mut sum: F) -> F {
    for lane in 0..4 {
        sum[lane] = vfmaq_f32(sum[lane], a[lane], b[lane]);
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn fma64(a: D, b: D, mut sum: D) -> D {
    for lane in 0..8 {
        sum[lane] = vfmaq_f64(sum[lane], a[lane], b[lane]);
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn rows32(sum: F) -> [f32; 8] {
    let mut rows = [0.0; 8];
    let (low, high) = rows.split_at_mut(4);
    let sums = vpaddq_f32(sum[0], sum[1]);
    // SAFETY: there is room for four.
    unsafe { vst1q_f32(low.as_mut_ptr(), sums) };
    let sums = vpaddq_f32(sum[2], sum[3]);
    // SAFETY: there is room for four.
    unsafe { vst1q_f32(high.as_mut_ptr(), sums) };
    rows
}

#[inline]
#[target_feature(enable = "neon")]
fn rows64(sum: D) -> [f64; 8] {
    let mut rows = [0.0; 8];
    for (two, sums) in rows.as_chunks_mut::<2>().0.iter_mut().zip(sum.as_chunks::<2>().0) {
        let sums = vpaddq_f64(sums[0], sums[1]);
        // SAFETY: there is room for two.
        unsafe { vst1q_f64(two.as_mut_ptr(), sums) };
    }
    rows
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(unit: &[f32; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        // SAFETY: a quarter has four numbers.
        *to = unsafe { vld1q_f32(quarter.as_ptr()) };
    }
    loaded
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f64(unit: &[f64; 16]) -> D {
    let mut loaded = zero64();
    for (two, to) in unit.as_chunks::<2>().0.iter().zip(&mut loaded) {
        // SAFETY: the chunk has two numbers.
        *to = unsafe { vld1q_f64(two.as_ptr()) };
    }
    loaded
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f16(unit: &[F16; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        // SAFETY: a quarter has four numbers of two bytes, and an `F16` has 16 bits.
        let bits = vmovl_u16(unsafe { vld1_u16(quarter.as_ptr().cast()) });
        let magnitude = vshlq_n_u32::<13>(vandq_u32(bits, vdupq_n_u32(0x7fff)));
        let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
        let unbounded = vcgtq_u32(magnitude, vdupq_n_u32(0x7bff << 13));
        let unbounded = vandq_u32(unbounded, vdupq_n_u32(0x7f80_0000));
        let value = vreinterpretq_u32_f32(vmulq_n_f32(vreinterpretq_f32_u32(magnitude), REBIAS));
        *to = vreinterpretq_f32_u32(vorrq_u32(value, vorrq_u32(sign, unbounded)));
    }
    loaded
}

#[inline]
#[target_feature(enable = "neon")]
fn load_i16(unit: &[i16; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        // SAFETY: a quarter has four numbers.
        let words = unsafe { vld1_s16(quarter.as_ptr()) };
        *to = vcvtq_f32_s32(vmovl_s16(words));
    }
    loaded
}

#[inline]
#[target_feature(enable = "neon")]
fn load_u16(unit: &[u16; 16]) -> F {
    let mut loaded = zero32();
    for (quarter, to) in unit.as_chunks::<4>().0.iter().zip(&mut loaded) {
        // SAFETY: a quarter has four numbers.
        let words = unsafe { vld1_u16(quarter.as_ptr()) };
        *to = vcvtq_f32_u32(vmovl_u16(words));
    }
    loaded
}

crate::panels::multiply_kernels!([target_feature(enable = "neon")], 4, 2);

/// A line of a sub-aperture.
type L = [float32x4_t; 2];

#[inline]
#[target_feature(enable = "neon")]
fn splat(value: f32) -> L {
    [vdupq_n_f32(value); 2]
}

#[inline]
#[target_feature(enable = "neon")]
fn line(values: &[f32; 8]) -> L {
    let (left, right) = values.split_at(4);
    // SAFETY: a half has four numbers.
    let left = unsafe { vld1q_f32(left.as_ptr()) };
    // SAFETY: as above.
    let right = unsafe { vld1q_f32(right.as_ptr()) };
    [left, right]
}

#[inline]
#[target_feature(enable = "neon")]
fn widened(pixels: &[u16; 8]) -> L {
    // SAFETY: the line has 8 numbers.
    let words = unsafe { vld1q_u16(pixels.as_ptr()) };
    [vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), vcvtq_f32_u32(vmovl_high_u16(words))]
}

#[inline]
#[target_feature(enable = "neon")]
fn plus(a: L, b: L) -> L {
    [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "neon")]
fn minus(a: L, b: L) -> L {
    [vsubq_f32(a[0], b[0]), vsubq_f32(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "neon")]
fn times(a: L, b: L) -> L {
    [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "neon")]
fn not_below_zero(a: L) -> L {
    a.map(|half| vmaxq_f32(half, vdupq_n_f32(0.0)))
}

/// Pairwise sum of each of eight lines.
#[inline]
#[target_feature(enable = "neon")]
fn sums(lines: &[L; 8]) -> [f32; 8] {
    let mut sums = [0.0; 8];
    for (four, to) in lines.as_chunks::<4>().0.iter().zip(sums.as_chunks_mut::<4>().0) {
        let half = |side: usize| {
            vpaddq_f32(vpaddq_f32(four[0][side], four[1][side]), vpaddq_f32(four[2][side], four[3][side]))
        };
        let both = vaddq_f32(half(0), half(1));
        // SAFETY: there is room for four.
        unsafe { vst1q_f32(to.as_mut_ptr(), both) };
    }
    sums
}

crate::centroids::centre_kernel!([target_feature(enable = "neon")], L);

/// Eight integer sums, separately for even and odd columns.
type I = [int32x4_t; 4];

#[inline]
#[target_feature(enable = "neon")]
fn none() -> I {
    [vdupq_n_s32(0); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn both(&[even, odd]: &[i16; 2]) -> int16x8_t {
    vreinterpretq_s16_s32(vdupq_n_s32((i32::from(odd) << 16) | i32::from(even.cast_unsigned())))
}

#[inline]
#[target_feature(enable = "neon")]
fn dot([unit]: &[[i8; 16]; 1], x: int16x8_t, sum: I) -> I {
    // SAFETY: the unit has 16 numbers of a byte.
    let bytes = unsafe { vld1q_s8(unit.as_ptr()) };
    let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
    [
        vmlal_s16(sum[0], vget_low_s16(low), vget_low_s16(x)),
        vmlal_high_s16(sum[1], low, x),
        vmlal_s16(sum[2], vget_low_s16(high), vget_low_s16(x)),
        vmlal_high_s16(sum[3], high, x),
    ]
}

/// Adds neighbours and returns eight rows in order.
#[inline]
#[target_feature(enable = "neon")]
fn eight(sum: I) -> [[i32; 8]; 1] {
    let mut all = [0; 8];
    for (four, to) in sum.as_chunks::<2>().0.iter().zip(all.as_chunks_mut::<4>().0) {
        let rows = vpaddq_s32(four[0], four[1]);
        // SAFETY: there is room for four.
        unsafe { vst1q_s32(to.as_mut_ptr(), rows) };
    }
    [all]
}

/// No prefetch: there is no stable intrinsic, and the CPU prefetches by itself.
fn ahead(_: &[i8]) {}

crate::scaled::scaled_kernel!([target_feature(enable = "neon")], 1, group::<1>);
