//! Matrix times vector, from a matrix that was packed for it.
//!
//! Eight rows are a *panel*; in a panel two neighbouring columns lie together, row by row: `r0c0 r0c1 r1c0 r1c1 …`, a *unit* of
//! sixteen numbers. A pair of the vector's elements times a unit adds to sixteen sums; whatever the width of the vector
//! instructions, no sum ever leaves its place, and no row needs the others.
//!
//! **Order of summation.** A row is the sum of its even columns, from the first on, plus that of its odd ones. So a result is
//! equal to the last bit for any split of the panels over workers, and for all levels that [fuse](crate::Level::fuses).
//!
//! **Error.** Of `n` columns, with unit roundoff `u` (2⁻²⁴ of f32, 2⁻⁵³ of f64) and `k = n/2 + 1` roundings (`n/2 + 2` where the
//! level does not fuse), each row differs from exact arithmetic on the stored numbers by at most
//! `k·u/(1 − k·u) · Σ|a||x| + n·t`, where `t` is the smallest positive number: what is lost where products underflow.

use crate::level::Kind;
use crate::{F16, Level, level};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of a panel.
pub const PANEL: usize = 8;
/// Numbers of a unit: two columns of a panel.
const UNIT: usize = 2 * PANEL;
/// On what a matrix is aligned: a line of the cache.
pub(crate) const LINE: usize = 64;
/// On what one is aligned that is at least as large: a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// A matrix for [`Panels::multiply`]. Made once; multiplying neither allocates nor blocks.
#[derive(Debug)]
pub struct Panels<S> {
    rows: usize,
    columns: usize,
    /// The units, from `begin` on, which is aligned.
    memory: Vec<S>,
    begin: usize,
    /// Whether the next whole multiplication begins at the last panel: there is what the one before has left in the caches.
    backwards: AtomicBool,
}

/// Numbers as matrices have them: f32 and f64, and [`F16`], i16 and u16, which are summed in f32.
pub trait Stored: Copy + Default + sealed::Kernel {}

mod sealed {
    use crate::Level;

    pub trait Kernel: Sized {
        /// In what is summed.
        type Sum: Copy + Default;
        /// Zeros of which the system has not been made to touch any: a large matrix is advised to be of huge pages before.
        fn zeros(length: usize) -> Vec<Self>;
        /// Panels times `x` into `y`: `matrix` has `y.len()` rows, rounded up to panels, of `x.len()` columns, rounded up to pairs.
        /// From the first panel on, or from the last.
        fn multiply(
            level: Level,
            matrix: &[[Self; super::UNIT]],
            x: &[Self::Sum],
            y: &mut [Self::Sum],
            backwards: bool,
        );
    }
}

/// Sizes that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    what: &'static str,
    found: usize,
    expected: usize,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.what, self.found, self.expected)
    }
}

impl std::error::Error for Misfit {}

impl Misfit {
    /// That `found` is what it should be.
    pub(crate) const fn check(what: &'static str, found: usize, expected: usize) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self { what, found, expected }) }
    }

    pub(crate) const fn of(what: &'static str, found: usize, expected: usize) -> Self {
        Self { what, found, expected }
    }
}

impl<S: Stored> Panels<S> {
    /// Packs a matrix whose rows lie one behind the other. Allocates.
    ///
    /// # Errors
    /// `matrix` does not have `rows` × `columns` elements.
    pub fn pack(rows: usize, columns: usize, matrix: &[S]) -> Result<Self, Misfit> {
        Misfit::check("elements of the matrix", matrix.len(), rows.saturating_mul(columns))?;
        Ok(Self::pack_with(rows, columns, |row, column| matrix[row * columns + column], |_| ()))
    }

    /// Packs a matrix of which `at(row, column)` is an element, into memory that was shown to `prepare` before its first touch:
    /// there it may be advised to be of huge pages (it is aligned so where it has the size of one), or bound to a node. The
    /// thread that packs touches it first. Allocates.
    ///
    /// # Panics
    /// The matrix is larger than the address space.
    pub fn pack_with(
        rows: usize,
        columns: usize,
        at: impl Fn(usize, usize) -> S,
        prepare: impl FnOnce(&mut [S]),
    ) -> Self {
        let panels = rows.div_ceil(PANEL);
        let units = panels.checked_mul(columns.div_ceil(2)).expect("a matrix within the address space");
        let length = units.checked_mul(UNIT).expect("a matrix within the address space");
        let align = if length >= HUGE / size_of::<S>() { HUGE } else { LINE };
        // Zeroed memory of this size comes from the system as it is: nothing touches it yet.
        let mut memory = S::zeros(length + align / size_of::<S>());
        let begin = (memory.as_ptr().addr().wrapping_neg() % align) / size_of::<S>();
        prepare(&mut memory[begin..begin + length]);
        let packed = memory[begin..begin + length].as_chunks_mut::<UNIT>().0;
        for (panel, units) in packed.chunks_exact_mut(columns.div_ceil(2).max(1)).enumerate() {
            for (pair, unit) in units.iter_mut().enumerate() {
                for (place, to) in unit.iter_mut().enumerate() {
                    let (row, column) = (panel * PANEL + place / 2, pair * 2 + place % 2);
                    *to = if row < rows && column < columns { at(row, column) } else { S::default() };
                }
            }
        }
        Self { rows, columns, memory, begin, backwards: AtomicBool::new(false) }
    }

    /// Its rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Its columns.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Its panels: of [`PANEL`] rows each, the last perhaps of less.
    #[must_use]
    pub const fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// The rows of some panels: which part of the result they make.
    #[must_use]
    pub fn rows_of(&self, panels: &Range<usize>) -> Range<usize> {
        let end = (panels.end * PANEL).min(self.rows);
        (panels.start * PANEL).min(end)..end
    }

    /// Bytes that a multiplication reads of the matrix.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.panels() * self.columns.div_ceil(2) * UNIT * size_of::<S>()
    }

    /// `y` = matrix times `x`. Allocates nothing; reads the matrix once, forwards and backwards in turn: where it is larger than a cache, the
    /// half that was read last is still there.
    ///
    /// # Errors
    /// `x` has not as many elements as the matrix has columns, or `y` not as many as it has rows: `y` is as it was.
    pub fn multiply(&self, level: Level, x: &[S::Sum], y: &mut [S::Sum]) -> Result<(), Misfit> {
        let backwards = self.backwards.load(Ordering::Relaxed);
        self.backwards.store(!backwards, Ordering::Relaxed);
        self.multiply_some(level, 0..self.panels(), x, y, backwards)
    }

    /// The part of [`Panels::multiply`] that some panels make, for a worker of several; bit for bit the same.
    ///
    /// # Errors
    /// `x` has not as many elements as the matrix has columns, there are no such panels, or `y` has not as many elements as they
    /// have rows ([`Panels::rows_of`]): `y` is as it was.
    pub fn multiply_panels(
        &self,
        level: Level,
        panels: Range<usize>,
        x: &[S::Sum],
        y: &mut [S::Sum],
    ) -> Result<(), Misfit> {
        self.multiply_some(level, panels, x, y, false)
    }

    fn multiply_some(
        &self,
        level: Level,
        panels: Range<usize>,
        x: &[S::Sum],
        y: &mut [S::Sum],
        backwards: bool,
    ) -> Result<(), Misfit> {
        Misfit::check("elements of the vector", x.len(), self.columns)?;
        if panels.start > panels.end || panels.end > self.panels() {
            return Err(Misfit { what: "end of the panels", found: panels.end, expected: self.panels() });
        }
        Misfit::check("elements of the result", y.len(), self.rows_of(&panels).len())?;
        let stride = self.columns.div_ceil(2);
        let length = self.panels() * stride * UNIT;
        let units = self.memory[self.begin..self.begin + length].as_chunks::<UNIT>().0;
        S::multiply(level, &units[panels.start * stride..panels.end * stride], x, y, backwards);
        Ok(())
    }
}

/// The functions that multiply at one level, from what the level's file has: `$wide` panels of f32 at once (`$double` of f64),
/// so many that additions do not wait for each other and no sum leaves its register.
macro_rules! multiply_kernels {
    ([$($attribute:meta)?], $wide:literal, $double:literal) => {
        crate::panels::multiply_kernels!(@ [$($attribute)?], $wide, f32, f32, load_f32, zero32, pair32, fma32, rows32, multiply_f32);
        crate::panels::multiply_kernels!(@ [$($attribute)?], $wide, F16, f32, load_f16, zero32, pair32, fma32, rows32, multiply_f16);
        crate::panels::multiply_kernels!(@ [$($attribute)?], $wide, i16, f32, load_i16, zero32, pair32, fma32, rows32, multiply_i16);
        crate::panels::multiply_kernels!(@ [$($attribute)?], $wide, u16, f32, load_u16, zero32, pair32, fma32, rows32, multiply_u16);
        crate::panels::multiply_kernels!(@ [$($attribute)?], $double, f64, f64, load_f64, zero64, pair64, fma64, rows64, multiply_f64);
    };
    (
        @ [$($attribute:meta)?], $many:literal, $stored:ty, $sum:ty,
        $load:ident, $zero:ident, $pair:ident, $fma:ident, $rows:ident, $name:ident
    ) => {
        $(#[$attribute])?
        pub(crate) fn $name(matrix: &[[$stored; 16]], x: &[$sum], y: &mut [$sum], backwards: bool) {
            /// `N` panels at once.
            $(#[$attribute])?
            #[inline]
            fn group<const N: usize>(
                matrix: &[[$stored; 16]],
                (pairs, last): (&[[$sum; 2]], Option<[$sum; 2]>),
                y: &mut [$sum],
            ) {
                let stride = matrix.len() / N;
                let mut panels = [matrix; N];
                for (index, panel) in panels.iter_mut().enumerate() {
                    *panel = &matrix[index * stride..][..pairs.len()];
                }
                let mut sums = [$zero(); N];
                for (column, pair) in pairs.iter().enumerate() {
                    let x = $pair(pair);
                    for index in 0..N {
                        sums[index] = $fma($load(&panels[index][column]), x, sums[index]);
                    }
                }
                for (index, sum) in sums.iter_mut().enumerate() {
                    if let Some(pair) = &last {
                        *sum = $fma($load(&matrix[index * stride + pairs.len()]), $pair(pair), *sum);
                    }
                    let rows = $rows(*sum);
                    let y = &mut y[index * 8..];
                    match y.first_chunk_mut::<8>() {
                        Some(y) => *y = rows,
                        None => y.copy_from_slice(&rows[..y.len()]),
                    }
                }
            }
            let (pairs, last) = x.as_chunks::<2>();
            let last = last.first().map(|last| [*last, 0.0]);
            let stride = pairs.len() + usize::from(last.is_some());
            if stride == 0 {
                return y.fill(0.0);
            }
            let (mut matrix, mut y) = (matrix, y);
            while !matrix.is_empty() {
                let left = matrix.len() / stride;
                // Of eight that are left, twice four wait less for each other than six and two.
                let wide = left >= $many && ($many <= 4 || left != 8);
                let many = if wide { $many } else if left >= 4 { 4 } else if left >= 2 { 2 } else { 1 };
                let before = if backwards { left - many } else { many };
                let (first, second) = matrix.split_at(before * stride);
                let (upper, lower) = y.split_at_mut((before * 8).min(y.len()));
                let (now, later, rows, more) =
                    if backwards { (second, first, lower, upper) } else { (first, second, upper, lower) };
                match many {
                    4 => group::<4>(now, (pairs, last), rows),
                    2 => group::<2>(now, (pairs, last), rows),
                    1 => group::<1>(now, (pairs, last), rows),
                    _ => group::<$many>(now, (pairs, last), rows),
                }
                (matrix, y) = (later, more);
            }
        }
    };
}
pub(crate) use multiply_kernels;

/// `vec!` would write each zero of a type of our own: then a matrix lies on small pages before it can be advised otherwise, and took twice as long
/// to read from memory.
fn half_zeros(length: usize) -> Vec<F16> {
    let mut zeros = std::mem::ManuallyDrop::new(vec![0u16; length]);
    // SAFETY: memory of a vector that nobody else has any more; an `F16` is a `u16` and nothing else.
    unsafe { Vec::from_raw_parts(zeros.as_mut_ptr().cast(), zeros.len(), zeros.capacity()) }
}

/// Numbers that matrices are made of, each with its function in the files of the levels.
macro_rules! stored {
    ($($stored:ty, $sum:ty, $multiply:ident, $zeros:expr;)*) => {$(
        impl Stored for $stored {}

        impl sealed::Kernel for $stored {
            type Sum = $sum;

            fn zeros(length: usize) -> Vec<Self> {
                $zeros(length)
            }

            fn multiply(level: Level, matrix: &[[Self; UNIT]], x: &[$sum], y: &mut [$sum], backwards: bool) {
                match level.0 {
                    Kind::Scalar => level::scalar::$multiply(matrix, x, y, backwards),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: of a level that the CPU does not have there is no value.
                    Kind::Sse42 => unsafe { level::sse42::$multiply(matrix, x, y, backwards) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: as above.
                    Kind::Avx2 => unsafe { level::avx2::$multiply(matrix, x, y, backwards) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: as above.
                    Kind::Avx512 => unsafe { level::avx512::$multiply(matrix, x, y, backwards) },
                    #[cfg(target_arch = "aarch64")]
                    // SAFETY: as above.
                    Kind::Neon => unsafe { level::neon::$multiply(matrix, x, y, backwards) },
                }
            }
        }
    )*};
}
stored! {
    f32, f32, multiply_f32, |length| vec![0.0; length];
    f64, f64, multiply_f64, |length| vec![0.0; length];
    F16, f32, multiply_f16, half_zeros;
    i16, f32, multiply_i16, |length| vec![0; length];
    u16, f32, multiply_u16, |length| vec![0; length];
}
