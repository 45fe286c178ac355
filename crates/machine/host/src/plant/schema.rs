//! The plant file as a JSON Schema (draft 2020-12), made from the table of keys, for completion and hints in editors.
//!
//! It has the keys, the kinds of their values, and the choices of those that have some. `tahti check` reports far more.

use super::keys::{Key, TABLES, Table};
use serde_json::{Map, Value, json};

/// Tables whose keys are those of `[[process]]` too, with all of them.
const WHOLE: &[Table] = &[
    super::alarms::READ,
    super::archive::MEMBER,
    super::dashboard::READ,
    super::equipment::READ,
    super::guest::READ,
    super::ioc::READ,
    super::messages::READ,
    super::recorder::READ,
];

/// Tables that are the value of a key of another table, documented with it.
const INNER: &[Table] = &[super::ioc::LOAD];

/// The schema.
#[must_use]
pub fn schema() -> Value {
    let (mut tables, mut inner) = (Map::new(), Map::new());
    for table in TABLES.iter().chain(INNER) {
        let name = table.header.trim_matches(['[', ']']);
        match (table.header.starts_with('['), name) {
            (false, "include") => {
                tables.insert(name.to_owned(), value(&table.keys[0]));
            }
            (true, "variables") => {
                let kinds = json!({ "type": ["string", "number", "boolean"] });
                let of = json!({ "type": "object", "description": table.doc, "additionalProperties": kinds });
                tables.insert(name.to_owned(), of);
            }
            // Tables of a frame: `[[frame.activity]]`.
            (true, _) if !name.contains('.') => {
                let whole = WHOLE.iter().find(|whole| whole.header == table.header);
                let of = object(table, whole.map_or(table.keys, |whole| whole.keys));
                let of = if table.header.starts_with("[[") { json!({ "type": "array", "items": of }) } else { of };
                tables.insert(name.to_owned(), of);
            }
            _ => {
                inner.insert(name.rsplit('.').next().unwrap_or(name).to_owned(), object(table, table.keys));
            }
        }
    }
    // Rows of the alarm tree, which the alarm server reads.
    for (name, doc) in [("area", "An area of the alarm tree."), ("alarm", "Alarms of channels.")] {
        tables.insert(name.to_owned(), json!({ "type": "array", "items": { "type": "object" }, "description": doc }));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Plant file of tahti",
        "type": "object",
        "properties": tables,
        "additionalProperties": false,
        "$defs": inner,
    })
}

/// A table. In `ready`, any one of the keys must be given, which the schema does not require.
fn object(table: &Table, keys: &[Key]) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|key| (key.name.to_owned(), value(key))).collect();
    let required: Vec<&str> = keys.iter().filter(|key| key.default.is_empty()).map(|key| key.name).collect();
    let required = if table.header == "ready" { Vec::new() } else { required };
    json!({
        "type": "object",
        "description": table.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// The value of a key, by the example and the description of its values.
fn value(key: &Key) -> Value {
    let inner = json!({ "$ref": format!("#/$defs/{}", key.name) });
    let is_one = |words: &[&str]| words.iter().any(|word| key.value.contains(word));
    let mut value = match key.example.as_bytes() {
        [b't' | b'f', ..] => json!({ "type": "boolean" }),
        // Such as a CPU, or `shield`.
        [b'-' | b'0'..=b'9', ..] if is_one(&["`"]) => json!({ "type": ["number", "string"] }),
        [b'-' | b'0'..=b'9', ..] => json!({ "type": "number" }),
        [b'[', b'{', ..] => json!({ "type": "array", "items": inner }),
        [b'[', ..] if key.value.starts_with("list of") && !is_one(&[", or "]) => {
            json!({ "type": "array", "items": { "type": ["string", "integer"] } })
        }
        [b'[', ..] => json!({ "type": ["array", "string", "integer"] }),
        [b'{', ..] if is_one(&["see *"]) => inner,
        [b'{', ..] => json!({ "type": "object" }),
        _ => match choices(key.value) {
            // A text may also have variables.
            Some(choices) => json!({ "anyOf": [{ "enum": choices }, { "type": "string", "pattern": "\\$\\{" }] }),
            None if is_one(&["number", "CPU", "process ids"]) => json!({ "type": ["string", "integer"] }),
            None => json!({ "type": "string" }),
        },
    };
    let default = if key.default.is_empty() { String::new() } else { format!(" Without it: {}.", key.default) };
    value["description"] = format!("{} Value: {}.{default}", key.doc, key.value).into();
    value
}

/// The choices of a value that is nothing but one of them, such as "`a`, `b` or `c`".
fn choices(text: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = text.split('`').collect();
    let between = words.iter().step_by(2).all(|word| matches!(word.trim(), "" | "," | "or"));
    let choices: Vec<&str> = words.into_iter().skip(1).step_by(2).collect();
    let plain = choices.iter().all(|word| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'));
    (between && plain && choices.len() > 1).then_some(choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_schema_has_a_definition() {
        let schema = schema();
        let text = schema.to_string();
        let mut count = 0;
        for rest in text.split("\"#/$defs/").skip(1) {
            let name = rest.split('"').next().unwrap();
            assert!(schema["$defs"].get(name).is_some(), "{name}");
            count += 1;
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn a_value_with_choices_lists_them_and_one_with_a_form_does_not() {
        assert_eq!(choices("`hard`, `firm` or `soft`"), Some(vec!["hard", "firm", "soft"]));
        assert_eq!(choices("`shield`, `housekeeping` or a CPU list"), None);
        assert_eq!(choices("`none`, `stretch:TIME` or `skip`"), None);
        let schema = schema();
        assert_eq!(schema["properties"]["process"]["items"]["required"], json!(["name", "command"]));
        assert_eq!(schema["properties"]["ioc"]["items"]["properties"]["mlock"]["type"], "boolean");
    }
}
