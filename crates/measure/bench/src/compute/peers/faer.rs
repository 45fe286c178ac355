//! `faer`, a linear-algebra library in Rust, to compare with.

use crate::compute::WARM;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use std::hint::black_box;
use sys::clock::mono_now;

/// Nanoseconds of the products after [`WARM`] untimed ones, and the sum of the result's elements.
pub(super) fn products(by_rows: bool, matrix: &[f32], x: &[f32], y: &mut [f32], times: usize) -> (f64, f64) {
    let size = x.len();
    let a = if by_rows {
        MatRef::from_row_major_slice(matrix, size, size)
    } else {
        MatRef::from_column_major_slice(matrix, size, size)
    };
    let x = MatRef::from_column_major_slice(x, size, 1);
    let call = |y: &mut [f32]| {
        let y = MatMut::from_column_major_slice_mut(y, size, 1);
        matmul(y, Accum::Replace, black_box(a), black_box(x), 1.0, Par::Seq);
    };
    (0..WARM).for_each(|_| call(y));
    let begun = mono_now();
    (0..times).for_each(|_| call(black_box(y)));
    let took = (mono_now() - begun).0 as f64;
    (took, y.iter().map(|y| f64::from(*y)).sum())
}
