//! The page on tables.

#[test]
fn the_pages_of_the_documentation_are_those_of_the_tables() {
    let page = include_str!("../../../docs/equipment-tables.md");
    assert!(page == equipment::document(em::DRIVERS), "run `tahti em check --document > docs/equipment-tables.md`");
}

#[test]
fn the_example_has_no_error() {
    for name in ["magnets", "bpms", "rf", "feedback", "poller"] {
        let file = format!("{}/../../examples/madoca/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let checked = em::read(file.as_ref(), &[]).unwrap();
        assert!(checked.tables.is_some(), "{}", checked.render());
    }
}
