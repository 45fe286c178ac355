//! Work that is written once, on arrays of `N` numbers, and compiled for the registers of each level: for what needs no instruction of its own.

use super::Kind;
use crate::Level;

/// Numbers of the widest registers that are used: to so many what is kept for such work is filled up.
pub(crate) const LANES: usize = 8;

/// What is to be done with arrays of as many numbers as a register has of f32. `with` has to be `#[inline(always)]`: else it is compiled for
/// the least CPU.
pub(crate) trait Wide {
    /// What comes of it.
    type Output;
    /// Does it.
    fn with<const N: usize>(self) -> Self::Output;
}

/// Does it by the instructions of a level. Nothing is fused, so all levels give the same bits.
pub(crate) fn at<W: Wide>(level: Level, work: W) -> W::Output {
    match level.0 {
        Kind::Scalar => work.with::<1>(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: of a level that the CPU does not have there is no value.
        Kind::Sse42 => unsafe { sse42(work) },
        #[cfg(target_arch = "x86_64")]
        // Arrays of sixteen are not kept in registers of 512 bits: products of 3 x 4 KiB took 7 times as long. SAFETY: as above; AVX-512 is a level only
        // where AVX2 is one.
        Kind::Avx2 | Kind::Avx512 => unsafe { avx2(work) },
        // What every CPU of this kind has.
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => work.with::<4>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn sse42<W: Wide>(work: W) -> W::Output {
    work.with::<4>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<W: Wide>(work: W) -> W::Output {
    work.with::<LANES>()
}
