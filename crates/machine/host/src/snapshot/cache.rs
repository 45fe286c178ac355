//! Ways of the last-level cache, as resctrl's `schemata` files say them.

use std::collections::BTreeMap;
use std::fmt;

/// More caches than any machine has.
const CACHES_MAX: usize = 1024;

/// The line `L3:` of a `schemata` file: a mask of ways for each cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Masks by the cache's number.
    pub ways: BTreeMap<u32, u64>,
}

impl Cache {
    /// Reads the line `L3:0=fff;1=fff` among others; nothing where there is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix("L3:"))?;
        let pair = |pair: &str| {
            let (id, mask) = pair.split_once('=')?;
            Some((id.trim().parse().ok()?, u64::from_str_radix(mask.trim(), 16).ok()?))
        };
        let ways = line.split(';').take(CACHES_MAX).map(pair).collect::<Option<BTreeMap<u32, u64>>>()?;
        (!ways.is_empty()).then_some(Self { ways })
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("L3:")?;
        for (nth, (id, mask)) in self.ways.iter().enumerate() {
            write!(f, "{}{id}={mask:x}", if nth > 0 { ";" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_is_found_and_leading_zeros_mean_nothing() {
        let cache = Cache::parse("    MB:0=100;1=100\n    L3:0=00fff;1=fffff\n").unwrap();
        assert_eq!(cache.to_string(), "L3:0=fff;1=fffff");
        for none in ["", "L3:", "L3:0", "L3:0=x", "MB:0=100", "L3CODE:0=f"] {
            assert_eq!(Cache::parse(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_written_alike(text in "L3:[0-9a-f=; ]{0,40}") {
            if let Some(cache) = Cache::parse(&text) {
                prop_assert_eq!(Cache::parse(&cache.to_string()), Some(cache));
            }
        }
    }
}
