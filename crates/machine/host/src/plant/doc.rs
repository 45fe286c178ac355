//! The pages of `docs/reference/plant`, generated from the table of keys.

use super::keys::{RESERVED, TABLES};
use std::fmt::Write as _;
use table::{Table, rows};

const NOTE: &str = "\
<!-- Made from crates/machine/host/src/plant: change it there, then run `TAHTI_BLESS=1 cargo test -p host --test documents`. -->
";

const HEAD: &str = "
# The plant file

One file, `plant.toml`, describes a *plant*: its processes, its CPUs, and the data that it records.

- `tahti init` creates a file that runs as it is. `tahti check` reports every error.
- `tahti up` starts the plant. `tahti down` stops it and restores the machine.
- A large plant can have [several files](include.md) and [variables](variables.md). `profiles` of a [process](process.md) makes it optional.
- `tahti check --document` prints these pages.

Values:

- Times: `250us`, `1.5ms`, `60s`, `10min`. Sizes: `64KiB`, `1MiB`. CPU lists: `2-3,6`.
- An unknown key is an error.

For completion and hints in an editor with a TOML language server (taplo, Even Better TOML), write a schema next to the plant file:

```
tahti schema > plant.schema.json
```

The first line of the plant file names it: `#:schema ./plant.schema.json`.

| table | content |
|---|---|
";

/// A page of the reference.
#[derive(Debug)]
pub struct Page {
    /// File name in `docs/reference/plant`.
    pub file: String,
    /// Content, in Markdown.
    pub text: String,
}

/// All pages: the index, then one page per table. Tables within a table are on its page.
#[must_use]
pub fn pages() -> Vec<Page> {
    let mut index = format!("{NOTE}{HEAD}");
    let mut pages: Vec<Page> = Vec::new();
    for table in TABLES {
        let text = rows(table, if table.header == "ready" { "one of them" } else { "must be given" });
        match page_of(table) {
            Some(name) => {
                let file = format!("{name}.md");
                let first = table.doc.split(". ").next().unwrap_or_default().trim_end_matches('.');
                // Writing to a String cannot fail.
                let _ = writeln!(index, "| [`{}`]({file}) | {first} |", table.header);
                pages.push(Page { file, text: format!("{NOTE}{}", text.replacen("\n## ", "\n# ", 1)) });
            }
            None => {
                if let Some(page) = pages.last_mut() {
                    page.text.push_str(&text);
                }
            }
        }
    }
    index.push_str("\nThese tables are reserved and refused: ");
    index.push_str(&RESERVED.iter().map(|(name, what)| format!("`{name}` ({what})")).collect::<Vec<_>>().join(", "));
    index.push_str(".\n");
    pages.insert(0, Page { file: "README.md".to_owned(), text: index });
    pages
}

/// All pages in one text.
#[must_use]
pub fn document() -> String {
    pages().into_iter().map(|page| page.text.replace(NOTE, "")).collect()
}

/// The name of the page that a table begins, if it is not part of another table.
fn page_of(table: &Table) -> Option<&'static str> {
    let name = table.header.trim_matches(['[', ']']);
    let is_part = name == table.header && name != super::variables::INCLUDE.header || name.contains('.');
    (!is_part).then_some(name)
}
