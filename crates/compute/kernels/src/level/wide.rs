//! Kernels written once on arrays of `N` numbers and compiled for the registers of each level. For work that needs no special instructions.

use super::Kind;
use crate::Level;

/// Numbers in the widest register used. Data for such kernels is padded to a multiple of it.
pub(crate) const LANES: usize = 8;

/// Work on arrays of as many f32 as a register holds. `with` must be `#[inline(always)]`, otherwise it is compiled for the baseline CPU.
pub(crate) trait Wide {
    /// Result of the work.
    type Output;
    /// Does the work.
    fn with<const N: usize>(self) -> Self::Output;
}

/// Does the work with the instructions of a level. No operations are fused, so all levels give the same bits.
pub(crate) fn at<W: Wide>(level: Level, work: W) -> W::Output {
    match level.0 {
        Kind::Scalar => work.with::<1>(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a value of this level exists only if the CPU has its instructions.
        Kind::Sse42 => unsafe { sse42(work) },
        #[cfg(target_arch = "x86_64")]
        // Arrays of sixteen are not kept in registers of 512 bits: products of 3 x 4 KiB took 7 times as long. SAFETY: as above; the level
        // AVX-512 requires AVX2.
        Kind::Avx2 | Kind::Avx512 => unsafe { avx2(work) },
        // Every CPU of this architecture has NEON.
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
