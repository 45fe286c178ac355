//! The facts of a machine, as a plain value: contents of its files and results of probes.

use super::pattern::{matches_path, numbers};
use super::probe::{Probes, SkipReason};
use base::CpuSet;
use proc::boot_line::BootLine;
use proc::kconfig::Kconfig;
use proc::version::Version;
use std::collections::BTreeMap;
use std::fmt;

/// Input of all checks.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The files that were read.
    pub files: Files,
    /// Results of trials and measurements.
    pub probes: Probes,
}

/// Result of reading one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Its text.
    Text(String),
    /// It is a directory.
    Directory,
    /// The file does not exist.
    Absent,
    /// The kernel refused to read it, with its error.
    Refused(String),
}

/// Why a fact is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SkipReason> for Unknown {
    fn from(why: SkipReason) -> Self {
        Self(why.0)
    }
}

/// A file whose path matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMatch<'a> {
    /// The numbers that matched the pattern's `#`, in order.
    pub numbers: Vec<u32>,
    /// The path.
    pub path: &'a str,
    /// The text without leading and trailing blanks.
    pub text: &'a str,
}

/// The contents of a machine's files by path, and the files that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Whether the files come from a capture. A file that is missing there may exist on the machine.
    captured: bool,
    read: BTreeMap<String, FileContent>,
}

impl Files {
    /// Creates an empty set. `captured` is whether the files come from a capture rather than from the running machine.
    #[must_use]
    pub fn new(captured: bool) -> Self {
        Self { captured, read: BTreeMap::new() }
    }

    /// Adds a file.
    pub fn insert(&mut self, path: impl Into<String>, read: FileContent) {
        self.read.insert(path.into(), read);
    }

    /// Result of reading the file at `path`; `None` if it was not read.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&FileContent> {
        self.read.get(path)
    }

    /// All files, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FileContent)> {
        self.read.iter().map(|(path, read)| (path.as_str(), read))
    }

    /// Whether the files come from a capture.
    #[must_use]
    pub fn is_capture(&self) -> bool {
        self.captured
    }

    /// The text of a file that every machine should have.
    ///
    /// # Errors
    /// Why the text is unknown.
    pub fn text(&self, path: &str) -> Result<&str, Unknown> {
        self.optional(path)?.ok_or_else(|| Unknown(format!("{path} does not exist")))
    }

    /// The text of a file that may be missing; `None` if it does not exist.
    ///
    /// # Errors
    /// Why the text is unknown.
    pub fn optional(&self, path: &str) -> Result<Option<&str>, Unknown> {
        match self.read.get(path) {
            Some(FileContent::Text(text)) => Ok(Some(text)),
            Some(FileContent::Absent) => Ok(None),
            Some(FileContent::Directory) => Err(Unknown(format!("{path} is a directory"))),
            Some(FileContent::Refused(why)) => Err(Unknown(format!("{path} could not be read: {why}"))),
            None if self.captured && self.has_neighbour(path) => Ok(None),
            None if self.captured => Err(Unknown(format!("{path} was not captured"))),
            None => Err(Unknown(format!("{path} was not requested (a fault of this check)"))),
        }
    }

    /// Whether a file or directory exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        matches!(self.read.get(path), Some(FileContent::Text(_) | FileContent::Directory | FileContent::Refused(_)))
    }

    /// A file's text, parsed by `parse`.
    ///
    /// # Errors
    /// Why the text is unknown, or the parse error.
    pub fn parse<T, E: fmt::Display>(
        &self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Unknown> {
        parse(self.text(path)?).map_err(|error| Unknown(format!("{path}: {error}")))
    }

    /// The number in a file.
    ///
    /// # Errors
    /// Why the number is unknown.
    pub fn number(&self, path: &str) -> Result<i64, Unknown> {
        self.parse(path, number)
    }

    /// The number in a file that may be missing; `None` if the file does not exist.
    ///
    /// # Errors
    /// Why the number is unknown.
    pub fn optional_number(&self, path: &str) -> Result<Option<i64>, Unknown> {
        match self.optional(path)? {
            None => Ok(None),
            Some(text) => number(text).map(Some).map_err(|error| Unknown(format!("{path}: {error}"))),
        }
    }

    /// The CPU list in a file; empty if the file does not exist.
    ///
    /// # Errors
    /// Why the list is unknown.
    pub fn cpus(&self, path: &str) -> Result<CpuSet, Unknown> {
        match self.optional(path)?.map(str::trim) {
            None | Some("" | "(null)") => Ok(CpuSet::EMPTY),
            Some(text) => text.parse().map_err(|error| Unknown(format!("{path}: {error}"))),
        }
    }

    /// The readable files that match a pattern.
    pub fn each(&self, pattern: &str) -> impl Iterator<Item = FileMatch<'_>> {
        let fixed = pattern.split(['#', '*']).next().unwrap_or_default();
        self.read.range(fixed.to_owned()..).take_while(move |(path, _)| path.starts_with(fixed)).filter_map(
            move |(path, read)| match read {
                FileContent::Text(text) if matches_path(pattern, path) => {
                    Some(FileMatch { numbers: numbers(pattern, path), path, text: text.trim() })
                }
                _ => None,
            },
        )
    }

    /// Like [`each`](Self::each), but fails if no file matches and a matching file may exist.
    ///
    /// # Errors
    /// Why the files are unknown.
    pub fn some(&self, pattern: &str) -> Result<Vec<FileMatch<'_>>, Unknown> {
        let found: Vec<_> = self.each(pattern).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let refused = self.read.iter().find_map(|(path, read)| match read {
            FileContent::Refused(why) if matches_path(pattern, path) => {
                Some(format!("{path} could not be read: {why}"))
            }
            _ => None,
        });
        match refused {
            Some(why) => Err(Unknown(why)),
            None => self.optional(pattern).map(|_| found),
        }
    }

    /// Possible paths of the kernel's configuration, derived from its release.
    #[must_use]
    pub fn config_paths(&self) -> Vec<String> {
        let Some(FileContent::Text(release)) = self.read.get("/proc/sys/kernel/osrelease") else { return Vec::new() };
        let release = release.trim();
        // A release names a folder here. Names that could lead elsewhere are rejected.
        if release.is_empty() || release.contains('/') || release.starts_with('.') {
            return Vec::new();
        }
        ["/boot/config-", "/usr/lib/modules/", "/lib/modules/"]
            .map(|start| match start {
                "/boot/config-" => format!("{start}{release}"),
                _ => format!("{start}{release}/config"),
            })
            .into()
    }

    /// Whether a capture contains files near `path`. If so, a file that is not in the capture counts as missing on the
    /// machine.
    fn has_neighbour(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let grandparent = parent.rsplit_once('/').map_or("", |(grandparent, _)| grandparent);
        let deep = grandparent.matches('/').count() >= 2;
        let holds = |dir: &str| {
            let fixed = format!("{}/", dir.split(['#', '*']).next().unwrap_or_default().trim_end_matches('/'));
            let fixed = if dir.contains(['#', '*']) { fixed.trim_end_matches('/').to_owned() } else { fixed };
            self.read.range(fixed.clone()..).next().is_some_and(|(found, _)| found.starts_with(&fixed))
        };
        (!parent.is_empty() && holds(parent)) || (deep && holds(grandparent))
    }
}

impl Facts {
    /// The boot line.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn boot_line(&self) -> Result<BootLine, Unknown> {
        Ok(BootLine::parse(self.files.text("/proc/cmdline")?))
    }

    /// The kernel's version.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn kernel(&self) -> Result<Version, Unknown> {
        self.files.parse("/proc/sys/kernel/osrelease", str::parse)
    }

    /// The kernel's configuration.
    ///
    /// # Errors
    /// The paths that were tried.
    pub fn config(&self) -> Result<Kconfig<'_>, Unknown> {
        let paths = self.files.config_paths();
        let all = || std::iter::once("/proc/config.gz").chain(paths.iter().map(String::as_str));
        match all().find_map(|path| self.files.text(path).ok()) {
            Some(text) => Ok(Kconfig::new(text)),
            None => {
                Err(Unknown(format!("no readable kernel configuration in {}", all().collect::<Vec<_>>().join(", "))))
            }
        }
    }

    /// The CPUs that are online.
    ///
    /// # Errors
    /// Why they are unknown.
    pub fn online(&self) -> Result<CpuSet, Unknown> {
        self.files.parse("/sys/devices/system/cpu/online", |text| text.trim().parse::<CpuSet>())
    }

    /// Process ids of the programs with one of these names.
    #[must_use]
    pub fn running(&self, names: &[&str]) -> Vec<(u32, &str)> {
        self.files
            .each("/proc/#/comm")
            .filter(|found| names.contains(&found.text))
            .map(|found| (found.numbers[0], found.text))
            .collect()
    }
}

/// A set of CPUs in words: `CPU 3`, `CPUs 2-3`.
#[must_use]
pub fn named(cpus: &CpuSet) -> String {
    match cpus.count() {
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    }
}

/// The file does not contain a number.
#[derive(Debug, thiserror::Error)]
#[error("expected a number, found {0:?}")]
struct NoNumber(String);

fn number(text: &str) -> Result<i64, NoNumber> {
    let text = text.trim();
    text.parse().map_err(|_| NoNumber(text.chars().take(40).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(captured: bool) -> Files {
        let mut files = Files::new(captured);
        files.insert("/sys/devices/system/cpu/online", FileContent::Text("0-3\n".into()));
        files.insert("/sys/devices/system/cpu/cpu0/cpuidle/state1/name", FileContent::Text("C1\n".into()));
        files.insert("/proc/sys/kernel/x", FileContent::Refused("Permission denied".into()));
        files
    }

    #[test]
    fn a_file_missing_in_a_capture_is_absent_only_if_its_folder_was_captured() {
        let files = files(true);
        assert_eq!(files.optional("/sys/devices/system/cpu/isolated"), Ok(None));
        assert_eq!(files.optional("/sys/devices/system/cpu/smt/active"), Ok(None));
        assert!(files.optional("/sys/kernel/realtime").unwrap_err().0.contains("was not captured"));
        assert!(files.some("/sys/devices/system/cpu/cpu#/cpufreq/scaling_governor").unwrap().is_empty());
        assert!(files.some("/sys/class/net/*/threaded").is_err());
    }

    #[test]
    fn on_the_machine_itself_a_path_that_was_not_read_is_never_absent() {
        assert!(files(false).optional("/sys/devices/system/cpu/isolated").is_err());
    }

    #[test]
    fn a_refusal_keeps_the_reason() {
        assert_eq!(
            files(false).text("/proc/sys/kernel/x").unwrap_err().0,
            "/proc/sys/kernel/x could not be read: Permission denied"
        );
    }

    #[test]
    fn a_malformed_number_is_an_error_with_the_text_found() {
        let mut files = Files::new(false);
        files.insert("/n", FileContent::Text("many\n".into()));
        assert_eq!(files.number("/n").unwrap_err().0, "/n: expected a number, found \"many\"");
    }

    #[test]
    fn a_release_that_is_not_a_plain_name_is_not_used_in_a_path() {
        let mut files = Files::new(true);
        files.insert("/proc/sys/kernel/osrelease", FileContent::Text("../../etc".into()));
        assert!(files.config_paths().is_empty());
    }
}
