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
        (Type::Union(members), words) if !matches!(words, [one] if one == "null" || one.starts_with('{')) => {
            fitting(members, &words.join(" "), |ty| of_words(ty, words))
        }
        (Type::Any, [one]) => {
            of_json(&Type::Any, &serde_json::from_str(one).unwrap_or_else(|_| Json::String(one.clone())))
        }
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
        (Type::Struct(fields), json) => {
            let mut value = Value::zero(ty);
            map(fields, &mut value, json, 0, &mut Mask::default())?;
            Ok(value)
        }
        (Type::Union(members), json) => member(members, json),
        (Type::Any, Json::Null) => Ok(Value::Any(None)),
        (Type::Any, json) => Ok(Value::Any(Some(Box::new(natural(json, 0)?)))),
        (Type::StructArray(fields), json) => items(&Type::Struct(fields.clone()), json),
        (Type::UnionArray(members), json) => items(&Type::Union(members.clone()), json),
        (Type::AnyArray, json) => items(&Type::Any, json),
    }
}

/// The elements of an array of structures, unions or variants.
fn items(ty: &Type, json: &Json) -> Result<Value, Failure> {
    let Json::Array(values) = json else { return Err(format!("{json} is no JSON array").into()) };
    let item = |json: &Json| if json.is_null() { Ok(None) } else { of_json(ty, json).map(Some) };
    Ok(Value::Elements(values.iter().map(item).collect::<Result<_, _>>()?))
}

/// A value of a union: `{"MEMBER": value}`, or a value that takes the first member that it fits. `null` selects none.
fn member(members: &Struct, json: &Json) -> Result<Value, Failure> {
    if json.is_null() {
        return Ok(Value::Union(None));
    }
    let named = json.as_object().filter(|entries| entries.len() == 1).and_then(|entries| entries.iter().next());
    let place = named.and_then(|(name, json)| {
        let (at, (_, ty)) = members.fields().iter().enumerate().find(|(_, (known, _))| known == name)?;
        Some((at, ty, json))
    });
    match place {
        Some((at, ty, json)) => Ok(Value::Union(Some((at as u32, Box::new(of_json(ty, json)?))))),
        None => fitting(members, &json.to_string(), |ty| of_json(ty, json)),
    }
}

/// The value of the first member of a union that it fits.
fn fitting(members: &Struct, text: &str, value: impl Fn(&Type) -> Result<Value, Failure>) -> Result<Value, Failure> {
    let each = members.fields().iter().enumerate();
    let fits = each.filter_map(|(at, (_, ty))| Some((at as u32, Box::new(value(ty).ok()?)))).next();
    fits.map(|fits| Value::Union(Some(fits))).ok_or_else(|| {
        let names: Vec<&str> = members.fields().iter().map(|(name, _)| name.as_str()).collect();
        format!("{text} fits no member of the union, expected {{\"MEMBER\": value}} with one of {}", names.join(", "))
            .into()
    })
}

/// A value of JSON with its natural type.
pub(super) fn natural(json: &Json, depth: u32) -> Result<(Type, Value), Failure> {
    if depth >= pva::codec::DEPTH_MAX {
        return Err("nested too deep".into());
    }
    Ok(match json {
        Json::Bool(on) => (Type::Scalar(Kind::Bool), Value::Bool(*on)),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => (Type::Scalar(Kind::I64), Value::I64(whole)),
            None => (Type::Scalar(Kind::F64), Value::F64(number.as_f64().ok_or("this number is too large")?)),
        },
        Json::String(text) => (Type::Scalar(Kind::Text), Value::Text(text.clone())),
        Json::Object(entries) => {
            let (mut fields, mut values) = (Vec::new(), Vec::new());
            for (name, item) in entries {
                let (ty, value) = natural(item, depth + 1)?;
                fields.push((name.clone(), ty));
                values.push(value);
            }
            (Type::Struct(Struct::new("", fields)?), Value::Struct(values))
        }
        Json::Array(items) => {
            if items.iter().all(|item| item.as_i64().is_some()) {
                let numbers = items.iter().filter_map(Json::as_i64).collect();
                (Type::Array(Kind::I64), Value::Array(Array::I64(numbers)))
            } else if items.iter().all(Json::is_number) {
                let numbers = items.iter().filter_map(Json::as_f64).collect();
                (Type::Array(Kind::F64), Value::Array(Array::F64(numbers)))
            } else if items.iter().all(Json::is_string) {
                let texts = items.iter().filter_map(Json::as_str).map(str::to_owned).collect();
                (Type::Array(Kind::Text), Value::Array(Array::Text(texts)))
            } else {
                return Err("an array holds numbers, or texts".into());
            }
        }
        Json::Null => return Err("null has no type".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pva::nt::{Layout, Shape};
    use std::sync::Arc;

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

    /// A union of a number and of an array, a variant, and arrays of both.
    fn unions() -> Arc<Struct> {
        let of = |fields: Vec<(&str, Type)>| {
            Struct::new("", fields.into_iter().map(|(name, ty)| (name.to_owned(), ty)).collect()).unwrap()
        };
        let members = of(vec![("number", Type::Scalar(Kind::F64)), ("numbers", Type::Array(Kind::I32))]);
        let point = of(vec![("x", Type::Scalar(Kind::I32)), ("y", Type::Scalar(Kind::I32))]);
        of(vec![
            ("value", Type::Union(members.clone())),
            ("any", Type::Any),
            ("several", Type::UnionArray(members)),
            ("anys", Type::AnyArray),
            ("points", Type::StructArray(point)),
        ])
    }

    fn written(words: &[&str]) -> Result<(Mask, Value), String> {
        let ty = Type::Struct(unions());
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assign(&unions(), Value::zero(&ty), &words).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_value_takes_the_first_member_of_a_union_that_it_fits_or_the_named_one() {
        let member = |at: u32, value: Value| Value::Union(Some((at, Box::new(value))));
        let numbers = |numbers: Vec<i32>| Value::Array(Array::I32(numbers));
        for (word, expected) in [
            ("1.5", member(0, Value::F64(1.5))),
            ("[1,2]", member(1, numbers(vec![1, 2]))),
            ("{\"value\":{\"numbers\":[3]}}", member(1, numbers(vec![3]))),
            ("value={\"number\":4}", member(0, Value::F64(4.0))),
            ("value=null", Value::Union(None)),
        ] {
            let (mask, value) = written(&[word]).unwrap();
            assert_eq!((mask, value.field(&unions(), "value").unwrap().0), (Mask::of([1]), &expected), "{word}");
        }
        let refused = written(&["on"]).unwrap_err();
        assert!(refused.contains("with one of number, numbers"), "{refused}");
        assert!(written(&["value={\"numbers\":1}"]).is_err());
    }

    #[test]
    fn a_variant_has_the_natural_type_of_its_value() {
        let any = |ty: Type, value: Value| Value::Any(Some(Box::new((ty, value))));
        for (word, expected) in [
            ("any=1", any(Type::Scalar(Kind::I64), Value::I64(1))),
            ("any=1.5", any(Type::Scalar(Kind::F64), Value::F64(1.5))),
            ("any=on", any(Type::Scalar(Kind::Text), Value::Text("on".into()))),
            ("any=null", Value::Any(None)),
        ] {
            assert_eq!(written(&[word]).unwrap().1.field(&unions(), "any").unwrap().0, &expected, "{word}");
        }
    }

    #[test]
    fn arrays_of_unions_variants_and_structures_are_written_as_json() {
        let (mask, value) =
            written(&["{\"several\":[1,null,{\"numbers\":[2]}],\"anys\":[\"on\",2],\"points\":[{\"x\":1},null]}"])
                .unwrap();
        assert_eq!(mask, Mask::of([3, 4, 5]));
        let elements = |name: &str| match value.field(&unions(), name).unwrap().0 {
            Value::Elements(elements) => elements.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!([elements("several").len(), elements("anys").len()], [3, 2]);
        assert_eq!(elements("several")[1], None);
        assert_eq!(elements("points"), [Some(Value::Struct(vec![Value::I32(1), Value::I32(0)])), None]);
        assert!(written(&["several=1"]).is_err());
    }
}
