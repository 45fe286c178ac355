//! Machines as texts: the files of `/proc`, `/sys` and the cgroup tree that tahti reads, captured or invented.
//!
//! Each file is one entry: `/path: text` for a single line, or `/path:` followed by lines that begin with `|`.
//! Lines that begin with `#` are comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A line that is not a comment, a path or a continuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Text of the line.
    pub found: String,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: expected `/path: text` or `|more text`, found {:?}", self.line, self.found)
    }
}

impl std::error::Error for LineError {}

/// The files of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineText {
    files: BTreeMap<String, String>,
}

impl MachineText {
    /// Parses a text.
    ///
    /// # Errors
    /// A line is not a comment, a path or a continuation. The error has its number.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        let mut open: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            let wrong = || LineError { line: index + 1, found: line.to_owned() };
            if let Some(more) = line.strip_prefix('|') {
                let file = open.as_ref().and_then(|path| files.get_mut(path)).ok_or_else(wrong)?;
                file.push_str(more);
                file.push('\n');
            } else if line.starts_with('/') {
                let (path, text) =
                    line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, ""))).ok_or_else(wrong)?;
                let content = if line.ends_with(':') { String::new() } else { format!("{text}\n") };
                files.insert(path.to_owned(), content);
                open = Some(path.to_owned());
            } else if !line.is_empty() && !line.starts_with('#') {
                return Err(wrong());
            }
        }
        Ok(Self { files })
    }

    /// A machine with these files.
    #[must_use]
    pub fn of(files: BTreeMap<String, String>) -> Self {
        Self { files }
    }

    /// All files by path.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// Content of a file, without its last newlines.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|text| text.trim_end_matches('\n'))
    }

    /// Sets a file and appends a newline.
    pub fn set(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), format!("{text}\n"));
    }

    /// The text in the format of [`MachineText::parse`]. Adds a final newline to files without one.
    #[must_use]
    pub fn print(&self) -> String {
        let mut out = String::new();
        for (path, text) in &self.files {
            let mut lines = text.lines();
            let single =
                (text.lines().count() == 1).then(|| lines.next().unwrap_or_default()).filter(|line| !line.is_empty());
            if let Some(line) = single {
                let _ = writeln!(out, "{path}: {line}");
            } else {
                let _ = writeln!(out, "{path}:");
                for line in text.lines() {
                    let _ = writeln!(out, "|{line}");
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_machine_is_read_back_equal() {
        let text = "# a remark\n/a: one\n\n/b:\n|two\n|  lines\n/empty:\n/newline:\n|\n";
        let machine = MachineText::parse(text).unwrap();
        assert_eq!(machine.get("/a"), Some("one"));
        assert_eq!(machine.files()["/b"], "two\n  lines\n");
        assert_eq!(machine.files()["/empty"], "");
        assert_eq!(machine.files()["/newline"], "\n");
        assert_eq!(MachineText::parse(&machine.print()).unwrap(), machine);
    }

    #[test]
    fn a_malformed_line_is_reported_with_its_number() {
        assert!(MachineText::parse("/a: 1\nnonsense\n").unwrap_err().to_string().starts_with("line 2: expected"));
        assert!(MachineText::parse("|orphan\n").unwrap_err().to_string().starts_with("line 1:"));
        assert!(MachineText::parse("/path-without-colon\n").is_err());
    }
}
