//! The table of all knobs for the documentation.

use super::{ALL, Doc};
use std::fmt::Write;

/// All knobs as a Markdown table, in the order in which they are set.
#[must_use]
pub fn table() -> String {
    let mut out = String::from(
        "| knob | part | file | good value | what it does | why it is set | since | source |\n|---|---|---|---|---|---|---|---|\n",
    );
    for knob in ALL {
        let Doc { what, why, good, since, source } = knob.doc();
        let files: Vec<_> = knob.files().iter().map(|path| format!("`{path}`")).collect();
        let files = if files.is_empty() { "-".to_owned() } else { files.join(" ") };
        writeln!(out, "| {} | {} | {files} | {good} | {what} | {why} | {since} | {source} |", knob.name(), knob.part())
            .expect("a String takes any text");
    }
    out
}
