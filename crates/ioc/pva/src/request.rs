//! What a client requests of an operation: fields and options (`pvRequest`), as a value and as text.

use crate::codec::{Kind, Struct, Type, Value};
use std::sync::Arc;

/// Maximum number of field names that are used.
const FIELDS_MAX: usize = 1_000;

/// A decoded request. Without names it selects all fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Names of fields, e.g. `alarm.severity`.
    pub fields: Vec<String>,
    /// Options by name. Their values are texts.
    pub options: Vec<(String, String)>,
}

/// A text that is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid request \"{}\", expected field(name,...)record[option=value,...]", self.0)
    }
}

impl std::error::Error for Invalid {}

impl Request {
    /// Reads a request that a client sent. Anything that is not understood is ignored.
    #[must_use]
    pub fn of(ty: &Type, value: &Value) -> Self {
        let mut request = Self::default();
        let Some(top) = ty.fields() else { return request };
        // A put-get names the fields that it reads separately.
        if let Some((value, ty)) = value.field(top, "field").or_else(|| value.field(top, "getField")) {
            names(ty, value, String::new(), &mut request.fields);
        }
        let options = value.field(top, "record").and_then(|(value, ty)| value.field(ty.fields()?, "_options"));
        if let Some((Value::Struct(values), Type::Struct(options))) = options {
            for ((name, _), value) in options.fields().iter().zip(values) {
                if let Some(text) = text_of(value) {
                    request.options.push((name.clone(), text));
                }
            }
        }
        request
    }

    /// An option's text.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(own, _)| own == name).map(|(_, text)| text.as_str())
    }

    /// Whether an option is set: `true`, `yes` or a number other than zero.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.option(name).is_some_and(|text| {
            text.eq_ignore_ascii_case("true")
                || text.eq_ignore_ascii_case("yes")
                || text.parse::<f64>().is_ok_and(|number| number != 0.0)
        })
    }

    /// Parses the text that EPICS' tools accept: `field(a,b.c)record[queueSize=10,pipeline=true]`, each part optional. A text
    /// without brackets is a list of fields.
    ///
    /// # Errors
    /// The text does not have this form.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut request = Self::default();
        let mut rest = text.trim();
        if !rest.contains(['(', '[']) {
            request.fields = list(rest);
            return Ok(request);
        }
        let invalid = || Invalid(text.to_owned());
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("field(") {
                let (inner, after) = after.split_once(')').ok_or_else(invalid)?;
                request.fields.extend(list(inner));
                rest = after.trim_start();
            } else if let Some(after) = rest.strip_prefix("record[") {
                let (inner, after) = after.split_once(']').ok_or_else(invalid)?;
                for option in list(inner) {
                    let (name, value) = option.split_once('=').ok_or_else(invalid)?;
                    request.options.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                rest = after.trim_start();
            } else {
                return Err(invalid());
            }
        }
        Ok(request)
    }

    /// The type and value in which the request is sent.
    #[must_use]
    pub fn to_value(&self) -> Option<(Arc<Struct>, Value)> {
        let mut tree = Tree::default();
        self.fields.iter().for_each(|name| tree.add(name));
        let (field, value) = tree.to_value()?;
        let mut parts = vec![("field".to_owned(), field)];
        let mut values = vec![value];
        if !self.options.is_empty() {
            let text = Type::Scalar(Kind::Text);
            let fields = self.options.iter().map(|(name, _)| (name.clone(), text.clone())).collect();
            let options = Type::Struct(Struct::new("", fields).ok()?);
            parts.push(("record".to_owned(), Type::Struct(Struct::new("", vec![("_options".into(), options)]).ok()?)));
            let texts = self.options.iter().map(|(_, text)| Value::Text(text.clone())).collect();
            values.push(Value::Struct(vec![Value::Struct(texts)]));
        }
        Some((Struct::new("", parts).ok()?, Value::Struct(values)))
    }
}

/// Names of fields as a tree: `a.b` is a field of `a`.
#[derive(Default)]
struct Tree(Vec<(String, Self)>);

impl Tree {
    fn add(&mut self, name: &str) {
        let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
        let index = self.0.iter().position(|(own, _)| own == first).unwrap_or_else(|| {
            self.0.push((first.to_owned(), Self::default()));
            self.0.len() - 1
        });
        if let Some(rest) = rest {
            self.0[index].1.add(rest);
        }
    }

    fn to_value(&self) -> Option<(Type, Value)> {
        let (mut fields, mut values) = (Vec::new(), Vec::new());
        for (name, inner) in &self.0 {
            let (ty, value) = inner.to_value()?;
            fields.push((name.clone(), ty));
            values.push(value);
        }
        Some((Type::Struct(Struct::new("", fields).ok()?), Value::Struct(values)))
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Collects the names of empty structures. A structure of options is not a field.
fn names(ty: &Type, value: &Value, path: String, out: &mut Vec<String>) {
    let (Type::Struct(fields), Value::Struct(values)) = (ty, value) else { return };
    let mut inner = false;
    for ((name, ty), value) in fields.fields().iter().zip(values) {
        if name == "_options" || out.len() >= FIELDS_MAX {
            continue;
        }
        inner = true;
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        names(ty, value, path, out);
    }
    if !inner && !path.is_empty() {
        out.push(path);
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Any(Some(any)) => text_of(&any.1),
        value => value.to_i64().map(|number| number.to_string()).or_else(|| value.to_f64().map(|it| it.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_as_text_and_as_value() {
        for text in ["", "field()", "field(value)", "field(a,b.c,b.d)record[queueSize=10,pipeline=true]", "value,alarm"]
        {
            let request = Request::parse(text).unwrap();
            let (ty, value) = request.to_value().unwrap();
            assert_eq!(Request::of(&Type::Struct(ty), &value), request, "{text}");
        }
        let request = Request::parse("field(a, b.c) record[ pipeline = true , n=1 ]").unwrap();
        assert_eq!(request.fields, ["a", "b.c"]);
        assert!(request.is_set("pipeline") && request.is_set("n") && !request.is_set("x"));
        assert_eq!(request.option("n"), Some("1"));
    }

    #[test]
    fn a_wrong_request_is_refused_with_its_text() {
        for text in ["field(", "record[a]", "fields(a)", "field(a)x"] {
            assert_eq!(Request::parse(text), Err(Invalid(text.to_owned())));
        }
    }

    #[test]
    fn options_may_be_numbers_texts_and_booleans() {
        let kinds =
            [("a", Kind::I32, Value::I32(10)), ("b", Kind::Bool, Value::Bool(true)), ("c", Kind::F64, Value::F64(2.0))];
        let fields = kinds.iter().map(|(name, kind, _)| ((*name).to_owned(), Type::Scalar(*kind))).collect();
        let options = Type::Struct(Struct::new("", fields).unwrap());
        let record = Type::Struct(Struct::new("", vec![("_options".into(), options)]).unwrap());
        let ty = Type::Struct(Struct::new("", vec![("record".into(), record)]).unwrap());
        let values = kinds.into_iter().map(|(_, _, value)| value).collect();
        let value = Value::Struct(vec![Value::Struct(vec![Value::Struct(values)])]);
        let request = Request::of(&ty, &value);
        assert_eq!(
            [request.option("a"), request.option("b"), request.option("c")],
            [Some("10"), Some("true"), Some("2")]
        );
        assert_eq!(Request::of(&Type::Any, &Value::Any(None)), Request::default());
    }
}
