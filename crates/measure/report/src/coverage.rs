//! Coverage of programs as a report: the lines and functions that the compiler's counters show as executed, or not.
//!
//! Input is a file of LCOV (`llvm-cov export --format=lcov`, `lcov`, `grcov`) or of `gcov`.

use crate::{Good, Report, Row, Table};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Columns of the drawing of a file.
const COLUMNS: usize = 48;
/// Names or ranges of lines listed per file; the others are counted.
const LISTED: usize = 40;

/// A source file: executions of each line and of each function that has code.
#[derive(Debug, Default)]
struct Source {
    lines: BTreeMap<u32, u64>,
    functions: BTreeMap<String, u64>,
}

/// Why a text is no coverage data.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCoverage {
    /// A line with an invalid format.
    #[error("line {number}: found {found:?}, expected {expected}")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// Its text.
        found: String,
        /// The valid format.
        expected: &'static str,
    },
    /// No line of code.
    #[error("no line of code; expected LCOV (`llvm-cov export --format=lcov`, `lcov`) or the output of `gcov`")]
    Empty,
}

/// Coverage in `text` as a report called `name`. `readable` converts the compiler's name of a function.
///
/// # Errors
/// The number of a line that has an invalid format, with what was expected; or a file without any line of code.
pub fn coverage(name: &str, text: &str, readable: impl Fn(&str) -> String) -> Result<Report, BadCoverage> {
    let mut all: BTreeMap<String, Source> = BTreeMap::new();
    // gcov prints line 0 of each file first, LCOV its name.
    let is_gcov = text.lines().any(|line| of_gcov(line).is_some_and(|[_, number, _]| number == "0"));
    let mut file = None;
    for (number, line) in (1..).zip(text.lines()) {
        let read = if is_gcov { gcov(line, &mut file, &mut all) } else { lcov(line, &mut file, &mut all) };
        read.map_err(|expected| BadCoverage::Line { number, found: line.to_owned(), expected })?;
    }
    all.retain(|_, source| !source.lines.is_empty());
    if all.is_empty() {
        return Err(BadCoverage::Empty);
    }
    Ok(report(name, &all, readable))
}

/// The source file that lines describe, by its name.
fn of<'a>(file: &Option<String>, all: &'a mut BTreeMap<String, Source>) -> Result<&'a mut Source, &'static str> {
    let name = file.clone().ok_or("the name of a source file before")?;
    Ok(all.entry(name).or_default())
}

fn lcov(line: &str, file: &mut Option<String>, all: &mut BTreeMap<String, Source>) -> Result<(), &'static str> {
    let (key, rest) = line.split_once(':').unwrap_or((line.trim(), ""));
    let counted = |count: &str| count.parse::<u64>().map_err(|_| "a number of executions");
    match key {
        "SF" => *file = Some(rest.to_owned()),
        "end_of_record" => *file = None,
        "DA" => {
            const DA: &str = "DA:LINE,EXECUTIONS";
            let (number, count) = rest.split_once(',').ok_or(DA)?;
            let count = counted(count.split(',').next().unwrap_or(count))?;
            add(&mut of(file, all)?.lines, number.parse().map_err(|_| DA)?, count);
        }
        // With the last line of the function in newer files.
        "FN" => {
            let (_, name) = rest.split_once(',').ok_or("FN:LINE,NAME")?;
            let name =
                name.split_once(',').filter(|(end, _)| end.parse::<u32>().is_ok()).map_or(name, |(_, name)| name);
            add(&mut of(file, all)?.functions, name.to_owned(), 0);
        }
        "FNDA" => {
            let (count, name) = rest.split_once(',').ok_or("FNDA:EXECUTIONS,NAME")?;
            add(&mut of(file, all)?.functions, name.to_owned(), counted(count)?);
        }
        "FNA" => {
            let (count, name) =
                rest.split_once(',').and_then(|(_, rest)| rest.split_once(',')).ok_or("FNA:INDEX,EXECUTIONS,NAME")?;
            add(&mut of(file, all)?.functions, name.to_owned(), counted(count)?);
        }
        // Sums, branches, names of tests, versions.
        _ => {}
    }
    Ok(())
}

/// Count, line number and text of a line of gcov's output.
fn of_gcov(line: &str) -> Option<[&str; 3]> {
    let (count, rest) = line.split_once(':')?;
    let (number, text) = rest.split_once(':')?;
    Some([count.trim(), number.trim(), text]).filter(|[_, number, _]| number.parse::<u32>().is_ok())
}

fn gcov(line: &str, file: &mut Option<String>, all: &mut BTreeMap<String, Source>) -> Result<(), &'static str> {
    if let Some((name, rest)) = line.strip_prefix("function ").and_then(|rest| rest.split_once(" called ")) {
        let count = rest.split(' ').next().and_then(|count| count.parse().ok());
        add(&mut of(file, all)?.functions, name.to_owned(), count.ok_or("function NAME called EXECUTIONS")?);
        return Ok(());
    }
    // Branches, calls, separators of templates.
    let Some([count, number, text]) = of_gcov(line) else { return Ok(()) };
    match (count, number.parse().unwrap_or(0)) {
        ("-", 0) => {
            if let Some(name) = text.strip_prefix("Source:") {
                *file = Some(name.to_owned());
            }
        }
        ("-", _) => {}
        ("#####" | "=====", number) => add(&mut of(file, all)?.lines, number, 0),
        // A star marks lines of which a part was not executed.
        (count, number) => {
            let count = count.trim_end_matches('*').parse().map_err(|_| "a number of executions (gcov without -H)")?;
            add(&mut of(file, all)?.lines, number, count);
        }
    }
    Ok(())
}

/// Several programs, or instances of a template, execute the same line.
fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, count: u64) {
    let sum = counts.entry(key).or_default();
    *sum = sum.saturating_add(count);
}

fn report(name: &str, all: &BTreeMap<String, Source>, readable: impl Fn(&str) -> String) -> Report {
    let mut executed = Table::new("lines of code that were executed");
    executed
        .notes
        .push("drawing: the file from its first to its last line of code; # executed, . not executed, + both".into());
    let (mut lines, mut functions) =
        (Table::new("lines that were not executed"), Table::new("functions that were not executed"));
    let (mut sum, mut of) = (0, 0);
    for (file, source) in all {
        let done = source.lines.values().filter(|count| **count > 0).count();
        (sum, of) = (sum + done, of + source.lines.len());
        let note = format!("{done} of {} lines  {}", source.lines.len(), drawn(&source.lines));
        let percent = 100.0 * done as f64 / source.lines.len() as f64;
        executed = executed.row(Row::figure(file, "%", percent).good(Good::High).note(note));
        if done < source.lines.len() {
            let count = (source.lines.len() - done) as f64;
            lines = lines.row(Row::figure(file, "lines", count).good(Good::Low).note(listed(ranges(&source.lines))));
        }
        let never: Vec<String> =
            source.functions.iter().filter(|(_, count)| **count == 0).map(|(name, _)| readable(name)).collect();
        if !never.is_empty() {
            functions =
                functions.row(Row::figure(file, "functions", never.len() as f64).good(Good::Low).note(listed(never)));
        }
    }
    let setup = vec![format!("{sum} of {of} lines in {} files were executed", all.len())];
    let tables = [executed, lines, functions].into_iter().filter(|table| !table.rows.is_empty()).collect();
    Report { bench: format!("coverage {name}"), what: format!("coverage {name}"), setup, tables, ..Report::default() }
}

/// The lines of a file as one line of text.
fn drawn(lines: &BTreeMap<u32, u64>) -> String {
    let (Some(first), Some(last)) = (lines.keys().next(), lines.keys().next_back()) else { return String::new() };
    let span = u64::from(last - first) + 1;
    let columns = COLUMNS.min(span as usize);
    let mut cells = vec![[false; 2]; columns];
    for (line, count) in lines {
        let column = u64::from(line - first) * columns as u64 / span;
        cells[column as usize][usize::from(*count > 0)] = true;
    }
    let cell = |[not, done]: [bool; 2]| match (not, done) {
        (true, true) => '+',
        (true, false) => '.',
        (false, true) => '#',
        (false, false) => ' ',
    };
    format!("|{}|", cells.into_iter().map(cell).collect::<String>())
}

/// Ranges of lines that were not executed. Lines without code do not end a range.
fn ranges(lines: &BTreeMap<u32, u64>) -> Vec<String> {
    let mut all: Vec<[u32; 2]> = Vec::new();
    let mut is_open = false;
    for (line, count) in lines {
        match (*count == 0, all.last_mut().filter(|_| is_open)) {
            (true, Some(range)) => range[1] = *line,
            (true, None) => all.push([*line; 2]),
            (false, _) => {}
        }
        is_open = *count == 0;
    }
    all.into_iter().map(|[from, to]| if from == to { from.to_string() } else { format!("{from}-{to}") }).collect()
}

fn listed(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(LISTED);
    let mut text = names.into_iter().take(LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ", {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const GCOV: &str = include_str!("coverage.gcov");
    const LCOV: &str = "TN:\nSF:/src/loop.rs\nFN:1,never\nFN:4,8,_twice\nFNDA:0,never\nFNDA:3,_twice\nFNF:2\nFNH:1\nDA:1,0\nDA:2,0\nDA:4,3\n\
        DA:5,3\nDA:6,0\nBRF:0\nLF:5\nLH:2\nend_of_record\nSF:/src/whole.c\nDA:7,1,checksum\nend_of_record\n";

    fn rows(report: &Report) -> Vec<(String, f64, String)> {
        let rows = report.tables.iter().flat_map(|table| &table.rows);
        rows.map(|row| (row.name.clone(), row.ours.as_ref().unwrap().value, row.note.clone())).collect()
    }

    #[test]
    fn files_of_lcov_show_what_was_executed_and_what_was_not() {
        let found = coverage("llrf", LCOV, |name| name.trim_start_matches('_').to_owned()).unwrap();
        assert_eq!(found.setup, ["3 of 6 lines in 2 files were executed"]);
        let row = |name: &str, value: f64, note: &str| (name.to_owned(), value, note.to_owned());
        let expected = [
            row("/src/loop.rs", 40.0, "2 of 5 lines  |.. ##.|"),
            row("/src/whole.c", 100.0, "1 of 1 lines  |#|"),
            row("/src/loop.rs", 3.0, "1-2, 6"),
            row("/src/loop.rs", 1.0, "never"),
        ];
        assert_eq!(rows(&found), expected);
        let page = crate::page(&[("run".into(), vec![found])]);
        assert!(page.contains("|.. ##.|") && page.contains("coverage llrf"), "{page}");
        assert!(!page.contains("tahti bench coverage"), "it is no measurement that can be repeated");
    }

    #[test]
    fn output_of_gcov_is_read_with_its_functions() {
        let found = coverage("a", GCOV, str::to_owned).unwrap();
        let expected = [
            ("a.c".to_owned(), 900.0 / 11.0, "9 of 11 lines  |.# #.# # #####|".to_owned()),
            ("a.c".to_owned(), 2.0, "2, 6".to_owned()),
            ("a.c".to_owned(), 1.0, "never".to_owned()),
        ];
        assert_eq!(rows(&found), expected);
    }

    #[test]
    fn two_programs_with_the_same_source_are_added() {
        let other = LCOV.replace("DA:6,0", "DA:6,18446744073709551615").replace("FNDA:0,never", "FNA:0,1,never");
        let both = coverage("both", &(LCOV.to_owned() + &other), str::to_owned).unwrap();
        assert_eq!(both.setup, ["4 of 6 lines in 2 files were executed"]);
        assert_eq!(both.tables.len(), 2, "every function was executed: {:?}", both.tables);
    }

    #[test]
    fn a_long_file_is_drawn_within_its_columns() {
        let lines = (1..=1000).map(|line| (line, u64::from(line > 510))).collect();
        assert_eq!(drawn(&lines), format!("|{}+{}|", ".".repeat(24), "#".repeat(23)));
        let ends = [(0, 1), (u32::MAX, 0)].into();
        assert_eq!(drawn(&ends), format!("|#{}.|", " ".repeat(46)));
    }

    #[test]
    fn text_that_is_no_coverage_is_refused_with_its_place() {
        let refused = |text: &str| coverage("x", text, str::to_owned).unwrap_err().to_string();
        assert!(refused("").starts_with("no line of code; expected LCOV"));
        assert_eq!(refused("DA:1,1"), "line 1: found \"DA:1,1\", expected the name of a source file before");
        assert_eq!(refused("SF:a\nDA:x,1"), "line 2: found \"DA:x,1\", expected DA:LINE,EXECUTIONS");
        assert_eq!(refused("SF:a\nDA:1,-4"), "line 2: found \"DA:1,-4\", expected a number of executions");
        let human = GCOV.replace("        3:    3:", "     3.0k:    3:");
        assert!(refused(&human).contains("gcov without -H"), "{}", refused(&human));
    }
}
