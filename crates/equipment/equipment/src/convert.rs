//! Convert steps: from the device's raw value to the engineering value and back.

use crate::datum::{Datum, Fault};
use std::borrow::Cow;
use std::fmt;

/// Maximum number of bisections. Usually the interval has shrunk to two adjacent doubles before.
const BISECTIONS: u32 = 200;

/// One step. Forwards it converts a raw value to an engineering value, backwards the reverse.
#[derive(Clone, Debug, PartialEq)]
pub enum Convert {
    /// `value = factor × raw + offset`
    Scale {
        /// Never zero.
        factor: f64,
        /// In the engineering unit.
        offset: f64,
    },
    /// `value = c0 + c1 raw + c2 raw² …`, for raw values in a range where it is monotonic if it is used for writes.
    Poly {
        /// c0, c1, …
        coefficients: Vec<f64>,
        /// Minimum and maximum raw value.
        over: (f64, f64),
    },
    /// Linear interpolation between points (raw, value). Raw values increase; values are monotonic if it is used for writes.
    Curve(Vec<(f64, f64)>),
    /// Some bits of a whole number: `bits = "4-7"`.
    Bits {
        /// The lowest bit.
        low: u32,
        /// The number of bits.
        count: u32,
    },
    /// Labels for whole numbers.
    Labels(Vec<(String, f64)>),
    /// A text that contains a number: `POS {value} mm`.
    Text {
        /// The text before the number.
        before: String,
        /// The text after the number.
        after: String,
    },
}

impl Convert {
    /// Converts from raw to engineering value.
    ///
    /// Real-time: allocates only for texts.
    ///
    /// # Errors
    /// The value does not fit the step.
    pub fn forward<'v>(&'v self, raw: Datum<'v>) -> Result<Datum<'v>, Fault<'v>> {
        if let Self::Text { before, after } = self {
            let text = raw.to_string();
            let inner = text.trim().strip_prefix(before.trim_start()).and_then(|t| t.strip_suffix(after.trim_end()));
            let inner = inner.ok_or(Fault::Form { expected: "an answer of the form that `text` gives" })?.trim();
            return Ok(match msg::quantity(inner) {
                Some((value, "")) => Datum::Number(value),
                _ => Datum::Text(Cow::Owned(inner.to_owned())),
            });
        }
        let raw = raw.number().ok_or(Fault::Form { expected: "a number from the device" })?;
        let out = |low: f64, high: f64| Fault::Range { value: raw, low, high, unit: "" };
        Ok(Datum::Number(match self {
            Self::Scale { factor, offset } => factor * raw + offset,
            Self::Poly { coefficients, over: (low, high) } => {
                if !(*low..=*high).contains(&raw) {
                    return Err(out(*low, *high));
                }
                poly(coefficients, raw)
            }
            Self::Curve(points) => {
                let ends = (points[0].0, points[points.len() - 1].0);
                between(points.iter().copied(), raw).ok_or_else(|| out(ends.0, ends.1))?
            }
            Self::Bits { low, count } => {
                let word = whole(raw).ok_or(Fault::Form { expected: "a whole number of at most 53 bits" })?;
                ((word >> low) & mask(*count)) as f64
            }
            Self::Labels(labels) => {
                return match labels.iter().find(|(_, number)| *number == raw) {
                    Some((label, _)) => Ok(Datum::Text(Cow::Borrowed(label))),
                    None => Err(Fault::Form { expected: "a number with a label" }),
                };
            }
            Self::Text { .. } => unreachable!("handled above"),
        }))
    }

    /// Converts from engineering to raw value. `present` is the raw value in the device, for steps that change only a part of it.
    ///
    /// Real-time: allocates only for texts.
    ///
    /// # Errors
    /// The value does not fit the step.
    pub fn backward<'v>(&'v self, value: Datum<'v>, present: Option<f64>) -> Result<Datum<'v>, Fault<'v>> {
        if let Self::Text { before, after } = self {
            return Ok(Datum::Text(Cow::Owned(format!("{before}{value}{after}"))));
        }
        if let Self::Labels(labels) = self {
            let number = match &value {
                Datum::Text(text) => labels.iter().find(|(label, _)| label == text).map(|(_, number)| *number),
                Datum::Number(number) => labels.iter().find(|(_, known)| known == number).map(|(_, number)| *number),
            };
            return number.map(Datum::Number).ok_or(Fault::Form { expected: "one of the row's labels" });
        }
        let value = value.number().ok_or(Fault::Form { expected: "a number" })?;
        let out = |a: f64, b: f64| Fault::Range { value, low: a.min(b), high: a.max(b), unit: "" };
        Ok(Datum::Number(match self {
            Self::Scale { factor, offset } => (value - offset) / factor,
            Self::Poly { coefficients, over: (low, high) } => {
                let ends = (poly(coefficients, *low), poly(coefficients, *high));
                if value < ends.0.min(ends.1) || value > ends.0.max(ends.1) {
                    return Err(out(ends.0, ends.1));
                }
                bisect(*low, *high, value, ends.1 > ends.0, |raw| poly(coefficients, raw))
            }
            Self::Curve(points) => {
                let ends = (points[0].1, points[points.len() - 1].1);
                let swapped = points.iter().map(|(raw, value)| (*value, *raw));
                let found = match ends.1 > ends.0 {
                    true => between(swapped, value),
                    false => between(swapped.rev(), value),
                };
                found.ok_or_else(|| out(ends.0, ends.1))?
            }
            Self::Bits { low, count } => {
                let most = mask(*count) as f64;
                let field = whole(value).filter(|_| value <= most).ok_or_else(|| out(0.0, most))?;
                let word = present.and_then(whole).ok_or(Fault::Form { expected: "a whole number in the device" })?;
                ((word & !(mask(*count) << low)) | field << low) as f64
            }
            Self::Labels(_) | Self::Text { .. } => unreachable!("handled above"),
        }))
    }
}

impl fmt::Display for Convert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale { factor, offset } => write!(f, "scale {factor} + {offset}"),
            Self::Poly { coefficients, .. } => write!(f, "poly of degree {}", coefficients.len() - 1),
            Self::Curve(points) => write!(f, "table of {} points", points.len()),
            Self::Bits { low, count } => write!(f, "bits {low}-{}", low + count - 1),
            Self::Labels(labels) => write!(f, "enum of {}", labels.len()),
            Self::Text { before, after } => write!(f, "text \"{before}{{value}}{after}\""),
        }
    }
}

/// Returns whether a polynomial is monotonic over a range. Checks 1001 points.
pub(crate) fn is_monotone(coefficients: &[f64], (low, high): (f64, f64)) -> bool {
    let at = |step: u32| poly(coefficients, low + (high - low) * f64::from(step) / 1000.0);
    let rises = at(1000) > at(0);
    (1..=1000).all(|step| if rises { at(step) > at(step - 1) } else { at(step) < at(step - 1) })
}

fn poly(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

fn bisect(mut low: f64, mut high: f64, value: f64, rises: bool, at: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if (at(middle) < value) == rises { low = middle } else { high = middle }
    }
    if (at(low) - value).abs() < (at(high) - value).abs() { low } else { high }
}

/// Interpolates between the two points around `x`. The first members of the points increase.
fn between(mut points: impl Iterator<Item = (f64, f64)>, x: f64) -> Option<f64> {
    let mut last = points.next().filter(|(first, _)| x >= *first)?;
    for (to_x, to_y) in points {
        if x <= to_x {
            let share = (x - last.0) / (to_x - last.0);
            return Some(last.1 + share * (to_y - last.1));
        }
        last = (to_x, to_y);
    }
    None
}

/// A non-negative whole number that a double represents exactly.
fn whole(value: f64) -> Option<u64> {
    ((0.0..9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

const fn mask(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps() -> impl Strategy<Value = (Convert, std::ops::RangeInclusive<f64>)> {
        let curve = proptest::collection::vec((0.1f64..10.0, 0.1f64..10.0), 2..20).prop_flat_map(|steps| {
            any::<bool>().prop_map(move |falls| {
                let (mut x, mut y) = (-20.0, if falls { 50.0 } else { -50.0 });
                let points: Vec<(f64, f64)> = steps
                    .iter()
                    .map(|(dx, dy)| {
                        x += dx;
                        y += if falls { -dy } else { *dy };
                        (x, y)
                    })
                    .collect();
                let ends = points[0].0..=points[points.len() - 1].0;
                (Convert::Curve(points), ends)
            })
        });
        prop_oneof![
            (prop_oneof![-1e3f64..-1e-3, 1e-3f64..1e3], -1e3f64..1e3)
                .prop_map(|(factor, offset)| (Convert::Scale { factor, offset }, -1e6..=1e6)),
            // Only odd powers with positive factors: rises everywhere.
            (-5f64..5.0, 0.1f64..5.0, 0f64..0.5).prop_map(|(c0, c1, c3)| {
                (Convert::Poly { coefficients: vec![c0, c1, 0.0, c3], over: (-50.0, 50.0) }, -50.0..=50.0)
            }),
            curve,
        ]
    }

    proptest! {
        #[test]
        fn conversions_are_reversible((step, range) in steps(), share in 0f64..=1.0) {
            let raw = (range.start() + share * (range.end() - range.start())).clamp(*range.start(), *range.end());
            let value = step.forward(Datum::Number(raw)).unwrap();
            let scale = raw.abs().max(1.0) + match &step { Convert::Scale { factor, offset } => (offset / factor).abs(), _ => 0.0 };
            let back = step.backward(value, None).unwrap().number().unwrap();
            prop_assert!((back - raw).abs() <= 1e-9 * scale, "{step}: {raw} is converted to {back}");
        }

        #[test]
        fn writing_bits_keeps_the_others(word in 0u64..1 << 32, low in 0u32..24, count in 1u32..8, field: u64) {
            let step = Convert::Bits { low, count };
            let field = (field & mask(count)) as f64;
            let written = step.backward(Datum::Number(field), Some(word as f64)).unwrap();
            prop_assert_eq!(step.forward(written.clone()), Ok(Datum::Number(field)));
            let others = !(mask(count) << low);
            prop_assert_eq!(written.number().unwrap() as u64 & others, word & others);
        }

        #[test]
        fn a_number_in_a_text_survives_a_round_trip(value: i32, before in "[A-Z]{0,4} ", after in "( mm)?") {
            let step = Convert::Text { before, after };
            let raw = step.backward(Datum::Number(value.into()), None).unwrap();
            prop_assert_eq!(step.forward(raw), Ok(Datum::Number(value.into())));
        }
    }

    #[test]
    fn labels_are_converted_to_numbers_and_back_and_unknown_ones_are_refused() {
        let step = Convert::Labels(vec![("off".into(), 0.0), ("on".into(), 1.0)]);
        assert_eq!(step.forward(Datum::Number(1.0)), Ok(Datum::Text("on".into())));
        assert_eq!(step.backward(Datum::Text("off".into()), None), Ok(Datum::Number(0.0)));
        assert!(step.forward(Datum::Number(2.0)).is_err() && step.backward(Datum::Text("of".into()), None).is_err());
    }

    #[test]
    fn values_beyond_a_table_are_refused() {
        let step = Convert::Curve(vec![(0.0, 0.0), (1.0, 10.0)]);
        assert!(matches!(step.forward(Datum::Number(1.1)), Err(Fault::Range { high: 1.0, .. })));
        assert!(matches!(step.backward(Datum::Number(-0.1), None), Err(Fault::Range { low: 0.0, high: 10.0, .. })));
        assert!(matches!(step.forward(Datum::Number(f64::NAN)), Err(Fault::Range { .. })));
    }
}
