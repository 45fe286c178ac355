//! Constant links: numbers, texts, lists, and JSON's `{const:…}`.

use crate::model::link::Link;
use crate::text::conv::{self, Number};
use crate::text::json::{self, Json};
use base::{Array, FieldType, Scalar, Str40};

/// What a constant link holds.
enum Constant<'a> {
    /// A number as it stands in the file.
    Plain(&'a str),
    /// A list, or what stands in `{const:…}`.
    Json(Json),
}

/// The value in `{const:…}`, `{debug:{const:…}}`, `{trace:{const:…}}`; `None` where it is something else.
pub(crate) fn json_const(json: &Json) -> Option<&Json> {
    let Json::Map(entries) = json else { return None };
    match &entries[..] {
        [(key, value)] if key == "const" => Some(value),
        [(key, inner)] if key == "debug" || key == "trace" => json_const(inner),
        _ => None,
    }
}

/// A constant link's value; `None` for other links and empty ones.
fn of(link: &Link) -> Option<Constant<'_>> {
    let text = link.constant()?.trim();
    match text.as_bytes().first()? {
        b'[' => Some(Constant::Json(json::parse(text).ok()?)),
        b'{' => Some(Constant::Json(json_const(&json::parse(text).ok()?)?.clone())),
        _ => Some(Constant::Plain(text)),
    }
}

/// One element; `None` for lists, maps and null.
fn scalar(json: &Json) -> Option<Scalar> {
    match json {
        Json::Bool(on) => Some(Scalar::I64(i64::from(*on))),
        Json::Int(value) => Some(Scalar::I64(*value)),
        Json::Real(value) => Some(Scalar::F64(*value)),
        Json::Text(text) => Some(Scalar::String(Str40::from(text.as_str()))),
        Json::Null | Json::List(_) | Json::Map(_) => None,
    }
}

/// A number as it stands in a file.
fn number(text: &str) -> Json {
    let real = || text.parse().map_or_else(|_| Json::Text(text.to_owned()), Json::Real);
    text.parse().map_or_else(|_| real(), Json::Int)
}

/// A value or the first of a list.
fn first(json: &Json) -> Option<&Json> {
    match json {
        Json::List(items) => items.first(),
        other => Some(other),
    }
}

/// The first `max` elements of a list; `None` where one does not fit the type.
fn elements(items: &[Json], kind: FieldType, max: usize) -> Option<Array> {
    let count = items.len().min(max);
    let mut array = Array::zeros(kind, count);
    let element = |item: &Json| match (kind, item) {
        // As texts numbers that are not whole have six digits behind the point.
        (FieldType::String, Json::Real(value)) => Some(Scalar::String(base::text::double(*value, 6))),
        _ => scalar(item),
    };
    let fits = |(at, item)| element(item).is_some_and(|value| crate::model::values::set_element(&mut array, at, value));
    items[..count].iter().enumerate().all(fits).then_some(array)
}

/// A list as a user types it, `[1, 2]`, a number, or nothing, as elements of a type, `max` at most.
///
/// # Errors
/// Where it is malformed, or what does not fit the type.
pub(crate) fn typed_list(text: &str, kind: FieldType, max: usize) -> Result<Array, String> {
    let what = |why: String| format!("found {text}, expected a list such as [1, 2]: {why}");
    // As in C texts are no numbers, and true and false nothing.
    let fits = |item: &Json| match item {
        Json::Text(_) => kind == FieldType::String,
        Json::Int(_) | Json::Real(_) => true,
        _ => false,
    };
    match json::parse(text) {
        Ok(Json::List(items)) if !items.iter().all(fits) => Err(what(format!("an element is no {kind:?}"))),
        Ok(Json::List(items)) => elements(&items, kind, max).ok_or_else(|| what(format!("an element is no {kind:?}"))),
        Ok(number @ (Json::Int(_) | Json::Real(_))) => {
            elements(&[number], kind, max).ok_or_else(|| what(format!("it is no {kind:?}")))
        }
        Err(_) if text.is_empty() => Ok(Array::zeros(kind, 0)),
        Ok(_) => Err(what("it is no list".into())),
        Err(error) => Err(what(format!("{} at {}", error.what, error.at))),
    }
}

impl Link {
    /// A constant link's number goes into a field at start (recGblInitConstantLink).
    pub(crate) fn number<T: Number>(&self) -> Option<T> {
        match of(self)? {
            Constant::Plain(text) => T::parse(text).or_else(|| conv::prefix::<T>(text, 0)),
            Constant::Json(json) => conv::number(scalar(first(&json)?)?),
        }
    }

    /// A constant link's text goes into a field at start.
    pub(crate) fn short_text(&self) -> Option<Str40> {
        match of(self)? {
            Constant::Plain(text) => Some(Str40::from(text)),
            Constant::Json(json) => scalar(first(&json)?).map(|value| base::text::scalar(value, 6)),
        }
    }

    /// A constant link's text of any length goes into a field at start (dbLoadLinkLS).
    pub(crate) fn long_text(&self) -> Option<String> {
        match of(self)? {
            // As in C a number is no long text.
            Constant::Plain(_) => Some(String::new()),
            Constant::Json(json) => match first(&json)? {
                Json::Text(text) => Some(text.clone()),
                _ => None,
            },
        }
    }

    /// A constant link's elements go into a field at start (dbLoadLinkArray); at most `max`.
    pub(crate) fn elements(&self, kind: FieldType, max: usize) -> Option<Array> {
        let list = |items: &[Json]| elements(items, kind, max);
        match of(self)? {
            Constant::Plain(text) => list(&[number(text)]),
            Constant::Json(Json::List(items)) => list(&items),
            Constant::Json(Json::Text(text)) if kind == FieldType::I8 => {
                // A text in an array of characters stands there with its NUL.
                let raw = base::raw::encode(&text);
                let mut bytes: Vec<i8> = raw.iter().take(max.saturating_sub(1)).map(|byte| *byte as i8).collect();
                bytes.push(0);
                Some(Array::I8(bytes))
            }
            Constant::Json(json) => list(std::slice::from_ref(&json)),
        }
    }
}
