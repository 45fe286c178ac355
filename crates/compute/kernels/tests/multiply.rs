//! Products of a matrix and a vector, at each level that the CPU supports.

use kernels::{F16, Level, PANEL, Panels, Stored};
use proptest::prelude::*;

/// Element types of a matrix, with their rounding errors.
trait Number: Stored {
    const UNIT_ROUNDOFF: f64;
    const SMALLEST: f64;
    fn of(value: f64) -> Self;
    fn sum(value: f64) -> Self::Sum;
    fn exact(self) -> f64;
    fn wide(sum: Self::Sum) -> f64;
}

macro_rules! number {
    ($($stored:ty, $sum:ty, $of:expr, $exact:expr;)*) => {$(
        impl Number for $stored {
            const UNIT_ROUNDOFF: f64 = <$sum>::EPSILON as f64 / 2.0;
            const SMALLEST: f64 = <$sum>::from_bits(1) as f64;
            fn of(value: f64) -> Self { $of(value) }
            fn sum(value: f64) -> $sum { value as $sum }
            fn exact(self) -> f64 { $exact(self) }
            fn wide(sum: $sum) -> f64 { f64::from(sum) }
        }
    )*};
}
number! {
    f32, f32, |value| value as f32, f64::from;
    f64, f64, |value| value, |value| value;
    F16, f32, |value| F16::from_f32(value as f32), |value: F16| f64::from(value.to_f32());
    i16, f32, |value| (value * 300.0) as i16, f64::from;
    u16, f32, |value: f64| (value.abs() * 600.0) as u16, f64::from;
}

/// Pseudo-random numbers from a seed: most near one, some very small or zero.
fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..count)
        .map(|_| {
            let value = next() as f64 / f64::from(1u32 << 30) - 1.0;
            match next() % 16 {
                0 => 0.0,
                1 => value * 1e-41,
                2 => value * 1e-7,
                _ => value * 10.0,
            }
        })
        .collect()
}

/// Checks the documented error bound of each level for a random matrix, and equal bits of levels that fuse.
fn check<S: Number>(rows: usize, columns: usize, seed: u64, cuts: &[usize])
where
    S::Sum: Copy + Default + PartialEq + std::fmt::Debug,
{
    let matrix: Vec<S> = numbers(seed, rows * columns).into_iter().map(S::of).collect();
    let x: Vec<S::Sum> = numbers(seed ^ 0x5555, columns).into_iter().map(S::sum).collect();
    let panels = Panels::pack(rows, columns, &matrix).unwrap();
    let mut plain = vec![S::Sum::default(); rows];
    panels.multiply(Level::SCALAR, &x, &mut plain).unwrap();
    for level in Level::all() {
        let mut y = vec![S::sum(7.0); rows];
        panels.multiply(level, &x, &mut y).unwrap();
        // The next product reads the matrix from its end.
        let mut again = vec![S::sum(7.0); rows];
        panels.multiply(level, &x, &mut again).unwrap();
        assert_eq!(again, y, "{level}: forwards and backwards");
        let k = (columns / 2 + if level.fuses() { 1 } else { 2 }) as f64 * S::UNIT_ROUNDOFF;
        for (row, y) in y.iter().enumerate() {
            let products = || (0..columns).map(|column| matrix[row * columns + column].exact() * S::wide(x[column]));
            let (exact, size): (f64, f64) = (products().sum(), products().map(f64::abs).sum());
            // The reference is rounded too, which matters if the result has the same precision.
            let reference = columns as f64 * (f64::EPSILON * size + f64::from_bits(1));
            let bound = k / (1.0 - k) * size + columns as f64 * S::SMALLEST + reference;
            let error = (S::wide(*y) - exact).abs();
            assert!(error <= bound, "{level}: {rows} × {columns}, row {row}: {error:e} > {bound:e}");
        }
        if level.fuses() {
            assert_eq!(y, plain, "{level} against scalar, {rows} × {columns}");
        }
        let mut split = vec![S::sum(7.0); rows];
        let mut borders: Vec<usize> = cuts.iter().map(|cut| cut % (panels.panels() + 1)).collect();
        borders.extend([0, panels.panels()]);
        borders.sort_unstable();
        for part in borders.windows(2).map(|ends| ends[0]..ends[1]) {
            let rows = panels.rows_of(&part);
            panels.multiply_panels(level, part, &x, &mut split[rows]).unwrap();
        }
        assert_eq!(split, y, "{level}: split at {borders:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 96 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_level_keeps_the_bound_and_gives_the_same_bits_for_any_split(
        rows in 0..if cfg!(miri) { 12 } else { 150usize },
        columns in 0..if cfg!(miri) { 6 } else { 200usize },
        seed in any::<u64>(),
        cuts in prop::collection::vec(0..64usize, 0..4),
    ) {
        check::<f32>(rows, columns, seed, &cuts);
        check::<f64>(rows, columns, seed, &cuts);
        check::<F16>(rows, columns, seed, &cuts);
        check::<i16>(rows, columns, seed, &cuts);
        check::<u16>(rows, columns, seed, &cuts);
    }
}

#[test]
fn the_shapes_at_the_edges_multiply() {
    for (rows, columns) in [(0, 0), (0, 5), (5, 0), (1, 1), (1, 97), (97, 1), (8, 2), (9, 3), (PANEL * 8, 2)] {
        check::<f32>(rows, columns, 3, &[1, 2]);
        check::<f64>(rows, columns, 4, &[1, 2]);
    }
}

#[test]
fn a_matrix_without_columns_gives_zeros() {
    let mut y = [1.0f32; 9];
    Panels::<f32>::pack(9, 0, &[]).unwrap().multiply(Level::best(), &[], &mut y).unwrap();
    assert_eq!(y, [0.0; 9]);
}

#[test]
fn a_non_finite_element_affects_only_its_row_or_the_products_of_its_column() {
    let (rows, columns) = (19, 7);
    for level in Level::all() {
        let mut matrix = vec![1.0f32; rows * columns];
        matrix[3 * columns + 6] = f32::NAN;
        matrix[18 * columns + 2] = f32::INFINITY;
        let mut y = vec![0.0; rows];
        let panels = Panels::pack(rows, columns, &matrix).unwrap();
        panels.multiply(level, &[1.0; 7], &mut y).unwrap();
        let expected = |row| if row == 18 { f32::INFINITY } else { 7.0 };
        assert!((0..rows).all(|row| if row == 3 { y[3].is_nan() } else { y[row] == expected(row) }), "{level}: {y:?}");
        let mut x = [1.0; 7];
        x[6] = f32::INFINITY;
        panels.multiply(level, &x, &mut y).unwrap();
        assert!((0..rows).all(|row| row == 3 || y[row] == f32::INFINITY), "{level}: {y:?}");
        x[6] = f32::NAN;
        panels.multiply(level, &x, &mut y).unwrap();
        assert!(y.iter().all(|y| y.is_nan()), "{level}: {y:?}");
    }
}

#[test]
fn every_half_precision_number_is_multiplied_exactly() {
    let all: Vec<F16> = (0..=u16::MAX).map(F16).collect();
    let panels = Panels::pack(all.len(), 1, &all).unwrap();
    for level in Level::all() {
        let mut y = vec![0.0; all.len()];
        panels.multiply(level, &[1.0], &mut y).unwrap();
        for (half, y) in all.iter().zip(y) {
            let exact = half.to_f32();
            assert!(y == exact || exact.is_nan() && y.is_nan(), "{level}: {half:?}: {y} instead of {exact}");
        }
    }
}

#[test]
fn memory_is_passed_to_the_caller_before_its_first_touch_and_is_aligned() {
    let place = |rows, columns| {
        let mut at = (0, 0);
        let panels =
            Panels::pack_with(rows, columns, |_, _| 1.0f32, |memory| at = (memory.as_ptr().addr(), memory.len()));
        assert_eq!(panels.bytes(), at.1 * 4);
        at.0
    };
    assert_eq!(place(5, 5) % 64, 0);
    assert_eq!(place(100, 99) % 64, 0);
    assert_eq!(place(1024, 1024) % (2 << 20), 0);
}

#[test]
fn wrong_sizes_are_refused_with_the_expected_size_and_nothing_is_written() {
    let refused = Panels::pack(3, 4, &[0.0f32; 11]).unwrap_err().to_string();
    assert_eq!(refused, "elements of the matrix: found 11, expected 12");
    let panels = Panels::pack(20, 2, &[1.0f32; 40]).unwrap();
    let (level, mut y) = (Level::best(), [5.0; 20]);
    assert_eq!(
        panels.multiply(level, &[1.0; 3], &mut y).unwrap_err().to_string(),
        "elements of the vector: found 3, expected 2"
    );
    assert_eq!(
        panels.multiply(level, &[1.0; 2], &mut y[..19]).unwrap_err().to_string(),
        "elements of the result: found 19, expected 20"
    );
    assert_eq!(
        panels.multiply_panels(level, 2..4, &[1.0; 2], &mut y).unwrap_err().to_string(),
        "end of the panels: found 4, expected 3"
    );
    assert_eq!(y, [5.0; 20]);
}

/// Resident memory of this process in KiB.
#[cfg(all(target_os = "linux", not(miri)))]
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn memory_of_every_number_type_is_passed_to_the_caller_before_its_first_touch() {
    fn touched<S: Stored>() -> i64 {
        let (before, mut then) = (resident(), 0);
        Panels::<S>::pack_with(4096, 4096, |_, _| S::default(), |_| then = resident());
        then - before
    }
    // The matrix has at least 32 MiB. Other tests of this program allocate memory at the same time.
    let all = [touched::<f32>(), touched::<f64>(), touched::<F16>(), touched::<i16>(), touched::<u16>()];
    assert!(all.iter().all(|kib| *kib < 16 << 10), "{all:?}");
}

/// Checks that the alignment of the vector and of the result does not change any bit.
fn begins_anywhere<S: Number>()
where
    S::Sum: Copy + Default + PartialEq + std::fmt::Debug,
{
    let (rows, columns) = (37, 45);
    let matrix: Vec<S> = numbers(3, rows * columns).into_iter().map(S::of).collect();
    let x: Vec<S::Sum> = numbers(4, columns).into_iter().map(S::sum).collect();
    let panels = Panels::pack(rows, columns, &matrix).unwrap();
    for level in Level::all() {
        let mut known = vec![S::Sum::default(); rows];
        panels.multiply(level, &x, &mut known).unwrap();
        // Covers each alignment within a cache line.
        for begin in 1..17 {
            let mut moved = vec![S::Sum::default(); begin];
            moved.extend_from_slice(&x);
            let mut y = vec![S::sum(7.0); begin + rows + 1];
            panels.multiply(level, &moved[begin..], &mut y[begin..begin + rows]).unwrap();
            assert_eq!(y[begin..begin + rows], known, "{level}, from number {begin}");
            let around = y[..begin].iter().chain(&y[begin + rows..]);
            assert!(around.into_iter().all(|value| *value == S::sum(7.0)), "{level}: written outside the result");
        }
    }
}

#[test]
fn vectors_may_begin_anywhere_and_no_memory_outside_the_result_is_written() {
    begins_anywhere::<f32>();
    begins_anywhere::<f64>();
    begins_anywhere::<F16>();
    begins_anywhere::<i16>();
    begins_anywhere::<u16>();
}
