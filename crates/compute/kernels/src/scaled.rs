//! Matrix-vector product with a matrix of 8 bits per element, and a scale for each row and block of columns.
//!
//! If memory limits a multiplication, half the bytes of [`F16`](crate::F16) take half its time. The largest element of a row in a block becomes
//! ±127. Each element is rounded to the nearest multiple of the *scale*, which is 1/127 of the largest. The block's elements of the vector
//! become multiples of 1/32767 of their largest. The products are added as integers, which is exact in any order. Then the sum times both
//! scales is added to the row. Results are therefore bit-identical at every level, for any split of the rows.
//!
//! **Error.** With `n` columns in a block, `A` the largest |a| of the row and `X` the largest |x| in it, the contribution of each block to a
//! row differs from exact arithmetic by at most `n·A·X·(1/254 + 1/65534)·(1 + 2⁻¹⁸)`. If X is below 1e-30 it counts as zero, and the error is
//! at most 1e-30·n·A. With errors of both signs, the factor n is about √n in practice. The sum over `k` blocks is rounded `k` times, to 24
//! bits.

use crate::level::Kind;
use crate::panels::{HUGE, LINE};
use crate::{Level, Misfit, PANEL, level};

/// Maximum columns of a block. The sum of as many products fits into 32 bits.
pub const BLOCK_MAX: usize = 512;
/// Numbers of a unit: two columns of a panel.
pub(crate) const UNIT: usize = 2 * PANEL;
/// Panels with interleaved units, column by column, which form one stream for the prefetcher. With one stream per panel, one CPU read 23 GB/s
/// of 30 from a third-level cache.
const TOGETHER: usize = 8;
/// Values up to this count as zero, because their scale would not be a normal number.
const LEAST: f32 = 1e-30;
/// 1.5·2²³. Added to a number below 2²², it leaves the nearest integer in the low bits.
const WHOLE: f32 = 12_582_912.0;

/// A matrix of 8 bits per element, in blocks of columns. Adding neither allocates nor blocks.
#[derive(Debug)]
pub struct Scaled {
    rows: usize,
    blocks: Vec<Block>,
    /// The units, starting at the aligned index `begin`.
    memory: Vec<i8>,
    begin: usize,
    /// Scale of each row, padded to whole panels, block after block.
    scales: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    columns: usize,
    /// Index of its first unit.
    unit: usize,
}

impl Scaled {
    /// Packs a matrix with the elements `at(row, column)`. `columns` is the number of columns of each block; `column` counts over all blocks.
    /// The calling thread touches the memory first. `prepare` receives it before that, as in [`Panels`](crate::Panels::pack_with). Allocates.
    /// An element that is not finite makes its row's part of the block NaN.
    ///
    /// # Errors
    /// A block has more than [`BLOCK_MAX`] columns.
    ///
    /// # Panics
    /// The matrix is larger than the address space.
    pub fn pack_with(
        rows: usize,
        columns: &[usize],
        at: impl Fn(usize, usize) -> f32,
        prepare: impl FnOnce(&mut [i8]),
    ) -> Result<Self, Misfit> {
        let panels = rows.div_ceil(PANEL);
        let (mut blocks, mut units) = (Vec::with_capacity(columns.len()), 0);
        for columns in columns {
            if *columns > BLOCK_MAX {
                return Err(Misfit::of("columns of a block", *columns, BLOCK_MAX));
            }
            blocks.push(Block { columns: *columns, unit: units });
            units += panels * columns.div_ceil(2);
        }
        let length = units.checked_mul(UNIT).expect("a matrix within the address space");
        let align = if length >= HUGE { HUGE } else { LINE };
        let mut memory = vec![0; length + align];
        let begin = memory.as_ptr().addr().wrapping_neg() % align;
        prepare(&mut memory[begin..begin + length]);
        let mut scales = vec![0.0; panels * PANEL * blocks.len()];
        let packed = memory[begin..begin + length].as_chunks_mut::<UNIT>().0;
        let (mut first, mut scales_left) = (0, scales.as_mut_slice());
        for block in &blocks {
            let (of_block, later) = std::mem::take(&mut scales_left).split_at_mut(panels * PANEL);
            scales_left = later;
            for (row, scale) in of_block.iter_mut().enumerate().take(rows) {
                let largest = largest((0..block.columns).map(|column| at(row, first + column)));
                *scale = if largest > LEAST || largest.is_nan() { largest / 127.0 } else { 0.0 };
            }
            let pairs = block.columns.div_ceil(2);
            for (panel, together) in groups(panels) {
                let group = &mut packed[block.unit + panel * pairs..][..together * pairs];
                for (index, unit) in group.iter_mut().enumerate() {
                    let (pair, panel) = (index / together.max(1), panel + index % together.max(1));
                    for (place, to) in unit.iter_mut().enumerate() {
                        let (row, column) = (panel * PANEL + place / 2, pair * 2 + place % 2);
                        if row < rows && column < block.columns && of_block[row] > 0.0 {
                            // At most 127, apart from rounding in the last bit.
                            *to = (at(row, first + column) / of_block[row]).round_ties_even() as i8;
                        }
                    }
                }
            }
            first += block.columns;
        }
        Ok(Self { rows, blocks, memory, begin, scales })
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of blocks of columns.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of the matrix that all blocks together read, including scales.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let pairs: usize = self.blocks.iter().map(|block| block.columns.div_ceil(2)).sum();
        self.rows.div_ceil(PANEL) * pairs * UNIT + self.scales.len() * size_of::<f32>()
    }

    /// Adds a block of the matrix times `x` to `y`; `x` holds the vector's elements of that block. Does not allocate. Reads the block once. A
    /// non-finite element of `x` makes all of `y` NaN.
    ///
    /// # Errors
    /// The block does not exist, `x` does not have one element per column of it, or `y` one per row. `y` is unchanged.
    pub fn add(&self, level: Level, block: usize, x: &[f32], y: &mut [f32]) -> Result<(), Misfit> {
        let Some(of) = self.blocks.get(block) else {
            return Err(Misfit::of("a block", block, self.blocks.len()));
        };
        Misfit::check("elements of the vector", x.len(), of.columns)?;
        Misfit::check("elements of the result", y.len(), self.rows)?;
        let panels = self.rows.div_ceil(PANEL);
        let pairs = of.columns.div_ceil(2);
        let scales = &self.scales.as_chunks::<PANEL>().0[block * panels..][..panels];
        let units = self.memory[self.begin..].as_chunks::<UNIT>().0;
        let part = Part { units: &units[of.unit..][..panels * pairs], pairs, scales, x };
        match level.0 {
            Kind::Scalar => level::scalar::add_scaled(&part, y),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this level exists only if the CPU has its instructions.
            Kind::Sse42 => unsafe { level::sse42::add_scaled(&part, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kind::Avx2 => unsafe { level::avx2::add_scaled(&part, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kind::Avx512 => unsafe { level::avx512::add_scaled(&part, y) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Kind::Neon => unsafe { level::neon::add_scaled(&part, y) },
        }
        Ok(())
    }
}

/// A block, and the vector that it is multiplied by.
pub(crate) struct Part<'a> {
    pub(crate) units: &'a [[i8; UNIT]],
    pub(crate) pairs: usize,
    pub(crate) scales: &'a [[f32; PANEL]],
    pub(crate) x: &'a [f32],
}

/// Groups of interleaved panels: first panel, and number of panels.
pub(crate) fn groups(panels: usize) -> impl Iterator<Item = (usize, usize)> {
    let whole = panels / TOGETHER * TOGETHER;
    let mut at = whole;
    let rest = [4, 2, 1].into_iter().filter(move |many| (panels - whole) & many != 0).map(move |many| {
        at += many;
        (at - many, many)
    });
    (0..whole).step_by(TOGETHER).map(|first| (first, TOGETHER)).chain(rest)
}

/// Largest magnitude; NaN if a value is not finite.
#[inline(always)]
fn largest(values: impl Iterator<Item = f32>) -> f32 {
    let bits = values.fold(0, |largest, value| u32::max(largest, value.to_bits() & 0x7fff_ffff));
    if bits < f32::INFINITY.to_bits() { f32::from_bits(bits) } else { f32::NAN }
}

/// Converts the vector to integers and returns their scale: NaN if an element is not finite, 0 if all count as zero.
#[inline(always)]
pub(crate) fn whole(x: &[f32], to: &mut [i16; BLOCK_MAX]) -> f32 {
    let largest = largest(x.iter().copied());
    if largest.is_nan() {
        return largest;
    }
    if largest <= LEAST {
        return 0.0;
    }
    let by = 32767.0 / largest;
    for (to, x) in to.iter_mut().zip(x) {
        *to = (x * by + WHOLE).to_bits() as i16;
    }
    largest / 32767.0
}

/// Adds eight sums times their scales, up to the end of `y`. No operations are fused, so all levels give the same bits.
#[inline(always)]
pub(crate) fn add_rows(y: &mut [f32], sums: &[i32; PANEL], scales: &[f32; PANEL], worth: f32) {
    // Computes all eight products in any case, as a register holds them.
    let products: [f32; PANEL] = std::array::from_fn(|row| sums[row] as f32 * (scales[row] * worth));
    match y.first_chunk_mut::<PANEL>() {
        Some(y) => *y = std::array::from_fn(|row| y[row] + products[row]),
        None => y.iter_mut().zip(products).for_each(|(y, product)| *y += product),
    }
}

/// The function of one level, built from the primitives of the level's file. Sums eight panels at once. A register holds the sums of `$panels`
/// panels. If that is more than one, a single remaining panel uses the `group` of another level.
macro_rules! scaled_kernel {
    ([$($attribute:meta)?], $panels:literal, $one:path) => {
        /// Processes `N` registers of interleaved panels.
        $(#[$attribute])?
        #[inline]
        pub(super) fn group<const N: usize>(
            units: &[[i8; crate::scaled::UNIT]],
            pairs: &[[i16; 2]],
            (scales, worth): (&[[f32; 8]], f32),
            y: &mut [f32],
        ) {
            let mut sums = [none(); N];
            let units = units.as_chunks::<$panels>().0.as_chunks::<N>().0;
            for (units, pair) in units.iter().zip(pairs) {
                ahead(units.as_flattened().as_flattened());
                let x = both(pair);
                for index in 0..N {
                    sums[index] = dot(&units[index], x, sums[index]);
                }
            }
            for (index, sums) in sums.iter().enumerate() {
                for (panel, sums) in (index * $panels..).zip(&eight(*sums)) {
                    crate::scaled::add_rows(&mut y[panel * 8..], sums, &scales[panel], worth);
                }
            }
        }

        $(#[$attribute])?
        pub(crate) fn add_scaled(part: &crate::scaled::Part<'_>, y: &mut [f32]) {
            use crate::scaled::{BLOCK_MAX, groups, whole};
            let mut numbers = [0; BLOCK_MAX];
            let worth = whole(part.x, &mut numbers);
            let pairs = &numbers.as_chunks::<2>().0[..part.pairs];
            for (panel, together) in groups(part.scales.len()) {
                let units = &part.units[panel * part.pairs..][..together * part.pairs];
                let scales = (&part.scales[panel..], worth);
                let y = &mut y[panel * 8..];
                match together {
                    8 => group::<{ 8 / $panels }>(units, pairs, scales, y),
                    4 => group::<{ 4 / $panels }>(units, pairs, scales, y),
                    2 => group::<{ 2 / $panels }>(units, pairs, scales, y),
                    _ => $one(units, pairs, scales, y),
                }
            }
        }
    };
}
pub(crate) use scaled_kernel;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_each_grouped_once_in_order() {
        for panels in 0..40 {
            let mut next = 0;
            for (first, many) in groups(panels) {
                assert_eq!(first, next, "{panels}");
                next += many;
            }
            assert_eq!(next, panels);
        }
    }

    #[test]
    fn a_vector_is_rounded_to_integers_and_its_scale_is_nan_if_an_element_is_not_finite() {
        let mut to = [9; BLOCK_MAX];
        assert_eq!(whole(&[2.0, -2.0, 1.0, 0.0], &mut to), 2.0 / 32767.0);
        assert_eq!(to[..5], [32767, -32767, 16384, 0, 9]);
        assert_eq!(whole(&[1e-31, -1e-40], &mut to), 0.0);
        assert!(whole(&[1.0, f32::NAN], &mut to).is_nan() && whole(&[f32::NEG_INFINITY], &mut to).is_nan());
        assert_eq!(whole(&[], &mut to), 0.0);
    }
}
