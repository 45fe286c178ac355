//! CSV tables: the first line contains the keys, each further line is one table.
//!
//! Cells may be quoted with `"`; a quote inside is doubled. A quoted cell ends on its line. Empty lines, lines that begin
//! with `#`, and empty cells are ignored. A cell that is a TOML value other than a text (`3`, `true`, `[0, 600]`,
//! `[{ scale = 0.1 }]`) has that value; any other cell is a text. Positions refer to the CSV file.

use std::ops::Range;
use table::Diagnostics;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Maximum number of lines in one file.
const ROWS_MAX: usize = 20_000;

/// A cell and its position.
type Cell = (String, Range<usize>);

/// The cells of a file.
pub(crate) struct Sheet {
    head: Vec<Cell>,
    rows: Vec<(Vec<Cell>, Range<usize>)>,
}

impl Sheet {
    /// Splits a file into cells.
    pub(crate) fn read(text: &str, found: &mut Diagnostics<'_>) -> Self {
        let mut sheet = Self { head: Vec::new(), rows: Vec::new() };
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let span = start..start + line.trim_end_matches(['\n', '\r']).len();
            start += line.len();
            let content = &text[span.clone()];
            if content.trim().is_empty() || content.trim_start().starts_with('#') {
                continue;
            }
            let cells = cells(content, span.start, found);
            if sheet.head.is_empty() {
                sheet.head = cells;
                continue;
            }
            if sheet.rows.len() == ROWS_MAX {
                found.error(span, format!("more than {ROWS_MAX} rows"), "a smaller file", "split it");
                break;
            }
            if let Some((_, extra)) = cells.get(sheet.head.len()) {
                let message = format!("{} cells under {} headings", cells.len(), sheet.head.len());
                found.error(extra.clone(), message, "a heading for each cell", "quote cells that hold a comma");
                continue;
            }
            sheet.rows.push((cells, span));
        }
        sheet
    }

    /// Each row as a TOML table, with its position.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (DeTable<'_>, Range<usize>)> {
        self.rows.iter().map(|(cells, span)| {
            let mut table = DeTable::new();
            for ((key, key_span), (cell, span)) in self.head.iter().zip(cells) {
                let (key, cell) = (key.trim(), cell.trim());
                if !key.is_empty() && !cell.is_empty() {
                    table.insert(
                        Spanned::new(key_span.clone(), key.into()),
                        Spanned::new(span.clone(), value(cell, span)),
                    );
                }
            }
            (table, span.clone())
        })
    }
}

/// The cells of a line, with their positions in the file.
fn cells(line: &str, start: usize, found: &mut Diagnostics<'_>) -> Vec<(String, Range<usize>)> {
    let mut cells = Vec::new();
    let mut at = 0;
    loop {
        let from = at;
        let blanks = line[at..].len() - line[at..].trim_start().len();
        if line[at + blanks..].starts_with('"') {
            let mut cell = String::new();
            let mut chars = line[at + blanks + 1..].char_indices().peekable();
            let mut end = None;
            while let Some((index, c)) = chars.next() {
                match c {
                    '"' if chars.peek().is_some_and(|(_, next)| *next == '"') => {
                        chars.next();
                        cell.push('"');
                    }
                    '"' => {
                        end = Some(at + blanks + 1 + index + 1);
                        break;
                    }
                    c => cell.push(c),
                }
            }
            let Some(end) = end else {
                found.error(start + from..start + line.len(), "a quoted cell without its end", "a closing \"", "");
                cells.push((cell, start + from..start + line.len()));
                return cells;
            };
            at = end + line[end..].find(',').unwrap_or(line.len() - end);
            if !line[end..at].trim().is_empty() {
                found.error(start + end..start + at, "text behind a quoted cell", "a comma", "");
            }
            cells.push((cell, start + from + blanks..start + end));
        } else {
            at += line[at..].find(',').unwrap_or(line.len() - at);
            let cell = &line[from..at];
            let trimmed = from + (cell.len() - cell.trim_start().len());
            cells.push((cell.to_owned(), start + trimmed.min(at)..start + trimmed.min(at) + cell.trim().len()));
        }
        if at >= line.len() {
            return cells;
        }
        at += 1;
    }
}

fn value<'t>(cell: &'t str, span: &Range<usize>) -> DeValue<'t> {
    let text = || DeValue::String(cell.into());
    if !cell.starts_with(|c: char| c.is_ascii_digit() || "+-[{.tf".contains(c)) {
        return text();
    }
    match DeValue::parse(cell) {
        Ok(value) if !matches!(value.get_ref(), DeValue::Datetime(_) | DeValue::String(_)) => {
            placed(value.into_inner(), span)
        }
        _ => text(),
    }
}

/// The value, with the position of its cell in all parts.
fn placed<'t>(value: DeValue<'t>, span: &Range<usize>) -> DeValue<'t> {
    let at = |item: Spanned<DeValue<'t>>| Spanned::new(span.clone(), placed(item.into_inner(), span));
    match value {
        DeValue::Array(items) => {
            let mut array = DeArray::new();
            items.into_iter().for_each(|item| array.push(at(item)));
            DeValue::Array(array)
        }
        DeValue::Table(table) => {
            let mut new = DeTable::new();
            for (key, item) in table {
                new.insert(Spanned::new(span.clone(), key.into_inner()), at(item));
            }
            DeValue::Table(new)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_values_with_their_places() {
        let text = "# magnets\nname, limits ,note\nps_b,\"[0, 600]\",\"says \"\"b\"\"\"\n\nps_c,,3\n";
        let mut found = Diagnostics::new(text);
        let sheet = Sheet::read(text, &mut found);
        let rows: Vec<_> = sheet.tables().collect();
        assert!(found.finish().is_empty());
        let get = |row: usize, key: &str| rows[row].0.iter().find(|(k, _)| *k.get_ref() == key).map(|(_, v)| v);
        assert_eq!(get(0, "note").unwrap().get_ref().as_str(), Some("says \"b\""));
        assert_eq!(get(0, "limits").unwrap().get_ref().as_array().map(|items| items.len()), Some(2));
        assert_eq!(&text[get(0, "limits").unwrap().span()], "\"[0, 600]\"");
        assert!(get(1, "limits").is_none() && get(1, "note").unwrap().get_ref().is_integer());
    }

    #[test]
    fn a_surplus_cell_and_an_open_quote_are_reported_with_their_place() {
        let text = "a,b\n1,2,3\n\"x,4\n\"y\" z,5\n";
        let mut found = Diagnostics::new(text);
        let _ = Sheet::read(text, &mut found);
        let places: Vec<_> = found.finish().iter().map(|one| (one.line, one.column)).collect();
        assert_eq!(places, [(2, 5), (3, 1), (4, 4)]);
    }
}
