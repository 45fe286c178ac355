//! Collects the facts for `host::doctor`: files below a root directory and, on the running machine, probes and
//! measurements. Makes no decisions.

use super::probe;
use host::doctor::{Facts, FileContent, Files, Probes, gzip, matches_component, reads, reads_then};
use sys::root::RootDir;
use sys::{Errno, Error};

/// Unpacked size limit of a kernel configuration. A real one has about 300 KB.
const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// Maximum files that one pattern may match, for example `/proc/*/comm` on a machine with many tasks.
const FILES_PER_PATTERN_MAX: usize = 100_000;

/// Reads every file that a check needs. Also runs the probes if `root` is the running machine.
///
/// Takes about 10 ms on a small machine. Each probe that changes a thread runs on a temporary thread.
#[must_use]
pub fn gather(root: &RootDir) -> Facts {
    let mut facts = Facts { files: files(root), probes: no_probes() };
    if root.is_machine() {
        facts.probes = probe::all(root, |name| !facts.running(&[name]).is_empty());
    }
    facts
}

/// Reads every file that a check needs.
#[must_use]
pub fn files(root: &RootDir) -> Files {
    let mut files = Files::new(!root.is_machine());
    for pattern in reads() {
        read(root, pattern, &mut files);
    }
    for path in reads_then(&files) {
        read(root, &path, &mut files);
    }
    files
}

/// The probes of a captured machine: none.
#[must_use]
pub fn no_probes() -> Probes {
    Probes::none("not tried: these are captured files, not the running machine")
}

/// Reads the files that match a pattern.
fn read(root: &RootDir, pattern: &str, files: &mut Files) {
    let mut paths = vec![String::new()];
    for component in pattern.split('/').skip(1) {
        let mut longer = Vec::new();
        for dir in &paths {
            if component.contains(['#', '*']) {
                let from = if dir.is_empty() { "/" } else { dir };
                // A missing or unreadable directory has no matching file. The pattern itself is then recorded as absent
                // or refused below.
                let names = root.list(from).unwrap_or_default();
                let fits = names.iter().filter(|name| matches_component(component, name));
                longer.extend(fits.map(|name| format!("{dir}/{name}")));
            } else {
                longer.push(format!("{dir}/{component}"));
            }
        }
        longer.truncate(FILES_PER_PATTERN_MAX);
        paths = longer;
    }
    let one = !pattern.contains(['#', '*']);
    let mut any = false;
    for path in paths {
        match read_one(root, &path) {
            // A capture is incomplete. The checks decide what an absent file means there.
            FileContent::Absent if !one || files.is_capture() => {}
            found => {
                any = true;
                files.insert(path, found);
            }
        }
    }
    if !any && !one {
        let fixed = pattern.split(['#', '*']).next().unwrap_or_default();
        let folder = fixed.rsplit_once('/').map_or("", |(folder, _)| folder);
        match root.list(folder) {
            Err(error) if !absent(error.errno) => files.insert(pattern, refused(&error)),
            _ if files.is_capture() => {}
            _ => files.insert(pattern, FileContent::Absent),
        }
    }
}

fn read_one(root: &RootDir, path: &str) -> FileContent {
    let bytes = match root.read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if absent(error.errno) => return FileContent::Absent,
        Err(error) if error.errno == Errno::ISDIR => return FileContent::Directory,
        Err(error) => return refused(&error),
    };
    let bytes = if path.ends_with(".gz") {
        match gzip::unpack(&bytes, UNPACKED_BYTES_MAX) {
            Ok(text) => text,
            Err(why) => return FileContent::Refused(why.to_string()),
        }
    } else {
        bytes
    };
    FileContent::Text(String::from_utf8_lossy(&bytes).into_owned())
}

/// A task that ended between listing and reading (`ESRCH`) counts as absent, like a missing file.
fn absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::SRCH)
}

fn refused(error: &Error) -> FileContent {
    FileContent::Refused(std::io::Error::from(error.errno).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::doctor::{Severity, Use, examine};

    #[test]
    fn no_check_reads_a_file_that_it_did_not_declare() {
        let report = examine(&gather(&RootDir::machine()), &Use::ALL);
        for entry in report.findings.iter().filter(|entry| entry.severity == Severity::Unknown) {
            assert!(!entry.evidence[0].contains("a fault of this check"), "{}: {:?}", entry.id, entry.evidence);
        }
    }

    #[test]
    fn an_empty_capture_is_unknown_and_never_fine() {
        let empty = std::env::temp_dir().join(format!("tahti-empty-{}", std::process::id()));
        std::fs::create_dir_all(&empty).unwrap();
        let report = examine(&gather(&RootDir::at(&empty)), &Use::ALL);
        std::fs::remove_dir(&empty).unwrap();
        for entry in report.findings {
            assert_eq!(entry.severity, Severity::Unknown, "{}: {:?}", entry.id, entry.evidence);
        }
    }
}
