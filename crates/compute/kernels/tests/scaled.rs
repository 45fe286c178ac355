//! Products with a matrix of 8 bits per element, at each level that the CPU supports.

use kernels::{BLOCK_MAX, Level, Scaled};
use proptest::prelude::*;

/// Pseudo-random numbers of many magnitudes from a seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let value = |bits: u64, kind: u64| {
        let value = bits as f32 / (1u32 << 30) as f32 - 1.0;
        [0.0, value * 1e-41, value * 1e-7, value * 1e15].get(kind as usize % 24).copied().unwrap_or(value * 10.0)
    };
    (0..count).map(|_| value(next(), next())).collect()
}

fn packed(rows: usize, blocks: &[usize], matrix: &[f32]) -> Scaled {
    let columns: usize = blocks.iter().sum();
    Scaled::pack_with(rows, blocks, |row, column| matrix[row * columns + column], |_| ()).unwrap()
}

fn product(matrix: &Scaled, level: Level, blocks: &[usize], x: &[f32]) -> Vec<f32> {
    let (mut y, mut first) = (vec![0.0; matrix.rows()], 0);
    for (block, columns) in blocks.iter().enumerate() {
        matrix.add(level, block, &x[first..first + columns], &mut y).unwrap();
        first += columns;
    }
    y
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 96 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_level_gives_the_same_bits_within_the_bound(
        rows in 0..if cfg!(miri) { 20 } else { 150usize },
        blocks in prop::collection::vec(0..if cfg!(miri) { 6 } else { 90usize }, 0..4),
        seed in any::<u64>(),
    ) {
        let columns: usize = blocks.iter().sum();
        let (all, x) = (numbers(seed, rows * columns), numbers(seed ^ 0x5555, columns));
        let matrix = packed(rows, &blocks, &all);
        let plain = product(&matrix, Level::SCALAR, &blocks, &x);
        for level in Level::all() {
            prop_assert_eq!(&product(&matrix, level, &blocks, &x), &plain, "{}", level);
        }
        let size = |values: &[f32]| values.iter().fold(0.0, |size: f64, value| size.max(f64::from(value.abs())));
        for (row, y) in plain.iter().enumerate() {
            let (mut exact, mut bound, mut sizes, mut first) = (0.0, 0.0, 0.0, 0);
            for of in &blocks {
                let (a, x) = (&all[row * columns + first..][..*of], &x[first..first + of]);
                exact += a.iter().zip(x).map(|(a, x)| f64::from(*a) * f64::from(*x)).sum::<f64>();
                let whole = *of as f64 * size(a) * size(x);
                bound += whole * (1.0 / 254.0 + 1.0 / 65534.0) * (1.0 + 2f64.powi(-18));
                // Covers rows and parts of the vector that count as zero, and products that are subnormal.
                bound += *of as f64 * (1e-30 * size(a).max(size(x)) + 1e-37);
                sizes += whole;
                first += of;
            }
            bound += blocks.len() as f64 * 2f64.powi(-23) * sizes;
            prop_assert!((f64::from(*y) - exact).abs() <= bound, "row {}: {} instead of {}, bound {:e}", row, y, exact, bound);
        }
    }
}

#[test]
fn the_largest_sum_fits() {
    let matrix = packed(9, &[BLOCK_MAX], &vec![-3.0; 9 * BLOCK_MAX]);
    for level in Level::all() {
        let y = product(&matrix, level, &[BLOCK_MAX], &[2.0; BLOCK_MAX]);
        assert!(y.iter().all(|y| (y + 6.0 * BLOCK_MAX as f32).abs() < 0.01), "{level}: {y:?}");
    }
}

#[test]
fn a_non_finite_matrix_element_affects_its_row_and_one_in_the_vector_all_rows() {
    let mut all = vec![1.0; 11 * 3];
    all[4 * 3 + 1] = f32::INFINITY;
    let matrix = packed(11, &[3], &all);
    for level in Level::all() {
        let y = product(&matrix, level, &[3], &[1.0; 3]);
        assert!(
            (0..11).all(|row| if row == 4 { y[4].is_nan() } else { (y[row] - 3.0).abs() < 1e-3 }),
            "{level}: {y:?}"
        );
        for bad in [f32::NAN, f32::NEG_INFINITY] {
            assert!(product(&matrix, level, &[3], &[1.0, bad, 1.0]).iter().all(|y| y.is_nan()), "{level}");
        }
    }
}

#[test]
fn wrong_sizes_are_refused_with_the_expected_size_and_nothing_is_written() {
    let refused = Scaled::pack_with(3, &[4, BLOCK_MAX + 1], |_, _| 0.0, |_| ()).unwrap_err().to_string();
    assert_eq!(refused, "columns of a block: found 513, expected 512");
    let (matrix, mut y) = (packed(3, &[2, 1], &[1.0; 9]), [5.0; 3]);
    let mut say = |block, x: &[f32], rows| matrix.add(Level::best(), block, x, &mut y[..rows]).unwrap_err().to_string();
    assert_eq!(say(2, &[1.0], 3), "a block: found 2, expected 2");
    assert_eq!(say(0, &[1.0], 3), "elements of the vector: found 1, expected 2");
    assert_eq!(say(1, &[1.0], 2), "elements of the result: found 2, expected 3");
    assert_eq!(y, [5.0; 3]);
}
