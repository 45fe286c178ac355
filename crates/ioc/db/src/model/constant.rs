//! Constant links: numbers, texts, lists, and JSON's `{const:…}`.

use crate::model::link::Link;
use crate::text::conv::{self, Number};
use base::json::{self, Json, JsonError};
use base::{Array, FieldType, Scalar, Str40};

/// Value of a constant link.
enum Constant<'a> {
    /// A number as written in the file.
    Plain(&'a str),
    /// A list, or the value in `{const:…}`.
    Json(Json),
}

/// The value in `{const:…}`, `{debug:{const:…}}` or `{trace:{const:…}}`; `None` for other JSON.
pub(crate) fn json_const(json: &Json) -> Option<&Json> {
    let Json::Map(entries) = json else { return None };
    match &entries[..] {
        [(key, value)] if key == "const" => Some(value),
        [(key, inner)] if key == "debug" || key == "trace" => json_const(inner),
        _ => None,
    }
}

/// Value of a constant link; `None` for other links and empty ones.
fn of(link: &Link) -> Option<Constant<'_>> {
    let text = link.constant()?.trim();
    match text.as_bytes().first()? {
        b'[' => Some(Constant::Json(json::parse(text).ok()?)),
        b'{' => Some(Constant::Json(json_const(&json::parse(text).ok()?)?.clone())),
        _ => Some(Constant::Plain(text)),
    }
}

/// One element as a scalar; `None` for lists, maps and null.
fn scalar(json: &Json) -> Option<Scalar> {
    match json {
        Json::Bool(on) => Some(Scalar::I64(i64::from(*on))),
        Json::Int(value) => Some(Scalar::I64(*value)),
        Json::Real(value) => Some(Scalar::F64(*value)),
        Json::Text(text) => Some(Scalar::String(Str40::from(text.as_str()))),
        Json::Null | Json::List(_) | Json::Map(_) => None,
    }
}

/// Parses a number as written in a file; other text becomes a text.
fn number(text: &str) -> Json {
    let real = || text.parse().map_or_else(|_| Json::Text(text.to_owned()), Json::Real);
    text.parse().map_or_else(|_| real(), Json::Int)
}

/// The value itself, or the first element of a list.
fn first(json: &Json) -> Option<&Json> {
    match json {
        Json::List(items) => items.first(),
        other => Some(other),
    }
}

/// The elements that a type has, for messages.
pub(crate) fn expected_element(kind: FieldType) -> &'static str {
    match kind {
        FieldType::String => "a text",
        FieldType::I8 => "a number from -128 to 127",
        FieldType::U8 => "a number from 0 to 255",
        FieldType::I16 => "a number from -32768 to 32767",
        FieldType::U16 => "a number from 0 to 65535",
        FieldType::I32 => "a number from -2147483648 to 2147483647",
        FieldType::U32 => "a number from 0 to 4294967295",
        FieldType::I64 => "a number from -9223372036854775808 to 9223372036854775807",
        FieldType::U64 => "a number from 0 to 18446744073709551615",
        FieldType::F32 | FieldType::F64 => "a number",
        FieldType::Enum | FieldType::Menu | FieldType::Device => "the number of a choice",
        FieldType::Link => "a link",
    }
}

/// An element of a list, for messages.
fn shown(json: &Json) -> String {
    match json {
        Json::Null => "null".to_owned(),
        Json::Bool(on) => on.to_string(),
        Json::Int(number) => number.to_string(),
        Json::Real(number) => number.to_string(),
        Json::Text(text) => format!("{text:?}"),
        Json::List(_) => "a list".to_owned(),
        Json::Map(_) => "a map".to_owned(),
    }
}

/// The first `max` elements of a list. If one does not fit the type, the error is its index.
fn elements(items: &[Json], kind: FieldType, max: usize) -> Result<Array, usize> {
    let count = items.len().min(max);
    let mut array = Array::zeros(kind, count);
    let element = |item: &Json| match (kind, item) {
        // Fractions in text elements have six digits after the point.
        (FieldType::String, Json::Real(value)) => Some(Scalar::String(base::text::double(*value, 6))),
        _ => scalar(item),
    };
    let mut fits =
        |(at, item)| element(item).is_some_and(|value| crate::model::values::set_element(&mut array, at, value));
    match items[..count].iter().enumerate().position(|one| !fits(one)) {
        Some(at) => Err(at),
        None => Ok(array),
    }
}

/// The reason why a text is no list of a type.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadList {
    #[error("element {at} of {text} is {item}; expected {}", expected_element(*.kind))]
    Element { at: usize, text: String, item: String, kind: FieldType },
    #[error("found {item}; expected {}", expected_element(*.kind))]
    Number { item: String, kind: FieldType },
    #[error("found {0}, expected a list such as [1, 2]: it is no list")]
    NoList(String),
    #[error("found {text}, expected a list such as [1, 2]: {} at {}", .error.what, .error.at)]
    Syntax { text: String, error: JsonError },
}

/// Parses user input (`[1, 2]`, a number, or an empty text) into at most `max` elements of a type.
///
/// # Errors
/// If the text is malformed or an element does not fit the type.
pub(crate) fn typed_list(text: &str, kind: FieldType, max: usize) -> Result<Array, BadList> {
    // As in C, texts are not converted to numbers, and true and false are rejected.
    let fits = |item: &Json| match item {
        Json::Text(_) => kind == FieldType::String,
        Json::Int(_) | Json::Real(_) => true,
        _ => false,
    };
    match json::parse(text) {
        Ok(Json::List(items)) => {
            let unfit = items.iter().position(|item| !fits(item));
            unfit.map_or_else(|| elements(&items, kind, max), Err).map_err(|at| {
                let item = items.get(at).map_or(String::new(), shown);
                BadList::Element { at: at + 1, text: text.to_owned(), item, kind }
            })
        }
        Ok(number @ (Json::Int(_) | Json::Real(_))) => {
            let item = shown(&number);
            elements(&[number], kind, max).map_err(|_| BadList::Number { item, kind })
        }
        Err(_) if text.is_empty() => Ok(Array::zeros(kind, 0)),
        Ok(_) => Err(BadList::NoList(text.to_owned())),
        Err(error) => Err(BadList::Syntax { text: text.to_owned(), error }),
    }
}

impl Link {
    /// Number of a constant link, loaded into a field at start (recGblInitConstantLink).
    pub(crate) fn number<T: Number>(&self) -> Option<T> {
        match of(self)? {
            Constant::Plain(text) => T::parse(text).or_else(|| conv::prefix::<T>(text, 0)),
            Constant::Json(json) => conv::number(scalar(first(&json)?)?),
        }
    }

    /// Text of a constant link, loaded into a field at start.
    pub(crate) fn short_text(&self) -> Option<Str40> {
        match of(self)? {
            Constant::Plain(text) => Some(Str40::from(text)),
            Constant::Json(json) => scalar(first(&json)?).map(|value| base::text::scalar(value, 6)),
        }
    }

    /// Text of any length of a constant link, loaded into a field at start (dbLoadLinkLS).
    pub(crate) fn long_text(&self) -> Option<String> {
        match of(self)? {
            // As in C, a number is not a long text.
            Constant::Plain(_) => Some(String::new()),
            Constant::Json(json) => match first(&json)? {
                Json::Text(text) => Some(text.clone()),
                _ => None,
            },
        }
    }

    /// Elements of a constant link, at most `max`, loaded into a field at start (dbLoadLinkArray).
    pub(crate) fn elements(&self, kind: FieldType, max: usize) -> Option<Array> {
        let list = |items: &[Json]| elements(items, kind, max).ok();
        match of(self)? {
            Constant::Plain(text) => list(&[number(text)]),
            Constant::Json(Json::List(items)) => list(&items),
            Constant::Json(Json::Text(text)) if kind == FieldType::I8 => {
                // A text in a character array includes its NUL.
                let raw = base::raw::encode(&text);
                let mut bytes: Vec<i8> = raw.iter().take(max.saturating_sub(1)).map(|byte| *byte as i8).collect();
                bytes.push(0);
                Some(Array::I8(bytes))
            }
            Constant::Json(json) => list(std::slice::from_ref(&json)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_of_the_wrong_type_is_named_with_what_was_found_and_expected() {
        let why = |text: &str, kind| typed_list(text, kind, 9).unwrap_err().to_string();
        let expected = "element 2 of [1, \"2\"] is \"2\"; expected a number from -2147483648 to 2147483647";
        assert_eq!(why("[1, \"2\"]", FieldType::I32), expected);
        assert_eq!(why("[true]", FieldType::F64), "element 1 of [true] is true; expected a number");
        assert_eq!(why("[[1]]", FieldType::String), "element 1 of [[1]] is a list; expected a text");
        assert!(typed_list("[1, 2]", FieldType::I32, 9).is_ok());
    }
}
