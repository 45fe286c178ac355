//! Checking what an IOC is told, without running it: the loaders are its own, and so are their words.

use super::{Failed, IocState, Shell};
use crate::{engine, groups};

/// Commands that scripts run while they are checked: they load, or say where things are and how they are called. All others
/// are looked up by their name alone.
const RUN: &[&str] = &[
    "asSetFilename",
    "asSetSubstitutions",
    "asynOctetSet*Eos",
    "asynSetOption",
    "cd",
    "chdir",
    "create_*_set",
    "dbLoad*",
    "dlload",
    "drvAsyn*Configure",
    "epicsEnvSet",
    "epicsEnvUnset",
    "iocshCmd",
    "iocshLoad",
    "iocshRun",
    "makeAutosaveFile*",
    "save_restoreSet_*",
    "set_*_path",
    "set_pass*_restoreFile",
];

impl Shell {
    /// From now on scripts are checked: what loads runs, everything else is only looked up, and nothing is started.
    pub const fn only_check(&mut self) {
        self.checking = true;
    }

    /// Whether nothing is but checked.
    pub(super) const fn only_checks(&self) -> bool {
        self.checking
    }

    /// Whether a command of a script runs.
    pub(super) fn runs(&self, name: &str) -> bool {
        !self.checking || RUN.iter().any(|pattern| base::glob(pattern, name))
    }

    /// What is wrong with all that was loaded, as the IOC would say it when it starts: access rules, links, addresses of
    /// equipment, protocols. No thread, socket or port is opened; the shell is of no further use.
    pub fn check(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        if let Err(Failed(what)) = self.read_rules() {
            found.push(what);
        }
        let IocState::Building(mut db) = std::mem::replace(&mut self.state, IocState::Gone) else { return found };
        for (name, value) in &self.env {
            db.set_environment(name, value);
        }
        self.devices.ports.set_environment(|name| self.env.get(name).cloned());
        found.extend(self.check_saves(&db));
        let shards = groups::divide(&mut db, &mut self.groups).unwrap_or_else(|why| {
            found.push(format!("scan: {why}"));
            Vec::new()
        });
        db.init(engine::now());
        found.extend(std::iter::once(*db).chain(shards).flat_map(|mut db| db.take_notices()).map(|notice| notice.0));
        found
    }
}
