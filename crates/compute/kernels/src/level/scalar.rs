//! Scalar arithmetic: the reference. `mul_add` rounds once, as the fused vector instructions do.

use crate::F16;

type F = [f32; 16];
type D = [f64; 16];

fn zero32() -> F {
    [0.0; 16]
}

fn zero64() -> D {
    [0.0; 16]
}

fn pair32(&[even, odd]: &[f32; 2]) -> F {
    std::array::from_fn(|lane| if lane % 2 == 0 { even } else { odd })
}

fn pair64(&[even, odd]: &[f64; 2]) -> D {
    std::array::from_fn(|lane| if lane % 2 == 0 { even } else { odd })
}

fn fma32(a: F, b: F, sum: F) -> F {
    std::array::from_fn(|lane| a[lane].mul_add(b[lane], sum[lane]))
}

fn fma64(a: D, b: D, sum: D) -> D {
    std::array::from_fn(|lane| a[lane].mul_add(b[lane], sum[lane]))
}

fn rows32(sum: F) -> [f32; 8] {
    std::array::from_fn(|row| sum[2 * row] + sum[2 * row + 1])
}

fn rows64(sum: D) -> [f64; 8] {
    std::array::from_fn(|row| sum[2 * row] + sum[2 * row + 1])
}

fn load_f32(unit: &[f32; 16]) -> F {
    *unit
}

fn load_f64(unit: &[f64; 16]) -> D {
    *unit
}

fn load_f16(unit: &[F16; 16]) -> F {
    unit.map(F16::to_f32)
}

fn load_i16(unit: &[i16; 16]) -> F {
    unit.map(f32::from)
}

fn load_u16(unit: &[u16; 16]) -> F {
    unit.map(f32::from)
}

crate::panels::multiply_kernels!([], 1, 1);

/// Eight integer sums.
type I = [i32; 8];

fn none() -> I {
    [0; 8]
}

fn both(pair: &[i16; 2]) -> [i16; 2] {
    *pair
}

fn dot([unit]: &[[i8; 16]; 1], [even, odd]: [i16; 2], sum: I) -> I {
    let product = |a: i8, x: i16| i32::from(a) * i32::from(x);
    std::array::from_fn(|row| sum[row] + product(unit[2 * row], even) + product(unit[2 * row + 1], odd))
}

fn eight(sum: I) -> [[i32; 8]; 1] {
    [sum]
}

fn ahead(_: &[i8]) {}

crate::scaled::scaled_kernel!([], 1, group::<1>);
