//! The newest log lines of the plant, for all clients together.
//!
//! Memory: at most [`LINES_MAX`] lines with [`BYTES_MAX`] bytes of text, and of each process up to [`OLDER_MAX`] older ones with
//! [`OLDER_BYTES_MAX`], so that a process that writes much does not hide the lines of the others. The logs are read only if a client asks.

use crate::refused::Refused;
pub use keep::supervisor::logs::Level;
use keep::supervisor::logs::{Line, Reader};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Maximum lines kept.
const LINES_MAX: usize = 5000;
/// Maximum bytes of text kept.
const BYTES_MAX: usize = 2 << 20;
/// Maximum older lines kept of each process.
const OLDER_MAX: usize = 20;
/// Maximum bytes of text in them.
const OLDER_BYTES_MAX: usize = 16 << 10;
/// Maximum lines in an answer, the newest.
const ANSWER_MAX: usize = 500;

/// Which lines a client wants.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Only lines after this number, from the last answer; 0 for all.
    pub after: u64,
    /// Name of a process; empty for the supervisor; `None` for all.
    pub process: Option<String>,
    /// Minimum severity.
    pub level: Level,
    /// Text in the line, in any case; empty for all lines.
    pub text: String,
}

/// The lines.
pub(crate) struct Logs {
    reader: Reader,
    lines: VecDeque<(u64, Level, Line)>,
    bytes: usize,
    /// The newest lines of each process that are no longer in `lines`.
    older: BTreeMap<String, VecDeque<(u64, Level, Line)>>,
    /// Number of the newest line.
    newest: u64,
}

impl Logs {
    pub(crate) fn new(reader: Reader) -> Self {
        Self { reader, lines: VecDeque::new(), bytes: 0, older: BTreeMap::new(), newest: 0 }
    }

    /// The lines that pass the filter, oldest first: number, stamp, process, severity, text. With the logs that cannot be read.
    pub(crate) fn look(&mut self, filter: &Filter) -> Result<Value, Refused> {
        let fresh = self.reader.fresh().map_err(Refused::Logs)?;
        fresh.into_iter().for_each(|line| self.push(line));
        let text = filter.text.to_lowercase();
        let fits = |(_, level, line): &&(u64, Level, Line)| {
            *level >= filter.level
                && filter.process.as_ref().is_none_or(|name| *name == line.process)
                && line.contains(&text)
        };
        let mut older: Vec<_> = self.older.values().flatten().collect();
        older.sort_unstable_by_key(|(number, _, _)| *number);
        let newest_first = self.lines.iter().rev().chain(older.into_iter().rev());
        let mut lines: Vec<Value> = newest_first
            .take_while(|(number, _, _)| *number > filter.after)
            .filter(fits)
            .take(ANSWER_MAX)
            .map(|(number, level, line)| json!([number, line.stamp, line.process, level, line.text]))
            .collect();
        lines.reverse();
        let (processes, unreadable) = (self.reader.names(), self.reader.unreadable());
        Ok(json!({ "lines": lines, "newest": self.newest, "processes": processes, "unreadable": unreadable }))
    }

    fn push(&mut self, line: Line) {
        self.newest += 1;
        self.bytes += line.text.len();
        self.lines.push_back((self.newest, line.level, line));
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(old) = self.lines.pop_front() else { break };
            self.bytes -= old.2.text.len();
            let older = self.older.entry(old.2.process.clone()).or_default();
            older.push_back(old);
            while older.len() > OLDER_MAX
                || older.iter().map(|(_, _, line)| line.text.len()).sum::<usize>() > OLDER_BYTES_MAX
            {
                older.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keep::supervisor::logs::Origin;

    fn filter(after: u64) -> Filter {
        Filter { after, process: None, level: Level::Info, text: String::new() }
    }

    fn logs(lines: &[(&str, Origin, &str)]) -> Logs {
        let mut logs = Logs::new(Reader::of_folder(std::env::temp_dir()));
        for (process, origin, text) in lines {
            let mark = if *origin == Origin::Error { "[err] " } else { "" };
            logs.push(Line::parse(process, format!("{mark}{text}").as_bytes(), "2026-11-27T05:00:00.000Z"));
        }
        logs
    }

    #[test]
    fn lines_pass_by_process_severity_and_text_and_only_newer_ones_are_sent_again() {
        let some = [
            ("a", Origin::Output, "all is well"),
            ("a", Origin::Error, "pump slow"),
            ("b", Origin::Output, "ERROR: no water"),
            ("", Origin::Tahti, "b: started"),
        ];
        let run = std::env::temp_dir().join(format!("tahti-dash-logs-{}", std::process::id()));
        std::fs::create_dir_all(&run).unwrap();
        let mut logs = logs(&some);
        logs.reader = Reader::of_folder(run.clone());
        let mut numbers = |filter: Filter| -> Vec<u64> {
            let answer = logs.look(&filter).unwrap();
            answer["lines"].as_array().unwrap().iter().map(|line| line[0].as_u64().unwrap()).collect()
        };
        assert_eq!(numbers(filter(0)), [1, 2, 3, 4]);
        assert_eq!(numbers(filter(2)), [3, 4]);
        assert_eq!(numbers(Filter { level: Level::Warning, ..filter(0) }), [2, 3]);
        assert_eq!(numbers(Filter { level: Level::Error, ..filter(0) }), [3]);
        assert_eq!(numbers(Filter { process: Some("a".into()), ..filter(0) }), [1, 2]);
        assert_eq!(numbers(Filter { process: Some(String::new()), ..filter(0) }), [4]);
        assert_eq!(numbers(Filter { text: "Water".into(), ..filter(0) }), [3]);
        std::fs::remove_dir_all(run).unwrap();
    }

    #[test]
    fn a_process_that_writes_much_does_not_hide_the_last_lines_of_another() {
        let run = std::env::temp_dir().join(format!("tahti-dash-quiet-{}", std::process::id()));
        std::fs::create_dir_all(&run).unwrap();
        let mut logs = logs(&[("quiet", Origin::Output, "armed"), ("quiet", Origin::Output, "at rate")]);
        logs.reader = Reader::of_folder(run.clone());
        for _ in 0..2 * LINES_MAX {
            logs.push(Line::parse("a", b"x", ""));
        }
        let answer = logs.look(&Filter { process: Some("quiet".into()), ..filter(0) }).unwrap();
        let texts: Vec<_> = answer["lines"].as_array().unwrap().iter().map(|line| line[4].clone()).collect();
        assert_eq!(texts, ["armed", "at rate"]);
        let all = logs.look(&filter(0)).unwrap();
        assert_eq!(all["lines"].as_array().unwrap().len(), ANSWER_MAX);
        assert_eq!(logs.look(&filter(logs.newest)).unwrap()["lines"], json!([]));
        assert_eq!(logs.older["a"].len(), OLDER_MAX);
        std::fs::remove_dir_all(run).unwrap();
    }

    #[test]
    fn memory_for_lines_is_bounded() {
        let mut logs = logs(&[]);
        let long = "x".repeat(1000);
        for _ in 0..LINES_MAX {
            logs.push(Line::parse("a", long.as_bytes(), ""));
        }
        assert!(logs.bytes <= BYTES_MAX && logs.lines.len() == BYTES_MAX / 1000, "{} lines", logs.lines.len());
        for _ in 0..2 * LINES_MAX {
            logs.push(Line::parse("a", b"x", ""));
        }
        assert_eq!((logs.lines.len(), logs.bytes), (LINES_MAX, LINES_MAX));
        assert_eq!(logs.newest, 3 * LINES_MAX as u64);
    }
}
