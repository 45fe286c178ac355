//! Values as text, and texts as values of a channel's type.

use base::{Array, Scalar, Str40, Value};
use ca::Basic;
use db::SavedValue;

/// The longest text that Channel Access sends as a string, without the zero behind it.
const STRING_MAX: usize = 39;

/// What a reading holds, as text. `labels` are the names of its states, `is_text` says that its characters are a text.
pub(crate) fn to_saved(value: &Value, labels: &[String], is_text: bool) -> SavedValue {
    let one = |scalar: Scalar| text(scalar, labels).into_bytes();
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

fn text(scalar: Scalar, labels: &[String]) -> String {
    match scalar {
        Scalar::String(text) => text.to_str().to_owned(),
        Scalar::I8(value) => value.to_string(),
        Scalar::U8(value) => value.to_string(),
        Scalar::I16(value) => value.to_string(),
        Scalar::U16(value) => value.to_string(),
        Scalar::I32(value) => value.to_string(),
        Scalar::U32(value) => value.to_string(),
        Scalar::I64(value) => value.to_string(),
        Scalar::U64(value) => value.to_string(),
        // The shortest text that reads as the same number.
        Scalar::F32(value) if usual(value.into()) => value.to_string(),
        Scalar::F32(value) => format!("{value:e}"),
        Scalar::F64(value) if usual(value) => value.to_string(),
        Scalar::F64(value) => format!("{value:e}"),
        Scalar::Enum(index) => match labels.get(usize::from(index)) {
            Some(label) if !label.is_empty() => label.clone(),
            _ => index.to_string(),
        },
    }
}

/// Whether a number is written without an exponent.
fn usual(value: f64) -> bool {
    value == 0.0 || !value.is_finite() || (1e-5..1e15).contains(&value.abs())
}

/// The value that a saved text is for a channel of this type; `None` where it is none.
pub(crate) fn of_saved(saved: &SavedValue, native: Basic, labels: &[String], is_text: bool) -> Option<Value> {
    match saved {
        SavedValue::Text(text) if is_text => {
            let mut bytes = text.clone();
            bytes.push(0);
            Some(Value::Array(Array::U8(bytes)))
        }
        SavedValue::Text(text) => scalar(text, native, labels).map(Value::Scalar),
        SavedValue::Array(elements) => {
            let scalars: Option<Vec<Scalar>> = elements.iter().map(|element| scalar(element, native, labels)).collect();
            Some(Value::Array(array(native, &scalars?)))
        }
    }
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

fn scalar(text: &[u8], native: Basic, labels: &[String]) -> Option<Scalar> {
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
        Basic::Enum => {
            let by_label = labels.iter().position(|label| !label.is_empty() && label == text);
            let index = by_label.or_else(|| text.parse().ok())?;
            Scalar::Enum(u16::try_from(index).ok()?)
        }
    })
}

/// A saved value for people: arrays in brackets, what is no text escaped.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels() -> Vec<String> {
        ["Off", "On", ""].map(str::to_owned).into()
    }

    proptest! {
        #[test]
        fn a_number_reads_back_as_the_same_one(value in any::<f64>(), small in any::<f32>(), long in any::<i32>()) {
            for (value, native) in [(Scalar::F64(value), Basic::Double), (Scalar::F32(small), Basic::Float), (Scalar::I32(long), Basic::Long)] {
                let saved = to_saved(&Value::Scalar(value), &[], false);
                let back = of_saved(&saved, native, &[], false).unwrap();
                // By its text: NaN is not equal to itself.
                prop_assert_eq!(format!("{back:?}"), format!("{:?}", Value::Scalar(value)));
            }
        }

        #[test]
        fn any_bytes_are_a_value_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for native in [Basic::String, Basic::Short, Basic::Float, Basic::Enum, Basic::Char, Basic::Long, Basic::Double] {
                let _ = of_saved(&SavedValue::Text(bytes.clone()), native, &labels(), false);
                let _ = of_saved(&SavedValue::Array(vec![bytes.clone(); 3]), native, &labels(), false);
            }
        }
    }

    #[test]
    fn states_are_saved_by_their_names_and_read_by_name_or_number() {
        let text = |text: &str| SavedValue::Text(text.into());
        assert_eq!(to_saved(&Value::Scalar(Scalar::Enum(1)), &labels(), false), text("On"));
        assert_eq!(to_saved(&Value::Scalar(Scalar::Enum(2)), &labels(), false), text("2"));
        for (saved, index) in [("On", Some(1)), ("0", Some(0)), ("Open", None)] {
            let expected = index.map(|index| Value::Scalar(Scalar::Enum(index)));
            assert_eq!(of_saved(&text(saved), Basic::Enum, &labels(), false), expected, "{saved}");
        }
    }

    #[test]
    fn long_texts_are_characters_and_a_string_that_is_too_long_is_refused() {
        let long = "x".repeat(60);
        let characters = Value::Array(Array::U8([long.as_bytes(), &[0, 7]].concat()));
        let saved = to_saved(&characters, &[], true);
        assert_eq!(saved, SavedValue::Text(long.clone().into()));
        let Some(Value::Array(Array::U8(back))) = of_saved(&saved, Basic::Char, &[], true) else { panic!("no text") };
        assert_eq!(back, [long.as_bytes(), &[0]].concat());
        assert_eq!(of_saved(&saved, Basic::String, &[], false), None);
    }
}
