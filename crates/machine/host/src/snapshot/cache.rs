//! Ways of the last-level cache and shares of the memory bandwidth, in the format of resctrl's `schemata` files.

use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of caches. No machine has more.
const CACHES_MAX: usize = 1024;

/// The line `L3:` of a `schemata` file: a mask of ways for each cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Masks by number of the cache.
    pub ways: BTreeMap<u32, u64>,
}

/// The line `MB:` of a `schemata` file: percentage of the memory bandwidth for the CPUs of each cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Percentages by number of the cache.
    pub percents: BTreeMap<u32, u32>,
}

/// The values of the line that begins with `begins`; `None` if there is no such line or it is invalid.
fn line<T>(text: &str, begins: &str, value: impl Fn(&str) -> Option<T>) -> Option<BTreeMap<u32, T>> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(begins))?;
    let pair = |pair: &str| {
        let (id, text) = pair.split_once('=')?;
        Some((id.trim().parse().ok()?, value(text.trim())?))
    };
    let all = line.split(';').take(CACHES_MAX).map(pair).collect::<Option<BTreeMap<u32, T>>>()?;
    (!all.is_empty()).then_some(all)
}

fn write(f: &mut fmt::Formatter<'_>, begins: &str, values: impl Iterator<Item = (u32, String)>) -> fmt::Result {
    f.write_str(begins)?;
    for (nth, (id, value)) in values.enumerate() {
        write!(f, "{}{id}={value}", if nth > 0 { ";" } else { "" })?;
    }
    Ok(())
}

impl Cache {
    /// Finds and parses the line `L3:0=fff;1=fff`; `None` if there is no valid one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        line(text, "L3:", |mask| u64::from_str_radix(mask, 16).ok()).map(|ways| Self { ways })
    }
}

impl Share {
    /// Finds and parses the line `MB:0=100;1=100`; `None` if there is no valid one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        line(text, "MB:", |percent| percent.parse().ok()).map(|percents| Self { percents })
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, "L3:", self.ways.iter().map(|(id, mask)| (*id, format!("{mask:x}"))))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, "MB:", self.percents.iter().map(|(id, percent)| (*id, percent.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_is_found_and_leading_zeros_are_ignored() {
        let text = "    MB:0=100;1= 70\n    L3:0=00fff;1=fffff\n";
        assert_eq!(Cache::parse(text).unwrap().to_string(), "L3:0=fff;1=fffff");
        assert_eq!(Share::parse(text).unwrap().to_string(), "MB:0=100;1=70");
        for none in ["", "L3:", "L3:0", "L3:0=x", "MB:0=100", "L3CODE:0=f"] {
            assert_eq!(Cache::parse(none), None, "{none:?}");
        }
        for none in ["", "MB:", "MB:0=f", "L3:0=f"] {
            assert_eq!(Share::parse(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_parsed_values_survive_a_round_trip(text in "(L3|MB):[0-9a-f=; ]{0,40}") {
            if let Some(cache) = Cache::parse(&text) {
                prop_assert_eq!(Cache::parse(&cache.to_string()), Some(cache));
            }
            if let Some(share) = Share::parse(&text) {
                prop_assert_eq!(Share::parse(&share.to_string()), Some(share));
            }
        }
    }
}
