//! What pages say of the tree, held against it: paths exist, and files that are shown whole are shown as they are.

use crate::run::root;
use std::fs;
use std::path::PathBuf;

/// Checks pages; `files` are all of the project's.
pub(crate) fn check(files: &[PathBuf], findings: &mut Vec<String>) {
    let pages = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    // What was decided or changed once may name what is no more.
    let lasting = |page: &&PathBuf| !page.ends_with("CHANGELOG.md") && !page.starts_with(root().join("docs/decisions"));
    for page in pages.filter(lasting) {
        let name = page.strip_prefix(root()).unwrap_or(page).display().to_string();
        let Ok(text) = fs::read_to_string(page) else {
            findings.push(format!("{name}: it cannot be read"));
            continue;
        };
        paths(&name, &text, findings);
        shown(&name, &text, files, findings);
    }
}

/// Every `crates/…` between backticks is there; what has a word in capitals for any name is none.
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

/// A block of Rust behind a line that ends with "`FILE`, whole:" is that file.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_names_what_is_not_there_or_shows_a_file_otherwise_is_found() {
        let mut findings = Vec::new();
        paths("a.md", "`crates/nobody/src/x.rs`, `crates/X/src`, `xtask`", &mut findings);
        assert_eq!(findings, ["a.md: names crates/nobody/src/x.rs, which is not there"]);
        let file = root().join("xtask/src/soak.rs");
        let page = |text: &str| format!("The check, `src/soak.rs`, whole:\n\n```rust\n{text}```\n");
        for (text, wrong) in [("fn main() {}\n", 1), (&*fs::read_to_string(&file).unwrap(), 0)] {
            let mut findings = Vec::new();
            shown("a.md", &page(text), std::slice::from_ref(&file), &mut findings);
            assert_eq!(findings.len(), wrong, "{findings:?}");
        }
    }
}
