//! `/proc/sys/kernel/osrelease`: the kernel's release.

use std::fmt;
use std::str::FromStr;

/// A kernel's version as far as features depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `6` of `6.12.1-rt5`.
    pub major: u16,
    /// `12` of `6.12.1-rt5`.
    pub minor: u16,
}

impl Version {
    /// Version `major.minor`.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a release such as 6.12.1-rt5";
        let mut parts = text.trim().split(|c: char| !c.is_ascii_digit());
        let mut part = || parts.next().and_then(|part| part.parse().ok()).ok_or(EXPECTED);
        Ok(Self { major: part()?, minor: part()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn releases_of_distributions_are_read() {
        for (text, expected) in [
            ("6.18.44-fc-v595\n", Version::new(6, 18)),
            ("7.0-rc2", Version::new(7, 0)),
            ("6.1.0-41-rt-amd64", Version::new(6, 1)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert!("linux".parse::<Version>().is_err());
        assert!("6".parse::<Version>().is_err());
        assert!(Version::new(6, 9) < Version::new(6, 12));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = text.parse::<Version>();
        }
    }
}
