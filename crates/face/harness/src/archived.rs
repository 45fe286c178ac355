//! An IOC, and the archive of what it serves.

use crate::Folder;
use crate::epics::program;
use crate::ioc::Ioc;
use crate::process::Running;
use std::path::PathBuf;
use std::process::Output;

/// A record that counts ten times a second: a value that is missing or twice is seen.
pub const COUNTER: &str =
    "record(calc, \"X:COUNT\") { field(SCAN, \".1 second\") field(INPA, \"X:COUNT\") field(CALC, \"A+1\") }\n";

/// Who serves records, and a file that says what of them is archived where.
pub struct Archived {
    /// Who serves them.
    pub ioc: Ioc,
    /// Where the file is, and the archive is sought from.
    pub folder: Folder,
    /// The file.
    pub file: PathBuf,
    /// The archive, from the folder.
    at: &'static str,
}

impl Archived {
    /// Records, the archive's place, and what `[archive]` says besides.
    #[must_use]
    pub fn new(database: &str, at: &'static str, says: &str) -> Self {
        Self::of(Ioc::start(&[("a.db", database)], &["-d", "a.db"]), at, says)
    }

    /// As [`new`](Self::new), of an IOC that is up.
    #[must_use]
    pub fn of(ioc: Ioc, at: &'static str, says: &str) -> Self {
        let folder = Folder::new();
        let file = folder.write("archive.toml", &format!("[archive]\nfolder = \"{at}\"\n{says}"));
        Self { ioc, folder, file, at }
    }

    /// Starts the logger, until it says this.
    #[must_use]
    pub fn serve(&self, says: &str) -> Running {
        let mut command = program(true, "archive", self.ioc.port);
        Running::until(command.current_dir(&self.folder.0).arg("serve").arg(&self.file), says)
    }

    /// `tahti archive VERB` of the archive.
    pub fn ask(&self, verb: &str, words: &[&str]) -> Output {
        let mut command = program(true, "archive", self.ioc.port);
        command.current_dir(&self.folder.0).args([verb, self.at]).args(words).output().expect("it runs")
    }

    /// What it prints.
    ///
    /// # Panics
    /// Where it fails.
    pub fn good(&self, verb: &str, words: &[&str]) -> String {
        let output = self.ask(verb, words);
        assert!(output.status.success(), "{verb} {words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// What the archive has of [`COUNTER`]; nothing where it cannot be read.
    pub fn counts(&self) -> Vec<u64> {
        let output = self.ask("get", &["X:COUNT", "--from", "-1h", "--format", "csv"]);
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().skip(1).filter_map(|line| Some(line.split(',').nth(2)?.parse::<f64>().ok()? as u64)).collect()
    }
}
