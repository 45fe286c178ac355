//! `cargo xtask test browser`: the dashboard's page in Chromium, with axe-core.

use crate::peers;
use crate::run::Outcome;
use crate::suite::{Show, Suite};
use std::path::PathBuf;

/// What drives the browser, and what finds what a screen reader cannot use.
const PACKAGES: &[&str] = &["playwright-core@1.65.1", "@axe-core/playwright@4.13.0"];

/// By which tests are told where its modules are.
pub(crate) const VARIABLE: &str = "TAHTI_BROWSER";

/// Sets the browser up; the folder of its modules.
pub(crate) fn modules() -> Result<PathBuf, String> {
    peers::node("browser", PACKAGES)
}

/// Goes through every panel; what needs root is of its stage.
pub(crate) fn main() -> Outcome {
    Suite { programs: vec!["dashboard_page".into()], ..Suite::default() }.env(VARIABLE, modules()?).run(Show::Live)
}
