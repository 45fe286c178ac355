//! `docs/plant.md`, generated from the table of keys.

use super::keys::{RESERVED, TABLES};
use table::rows;

const HEAD: &str = "\
<!-- Made from crates/machine/host/src/plant/keys.rs: change it there, then run `tahti check --document > docs/plant.md`. -->

# The plant file

One file, `plant.toml`, describes a *plant*: its processes, its CPUs, and what it records. `tahti check` reports every error in it.
A large plant can have [several files](#include), [variables](#variables) and members that start only with a *profile*
(`profiles` of [`[[process]]`](#process)). `tahti up` starts the plant. `tahti down` stops it and restores the machine. `tahti init` writes one that runs as it is.
`tahti schema > plant.schema.json` and a first line `#:schema ./plant.schema.json` give editors with a TOML language server (taplo, Even Better TOML) completion and
hints for all keys.

Times are written `250us`, `1.5ms`, `60s`, `10min`; sizes `64KiB`, `1MiB`; CPU lists `2-3,6`. An unknown key is an error.
";

/// The whole page.
#[must_use]
pub fn document() -> String {
    let mut out = HEAD.to_owned();
    for table in TABLES {
        out.push_str(&rows(table, if table.header == "ready" { "one of them" } else { "must be given" }));
    }
    out.push_str("\n## Not in this version\n\nThese tables are reserved and refused: ");
    out.push_str(&RESERVED.iter().map(|(name, what)| format!("`{name}` ({what})")).collect::<Vec<_>>().join(", "));
    out.push_str(".\n");
    out
}
