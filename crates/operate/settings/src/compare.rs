//! Compares saved values with present values.

use crate::channels::{ChannelValue, Unavailable};
use crate::file::Saved;
use crate::value::number;
use db::SavedValue;
use std::str::FromStr;

/// The maximum difference of equal numbers: the larger of both limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// In the unit of the channel.
    pub absolute: f64,
    /// As a fraction of the saved value.
    pub relative: f64,
}

/// A text that is not a tolerance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}, expected a number not below zero in the channels' units, or a share such as 1%")]
pub struct ToleranceError(String);

impl FromStr for Tolerance {
    type Err = ToleranceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value >= 0.0 && value.is_finite());
        let read = match text.strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| Self { absolute: 0.0, relative: percent / 100.0 }),
            None => number(text).map(|absolute| Self { absolute, relative: 0.0 }),
        };
        read.ok_or_else(|| ToleranceError(text.to_owned()))
    }
}

impl Tolerance {
    /// Returns whether two texts are equal: as texts, or as numbers within the tolerance.
    fn are_equal(self, saved: &[u8], now: &[u8]) -> bool {
        if saved == now {
            return true;
        }
        let limit = |saved: f64| self.absolute.max(self.relative * saved.abs());
        // 64-bit integers have more digits than a floating-point number.
        if let (Some(saved), Some(now)) = (number::<i128>(saved), number::<i128>(now)) {
            return saved.saturating_sub(now).unsigned_abs() as f64 <= limit(saved as f64);
        }
        match (number::<f64>(saved), number::<f64>(now)) {
            (Some(saved), Some(now)) => {
                saved == now || (saved.is_nan() && now.is_nan()) || (saved - now).abs() <= limit(saved)
            }
            _ => false,
        }
    }
}

/// The state of a channel, compared with its saved value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The present value equals the saved one.
    Equal,
    /// The present value, which differs.
    Differs(SavedValue),
    /// The present value is unknown.
    Unavailable(Unavailable),
    /// No value was saved, because the channel could not be read. Contains the present value, if known.
    NotSaved(Option<SavedValue>),
}

/// A channel with its saved value and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The channel.
    pub name: String,
    /// The saved value.
    pub saved: Option<SavedValue>,
    /// The result of the comparison.
    pub state: State,
}

/// Compares the saved values with the present ones, channel by channel; `now` must have the same order.
pub fn compare(saved: &[Saved], now: &[Result<ChannelValue, Unavailable>], tolerance: Tolerance) -> Vec<Row> {
    let each = saved.iter().zip(now).map(|(saved, now)| {
        let state = match (&saved.value, now) {
            (None, now) => State::NotSaved(now.as_ref().ok().map(ChannelValue::named)),
            (Some(_), Err(why)) => State::Unavailable(why.clone()),
            (Some(_), Ok(found)) if are_equal(saved, found, tolerance) => State::Equal,
            (Some(_), Ok(found)) => State::Differs(found.named()),
        };
        let then = saved.value.as_ref().map(|value| match now {
            Ok(found) => found.named_as_now(value, &saved.states),
            Err(_) => value.clone(),
        });
        Row { name: saved.name.clone(), saved: then, state }
    });
    each.collect()
}

/// Returns whether a channel has its saved value.
pub(crate) fn are_equal(saved: &Saved, now: &ChannelValue, tolerance: Tolerance) -> bool {
    let one = |then: &[u8], text: &[u8]| {
        now.is_state(then, &saved.states, text).unwrap_or_else(|| tolerance.are_equal(then, text))
    };
    match (&saved.value, &now.value) {
        (None, _) => false,
        (Some(SavedValue::Text(saved)), SavedValue::Text(now)) => one(saved, now),
        (Some(SavedValue::Array(saved)), SavedValue::Array(now)) => {
            saved.len() == now.len() && saved.iter().zip(now).all(|(saved, now)| one(saved, now))
        }
        // A channel with many elements has, or had, only one element.
        (Some(SavedValue::Text(alone)), SavedValue::Array(many)) => {
            matches!(many.as_slice(), [only] if one(alone, only))
        }
        (Some(SavedValue::Array(many)), SavedValue::Text(alone)) => {
            matches!(many.as_slice(), [only] if one(only, alone))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::States;
    use proptest::prelude::*;

    fn text(text: &str) -> SavedValue {
        SavedValue::Text(text.into())
    }

    fn found(value: SavedValue) -> ChannelValue {
        ChannelValue::of_file(value, States::Number(None))
    }

    fn saved_as(value: SavedValue) -> Saved {
        Saved { name: "X".to_owned(), value: Some(value), states: States::Number(None) }
    }

    #[test]
    fn numbers_are_equal_by_value_and_within_the_tolerance() {
        let is_equal = |saved: &str, now: &str, tolerance: &str| {
            are_equal(&saved_as(text(saved)), &found(text(now)), tolerance.parse().unwrap())
        };
        for (saved, now, tolerance, expected) in [
            ("1", "1.000", "0", true),
            ("1e3", "1000", "0", true),
            ("1", "1.01", "0", false),
            ("100", "101", "1%", true),
            ("100", "101.5", "1%", false),
            ("0", "0.01", "1%", false),
            ("0", "0.01", "0.01", true),
            ("NaN", "nan", "0", true),
            ("Off", "On", "100%", false),
            ("", "", "0", true),
            ("", "0", "0", false),
            ("9007199254740993", "9007199254740992", "0", false),
            ("9007199254740993", "9007199254740992", "1", true),
            ("18446744073709551615", "18446744073709551614", "1%", true),
        ] {
            assert_eq!(is_equal(saved, now, tolerance), expected, "{saved} {now} {tolerance}");
        }
        for wrong in ["", "-1", "nan", "1 %x", "inf"] {
            assert!(wrong.parse::<Tolerance>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_channel_is_classified_as_equal_different_unavailable_or_not_saved() {
        let saved = |name: &str, value| Saved { name: name.to_owned(), value, states: States::Number(None) };
        let array =
            |elements: &[&str]| SavedValue::Array(elements.iter().map(|element| element.as_bytes().to_vec()).collect());
        let saved = [
            saved("equal", Some(array(&["1", "2"]))),
            saved("shorter", Some(array(&["1", "2"]))),
            saved("gone", Some(text("1"))),
            saved("new", None),
        ];
        let now = [
            Ok(found(array(&["1.0", "2"]))),
            Ok(found(array(&["1"]))),
            Err(Unavailable::NotFound),
            Ok(found(text("7"))),
        ];
        let states: Vec<State> = compare(&saved, &now, Tolerance::default()).into_iter().map(|row| row.state).collect();
        let expected = [
            State::Equal,
            State::Differs(array(&["1"])),
            State::Unavailable(Unavailable::NotFound),
            State::NotSaved(Some(text("7"))),
        ];
        assert_eq!(states, expected);
    }

    proptest! {
        #[test]
        fn a_saved_value_is_equal_to_itself(elements in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 0..5)) {
            let value = SavedValue::Array(elements);
            prop_assert!(are_equal(&saved_as(value.clone()), &found(value), Tolerance::default()));
        }
    }
}
