//! The pages on messages and on security: the tests that they name exist.

use std::fs;
use std::path::Path;

/// Concatenates all sources below a folder.
fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn each_test_that_the_page_names_for_a_rule_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let page = fs::read_to_string(root.join("docs/develop/messages.md")).unwrap();
    let (_, table) = page.split_once("## Which test holds which rule").unwrap();
    let mut all = String::new();
    for folder in [
        "crates/messages/msg",
        "crates/messages/broker",
        "crates/messages/fabric",
        "crates/ground/sys/src",
        "crates/face/capi/src",
        "crates/face/cli/tests",
        "bindings",
    ] {
        sources(&root.join(folder), &mut all);
    }
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let named: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    let absent: Vec<_> = named
        .iter()
        .filter(|name| !["fn ", "def "].iter().any(|word| all.contains(&format!("{word}{name}("))))
        .collect();
    assert!(named.len() > 40 && absent.is_empty(), "{absent:?} of {}", named.len());
}

#[test]
fn each_test_in_the_list_of_security_rules_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let page = fs::read_to_string(root.join("docs/develop/security.md")).unwrap();
    let mut all = String::new();
    ["crates", "bindings"].iter().for_each(|folder| sources(&root.join(folder), &mut all));
    // A test's name is a sentence: no other word of the page has as many parts.
    let is_test = |word: &&str| {
        word.matches('_').count() >= 4
            && word.bytes().all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    let exists = |name: &&&str| ["fn ", "def "].iter().any(|word| all.contains(&format!("{word}{name}(")));
    let absent: Vec<_> = named.iter().filter(|name| !exists(name)).collect();
    assert!(named.len() > 10 && absent.is_empty(), "{absent:?} of {}", named.len());
}
