//! One text made of several files, with the place of each byte in its file.

use crate::diag::{Diagnostic, Severity, summary};
use std::ops::Range;

/// A file that is a part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    name: String,
    text: String,
    /// Offsets of the ends of its lines.
    ends: Vec<usize>,
}

/// A piece of the joined text and its origin. Both have the same length, or the piece replaces the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    end: usize,
    file: usize,
    origin: Range<usize>,
}

/// One text made of several files. The first file is the one that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    text: String,
    files: Vec<File>,
    pieces: Vec<Piece>,
    faults: Vec<Diagnostic>,
    suspect: Vec<Range<usize>>,
}

impl Joined {
    /// The text of a single file.
    #[must_use]
    pub fn single(name: &str, text: &str) -> Self {
        let mut joined = Self::of_files([(name.to_owned(), text.to_owned())]);
        joined.push(0, text, 0..text.len());
        joined
    }

    /// No text yet, of these files: names and texts.
    #[must_use]
    pub fn of_files(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = files.into_iter().map(|(name, text): (String, String)| {
            let ends = text.match_indices('\n').map(|(at, _)| at).collect();
            File { name, text, ends }
        });
        let files = files.collect();
        Self { text: String::new(), files, pieces: Vec::new(), faults: Vec::new(), suspect: Vec::new() }
    }

    /// Appends `text`, which replaces the bytes `origin` of a file.
    pub fn push(&mut self, file: usize, text: &str, origin: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(text);
        self.pieces.push(Piece { start, end: self.text.len(), file, origin });
    }

    /// Adds an error at a place of a file.
    pub fn fault(&mut self, file: usize, span: Range<usize>, message: String, expected: &str, remedy: String) {
        let fault = Diagnostic {
            severity: Severity::Error,
            message,
            expected: expected.to_owned(),
            remedy,
            file: None,
            span: 0..0,
            line: 0,
            column: 0,
        };
        self.faults.push(self.located(fault, file, span));
    }

    /// Marks a range of the text: findings about it are consequences of an error, and are not kept. Nor are findings about
    /// the whole text.
    pub fn suspect(&mut self, span: Range<usize>) {
        self.suspect.push(span);
    }

    /// The same for a range of a file.
    pub fn suspect_origin(&mut self, file: usize, span: Range<usize>) {
        let holds = |piece: &&Piece| piece.file == file && piece.origin.contains(&span.start);
        if let Some(piece) = self.pieces.iter().find(holds) {
            let start = piece.start + (span.start - piece.origin.start);
            self.suspect(start..start + span.len());
        }
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of the first file.
    #[must_use]
    pub fn first(&self) -> &str {
        self.files.first().map_or("", |file| &file.text)
    }

    /// The names of the files, the first one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// The line of an offset, from 1, and the name of its file unless it is the first one.
    #[must_use]
    pub fn line(&self, offset: usize) -> (usize, Option<&str>) {
        let (file, span) = self.place(&(offset..offset));
        let Some(found) = self.files.get(file) else { return (1, None) };
        let line = found.ends.partition_point(|end| *end < span.start) + 1;
        (line, Some(found.name.as_str()).filter(|_| file > 0))
    }

    /// The errors that were found when the files were joined.
    pub(crate) fn faults(&self) -> (&[Diagnostic], &[Range<usize>]) {
        (&self.faults, &self.suspect)
    }

    /// The file of a range, by its start, and the range there.
    pub(crate) fn place(&self, span: &Range<usize>) -> (usize, Range<usize>) {
        let at = self.pieces.partition_point(|piece| piece.start <= span.start).saturating_sub(1);
        let Some(piece) = self.pieces.get(at) else { return (0, span.clone()) };
        let is_copy = piece.end - piece.start == piece.origin.len();
        let start = if is_copy { piece.origin.start + (span.start - piece.start) } else { piece.origin.start };
        // A range ends in its file. Of a piece that replaces another text the whole original is shown.
        let last = self.pieces[at..].iter().take_while(|one| one.file == piece.file && one.start < span.end).last();
        let end = match last {
            Some(last) if last.end - last.start == last.origin.len() => {
                last.origin.start + (span.end.min(last.end) - last.start)
            }
            Some(last) => last.origin.end,
            None => start,
        };
        (piece.file, start..end.max(start))
    }

    pub(crate) fn located(&self, found: Diagnostic, file: usize, span: Range<usize>) -> Diagnostic {
        let File { name, text, .. } = &self.files[file];
        let (line, column) = crate::diag::place(text, span.start);
        Diagnostic { file: (file > 0).then(|| name.clone()), span, line, column, ..found }
    }

    /// Shows all findings with their lines, and a last line that counts them.
    #[must_use]
    pub fn render_all(&self, found: &[Diagnostic]) -> String {
        let mut out = String::new();
        for one in found {
            let file = self.files.iter().find(|file| one.file.as_ref() == Some(&file.name)).or(self.files.first());
            out += &file.map_or(String::new(), |file| one.render(&file.name, &file.text) + "\n");
        }
        out + &summary(found, self.files.first().map_or("", |file| &file.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Diagnostics;

    #[test]
    fn a_finding_has_the_line_of_its_own_file_also_behind_a_replaced_text() {
        let files = [("a".to_owned(), "one\n\"$X\" two\n".to_owned()), ("b".to_owned(), "\nthree\n".to_owned())];
        let mut joined = Joined::of_files(files);
        joined.push(0, "one\n", 0..4);
        joined.push(0, "\"a long value\"", 4..8);
        joined.push(0, " two\n", 8..13);
        joined.push(1, "\nthree\n", 0..7);
        let mut found = Diagnostics::of(&joined);
        for word in ["two", "three", "\"a long value\"", "long"] {
            let at = joined.text().find(word).unwrap();
            found.error(at..at + word.len(), word, "", "");
        }
        let found = found.finish();
        let places: Vec<_> =
            found.iter().map(|one| (one.file.as_deref(), one.line, one.column, one.span.clone())).collect();
        let replaced = (None, 2, 1, 4..8);
        assert_eq!(places, [replaced.clone(), replaced, (None, 2, 6, 9..12), (Some("b"), 2, 1, 1..6)]);
        let shown = joined.render_all(&found);
        assert!(shown.contains("--> a:2:6\n  |\n2 | \"$X\" two\n  |      ^^^"), "{shown}");
        assert!(shown.contains("--> b:2:1\n  |\n2 | three\n"), "{shown}");
        assert!(shown.ends_with("a: 4 errors\n"), "{shown}");
        assert_eq!(joined.line(joined.text().find("three").unwrap()), (2, Some("b")));
    }

    #[test]
    fn findings_in_a_suspect_range_are_consequences_and_are_not_kept() {
        let mut joined = Joined::single("a", "bad\ngood\n");
        joined.fault(0, 0..3, "the cause".to_owned(), "", String::new());
        joined.suspect(0..3);
        let mut found = Diagnostics::with_faults(&joined);
        found.error(0..3, "a consequence", "", "");
        found.error(4..8, "another finding", "", "");
        let messages: Vec<String> = found.finish().into_iter().map(|one| one.message).collect();
        assert_eq!(messages, ["the cause", "another finding"]);
    }
}
