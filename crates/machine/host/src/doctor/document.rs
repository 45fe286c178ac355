//! The table of all checks for the documentation.

use super::checks::CHECKS;
use std::fmt::Write;

/// All checks as a table in Markdown, in the order of reports.
#[must_use]
pub fn table() -> String {
    let mut out = String::from("| check | what it checks | can make unfit |\n|---|---|---|\n");
    for check in CHECKS {
        let about = check.about();
        let unfit = match about.decides {
            [] => "-".to_owned(),
            uses => uses.iter().map(|wanted| wanted.title()).collect::<Vec<_>>().join(", "),
        };
        let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*");
        writeln!(out, "| `{}` | {} | {unfit} |", about.id, cell(about.what)).expect("a String takes any text");
    }
    out
}
