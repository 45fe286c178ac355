//! An IOC, and the archive of its records.

use crate::Folder;
use crate::epics::program;
use crate::ioc::Ioc;
use crate::process::Running;
use std::path::PathBuf;
use std::process::Output;

/// A record that counts ten times per second. Missing and duplicate values are detectable.
pub const COUNTER: &str =
    "record(calc, \"X:COUNT\") { field(SCAN, \".1 second\") field(INPA, \"X:COUNT\") field(CALC, \"A+1\") }\n";

/// An IOC, and an archive configuration for its records.
pub struct Archived {
    /// The IOC.
    pub ioc: Ioc,
    /// Folder of the configuration, and base of the archive's path.
    pub folder: Folder,
    /// The configuration file.
    pub file: PathBuf,
    /// Path of the archive, relative to the folder.
    at: &'static str,
}

impl Archived {
    /// Starts an IOC with a database. `at` is the path of the archive, and `says` has further keys of `[archive]`.
    #[must_use]
    pub fn new(database: &str, at: &'static str, says: &str) -> Self {
        Self::of(Ioc::start(&[("a.db", database)], &["-d", "a.db"]), at, says)
    }

    /// As [`new`](Self::new), with an IOC that is already running.
    #[must_use]
    pub fn of(ioc: Ioc, at: &'static str, says: &str) -> Self {
        let folder = Folder::new();
        let file = folder.write("archive.toml", &format!("[archive]\nfolder = \"{at}\"\n{says}"));
        Self { ioc, folder, file, at }
    }

    /// Starts the logger and waits until it prints `says`.
    #[must_use]
    pub fn serve(&self, says: &str) -> Running {
        let mut command = program(true, "archive", self.ioc.port);
        Running::until(command.current_dir(&self.folder.0).arg("serve").arg(&self.file), says)
    }

    /// Runs `tahti archive VERB` on the archive.
    pub fn ask(&self, verb: &str, words: &[&str]) -> Output {
        let mut command = program(true, "archive", self.ioc.port);
        command.current_dir(&self.folder.0).args([verb, self.at]).args(words).output().expect("it runs")
    }

    /// Output of `tahti archive VERB`.
    ///
    /// # Panics
    /// The command fails.
    pub fn good(&self, verb: &str, words: &[&str]) -> String {
        let output = self.ask(verb, words);
        assert!(output.status.success(), "{verb} {words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Values of [`COUNTER`] in the archive. Empty if it cannot be read.
    pub fn counts(&self) -> Vec<u64> {
        let output = self.ask("get", &["X:COUNT", "--from", "-1h", "--format", "csv"]);
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().skip(1).filter_map(|line| Some(line.split(',').nth(2)?.parse::<f64>().ok()? as u64)).collect()
    }
}
