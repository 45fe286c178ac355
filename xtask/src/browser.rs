//! `cargo xtask test browser`: the dashboard's page in Chromium, with axe-core.

use crate::peers;
use crate::run::Outcome;
use crate::suite::{Show, Suite};
use std::process::Command;

/// What drives the browser, and what finds what a screen reader cannot use.
const PACKAGES: &[&str] = &["playwright-core@1.65.1", "@axe-core/playwright@4.13.0"];

/// Sets the browser up and goes through every panel.
pub(crate) fn main() -> Outcome {
    peers::debian(&["chromium-headless-shell"])?;
    // Where Node came from elsewhere it has brought npm, and Debian's package of it cannot be installed beside.
    if Command::new("npm").arg("--version").output().is_err() {
        peers::debian(&["nodejs", "npm"])?;
    }
    let modules = peers::node("browser", PACKAGES)?;
    Suite { programs: vec!["dashboard_page".into()], ..Suite::default() }.env("TAHTI_BROWSER", modules).run(Show::Live)
}
