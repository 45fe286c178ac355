//! Sets of CPUs in the two notations that Linux uses.

use core::fmt;
use core::str::FromStr;

/// CPUs that a [`CpuSet`] can hold: as many as glibc's `cpu_set_t`.
pub const CPUS_MAX: usize = 1024;

const WORDS: usize = CPUS_MAX / 64;

/// A CPU's number as the kernel counts them (`/sys/devices/system/cpu/cpuN`).
pub type CpuId = u16;

/// A set of CPUs.
///
/// Parses and prints the kernel's list format (`0-3,6`, with strides `0-15:1/4`). [`from_mask`] and [`write_mask`] use
/// the hexadecimal masks of `/proc/irq/*/smp_affinity`.
///
/// Real-time: neither allocates nor blocks.
///
/// [`from_mask`]: CpuSet::from_mask
/// [`write_mask`]: CpuSet::write_mask
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    words: [u64; WORDS],
}

/// The reason why a text is not a set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseCpuSetError {
    /// Something other than a number, `-`, `,` or a stride, at this byte.
    Syntax {
        /// Byte offset in the text.
        at: usize,
    },
    /// A range whose end is before its start.
    Reversed {
        /// The range's first number.
        first: usize,
        /// The range's last number.
        last: usize,
    },
    /// A CPU number of [`CPUS_MAX`] or more.
    TooLarge {
        /// The number found.
        cpu: usize,
    },
}

impl fmt::Display for ParseCpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Syntax { at } => {
                write!(f, "expected a CPU list such as \"2-3,6\", found something else at character {}", at + 1)
            }
            Self::Reversed { first, last } => write!(f, "range {first}-{last} runs backwards, write {last}-{first}"),
            Self::TooLarge { cpu } => write!(f, "CPU {cpu} is beyond the {CPUS_MAX} CPUs supported"),
        }
    }
}

impl core::error::Error for ParseCpuSetError {}

impl CpuSet {
    /// No CPU.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The set that holds just `cpu`.
    ///
    /// # Panics
    /// If `cpu` is [`CPUS_MAX`] or more.
    #[must_use]
    pub fn single(cpu: CpuId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(cpu);
        set
    }

    /// CPUs `0..count`.
    ///
    /// # Panics
    /// If `count` is more than [`CPUS_MAX`].
    #[must_use]
    pub fn first(count: usize) -> Self {
        (0..count).map(|cpu| cpu as CpuId).collect()
    }

    /// Adds `cpu`.
    ///
    /// # Panics
    /// If `cpu` is [`CPUS_MAX`] or more.
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[usize::from(cpu) / 64] |= 1 << (cpu % 64);
    }

    /// Removes `cpu` if it is in the set.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(usize::from(cpu) / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(usize::from(cpu) / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Number of CPUs in the set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// CPUs in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// CPUs in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// CPUs of this set that `other` lacks.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Whether every CPU of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }

    /// Whether the sets share a CPU.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        !self.and(other).is_empty()
    }

    /// The lowest CPU.
    #[must_use]
    pub fn lowest(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The CPUs in rising order.
    #[must_use]
    pub fn iter(&self) -> CpuSetIter<'_> {
        CpuSetIter { set: self, next: 0 }
    }

    /// The set as 64-bit words, CPU 0 in the lowest bit of the first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// A set from 64-bit words, CPU 0 in the lowest bit of the first.
    ///
    /// # Errors
    /// If a bit of [`CPUS_MAX`] or more is set.
    pub fn from_words(words: &[u64]) -> Result<Self, ParseCpuSetError> {
        let mut set = Self::EMPTY;
        for (index, &word) in words.iter().enumerate() {
            match set.words.get_mut(index) {
                Some(slot) => *slot = word,
                None if word == 0 => {}
                None => return Err(ParseCpuSetError::TooLarge { cpu: index * 64 + word.trailing_zeros() as usize }),
            }
        }
        Ok(set)
    }

    /// Reads a mask such as `ffffffff,00000003` (`/proc/irq/*/smp_affinity`, workqueue `cpumask`).
    ///
    /// # Errors
    /// If a character is not a hexadecimal digit, or a bit of [`CPUS_MAX`] or more is set.
    pub fn from_mask(text: &str) -> Result<Self, ParseCpuSetError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseCpuSetError::Syntax { at: 0 });
        }
        let mut set = Self::EMPTY;
        let mut bit = 0;
        for (at, byte) in text.bytes().enumerate().rev() {
            if byte == b',' {
                continue;
            }
            let digit = (byte as char).to_digit(16).ok_or(ParseCpuSetError::Syntax { at })?;
            for offset in 0..4 {
                if digit >> offset & 1 == 1 {
                    let cpu = bit + offset;
                    if cpu >= CPUS_MAX {
                        return Err(ParseCpuSetError::TooLarge { cpu });
                    }
                    set.insert(cpu as CpuId);
                }
            }
            bit += 4;
        }
        Ok(set)
    }

    /// Writes the mask form, in groups of eight digits as the kernel does, without leading zeros.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_mask(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let mut begun = false;
        for word in self.words.iter().rev() {
            for half in [(word >> 32) as u32, *word as u32] {
                if begun {
                    write!(out, ",{half:08x}")?;
                } else if half != 0 {
                    write!(out, "{half:x}")?;
                    begun = true;
                }
            }
        }
        if begun { Ok(()) } else { out.write_str("0") }
    }

    fn zip(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let mut out = Self::EMPTY;
        for ((slot, a), b) in out.words.iter_mut().zip(self.words).zip(other.words) {
            *slot = op(a, b);
        }
        out
    }
}

impl Default for CpuSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

/// The CPUs of a [`CpuSet`] in rising order.
#[derive(Clone, Debug)]
pub struct CpuSetIter<'a> {
    set: &'a CpuSet,
    next: usize,
}

impl Iterator for CpuSetIter<'_> {
    type Item = CpuId;

    fn next(&mut self) -> Option<CpuId> {
        while self.next < CPUS_MAX {
            let rest = self.set.words[self.next / 64] >> (self.next % 64);
            if rest == 0 {
                self.next = (self.next / 64 + 1) * 64;
                continue;
            }
            let cpu = self.next + rest.trailing_zeros() as usize;
            self.next = cpu + 1;
            return Some(cpu as CpuId);
        }
        None
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = CpuId;
    type IntoIter = CpuSetIter<'a>;

    fn into_iter(self) -> CpuSetIter<'a> {
        self.iter()
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Reads `2-3,6`, `0-15:1/4` (the first of every four), or nothing at all (the empty set).
    fn from_str(text: &str) -> Result<Self, ParseCpuSetError> {
        let mut set = Self::EMPTY;
        let body = text.trim_end();
        let mut at = body.len() - body.trim_start().len();
        if at == body.len() {
            return Ok(set);
        }
        loop {
            let first = number(body, &mut at)?;
            let last = if take(body, &mut at, b'-') { number(body, &mut at)? } else { first };
            let (used, group) = if take(body, &mut at, b':') {
                let used = number(body, &mut at)?;
                if !take(body, &mut at, b'/') {
                    return Err(ParseCpuSetError::Syntax { at });
                }
                (used, number(body, &mut at)?)
            } else {
                (1, 1)
            };
            if last < first {
                return Err(ParseCpuSetError::Reversed { first, last });
            }
            if last >= CPUS_MAX {
                return Err(ParseCpuSetError::TooLarge { cpu: last });
            }
            if used == 0 || used > group {
                return Err(ParseCpuSetError::Syntax { at });
            }
            (first..=last).filter(|cpu| (cpu - first) % group < used).for_each(|cpu| set.insert(cpu as CpuId));
            if at == body.len() {
                return Ok(set);
            }
            if !take(body, &mut at, b',') {
                return Err(ParseCpuSetError::Syntax { at });
            }
        }
    }
}

/// Steps over one expected byte.
fn take(text: &str, at: &mut usize, byte: u8) -> bool {
    let found = text.as_bytes().get(*at) == Some(&byte);
    *at += usize::from(found);
    found
}

/// Steps over one decimal number; numbers too long for `usize` saturate, and are then too large.
fn number(text: &str, at: &mut usize) -> Result<usize, ParseCpuSetError> {
    let start = *at;
    let mut value = 0usize;
    while let Some(digit) = text.as_bytes().get(*at).filter(|byte| byte.is_ascii_digit()) {
        value = value.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        *at += 1;
    }
    if *at == start { Err(ParseCpuSetError::Syntax { at: start }) } else { Ok(value) }
}

impl fmt::Display for CpuSet {
    /// Prints the shortest list form. The empty set prints as an empty text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.peek() == Some(&(last + 1)) {
                last += 1;
                cpus.next();
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(feature = "serde")]
mod as_text {
    use super::CpuSet;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    impl Serialize for CpuSet {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for CpuSet {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl de::Visitor<'_> for Visitor {
                type Value = CpuSet;
                fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.write_str("a CPU list such as \"2-3,6\"")
                }
                fn visit_str<E: de::Error>(self, text: &str) -> Result<CpuSet, E> {
                    text.parse().map_err(E::custom)
                }
            }
            deserializer.deserialize_str(Visitor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_print_in_their_shortest_form() {
        for (given, printed) in
            [("", ""), (" \n", ""), ("3", "3"), ("0,1,2,4", "0-2,4"), ("2-3,6\n", "2-3,6"), ("0-15:1/4", "0,4,8,12")]
        {
            assert_eq!(set(given).to_string(), printed, "{given:?}");
        }
    }

    #[test]
    fn malformed_lists_are_refused_with_the_reason() {
        for (given, expected) in [
            ("2-", ParseCpuSetError::Syntax { at: 2 }),
            ("a", ParseCpuSetError::Syntax { at: 0 }),
            ("1,,2", ParseCpuSetError::Syntax { at: 2 }),
            ("3-1", ParseCpuSetError::Reversed { first: 3, last: 1 }),
            ("4096", ParseCpuSetError::TooLarge { cpu: 4096 }),
            ("0-7:1/0", ParseCpuSetError::Syntax { at: 7 }),
        ] {
            assert_eq!(given.parse::<CpuSet>(), Err(expected), "{given:?}");
        }
    }

    #[test]
    fn masks_are_read_as_the_kernel_writes_them() {
        assert_eq!(CpuSet::from_mask("3\n").unwrap(), set("0-1"));
        assert_eq!(CpuSet::from_mask("00000001,00000000").unwrap(), set("32"));
        assert!(CpuSet::from_mask("0x3").is_err());
        assert!(CpuSet::from_mask("").is_err());
    }

    proptest! {
        #[test]
        fn text_and_mask_forms_survive_a_round_trip(cpus in proptest::collection::vec(0u16..1024, 0..40)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            let mut mask = String::new();
            set.write_mask(&mut mask).unwrap();
            prop_assert_eq!(CpuSet::from_mask(&mask).unwrap(), set);
            prop_assert_eq!(CpuSet::from_words(set.words()).unwrap(), set);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::from_mask(&text);
        }

        #[test]
        fn set_algebra_holds(a in proptest::collection::vec(0u16..256, 0..40), b in proptest::collection::vec(0u16..256, 0..40)) {
            let (a, b): (CpuSet, CpuSet) = (a.into_iter().collect(), b.into_iter().collect());
            prop_assert_eq!(a.minus(&b).or(&a.and(&b)), a);
            prop_assert!(a.and(&b).is_subset(&b));
            prop_assert_eq!(a.intersects(&b), a.iter().any(|cpu| b.contains(cpu)));
        }
    }
}
