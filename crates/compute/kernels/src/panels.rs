//! Matrix-vector product with a packed matrix.
//!
//! Eight rows form a *panel*. Within a panel, two neighbouring columns are interleaved row by row, `r0c0 r0c1 r1c0 r1c1 …`, and form a *unit*
//! of sixteen numbers. A unit times a pair of the vector's elements adds to sixteen sums. Whatever the width of the vector instructions, no sum
//! changes its lane, and rows are independent.
//!
//! **Order of summation.** A row is the sum of its even columns, from the first on, plus that of its odd columns. Results are therefore
//! bit-identical for any split of the panels over workers, and for all levels that [fuse](crate::Level::fuses).
//!
//! **Error.** With `n` columns, unit roundoff `u` (2⁻²⁴ for f32, 2⁻⁵³ for f64) and `k = n/2 + 1` roundings (`n/2 + 2` if the level does not
//! fuse), each row differs from exact arithmetic on the stored numbers by at most `k·u/(1 − k·u) · Σ|a||x| + n·t`. Here `t` is the smallest
//! positive number: the loss when a product underflows.

use crate::level::Kind;
use crate::{F16, Level, level};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of a panel.
pub const PANEL: usize = 8;
/// Numbers of a unit: two columns of a panel.
const UNIT: usize = 2 * PANEL;
/// Alignment of a matrix: a cache line.
pub(crate) const LINE: usize = 64;
/// Alignment of a matrix of at least this size: a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// A matrix for [`Panels::multiply`]. Multiplying neither allocates nor blocks.
#[derive(Debug)]
pub struct Panels<S> {
    rows: usize,
    columns: usize,
    /// The units, starting at the aligned index `begin`.
    memory: Vec<S>,
    begin: usize,
    /// The next whole multiplication starts at the last panel, which is still in the caches.
    backwards: AtomicBool,
}

/// Number formats of matrices: f32 and f64, and [`F16`], i16 and u16, which are summed in f32.
pub trait Stored: Copy + Default + sealed::Kernel {}

mod sealed {
    use crate::Level;

    pub trait Kernel: Sized {
        /// Number format of the sums.
        type Sum: Copy + Default;
        /// Zeros in untouched memory, so that huge pages can be advised before its first use.
        fn zeros(length: usize) -> Vec<Self>;
        /// Multiplies panels by `x` into `y`. `matrix` has `y.len()` rows, rounded up to panels, and `x.len()` columns, rounded up to pairs.
        /// Starts at the first panel, or at the last if `backwards` is set.
        fn multiply(
            level: Level,
            matrix: &[[Self; super::UNIT]],
            x: &[Self::Sum],
            y: &mut [Self::Sum],
            backwards: bool,
        );
    }
}

/// A size does not fit.
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
    /// Checks that `found` equals `expected`.
    pub(crate) const fn check(what: &'static str, found: usize, expected: usize) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self { what, found, expected }) }
    }

    pub(crate) const fn of(what: &'static str, found: usize, expected: usize) -> Self {
        Self { what, found, expected }
    }
}

impl<S: Stored> Panels<S> {
    /// Packs a matrix in row-major order. Allocates.
    ///
    /// # Errors
    /// `matrix` does not have `rows` × `columns` elements.
    pub fn pack(rows: usize, columns: usize, matrix: &[S]) -> Result<Self, Misfit> {
        Misfit::check("elements of the matrix", matrix.len(), rows.saturating_mul(columns))?;
        Ok(Self::pack_with(rows, columns, |row, column| matrix[row * columns + column], |_| ()))
    }

    /// Packs a matrix with the elements `at(row, column)`. `prepare` receives the memory before its first use, for example to advise huge pages
    /// or to bind it to a NUMA node. Matrices of at least the size of a huge page are aligned to one. The calling thread touches the memory
    /// first. Allocates.
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
        // The system provides zeroed memory of this size without touching it.
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

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Number of panels. Each has [`PANEL`] rows; the last may have fewer.
    #[must_use]
    pub const fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Rows of some panels: the part of the result that they compute.
    #[must_use]
    pub fn rows_of(&self, panels: &Range<usize>) -> Range<usize> {
        let end = (panels.end * PANEL).min(self.rows);
        (panels.start * PANEL).min(end)..end
    }

    /// Bytes of the matrix that a multiplication reads.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.panels() * self.columns.div_ceil(2) * UNIT * size_of::<S>()
    }

    /// `y` = matrix times `x`. Does not allocate. Reads the matrix once, alternating between forwards and backwards: if it is larger than a
    /// cache, the half that was read last is still cached.
    ///
    /// # Errors
    /// `x` does not have one element per column, or `y` one per row. `y` is unchanged.
    pub fn multiply(&self, level: Level, x: &[S::Sum], y: &mut [S::Sum]) -> Result<(), Misfit> {
        let backwards = self.backwards.load(Ordering::Relaxed);
        self.backwards.store(!backwards, Ordering::Relaxed);
        self.multiply_some(level, 0..self.panels(), x, y, backwards)
    }

    /// The part of [`Panels::multiply`] that some panels compute, for one of several workers. Bit-identical.
    ///
    /// # Errors
    /// `x` does not have one element per column, the panels do not exist, or `y` does not have one element per row of them
    /// ([`Panels::rows_of`]). `y` is unchanged.
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

/// The multiplication functions of one level, built from the primitives of the level's file. They process `$wide` panels of f32 (`$double` of
/// f64) at once: enough that additions do not wait for each other, and few enough that all sums stay in registers.
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
            /// Multiplies `N` panels at once.
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
                // For eight remaining panels, two groups of four have shorter dependency chains than six and two.
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

/// `vec!` would write each zero of a custom type. The matrix would then be on small pages before it can be advised otherwise, and reading it
/// from memory took twice as long.
fn half_zeros(length: usize) -> Vec<F16> {
    let mut zeros = std::mem::ManuallyDrop::new(vec![0u16; length]);
    // SAFETY: the memory of a vector with no other owner; an `F16` is a transparent `u16`.
    unsafe { Vec::from_raw_parts(zeros.as_mut_ptr().cast(), zeros.len(), zeros.capacity()) }
}

/// Number formats of matrices, each with its function in the files of the levels.
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
                    // SAFETY: a value of this level exists only if the CPU has its instructions.
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
