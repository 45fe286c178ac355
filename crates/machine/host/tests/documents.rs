//! Compares the tables in the documentation that are generated from the registries with their present content.
//!
//! `TAHTI_BLESS=1 cargo test -p host --test documents` writes the tables again.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Compares the table between `<!-- NAME -->` and `<!-- end of NAME -->` in `docs/PAGE`.
fn check(page: &str, name: &str, table: &str) {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&start).unwrap_or_else(|| panic!("docs/{page}: no {start:?}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("docs/{page}: no {end:?}"));
    let expected = format!("{before}{start}{table}{end}{after}");
    if std::env::var_os("TAHTI_BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let now = fs::read_to_string(&path).unwrap();
    assert!(now == expected, "docs/{page}: run TAHTI_BLESS=1 cargo test -p host --test documents");
}

#[test]
fn the_documentation_lists_every_check() {
    check("reference/doctor.md", "checks", &host::doctor::table());
}

#[test]
fn the_documentation_lists_every_knob() {
    check("reference/knobs.md", "knobs", &host::knob::table());
}

#[test]
fn the_documentation_has_a_page_for_every_table_of_the_plant_file() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/plant");
    let pages = host::plant::pages();
    for page in &pages {
        let path = folder.join(&page.file);
        if std::env::var_os("TAHTI_BLESS").is_some() {
            fs::write(&path, &page.text).unwrap();
        }
        let now = fs::read_to_string(&path).unwrap_or_default();
        assert!(now == page.text, "{}: run TAHTI_BLESS=1 cargo test -p host --test documents", path.display());
    }
    let found: BTreeSet<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(found, pages.iter().map(|page| page.file.clone().into()).collect(), "files without a table");
}
