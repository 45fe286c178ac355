//! `cargo xtask test browser`: the dashboard's page in Chromium, with axe-core, and its metrics in Prometheus.

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

/// Environment variable with the folder of Prometheus' programs, read by the tests.
const PROMETHEUS: &str = "TAHTI_PROMETHEUS";

/// Tests every panel, and the metrics. The tests that need root are in the stage for root.
pub(crate) fn main() -> Outcome {
    // The package's service must not start.
    let prometheus = peers::unpacked("prometheus")?.join("usr/bin");
    Suite::of("browser")?.env(VARIABLE, modules()?).env(PROMETHEUS, prometheus).run(Show::Live)
}
