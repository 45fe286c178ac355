//! Checks the pages' statements about the source tree: paths and links exist, files shown whole are current, lines are in
//! the tables that the page names, and words that a page declares unique are in no other file. Links lead from the index
//! to each page of `docs`. The pages for users keep the limits of `reading`.

use crate::reading;
use crate::run::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Checks the pages among `files`, which are all files of the project.
pub(crate) fn check(files: &[PathBuf], findings: &mut Vec<String>) {
    let pages = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    // The changelog and decisions may name files that have been removed.
    let lasting =
        |page: &&PathBuf| !page.ends_with("CHANGELOG.md") && !page.starts_with(root().join("docs/develop/decisions"));
    let mut linked = BTreeMap::new();
    for page in pages {
        let name = page.strip_prefix(root()).unwrap_or(page).display().to_string();
        let Ok(text) = fs::read_to_string(page) else {
            findings.push(format!("{name}: it cannot be read"));
            continue;
        };
        linked.insert(page.clone(), links(page, &text, findings));
        reading::fences(&name, &text, findings);
        if is_for_users(&name) {
            reading::check(&name, &text, findings);
        }
        if lasting(&page) {
            paths(&name, &text, findings);
            shown(&name, &text, files, findings);
            lines(&name, &text, findings);
            alone(&name, &text, files, findings);
        }
    }
    let reached = reached(&root().join("docs/README.md"), &linked);
    let documents = files.iter().filter(|file| file.starts_with(root().join("docs")));
    let name = |file: &PathBuf| file.strip_prefix(root()).unwrap_or(file).display().to_string();
    let orphans = documents.filter(|file| !reached.contains(*file));
    findings.extend(orphans.map(|file| format!("{}: no link leads there from docs/README.md", name(file))));
}

/// Pages for developers may name tests, crates and history, and have no limits.
fn is_for_users(name: &str) -> bool {
    name == "README.md" || name.starts_with("docs/") && !name.starts_with("docs/develop/")
}

/// The files that links lead to from `start`, over any number of pages.
fn reached(start: &Path, linked: &BTreeMap<PathBuf, Vec<PathBuf>>) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start.to_owned()];
    while let Some(file) = open.pop() {
        if reached.insert(file.clone()) {
            open.extend(linked.get(&file).into_iter().flatten().cloned());
        }
    }
    reached
}

/// Every link to a file must lead to a file or folder, and to a heading if it names one. Returns the linked files.
fn links(page: &Path, text: &str, findings: &mut Vec<String>) -> Vec<PathBuf> {
    let name = page.strip_prefix(root()).unwrap_or(page).display();
    let mut linked = Vec::new();
    for line in prose(text) {
        // Code between backticks has no links.
        let line: String = line.split('`').step_by(2).collect();
        for target in line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.to_owned() } else { page.with_file_name("").join(file) };
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let Ok(path) = path.canonicalize() else {
                findings.push(format!("{name}: links to {target}, which does not exist"));
                continue;
            };
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            let has = |text: String| headings(&text).iter().any(|found| found == heading);
            if is_page && !heading.is_empty() && !fs::read_to_string(&path).is_ok_and(has) {
                findings.push(format!("{name}: links to {target}, but that page has no such heading"));
            }
            if path != page {
                linked.push(path);
            }
        }
    }
    linked
}

/// The lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// The names by which links reach the headings of a page: `## Use it!` is `use-it`. A repeated one gets a number.
fn headings(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for title in prose(text).filter(|line| line.starts_with('#')) {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut number = 0;
        let mut unique = name.clone();
        while all.contains(&unique) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        all.push(unique);
    }
    all
}

/// Every `crates/…` in backticks must exist. A path with a placeholder in capitals is skipped.
fn paths(page: &str, text: &str, findings: &mut Vec<String>) {
    for path in text.split('`').skip(1).step_by(2).filter(|words| words.starts_with("crates/")) {
        let any_name = |part: &str| {
            part.split('.').next().is_some_and(|name| !name.is_empty() && name.chars().all(char::is_uppercase))
        };
        let is_example = path.contains(['*', '{', '…', ' ', '#']) || path.split('/').any(any_name);
        if !is_example && !root().join(path).exists() {
            findings.push(format!("{page}: names {path}, which is not there"));
        }
    }
}

/// A Rust block after a line that ends with "`FILE`, whole:" must equal that file.
fn shown(page: &str, text: &str, files: &[PathBuf], findings: &mut Vec<String>) {
    for (before, block) in text.split("```rust\n").zip(text.split("```rust\n").skip(1)) {
        let Some(head) = before.trim_end().strip_suffix("`, whole:") else { continue };
        let file = head.rsplit('`').next().unwrap_or_default();
        let block = block.split("```").next().unwrap_or_default();
        let mut found =
            files.iter().filter(|path| path.ends_with(file)).filter_map(|path| fs::read_to_string(path).ok());
        if !found.any(|text| text == block) {
            findings.push(format!("{page}: shows {file} otherwise than it is"));
        }
    }
}

/// A Rust block after "Its line in `TABLE`", up to a colon, must be a line of that file.
fn lines(page: &str, text: &str, findings: &mut Vec<String>) {
    for behind in text.split("ts line in `").skip(1) {
        let table = behind.split('`').next().unwrap_or_default();
        if !table.ends_with(".rs") {
            continue;
        }
        let block = behind.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
        let found = fs::read_to_string(root().join(table)).unwrap_or_default();
        if block.lines().count() != 1 || !found.lines().any(|line| line.trim() == block.trim()) {
            findings.push(format!("{page}: {table} has no line \"{}\"", block.trim()));
        }
    }
}

/// After "Nothing else in `FOLDER` names `WORD`", the word may occur, outside tests, only in the file that the page shows
/// whole as `FILE`, and in at most one line of another file.
fn alone(page: &str, text: &str, files: &[PathBuf], findings: &mut Vec<String>) {
    for behind in text.split("Nothing else in `").skip(1) {
        let mut quoted = behind.split('`');
        let (folder, word) = (quoted.next().unwrap_or_default(), quoted.nth(1).unwrap_or_default());
        let inside = files
            .iter()
            .filter(|file| file.starts_with(root().join(folder)) && file.extension().is_some_and(|e| e == "rs"));
        let named = |file: &PathBuf| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            product.lines().filter(|line| !line.trim_start().starts_with("//") && has_word(line, word)).count()
        };
        let mut counts: Vec<usize> = inside.map(named).filter(|count| *count > 0).collect();
        counts.sort_unstable();
        if !matches!(counts[..], [] | [_] | [1, _]) {
            findings.push(format!("{page}: {word} is named elsewhere in {folder}, too"));
        }
    }
}

/// Whether a line has a word that is not part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(inner) && !line[at + word.len()..].starts_with(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_found() {
        let page = root().join("docs/README.md");
        let text = "[a](glossary.md), [b](missing.md), [c](glossary.md#glossary), `[d](missing.md)`\n\
                    [e](glossary.md#missing), [f](#same), [g](https://example.org/missing.md)\n```\n[h](missing.md)\n```\n## Same";
        let mut findings = Vec::new();
        let linked = links(&page, text, &mut findings);
        assert!(linked.iter().all(|file| file.ends_with("docs/glossary.md")) && linked.len() == 3, "{linked:?}");
        assert_eq!(findings.len(), 3, "{findings:?}");
    }

    #[test]
    fn a_page_without_a_path_from_the_index_is_not_reached() {
        let path = |name: &str| PathBuf::from(name);
        let links = [("index", vec!["a", "b"]), ("b", vec!["c", "index"]), ("alone", vec!["d", "alone"])];
        let linked = links.map(|(page, to)| (path(page), to.into_iter().map(path).collect())).into();
        let expected = ["a", "b", "c", "index"].map(path).into();
        assert_eq!(reached(&path("index"), &linked), expected);
    }

    #[test]
    fn repeated_headings_have_numbers() {
        assert_eq!(headings("# `a` and B\n## C-d!\n```\n# no\n```\n## C-d!"), ["a-and-b", "c-d", "c-d-1"]);
    }

    #[test]
    fn a_page_with_a_missing_path_or_an_outdated_file_is_a_finding() {
        let mut findings = Vec::new();
        paths("a.md", "`crates/missing/src/x.rs`, `crates/X/src`, `xtask`", &mut findings);
        assert_eq!(findings, ["a.md: names crates/missing/src/x.rs, which is not there"]);
        let file = root().join("xtask/src/soak.rs");
        let page = |text: &str| format!("The check, `src/soak.rs`, whole:\n\n```rust\n{text}```\n");
        for (text, wrong) in [("fn main() {}\n", 1), (&*fs::read_to_string(&file).unwrap(), 0)] {
            let mut findings = Vec::new();
            shown("a.md", &page(text), std::slice::from_ref(&file), &mut findings);
            assert_eq!(findings.len(), wrong, "{findings:?}");
        }
    }
    #[test]
    fn a_line_that_is_in_no_table_and_a_word_that_is_not_unique_are_findings() {
        let page = |line: &str| format!("Its line in `xtask/src/main.rs`, sorted:\n\n```rust\n{line}\n```\n");
        for (line, wrong) in [("mod pages;", 0), ("mod missing;", 1), ("mod pages;\nmod run;", 1)] {
            let mut findings = Vec::new();
            lines("a.md", &page(line), &mut findings);
            assert_eq!(findings.len(), wrong, "{findings:?}");
        }
        let files: Vec<PathBuf> =
            ["main", "pages", "soak", "test"].map(|name| root().join(format!("xtask/src/{name}.rs"))).into();
        for (word, wrong) in [("formatting", 0), ("Outcome", 1)] {
            let mut findings = Vec::new();
            alone("a.md", &format!("Nothing else in `xtask/src` names `{word}`."), &files, &mut findings);
            assert_eq!(findings.len(), wrong, "{findings:?}");
        }
    }
}
