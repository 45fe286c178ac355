//! Tables of keys: the allowed content of a file, with its documentation.

use std::fmt::Write as _;

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// An example of its value.
    pub example: &'static str,
    /// Type and range of its value.
    pub value: &'static str,
    /// Default; empty if the key is required.
    pub default: &'static str,
    /// Description.
    pub doc: &'static str,
}

/// One table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its header in the file.
    pub header: &'static str,
    /// Description.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key, in the order of its members.
#[must_use]
pub const fn key(
    name: &'static str,
    example: &'static str,
    value: &'static str,
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key { name, example, value, default, doc }
}

/// The table as Markdown: a heading, its description, a row for each key. `missing` is the word for keys without a default.
#[must_use]
pub fn rows(table: &Table, missing: &str) -> String {
    let mut out = format!("\n## `{}`\n\n{}\n", table.header, table.doc);
    out.push_str("\n| key | value | without it | what it does |\n|---|---|---|---|\n");
    for key in table.keys {
        let default = if key.default.is_empty() { missing } else { key.default };
        let example = key.example.replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "| `{}` | {}<br>`{} = {example}` | {default} | {} |", key.name, key.value, key.name, key.doc);
    }
    out
}
