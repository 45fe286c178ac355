//! The interface of a check, and the list of files that all checks read.

use super::checks::CHECKS;
use super::facts::{Facts, Files, Unknown};
use super::finding::{Finding, Use};

/// A check's name and documentation.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name on the command line and in `--json`; never changes once published.
    pub id: &'static str,
    /// A few words for the left column.
    pub title: &'static str,
    /// The files that the check reads or the action that it tries.
    pub what: &'static str,
    /// Why it matters to real time.
    pub why: &'static str,
    /// Source of that statement.
    pub source: &'static str,
    /// The files it reads. A component may contain `#` (a decimal number) and `*` (any text).
    pub reads: &'static [&'static str],
    /// The uses that this check alone can make unfit. If the check has no result, they get a reservation, because an
    /// unknown fact is never treated as fine.
    pub decides: &'static [Use],
}

/// One question about the machine.
pub trait Check: Sync {
    /// Name and documentation.
    fn about(&self) -> &'static About;

    /// Evaluates the facts.
    ///
    /// # Errors
    /// The missing fact, and why it is missing.
    fn look(&self, facts: &Facts) -> Result<Finding, Unknown>;

    /// Further files, whose paths depend on the files already read.
    fn reads_then(&self, _files: &Files) -> Vec<String> {
        Vec::new()
    }
}

/// Files that the shared methods of [`Facts`] need. They are read for every check.
const COMMON: &[&str] = &[
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/cpuinfo",
    "/proc/self/cgroup",
    "/proc/self/limits",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/version",
    "/proc/uptime",
    "/proc/#/comm",
    "/sys/devices/system/cpu/online",
    "/.dockerenv",
    "/run/.containerenv",
    "/run/systemd/container",
    "/run/systemd/system",
];

/// All path patterns that the checks need, without duplicates.
#[must_use]
pub fn reads() -> Vec<&'static str> {
    let mut patterns: Vec<_> =
        COMMON.iter().chain(CHECKS.iter().flat_map(|check| check.about().reads)).copied().collect();
    patterns.sort_unstable();
    patterns.dedup();
    patterns
}

/// Paths that depend on the files already read: the kernel configuration, whose path contains the release, and further
/// files of the checks.
#[must_use]
pub fn reads_then(files: &Files) -> Vec<String> {
    let mut paths = files.config_paths();
    paths.extend(CHECKS.iter().flat_map(|check| check.reads_then(files)));
    paths.sort_unstable();
    paths.dedup();
    paths
}
