//! Conversion between values and texts.

use base::{Array, Scalar, Str40, Value};
use ca::Basic;
use db::SavedValue;
use pva::codec::Kind;
use std::str::FromStr;

/// Maximum length of a string in Channel Access, without the terminating zero.
const STRING_MAX: usize = 39;

/// The meaning of the text of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum States {
    /// A number, as in autosave; with the name of the state when it was saved, if the file has it.
    Number(Option<String>),
    /// A name, or a number if no state has this name: files of earlier versions.
    Name,
}

/// Replaces control characters, so that the text fits into one line of a file.
pub(crate) fn tame(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect::<String>().trim().to_owned()
}

impl States {
    /// The number of the state that a saved text means, for a channel with the present state names `labels`. `None` if there is no
    /// such state, or if several states have the name.
    pub(crate) fn index_of(&self, text: &[u8], labels: &[String]) -> Option<usize> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let number =
            || text.parse::<u16>().ok().map(usize::from).filter(|number| labels.is_empty() || *number < labels.len());
        let called = |name: &str| -> Vec<usize> {
            let is_it = |label: &String| !name.is_empty() && tame(label) == name;
            labels.iter().enumerate().filter(|(_, label)| is_it(label)).map(|(at, _)| at).collect()
        };
        let only = |name: &str| match called(name)[..] {
            [one] => Some(one),
            _ => None,
        };
        match self {
            // If the states were renumbered, the name has precedence.
            Self::Number(Some(name)) => {
                number().filter(|at| labels.get(*at).is_none_or(|label| tame(label) == *name)).or_else(|| only(name))
            }
            Self::Number(None) => number().or_else(|| only(text)),
            Self::Name if !called(text).is_empty() => only(text),
            Self::Name => number(),
        }
    }
}

/// A value as text. States are numbers. `is_text`: characters are a text.
pub(crate) fn to_saved(value: &Value, is_text: bool) -> SavedValue {
    let one = |scalar: Scalar| text(scalar).into_bytes();
    match value {
        Value::Scalar(Scalar::String(text)) => SavedValue::Text(text.bytes().to_vec()),
        Value::Scalar(scalar) => SavedValue::Text(one(*scalar)),
        Value::Array(Array::U8(bytes)) if is_text => {
            SavedValue::Text(bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
        }
        Value::Array(array) => {
            let element = |scalar| match scalar {
                Scalar::String(text) => text.bytes().to_vec(),
                other => one(other),
            };
            SavedValue::Array((0..array.len()).filter_map(|at| array.get(at)).map(element).collect())
        }
    }
}

fn text(scalar: Scalar) -> String {
    match scalar {
        Scalar::String(text) => text.readable().into_owned(),
        Scalar::I8(value) => value.to_string(),
        Scalar::U8(value) => value.to_string(),
        Scalar::I16(value) => value.to_string(),
        Scalar::U16(value) => value.to_string(),
        Scalar::I32(value) => value.to_string(),
        Scalar::U32(value) => value.to_string(),
        Scalar::I64(value) => value.to_string(),
        Scalar::U64(value) => value.to_string(),
        // The shortest text that converts back to the same number.
        Scalar::F32(value) if usual(value.into()) => value.to_string(),
        Scalar::F32(value) => format!("{value:e}"),
        Scalar::F64(value) if usual(value) => value.to_string(),
        Scalar::F64(value) => format!("{value:e}"),
        Scalar::Enum(index) => index.to_string(),
    }
}

/// Returns whether a number is written without an exponent.
fn usual(value: f64) -> bool {
    value == 0.0 || !value.is_finite() || (1e-5..1e15).contains(&value.abs())
}

/// Converts a saved text to a value of the channel's type. Returns `None` if it is invalid.
pub(crate) fn of_saved(
    (saved, states): (&SavedValue, &States),
    native: Basic,
    labels: &[String],
    is_text: bool,
) -> Option<Value> {
    let scalar = |text: &[u8]| match native {
        Basic::Enum => states.index_of(text, labels).and_then(|at| u16::try_from(at).ok()).map(Scalar::Enum),
        native => scalar(text, native),
    };
    match saved {
        SavedValue::Text(text) if is_text => {
            let mut bytes = text.clone();
            bytes.push(0);
            Some(Value::Array(Array::U8(bytes)))
        }
        SavedValue::Text(text) => scalar(text).map(Value::Scalar),
        SavedValue::Array(elements) => {
            let scalars: Option<Vec<Scalar>> = elements.iter().map(|element| scalar(element)).collect();
            Some(Value::Array(array(native, &scalars?)))
        }
    }
}

/// The type of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Native {
    /// A type of Channel Access. `is_text`: characters are requested as a text.
    Ca { ty: Basic, is_text: bool },
    /// One value or an array of PVAccess.
    Pva { kind: Kind, is_array: bool },
    /// A number with names of states of PVAccess.
    PvaState,
}

impl Native {
    pub(crate) const NUMBER: Self = Self::Ca { ty: Basic::Double, is_text: false };

    pub(crate) fn is_state(self) -> bool {
        matches!(self, Self::Ca { ty: Basic::Enum, .. } | Self::PvaState)
    }

    /// The values that a channel takes, for messages.
    pub(crate) fn expected(self, labels: &[String]) -> String {
        fn range<T: std::fmt::Display>(least: T, most: T) -> String {
            format!("a number from {least} to {most}")
        }
        match self {
            Self::Ca { ty: Basic::Enum, .. } | Self::PvaState => {
                let states = labels.iter().enumerate().map(|(at, label)| format!("{at} ({})", tame(label)));
                format!("one of its states: {}", states.collect::<Vec<_>>().join(", "))
            }
            Self::Ca { ty: Basic::String, .. } | Self::Pva { kind: Kind::Text, .. } => "a text".to_owned(),
            Self::Ca { ty: Basic::Char, .. } => range(i16::from(i8::MIN), i16::from(u8::MAX)),
            Self::Ca { ty: Basic::Float | Basic::Double, .. } | Self::Pva { kind: Kind::F32 | Kind::F64, .. } => {
                "a number".to_owned()
            }
            Self::Pva { kind: Kind::Bool, .. } => range(0, 1),
            Self::Pva { kind: Kind::I8, .. } => range(i8::MIN, i8::MAX),
            Self::Pva { kind: Kind::U8, .. } => range(u8::MIN, u8::MAX),
            Self::Ca { ty: Basic::Short, .. } | Self::Pva { kind: Kind::I16, .. } => range(i16::MIN, i16::MAX),
            Self::Pva { kind: Kind::U16, .. } => range(u16::MIN, u16::MAX),
            Self::Ca { ty: Basic::Long, .. } | Self::Pva { kind: Kind::I32, .. } => range(i32::MIN, i32::MAX),
            Self::Pva { kind: Kind::U32, .. } => range(u32::MIN, u32::MAX),
            Self::Pva { kind: Kind::I64, .. } => range(i64::MIN, i64::MAX),
            Self::Pva { kind: Kind::U64, .. } => range(u64::MIN, u64::MAX),
        }
    }
}

/// A saved text as a number.
pub(crate) fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn array(native: Basic, scalars: &[Scalar]) -> Array {
    macro_rules! of {
        ($kind:ident) => {
            Array::$kind(
                scalars
                    .iter()
                    .filter_map(|one| if let Scalar::$kind(value) = one { Some(*value) } else { None })
                    .collect(),
            )
        };
    }
    match native {
        Basic::String => of!(String),
        Basic::Short => of!(I16),
        Basic::Float => of!(F32),
        Basic::Enum => of!(Enum),
        Basic::Char => of!(U8),
        Basic::Long => of!(I32),
        Basic::Double => of!(F64),
    }
}

fn scalar(text: &[u8], native: Basic) -> Option<Scalar> {
    if native == Basic::String {
        return (text.len() <= STRING_MAX).then(|| Scalar::String(Str40::new(text)));
    }
    let text = std::str::from_utf8(text).ok()?.trim();
    Some(match native {
        Basic::String => return None,
        Basic::Short => Scalar::I16(text.parse().ok()?),
        Basic::Float => Scalar::F32(text.parse().ok()?),
        Basic::Double => Scalar::F64(text.parse().ok()?),
        Basic::Long => Scalar::I32(text.parse().ok()?),
        Basic::Char => Scalar::U8(text.parse().or_else(|_| text.parse().map(|value: i8| value as u8)).ok()?),
        Basic::Enum => return None,
    })
}

/// A saved value for display: arrays in brackets, invalid UTF-8 escaped.
#[must_use]
pub fn shown(value: &SavedValue) -> String {
    let one = |text: &[u8]| {
        text.utf8_chunks().fold(String::new(), |mut all, chunk| {
            all.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|byte| all.push_str(&format!("\\x{byte:02x}")));
            all
        })
    };
    match value {
        SavedValue::Text(text) => one(text),
        SavedValue::Array(elements) => {
            format!("[{}]", elements.iter().map(|element| one(element)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A value for display, for a channel with these state names: `1 (On)`.
pub(crate) fn named(value: &SavedValue, states: &States, labels: &[String]) -> SavedValue {
    let SavedValue::Text(text) = value else { return value.clone() };
    let label =
        states.index_of(text, labels).and_then(|at| Some((at, labels.get(at).filter(|label| !label.is_empty())?)));
    let said = match (label, states) {
        (Some((at, label)), _) => format!("{at} ({})", tame(label)),
        (None, States::Number(Some(name))) => format!("{} ({name})", String::from_utf8_lossy(text)),
        (None, _) => return value.clone(),
    };
    SavedValue::Text(said.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels() -> Vec<String> {
        ["Off", "On", ""].map(str::to_owned).into()
    }

    #[test]
    fn a_message_names_the_values_that_a_channel_takes() {
        let ca = |ty| Native::Ca { ty, is_text: false };
        for native in [ca(Basic::Enum), Native::PvaState] {
            assert_eq!(native.expected(&labels()), "one of its states: 0 (Off), 1 (On), 2 ()");
        }
        for native in [ca(Basic::Short), Native::Pva { kind: Kind::I16, is_array: true }] {
            assert_eq!(native.expected(&[]), "a number from -32768 to 32767");
        }
        assert_eq!(ca(Basic::Char).expected(&[]), "a number from -128 to 255");
    }

    proptest! {
        #[test]
        fn a_saved_number_survives_a_round_trip(value in any::<f64>(), small in any::<f32>(), long in any::<i32>()) {
            for (value, native) in [(Scalar::F64(value), Basic::Double), (Scalar::F32(small), Basic::Float), (Scalar::I32(long), Basic::Long)] {
                let saved = to_saved(&Value::Scalar(value), false);
                let back = of_saved((&saved, &States::Name), native, &[], false).unwrap();
                // Compared as text, because NaN is not equal to itself.
                prop_assert_eq!(format!("{back:?}"), format!("{:?}", Value::Scalar(value)));
            }
        }

        #[test]
        fn no_bytes_of_a_saved_value_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for native in [Basic::String, Basic::Short, Basic::Float, Basic::Enum, Basic::Char, Basic::Long, Basic::Double] {
                for states in [States::Name, States::Number(None), States::Number(Some("On".into()))] {
                    let _ = of_saved((&SavedValue::Text(bytes.clone()), &states), native, &labels(), false);
                    let _ = of_saved((&SavedValue::Array(vec![bytes.clone(); 3]), &states), native, &labels(), false);
                }
            }
        }
    }

    #[test]
    fn a_state_is_saved_by_its_number() {
        assert_eq!(to_saved(&Value::Scalar(Scalar::Enum(1)), false), SavedValue::Text("1".into()));
    }

    #[test]
    fn a_saved_state_is_restored_only_if_number_and_name_identify_it() {
        let number = || States::Number(None);
        let with = |name: &str| States::Number(Some(name.into()));
        for (labels, saved, states, index) in [
            // A file of autosave has numbers, even if the state names are also numbers.
            (&["0", "2", "4"][..], "2", number(), Some(2)),
            (&["Off", "On"], "1", number(), Some(1)),
            (&["Off", "On"], "On", number(), Some(1)),
            (&["Off", "On"], "2", number(), None),
            (&[], "7", number(), Some(7)),
            // Our files have both. If they no longer match, the name is used, provided that only one state has it.
            (&["Off", "On"], "1", with("On"), Some(1)),
            (&["Off", "Standby", "On"], "1", with("On"), Some(2)),
            (&["Off", "Standby"], "1", with("On"), None),
            (&["On", "Off", "On"], "1", with("On"), None),
            // States with the same name are distinguished by their numbers.
            (&["On", "On"], "1", with("On"), Some(1)),
            // A file of an earlier version has names.
            (&["0", "2", "4"], "2", States::Name, Some(1)),
            (&["Off", "On", ""], "2", States::Name, Some(2)),
            (&["On", "On"], "On", States::Name, None),
            (&["Off", "On"], "Open", States::Name, None),
        ] {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            assert_eq!(states.index_of(saved.as_bytes(), &labels), index, "{saved} {states:?} of {labels:?}");
            let value = of_saved((&SavedValue::Text(saved.into()), &states), Basic::Enum, &labels, false);
            assert_eq!(value, index.map(|at| Value::Scalar(Scalar::Enum(at as u16))));
        }
    }

    #[test]
    fn long_texts_are_characters_and_a_string_that_is_too_long_is_refused() {
        let long = "x".repeat(60);
        let characters = Value::Array(Array::U8([long.as_bytes(), &[0, 7]].concat()));
        let saved = to_saved(&characters, true);
        assert_eq!(saved, SavedValue::Text(long.clone().into()));
        let Some(Value::Array(Array::U8(back))) = of_saved((&saved, &States::Name), Basic::Char, &[], true) else {
            panic!("no text")
        };
        assert_eq!(back, [long.as_bytes(), &[0]].concat());
        assert_eq!(of_saved((&saved, &States::Name), Basic::String, &[], false), None);
    }
}
