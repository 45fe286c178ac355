//! Variables of a plant file: `[variables]`, and `${NAME}` in quoted texts.

use super::join::{Edit, Fault, Files};
use super::keys::{Table, key};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::DeValue;

/// Maximum length in bytes of a text after the replacement of its variables.
const FILLED_BYTES_MAX: usize = 64 << 10;
const FORMS: &str = "${NAME} or ${NAME:-default}";

/// Values by name. If several files define a name, the first one has precedence.
pub(super) type Variables = BTreeMap<String, String>;

/// `include`, for the documentation.
pub(crate) const INCLUDE: Table = Table {
    header: "include",
    doc: "A plant may have several files. `include` is in the first lines of a file, before its first table. Lists such as `[[process]]` are joined; any \
          other table is in one file only. Included files may include others, up to 8 levels. A file that several files include is read once. \
          `dir`, `folder`, `file` and other paths are relative to the plant file, also in included files. `tahti check --print` prints the joined \
          text.",
    keys: &[key(
        "include",
        r#"["common.toml", "parts/*.toml"]"#,
        "list of paths",
        "none",
        "Files to include, relative to this file. The last component may contain `*` and `?`; such files are taken in the order of their names, \
         without hidden ones.",
    )],
};

/// `[variables]`, for the documentation.
pub(crate) const VARIABLES: Table = Table {
    header: "[variables]",
    doc: "Defaults of variables. Variables are replaced in every quoted text of a file with this table, also an empty one. A file without it \
          stays unchanged, so that shell commands keep their `${HOME}`.\n\n\
          - `${NAME}` is the value of NAME. `${NAME:-default}` is the default if NAME is unset or empty.\n\
          - `$${` is a literal `${`. All other `$` stay, as do keys, numbers and `true` or `false`.\n\
          - The first value counts: of the environment of `tahti up`, of the plant file, of included files in their order. `tahti reload` uses \
          the environment of `tahti up`.\n\
          - A variable without value is an error.",
    keys: &[key(
        "NAME",
        r#""1""#,
        "text, number, or true or false",
        "the environment's",
        "Value of this variable, unless the environment has one. The name has letters, digits and `_`.",
    )],
};

/// A reference to a variable that cannot be replaced.
pub(super) struct Wrong {
    /// The reference as in the file.
    pub(super) reference: String,
    pub(super) message: String,
    pub(super) expected: &'static str,
    pub(super) remedy: String,
}

/// Reads `[variables]` of a file and replaces the table by blanks.
pub(super) fn read(
    part: usize,
    text: &str,
    value: &Spanned<DeValue<'_>>,
    all: &mut Variables,
    edits: &mut Vec<Edit>,
    faults: &mut Vec<Fault>,
) {
    let mut fault = |span, message: String, expected, remedy: &str| {
        faults.push(Fault { part, span, message, expected, remedy: remedy.to_owned() });
    };
    let Some(table) =
        value.get_ref().as_table().filter(|_| text.get(value.span()).is_some_and(|text| text.starts_with('[')))
    else {
        fault(value.span(), "`variables` is no [variables] table".to_owned(), "[variables]", "write [variables]");
        return;
    };
    edits.push(Edit::Blank(value.span()));
    for (key, value) in table {
        edits.push(Edit::Blank(key.span().start..value.span().end));
        let name: &str = key.get_ref();
        if !is_name(name) {
            let message = format!("a variable cannot be called {:?}", table::clipped(name));
            fault(key.span(), message, "letters, digits and `_`, not beginning with a digit", "");
            continue;
        }
        let content = match value.get_ref() {
            DeValue::String(content) => content.to_string(),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                text.get(value.span()).unwrap_or_default().to_owned()
            }
            _ => {
                fault(value.span(), format!("variable {name} is a list, table or date"), "a text", "");
                continue;
            }
        };
        match replaced(&content, &mut |reference| Err(refers(name, reference))) {
            Ok(content) => drop(all.entry(name.to_owned()).or_insert(content)),
            Err(wrong) => fault(value.span(), wrong.message, wrong.expected, &wrong.remedy),
        }
    }
}

fn refers(name: &str, reference: &str) -> Wrong {
    Wrong {
        reference: reference.to_owned(),
        message: format!("variable {name} refers to another one: {reference}"),
        expected: "a value",
        remedy: "write the value here, or `$${` for `${`".to_owned(),
    }
}

fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.len() <= 128 && name.chars().all(good)
}

/// Replaces the variables in a text.
pub(super) fn filled(text: &str, variables: &Variables, files: &dyn Files) -> Result<String, Wrong> {
    let mut bytes = text.len();
    replaced(text, &mut |reference| {
        let wrong = |message: String, expected, remedy: String| Wrong {
            reference: reference.to_owned(),
            message,
            expected,
            remedy,
        };
        let inner = &reference[2..reference.len() - 1];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if !is_name(name) || default.is_some_and(|default| default.contains("${")) {
            let remedy = format!("write `${reference}` if the program gets it as it is");
            return Err(wrong(format!("`{}` is no variable", table::clipped(reference)), FORMS, remedy));
        }
        let value = match files.variable(name) {
            Ok(value) => value.or_else(|| variables.get(name).cloned()),
            Err(why) => {
                return Err(wrong(format!("variable {name} of the environment: {why}"), "UTF-8", String::new()));
            }
        };
        let value = match (value, default) {
            (Some(value), None) => value,
            (Some(value), Some(_)) if !value.is_empty() => value,
            (_, Some(default)) => default.to_owned(),
            (None, None) => {
                let remedy = format!(
                    "set {name} in the environment or in [variables], give a default `${{{name}:-…}}`, or write `${reference}` if the program \
                     gets it as it is"
                );
                return Err(wrong(format!("variable {name} has no value"), "", remedy));
            }
        };
        bytes = bytes.saturating_add(value.len());
        if bytes > FILLED_BYTES_MAX {
            return Err(wrong("the text with its variables is too long".to_owned(), "at most 64 KiB", String::new()));
        }
        Ok(value)
    })
}

/// Replaces each `${…}` in a text, and removes the first `$` of each `$${`.
fn replaced(text: &str, value: &mut dyn FnMut(&str) -> Result<String, Wrong>) -> Result<String, Wrong> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(before);
        let Some(end) = rest[at..].find('}') else {
            return Err(Wrong {
                reference: rest[at..].to_owned(),
                message: "`${` without `}`".to_owned(),
                expected: FORMS,
                remedy: "close it, or write `$${` for `${`".to_owned(),
            });
        };
        out.push_str(&value(&rest[at..=at + end])?);
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}
