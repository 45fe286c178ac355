//! Checking scripts and databases without running an IOC, with the loaders and messages of the IOC.

use super::{Failed, IocState, Shell};
use crate::store::Store;
use crate::{engine, groups};

/// Commands that are executed in check mode: they load files, or set paths and names. All others are only looked up by name.
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
    "drvModbusAsynConfigure",
    "epicsEnvSet",
    "epicsEnvUnset",
    "iocshCmd*",
    "iocshLoad",
    "iocshRun",
    "makeAutosaveFile*",
    "modbusInterposeConfig",
    "seq",
    "save_restoreSet_*",
    "set_*_path",
    "set_pass*_restoreFile",
    "string*test",
];

impl Shell {
    /// Enables check mode: loading commands are executed, all others are only looked up, and nothing is started.
    pub const fn only_check(&mut self) {
        self.checking = true;
    }

    /// Whether check mode is enabled.
    pub(super) const fn only_checks(&self) -> bool {
        self.checking
    }

    /// Whether a command of a script is executed.
    pub(super) fn runs(&self, name: &str) -> bool {
        !self.checking || RUN.iter().any(|pattern| base::glob(pattern, name))
    }

    /// The names of the records that were loaded, one per line.
    #[must_use]
    pub fn record_names(&mut self) -> String {
        match &mut self.state {
            IocState::Building(db) => super::report::names(db, "", ""),
            _ => String::new(),
        }
    }

    /// Errors in everything that was loaded, as the IOC would report them at start: access rules, links, device addresses,
    /// protocols. Opens no thread, socket or port. The shell cannot be used afterwards.
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
        let definitions = self.definitions(&db);
        let shards = groups::divide(&mut db, &mut self.groups).unwrap_or_else(|why| {
            found.push(format!("scan: {why}"));
            Vec::new()
        });
        db.init(engine::now());
        found.extend(Store::check_groups(&db, definitions));
        found.extend(std::iter::once(*db).chain(shards).flat_map(|mut db| db.take_notices()).map(|notice| notice.0));
        found
    }
}
