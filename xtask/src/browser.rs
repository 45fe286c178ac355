//! `cargo xtask test browser`: the dashboard's page in Chromium, with axe-core.

use crate::peers;
use crate::run::Outcome;
use crate::suite::{Show, Suite};

/// What drives the browser, and what finds what a screen reader cannot use.
const PACKAGES: &[&str] = &["playwright-core@1.65.1", "@axe-core/playwright@4.13.0"];

/// Sets the browser up and goes through every panel.
pub(crate) fn main() -> Outcome {
    peers::debian(&["chromium-headless-shell", "nodejs", "npm"])?;
    let modules = peers::node("browser", PACKAGES)?;
    Suite { programs: vec!["dashboard_page".into()], ..Suite::default() }.env("TAHTI_BROWSER", modules).run(Show::Live)
}
