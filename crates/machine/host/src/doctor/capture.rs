//! Capture files: the files of a machine as one text, for sending, archiving and later examination.
//!
//! ```text
//! # a comment
//! /proc/sys/kernel/osrelease: 6.12.1-rt5
//! /sys/devices/system/cpu/cpu{0-3}/cpufreq/scaling_governor: performance
//! /proc/interrupts:
//!              CPU0       CPU1
//!    24:          1          0  IO-APIC   5-edge      ACPI:Ged
//! /sys/kernel/debug/sched/preempt! Permission denied
//! /run/systemd/system/
//! -/sys/kernel/realtime
//! ```
//! A value follows the colon on the same line, or on the next lines, each indented by two blanks. `!` is followed by
//! the error that the kernel returned. `/` at the end marks a directory. `-` in front marks a file that does not exist.
//! `{…}` in a path is a list of numbers; the line applies to the path with each of them.

use super::facts::{FileContent, Files};
use base::CpuSet;
use std::fmt::{self, Write};

/// An error in a capture, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// Line number, counted from 1.
    pub line: usize,
    /// The expected syntax.
    pub expected: &'static str,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: expected {}", self.line, self.expected)
    }
}

impl std::error::Error for CaptureError {}

/// Maximum number of files. The checks read fewer files on a machine with 1000 CPUs.
const FILES_MAX: usize = 200_000;

impl Files {
    /// Parses a capture.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn from_capture(text: &str) -> Result<Self, CaptureError> {
        let mut files = Self::new(true);
        let mut count = 0;
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let wrong = |expected| CaptureError { line: index + 1, expected };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(path) = line.strip_prefix('-') {
                files.insert(path, FileContent::Absent);
                continue;
            }
            if !line.starts_with('/') {
                return Err(wrong("a path that begins with / (or two blanks before a further line of a value)"));
            }
            let (path, read) = if let Some((path, value)) = line.split_once(": ") {
                (path, FileContent::Text(value.to_owned()))
            } else if let Some((path, why)) = line.split_once("! ") {
                (path, FileContent::Refused(why.to_owned()))
            } else if let Some(path) = line.strip_suffix(':') {
                let mut value = String::new();
                while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with("  ")) {
                    value.push_str(&more[2..]);
                    value.push('\n');
                }
                (path, FileContent::Text(value))
            } else if let Some(path) = line.strip_suffix('/') {
                (path, FileContent::Directory)
            } else {
                return Err(wrong("a colon and a value, an exclamation mark and a reason, or / at the end"));
            };
            for path in each_number(path).ok_or_else(|| wrong("a list of numbers such as {0-3} in the path"))? {
                count += 1;
                if count > FILES_MAX {
                    return Err(wrong("at most 200000 files"));
                }
                files.insert(path, read.clone());
            }
        }
        Ok(files)
    }

    /// Writes a capture that [`from_capture`](Self::from_capture) parses.
    #[must_use]
    pub fn to_capture(&self) -> String {
        let mut out = String::new();
        for (path, read) in self.iter() {
            // The format cannot represent such paths. No kernel file has such a name.
            if path.contains(['\n', '{']) || path.contains(": ") || path.contains("! ") {
                continue;
            }
            let written = match read {
                FileContent::Absent => writeln!(out, "-{path}"),
                FileContent::Directory => writeln!(out, "{path}/"),
                FileContent::Refused(why) => writeln!(out, "{path}! {}", why.replace('\n', " ")),
                FileContent::Text(text) => {
                    let body = text.strip_suffix('\n').unwrap_or(text);
                    if body.contains(['\n', '\r']) || body.is_empty() {
                        let lines = body.lines().map(|line| format!("  {line}\n")).collect::<String>();
                        write!(out, "{path}:\n{lines}")
                    } else {
                        writeln!(out, "{path}: {body}")
                    }
                }
            };
            written.expect("a String takes any text");
        }
        out
    }
}

/// Replaces `{0-3}` in a path by each of its numbers. `None` if the list is invalid.
fn each_number(path: &str) -> Option<Vec<String>> {
    let Some((start, rest)) = path.split_once('{') else { return Some(vec![path.to_owned()]) };
    let (list, end) = rest.split_once('}')?;
    let numbers: CpuSet = list.parse().ok()?;
    (!numbers.is_empty() && !end.contains('{'))
        .then(|| numbers.iter().map(|number| format!("{start}{number}{end}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_read() {
        let text = "# x\n/a: 1\n\n/cpu{0-1,3}/b: 2\n/c:\n  x\n   y\n/d! Permission denied\n/e/\n/f:\n-/g\n/usb/1-4:1.0/t: Interrupt\n";
        let files = Files::from_capture(text).unwrap();
        assert_eq!(files.number("/cpu3/b"), Ok(2));
        assert_eq!(files.text("/c"), Ok("x\n y\n"));
        assert!(files.text("/d").unwrap_err().0.contains("Permission denied"));
        assert!(files.exists("/e"));
        assert_eq!(files.text("/f"), Ok(""));
        assert_eq!(files.optional("/g"), Ok(None));
        assert_eq!(files.text("/usb/1-4:1.0/t"), Ok("Interrupt"));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [("/a: 1\nb", 2), ("/a", 1), ("/a{x}: 1", 1), ("/a{0-2000}: 1", 1), ("# c\n\n  x", 3)] {
            assert_eq!(Files::from_capture(text).unwrap_err().line, line, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_capture_survives_a_round_trip(texts in proptest::collection::vec("[a-z:!#{} \n]{0,12}", 0..6)) {
            let mut files = Files::new(true);
            for (index, text) in texts.iter().enumerate() {
                files.insert(format!("/p{index}"), FileContent::Text(text.clone()));
            }
            let again = Files::from_capture(&files.to_capture()).unwrap();
            for (index, text) in texts.iter().enumerate() {
                let path = format!("/p{index}");
                prop_assert_eq!(again.text(&path).unwrap().trim_end_matches('\n'), text.trim_end_matches('\n'));
            }
        }

        #[test]
        fn no_text_panics(text in "[/a-z:!#{}0-9 \n-]{0,80}") {
            let _ = Files::from_capture(&text);
        }
    }
}
