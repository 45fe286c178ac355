//! `cargo xtask test browser`: the dashboard's page in Chromium, with axe-core.

use crate::peers;
use crate::run::Outcome;
use crate::suite::{Show, Suite};
use std::path::PathBuf;

/// The browser driver and the accessibility checker.
const PACKAGES: &[&str] = &["playwright-core@1.65.1", "@axe-core/playwright@4.13.0"];

/// Environment variable with the folder of the modules, read by the tests.
pub(crate) const VARIABLE: &str = "TAHTI_BROWSER";

/// Installs the browser driver and returns the folder of its modules.
pub(crate) fn modules() -> Result<PathBuf, String> {
    peers::node("browser", PACKAGES)
}

/// Tests every panel. The tests that need root are in the stage for root.
pub(crate) fn main() -> Outcome {
    Suite::of("browser")?.env(VARIABLE, modules()?).run(Show::Live)
}
