//! Values from the command line of `pvput`.

use crate::failure::Failure;
use pva::codec::{Array, Kind, Mask, Struct, Type, Value};
use serde_json::Value as Json;

/// Assigns the words of a command line to fields of a structure. Returns the assigned fields and the new value.
pub(super) fn assign(fields: &Struct, mut value: Value, words: &[String]) -> Result<(Mask, Value), Failure> {
    let mut mask = Mask::default();
    if let [one] = words
        && one.starts_with('{')
    {
        let json = serde_json::from_str(one).map_err(|error| format!("{one}: {error}"))?;
        map(fields, &mut value, &json, 0, &mut mask)?;
        return Ok((mask, value));
    }
    let named = words.iter().filter_map(|word| word.split_once('=')).filter(|(name, _)| {
        let first = name.split('.').next().unwrap_or_default();
        fields.field(first).is_some()
    });
    let named: Vec<(&str, &str)> = named.collect();
    if named.len() == words.len() {
        for (path, text) in named {
            at(fields, &mut value, path, 0, &mut mask, &[text.to_owned()])?;
        }
        return Ok((mask, value));
    }
    at(fields, &mut value, "value", 0, &mut mask, words)?;
    Ok((mask, value))
}

/// Assigns words to the field of a path such as `alarm.severity`.
fn at(
    fields: &Struct,
    value: &mut Value,
    path: &str,
    bit: u32,
    mask: &mut Mask,
    words: &[String],
) -> Result<(), Failure> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let (index, own, ty) = fields.field(name).ok_or_else(|| format!("there is no field \"{name}\""))?;
    let Value::Struct(values) = value else { return Err(format!("{name} has no value").into()) };
    let field = values.get_mut(index).ok_or_else(|| format!("{name} has no value"))?;
    let bit = bit + own;
    match (rest, ty) {
        (Some(rest), Type::Struct(inner)) => at(inner, field, rest, bit, mask, words),
        (Some(_), _) => Err(format!("{name} has no fields").into()),
        (None, Type::Struct(inner)) if inner.field("index").is_some() && inner.field("choices").is_some() => {
            state(inner, field, bit, mask, words)
        }
        (None, ty) => {
            *field = of_words(ty, words)?;
            mask.set(bit);
            Ok(())
        }
    }
}

/// Assigns the name or number of a state.
fn state(fields: &Struct, value: &mut Value, bit: u32, mask: &mut Mask, words: &[String]) -> Result<(), Failure> {
    let [word] = words else { return Err(format!("{} values for an enumeration, expected one", words.len()).into()) };
    let choices = value.field(fields, "choices").map(|(choices, _)| choices.clone());
    let (index, own, _) = fields.field("index").ok_or("there is no field \"index\"")?;
    let known = match &choices {
        Some(Value::Array(Array::Text(choices))) => choices.iter().position(|choice| choice == word),
        _ => None,
    };
    let number = match known {
        Some(at) => at as i32,
        None => word.trim().parse().map_err(|_| {
            let Some(Value::Array(Array::Text(choices))) = choices else { return format!("\"{word}\" is no state") };
            format!("\"{word}\" is no state, expected one of {}", choices.join(", "))
        })?,
    };
    let Value::Struct(values) = value else { return Err("the enumeration has no value".into()) };
    if let Some(place) = values.get_mut(index) {
        *place = Value::I32(number);
    }
    mask.set(bit + own);
    Ok(())
}

fn of_words(ty: &Type, words: &[String]) -> Result<Value, Failure> {
    match (ty, words) {
        (Type::Array(kind), [one]) if one.starts_with('[') => {
            let json: Json = serde_json::from_str(one).map_err(|error| format!("{one}: {error}"))?;
            of_json(&Type::Array(*kind), &json)
        }
        (Type::Array(kind), [one]) => elements(*kind, std::slice::from_ref(one)),
        // The first word is a number of elements, which is ignored.
        (Type::Array(kind), [_, rest @ ..]) => elements(*kind, rest),
        (Type::Scalar(kind), [one]) => Ok(scalar(*kind, one)?),
        (Type::Scalar(_), _) => Err(format!("{} values for a single one", words.len()).into()),
        (ty, [one]) => {
            let json: Json = serde_json::from_str(one).map_err(|error| format!("{one}: {error}"))?;
            of_json(ty, &json)
        }
        _ => Err("this type is written as JSON".into()),
    }
}

fn scalar(kind: Kind, text: &str) -> Result<Value, String> {
    kind.parse(text).ok_or_else(|| format!("\"{text}\" is no value of the type {}", kind.name()))
}

fn elements(kind: Kind, words: &[String]) -> Result<Value, Failure> {
    let each = words.iter().map(|word| scalar(kind, word)).collect::<Result<Vec<_>, _>>()?;
    Ok(Value::Array(Array::of(kind, each)))
}

/// Assigns the members of a JSON object to the fields with their names.
fn map(fields: &Struct, value: &mut Value, json: &Json, bit: u32, mask: &mut Mask) -> Result<(), Failure> {
    let Json::Object(members) = json else { return Err(format!("{json} is no JSON object").into()) };
    let Value::Struct(values) = value else { return Err("the structure has no value".into()) };
    for (name, json) in members {
        let (index, own, ty) = fields.field(name).ok_or_else(|| format!("there is no field \"{name}\""))?;
        let field = values.get_mut(index).ok_or_else(|| format!("{name} has no value"))?;
        match (ty, json) {
            (Type::Struct(inner), Json::Object(_)) => map(inner, field, json, bit + own, mask)?,
            (Type::Struct(inner), Json::String(text)) => {
                state(inner, field, bit + own, mask, std::slice::from_ref(text))?;
            }
            (Type::Struct(inner), Json::Number(number)) => {
                state(inner, field, bit + own, mask, &[number.to_string()])?;
            }
            (ty, json) => {
                *field = of_json(ty, json)?;
                mask.set(bit + own);
            }
        }
    }
    Ok(())
}

fn of_json(ty: &Type, json: &Json) -> Result<Value, Failure> {
    let text = |json: &Json| json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    match (ty, json) {
        (Type::Scalar(_), Json::Array(_) | Json::Object(_) | Json::Null) => {
            Err(format!("{json} is no single value").into())
        }
        (Type::Scalar(kind), json) => Ok(scalar(*kind, &text(json))?),
        (Type::Array(kind), Json::Array(values)) => elements(*kind, &values.iter().map(text).collect::<Vec<_>>()),
        (Type::Array(_), json) => Err(format!("{json} is no JSON array").into()),
        _ => Err("values of this type cannot be written".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pva::nt::{Layout, Shape};

    fn assigned(shape: Shape, words: &[&str]) -> Result<(Vec<u32>, Value), String> {
        let layout = Layout::new(shape);
        let Type::Struct(fields) = layout.ty() else { unreachable!("it is a structure") };
        let mut value = Value::zero(layout.ty());
        if let (Shape::Enum, Value::Struct(parts)) = (shape, &mut value) {
            let choices = Array::Text(vec!["off".into(), "on".into()]);
            parts[0] = Value::Struct(vec![Value::I32(0), Value::Array(choices)]);
        }
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (mask, value) = assign(fields, value, &words).map_err(|failure| failure.to_string())?;
        let Value::Struct(mut parts) = value else { unreachable!("it is a structure") };
        Ok(((0..layout.ty().nodes()).filter(|bit| mask.has(*bit)).collect(), parts.swap_remove(0)))
    }

    #[test]
    fn a_number_is_written_in_the_type_of_the_channel() {
        for words in [&["1.5"][..], &["value=1.5"], &["{\"value\":1.5}"]] {
            assert_eq!(assigned(Shape::Scalar(Kind::F64), words), Ok((vec![1], Value::F64(1.5))), "{words:?}");
        }
        assert_eq!(assigned(Shape::Scalar(Kind::I16), &["-0x10"]), Ok((vec![1], Value::I16(-16))));
        assert_eq!(assigned(Shape::Scalar(Kind::Text), &["a=b"]), Ok((vec![1], Value::Text("a=b".into()))));
        for (kind, word) in [(Kind::F64, "x"), (Kind::I16, "99999"), (Kind::U8, "-1"), (Kind::I32, "1.5")] {
            assert!(assigned(Shape::Scalar(kind), &[word]).unwrap_err().contains(word), "{word}");
        }
        assert!(assigned(Shape::Scalar(Kind::F64), &["1", "2"]).is_err());
        assert!(assigned(Shape::Scalar(Kind::F64), &["{\"nothing\":1}"]).unwrap_err().contains("nothing"));
    }

    #[test]
    fn an_array_is_a_list_of_words_or_json() {
        let expected = Ok((vec![1], Value::Array(Array::I32(vec![1, 2]))));
        for words in [&["ignored", "1", "2"][..], &["[1, 2]"], &["value=[1,2]"], &["{\"value\":[1,2]}"]] {
            assert_eq!(assigned(Shape::Array(Kind::I32), words), expected, "{words:?}");
        }
        assert!(assigned(Shape::Array(Kind::I32), &["[1, x"]).is_err());
    }

    #[test]
    fn a_state_is_written_by_name_or_number() {
        for words in [&["on"][..], &["1"], &["value.index=1"], &["{\"value\":\"on\"}"], &["{\"value\":{\"index\":1}}"]]
        {
            let (mask, value) = assigned(Shape::Enum, words).unwrap();
            let Value::Struct(parts) = value else { unreachable!("it is a structure") };
            assert_eq!((mask, &parts[0]), (vec![2], &Value::I32(1)), "{words:?}");
        }
        let error = assigned(Shape::Enum, &["broken"]).unwrap_err();
        assert_eq!(error, "\"broken\" is no state, expected one of off, on");
    }
}
