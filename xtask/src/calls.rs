//! Generates the page that lists libtahti's calls from `tahti.h`, each with the first sentence of its comment.

use crate::run::root;
use std::fmt::Write as _;
use std::fs;

const HEADER: &str = "crates/face/capi/include/tahti.h";
const PAGE: &str = "docs/reference/c-api.md";
const BEGIN: &str = "<!-- calls -->\n";
const END: &str = "<!-- end of calls -->";

/// Checks the page, or writes it if `TAHTI_BLESS` is set.
pub(crate) fn check(findings: &mut Vec<String>) {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_default();
    let (page, calls) = (read(PAGE), table(&read(HEADER), findings));
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        return findings.push(format!("{PAGE}: it has no place for the calls, expected {BEGIN:?} and {END:?}"));
    };
    let expected = format!("{before}{BEGIN}{calls}{END}{after}");
    if page == expected {
        return;
    }
    match std::env::var_os("TAHTI_BLESS").map(|_| fs::write(root().join(PAGE), expected)) {
        Some(Ok(())) => {}
        Some(Err(error)) => findings.push(format!("{PAGE}: {error}")),
        None => findings.push(format!("{PAGE}: {HEADER} has other calls; run TAHTI_BLESS=1 cargo xtask tidy")),
    }
}

/// The calls, one table for each part of the header. A comment covers all declarations up to the next blank line.
fn table(header: &str, findings: &mut Vec<String>) -> String {
    let (mut out, mut heading, mut about, mut rest) = (String::new(), String::new(), String::new(), header);
    while let Some(line) = rest.lines().next() {
        let mut taken = line.len() + 1;
        if line.starts_with("/*") {
            let comment = rest.split_inclusive("*/").next().unwrap_or(rest);
            taken = comment.len() + 1;
            let words: String = comment.trim_matches(['/', '*']).replace("\n *", " ");
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            if words.starts_with("---- ") {
                heading = title(comment);
                about.clear();
            } else {
                about = sentence(&words);
            }
        } else if line.trim().is_empty() {
            about.clear();
        } else if let Some(name) = called(line) {
            let declaration = rest.split(';').next().unwrap_or(rest);
            taken = declaration.len() + ";\n".len();
            let declaration = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
            if about.is_empty() {
                findings.push(format!("{HEADER}: {name} has no comment"));
            }
            // A part without calls has no heading.
            if !heading.is_empty() {
                let _ = write!(out, "\n## {}\n\n| call | what it does |\n|---|---|\n", std::mem::take(&mut heading));
            }
            let _ = writeln!(out, "| `{declaration}` | {about} |");
        } else if line.starts_with("typedef") && line.ends_with('{') {
            taken = rest.find("\n}").map_or(taken, |end| end + 1);
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    // The calls before the first part are for every program.
    let first = out.find("\n## ").unwrap_or(out.len());
    format!("\n## Every program\n\n| call | what it does |\n|---|---|\n{}{}", &out[..first], &out[first..])
}

/// The title in the first line of a part's comment, without the remarks that follow it.
fn title(comment: &str) -> String {
    let line = comment.lines().next().unwrap_or_default().trim_matches(['/', '*', '-', ' ']);
    let title = line.split([',', '(', ':']).next().unwrap_or(line).trim();
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The function whose declaration begins on a line.
fn called(line: &str) -> Option<&str> {
    let before = line.split('(').next().filter(|before| before.len() < line.len())?;
    let name = before.rsplit([' ', '*']).next()?;
    let declares = !line.starts_with(['#', ' ', '}', '*']) && !line.starts_with("typedef");
    (declares && name.starts_with("tahti_")).then_some(name)
}

/// The first sentence. A full stop in parentheses does not end it.
fn sentence(words: &str) -> String {
    let mut depth = 0;
    let end = words.char_indices().find(|(at, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0 && *c == '.' && words[at + 1..].starts_with(' ')
    });
    words[..end.map_or(words.len(), |(at, _)| at + 1)].replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_listed_with_the_first_sentence_of_its_comment() {
        let header = "/* The version. */\nuint32_t tahti_version(void);\n\n/* ---- frames (since 2), see there */\n\n\
                      /* Joins (e.g. a frame). NULL\n * on failure. */\ntahti_frame *tahti_join(const char *name,\n    int x);\n\
                      void tahti_leave(tahti_frame *frame);\n\ntypedef struct a {\n    int (*tahti_no)(void);\n} a;\n\
                      typedef int tahti_body(void);\nvoid tahti_mute(void);\n";
        let mut findings = Vec::new();
        let table = table(header, &mut findings);
        assert!(table.contains("| `uint32_t tahti_version(void)` | The version. |\n\n## Frames\n"), "{table}");
        assert!(table.contains("| `tahti_frame *tahti_join(const char *name, int x)` | Joins (e.g. a frame). |\n| `void tahti_leave(tahti_frame *frame)` | Joins"), "{table}");
        assert!(!table.contains("tahti_no") && !table.contains("tahti_body"), "{table}");
        assert_eq!(findings, [format!("{HEADER}: tahti_mute has no comment")]);
    }

    #[test]
    fn a_title_is_the_first_words_of_its_line_and_a_part_without_calls_has_no_heading() {
        let header = "/* ---- functions of records: a plug-in of the IOC\n *\n * A plug-in is a library, which is loaded. */\n\n\
                      /* A call. */\nvoid tahti_call(void);\n\n/* ---- devices\n * of all kinds */\n\n#define TAHTI_PIN 0\n";
        let table = table(header, &mut Vec::new());
        assert!(table.contains("\n## Functions of records\n\n"), "{table}");
        assert!(!table.contains("plug-in") && !table.contains("evices"), "{table}");
    }
}
