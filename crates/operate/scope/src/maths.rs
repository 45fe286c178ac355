//! Channels computed from two others, row by row.

use crate::{Capture, Channel};
use std::str::FromStr;

/// Operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The first minus the second, in the first one's unit.
    Minus,
    /// The first times the second.
    Times,
}

impl FromStr for Operation {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "minus" => Ok(Self::Minus),
            "times" => Ok(Self::Times),
            _ => Err("expected minus or times"),
        }
    }
}

/// A channel computed from two channels of a capture; `None` if the capture does not have them.
#[must_use]
pub fn maths(capture: &Capture, operation: Operation, (one, two): (usize, usize)) -> Option<Channel> {
    let (one, two) = (capture.channels.get(one)?, capture.channels.get(two)?);
    let (sign, unit) = match operation {
        Operation::Minus => ("−", one.unit.clone()),
        Operation::Times if one.unit.is_empty() => ("·", two.unit.clone()),
        Operation::Times if two.unit.is_empty() => ("·", one.unit.clone()),
        Operation::Times => ("·", format!("{} {}", one.unit, two.unit)),
    };
    let value = |(one, two): (&f64, &f64)| match operation {
        Operation::Minus => one - two,
        Operation::Times => one * two,
    };
    let values = one.values.iter().zip(&two.values).map(value).collect();
    Some(Channel { name: format!("{} {sign} {}", one.name, two.name), unit, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_channels_are_subtracted_and_multiplied_row_by_row() {
        let mut capture = Capture::of_values("a", "MV", 1e-3, [3.0, 4.0].into_iter());
        capture.channels.push(Channel { name: "b".into(), unit: "A".into(), values: vec![1.0, 2.0] });
        let minus = maths(&capture, Operation::Minus, (0, 1)).unwrap();
        assert_eq!((minus.name.as_str(), minus.unit.as_str(), minus.values), ("a − b", "MV", vec![2.0, 2.0]));
        let times = maths(&capture, Operation::Times, (0, 1)).unwrap();
        assert_eq!((times.unit.as_str(), times.values), ("MV A", vec![3.0, 8.0]));
        assert!(maths(&capture, Operation::Times, (0, 2)).is_none());
        assert!("over".parse::<Operation>().is_err());
    }
}
