//! Selection of vector instructions: detection of the CPU's features, and one file per level.

use std::fmt;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod sse42;
pub(crate) mod wide;

/// A set of vector instructions of this CPU. No value exists for instructions that the CPU does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(crate) Kind);

/// All supported sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Sse42,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kind {
    /// All sets, widest last.
    #[cfg(target_arch = "x86_64")]
    const ALL: &[Self] = &[Self::Scalar, Self::Sse42, Self::Avx2, Self::Avx512];
    #[cfg(target_arch = "aarch64")]
    const ALL: &[Self] = &[Self::Scalar, Self::Neon];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const ALL: &[Self] = &[Self::Scalar];

    const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Sse42 => "sse4.2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// This CPU and its kernel support all features that the file of this set is compiled for.
    fn here(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Sse42 => is_x86_feature_detected!("sse4.2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }
}

impl Level {
    /// Scalar arithmetic: the reference for all other levels. Available on every CPU.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// All levels of this CPU, widest last. Like the other constructors, to be called before a loop starts.
    pub fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.iter().filter(|kind| kind.here()).map(|kind| Self(*kind))
    }

    /// The recommended level: the widest of this CPU, with 512 bits only where they cost nothing. On Sapphire Rapids and Zen 5, no f32 matrix
    /// from 64² to 4096² was slower with 512 bits; these CPUs are detected by AVX512-FP16 and VP2INTERSECT. On Zen 4 the sizes 128², 256² and
    /// 4096² were slower, and older CPUs reduce their clock. There the level can be selected by name.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        let usual = |level: &Self| {
            let free = || is_x86_feature_detected!("avx512fp16") || is_x86_feature_detected!("avx512vp2intersect");
            level.0 != Kind::Avx512 || free()
        };
        #[cfg(not(target_arch = "x86_64"))]
        let usual = |_: &Self| true;
        Self::all().filter(usual).last().unwrap_or(Self::SCALAR)
    }

    /// The level with this name: `scalar`, `sse4.2`, `avx2`, `avx512`, `neon`.
    ///
    /// # Errors
    /// The level does not exist, or this CPU does not have it.
    pub fn named(name: &str) -> Result<Self, NotHere> {
        Self::all().find(|level| level.name() == name).ok_or_else(|| NotHere(name.into()))
    }

    /// Name of the level.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name()
    }

    /// The level multiplies and adds with a single rounding, as [`Level::SCALAR`] does. All levels that fuse give bit-identical results.
    #[must_use]
    pub fn fuses(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 != Kind::Sse42;
        #[cfg(not(target_arch = "x86_64"))]
        true
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Vector instructions that this CPU does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotHere(String);

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<&str> = Level::all().map(Level::name).collect();
        write!(f, "vector instructions {:?}: this CPU has {}; name one of these", self.0, all.join(", "))
    }
}

impl std::error::Error for NotHere {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_this_cpu_are_found_by_name_and_others_refused_with_the_available_ones() {
        for level in Level::all() {
            assert_eq!(Level::named(level.name()), Ok(level));
        }
        let refused = Level::named("mmx").unwrap_err().to_string();
        assert!(refused.starts_with("vector instructions \"mmx\": this CPU has scalar"), "{refused}");
        assert_eq!(Level::all().next(), Some(Level::SCALAR));
    }
}
