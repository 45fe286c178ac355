//! Units of complements and rows: `123.45A`, `mA`, `degC`.
//!
//! A unit is a base with an optional SI prefix. Only units with the same base are converted. An unknown word (`counts`,
//! `rev`) is a separate unit, equal only to itself.

/// Bases that take SI prefixes.
const PREFIXED: &[&str] = &[
    "A", "V", "W", "Hz", "s", "m", "g", "K", "N", "J", "Pa", "bar", "T", "F", "H", "Ohm", "eV", "rad", "C", "B", "b",
    "L",
];

/// Units with a special factor or offset: word, base, factor, offset. `base = factor × value + offset`.
const SPECIAL: &[(&str, &str, f64, f64)] = &[
    ("min", "s", 60.0, 0.0),
    ("h", "s", 3600.0, 0.0),
    ("degC", "K", 1.0, 273.15),
    ("°C", "K", 1.0, 273.15),
    ("deg", "rad", std::f64::consts::PI / 180.0, 0.0),
    ("°", "rad", std::f64::consts::PI / 180.0, 0.0),
    ("%", "1", 0.01, 0.0),
    ("ppm", "1", 1e-6, 0.0),
    ("Ω", "Ohm", 1.0, 0.0),
    ("kOhm", "Ohm", 1e3, 0.0),
    ("l", "L", 1.0, 0.0),
    ("Gauss", "T", 1e-4, 0.0),
];

const PREFIXES: &[(&str, f64)] = &[
    ("f", 1e-15),
    ("p", 1e-12),
    ("n", 1e-9),
    ("u", 1e-6),
    ("µ", 1e-6),
    ("μ", 1e-6),
    ("m", 1e-3),
    ("c", 1e-2),
    ("d", 1e-1),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

/// A unit in terms of its base: `base = factor × value + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit<'a> {
    base: &'a str,
    factor: f64,
    offset: f64,
}

impl<'a> Unit<'a> {
    /// Parses a unit. An unknown word becomes a separate unit. Never fails, never allocates.
    #[must_use]
    pub fn of(word: &'a str) -> Self {
        if let Some((_, base, factor, offset)) = SPECIAL.iter().find(|(name, ..)| *name == word) {
            return Self { base, factor: *factor, offset: *offset };
        }
        if PREFIXED.contains(&word) {
            return Self { base: word, factor: 1.0, offset: 0.0 };
        }
        for (prefix, factor) in PREFIXES {
            if let Some(base) = word.strip_prefix(prefix)
                && PREFIXED.contains(&base)
            {
                return Self { base, factor: *factor, offset: 0.0 };
            }
        }
        Self { base: word, factor: 1.0, offset: 0.0 }
    }

    /// Converts `value` to another unit. Returns `None` if the bases differ.
    #[must_use]
    pub fn convert(self, value: f64, to: Unit<'_>) -> Option<f64> {
        if self == to {
            return Some(value);
        }
        // A division by an exact ratio is more precise: 5 mA must not become 0.005000000000000001 A.
        let based = match self.factor < 1.0 {
            true if self.offset == 0.0 => value / (1.0 / self.factor).round_if_whole(),
            _ => self.factor * value + self.offset,
        };
        let result = match to.factor < 1.0 {
            true if to.offset == 0.0 => based * (1.0 / to.factor).round_if_whole(),
            _ => (based - to.offset) / to.factor,
        };
        (self.base == to.base).then_some(result)
    }
}

trait RoundIfWhole {
    fn round_if_whole(self) -> Self;
}

impl RoundIfWhole for f64 {
    fn round_if_whole(self) -> Self {
        let whole = self.round();
        if (self - whole).abs() < whole * 1e-12 { whole } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_same_kind_convert_and_others_do_not() {
        for (value, from, to, expected) in [
            (5.0, "mA", "A", Some(0.005)),
            (0.005, "A", "mA", Some(5.0)),
            (20.0, "degC", "K", Some(293.15)),
            (1.0, "h", "min", Some(60.0)),
            (508.58, "MHz", "kHz", Some(508_580.0)),
            (180.0, "deg", "rad", Some(std::f64::consts::PI)),
            (1.0, "counts", "counts", Some(1.0)),
            (1.0, "counts", "A", None),
            (1.0, "A", "V", None),
            (1.0, "mm", "min", None),
        ] {
            let got = Unit::of(from).convert(value, Unit::of(to));
            match (got, expected) {
                (Some(got), Some(expected)) => {
                    assert!((got - expected).abs() <= 1e-12 * f64::abs(expected), "{value}{from} in {to}: {got}");
                }
                (got, expected) => assert_eq!(got, expected, "{value}{from} in {to}"),
            }
        }
    }
}
