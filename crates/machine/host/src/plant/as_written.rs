//! Copies tables of the plant file into the command line of a process.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys of `table` for which `named` returns a name, below `header`, with their values as in the file. Nested
/// tables and lists are written on one line each, however the file formats them.
pub(super) fn as_written(
    header: &str,
    table: &DeTable<'_>,
    text: &str,
    named: impl Fn(&str) -> Option<String>,
) -> String {
    let mut out = header.to_owned();
    for (key, value) in table {
        if let Some(name) = named(key.get_ref()) {
            out.push_str(&format!("\n{name} = {}", written(value, text)));
        }
    }
    out
}

fn written(value: &Spanned<DeValue<'_>>, text: &str) -> String {
    match value.get_ref() {
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| written(item, text)).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let pair = |(key, value): (&Spanned<_>, _)| {
                format!("{} = {}", text.get(key.span()).unwrap_or_default(), written(value, text))
            };
            format!("{{ {} }}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        _ => text.get(value.span()).unwrap_or_default().to_owned(),
    }
}
