//! The file of an alarm process, whose changes a reload applies by a restart.

use super::site::Site;
use host::plant::Process;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Device, inode, size and time of the last change (seconds, nanoseconds) of a file; `None` if it does not exist.
pub(crate) type Version = Option<(u64, u64, u64, i64, i64)>;

/// The alarm file in a process's command; `None` if it has none.
pub(crate) fn file(command: &[String]) -> Option<&str> {
    match command.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tahti", "alarm", "serve", file, ..] if !file.starts_with("--") => Some(file),
        _ => None,
    }
}

/// The present version of a process's file.
pub(crate) fn version(site: &Site, process: &Process) -> Version {
    let facts = fs::metadata(site.dir(process).join(file(&process.command)?)).ok()?;
    Some((facts.dev(), facts.ino(), facts.size(), facts.mtime(), facts.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_alarm_process_with_a_file_has_one() {
        let of = |words: &[&str]| {
            let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            file(&command).map(str::to_owned)
        };
        assert_eq!(of(&["tahti", "alarm", "serve", "a.toml", "--plant", "rf"]).as_deref(), Some("a.toml"));
        assert_eq!(of(&["tahti", "alarm", "serve", "--table", "[alarms]"]), None);
        assert_eq!(of(&["other", "alarm", "serve", "a.toml"]), None);
    }
}
