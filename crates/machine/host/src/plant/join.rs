//! A plant of several files: `include`, and the variables of `[variables]`.
//!
//! The files are joined to one text, which is read like a single plant file. `include` and `[variables]` are replaced
//! by blanks. Files and environment variables are read through [`Files`].

use super::TEXT_BYTES_MAX;
use super::variables::{self, Variables, filled};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use table::{Joined, NotUtf8, clipped};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum depth of nested `include`s.
const DEPTH_MAX: usize = 8;
/// Maximum number of files of a plant.
const FILES_MAX: usize = 64;
/// Tables that can occur several times.
const LISTS: [&str; 9] = ["process", "partition", "ioc", "equipment", "frame", "area", "alarm", "signal", "guest"];

/// The reason why a file or a variable of the environment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The operating system refuses a path.
    #[error("{}: {error}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The operating system refuses the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A folder or a device.
    #[error("it is no regular file")]
    NoFile,
    /// The file has more than [`TEXT_BYTES_MAX`] bytes.
    #[error("it has {0} bytes; at most {TEXT_BYTES_MAX}")]
    TooLarge(u64),
    /// A file in another encoding.
    #[error(transparent)]
    NotUtf8(#[from] NotUtf8),
    /// A variable in another encoding.
    #[error("{0:?} is no UTF-8")]
    Variable(OsString),
}

/// Access to files and environment variables of the machine.
pub trait Files {
    /// Finds the files that match a pattern, sorted. Only the last component may contain `*` and `?`. A relative
    /// pattern begins in `folder`.
    ///
    /// # Errors
    /// There is no such file or folder.
    fn find(&mut self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, Unreadable>;
    /// The text of a file.
    ///
    /// # Errors
    /// It cannot be read, is not UTF-8, or is larger than [`TEXT_BYTES_MAX`].
    fn text(&mut self, file: &Path) -> Result<String, Unreadable>;
    /// A variable of the environment.
    ///
    /// # Errors
    /// Its value is not UTF-8.
    fn variable(&self, name: &str) -> Result<Option<String>, Unreadable>;
}

/// A change of a file's text.
pub(super) enum Edit {
    /// Replaces the text by blanks, so that offsets stay valid.
    Blank(Range<usize>),
    /// A quoted text and its content, which may refer to variables.
    Fill(Range<usize>, String),
}

impl Edit {
    fn span(&self) -> &Range<usize> {
        match self {
            Self::Blank(span) | Self::Fill(span, _) => span,
        }
    }
}

/// A file of the plant.
struct Part {
    file: PathBuf,
    text: String,
    edits: Vec<Edit>,
    /// Whether the file is not valid TOML. Its text is kept, so that its errors are reported.
    is_broken: bool,
    /// Tables that may occur once, with the position of their names.
    once: Vec<(String, Range<usize>)>,
}

/// An error in a part.
pub(super) struct Fault {
    pub(super) part: usize,
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) expected: &'static str,
    pub(super) remedy: String,
}

struct Reader<'a> {
    files: &'a mut dyn Files,
    parts: Vec<Part>,
    faults: Vec<Fault>,
    variables: Variables,
    bytes: usize,
}

/// Joins a plant file with the files that it includes, and replaces variables.
#[must_use]
pub fn join(file: &Path, text: String, files: &mut dyn Files) -> Joined {
    let mut reader =
        Reader { files, parts: Vec::new(), faults: Vec::new(), variables: Variables::default(), bytes: text.len() };
    if text.len() > TEXT_BYTES_MAX {
        // The check refuses such a file.
        return Joined::single(&file.display().to_string(), &text);
    }
    reader.visit(file.to_owned(), text, &mut Vec::new());
    reader.joined()
}

impl Reader<'_> {
    /// Reads a file and the files that it includes. `above` is the path of parts that leads to it.
    fn visit(&mut self, file: PathBuf, text: String, above: &mut Vec<usize>) {
        let part = self.parts.len();
        let (root, errors) = DeTable::parse_recoverable(&text);
        let root = root.get_ref();
        let (mut edits, mut once) = (Vec::new(), Vec::new());
        let mut has_variables = false;
        let mut included = Vec::new();
        for (key, value) in root {
            let word: &str = key.get_ref();
            match word {
                "include" => included = self.included(part, &text, key.span(), value, &mut edits),
                "variables" => {
                    has_variables = true;
                    variables::read(part, &text, value, &mut self.variables, &mut edits, &mut self.faults);
                }
                _ if part > 0 => self.shape(part, &text, key.span(), word, value),
                _ => {}
            }
            if !LISTS.contains(&word) && !matches!(word, "include" | "variables") {
                once.push((word.to_owned(), key.span()));
            }
        }
        if has_variables {
            root.iter().filter(|(key, _)| key.get_ref() != "variables").for_each(|(_, value)| texts(value, &mut edits));
        }
        // Positions in a text that is not valid TOML can be wrong.
        edits.retain(|edit| text.get(edit.span().clone()).is_some());
        edits.sort_by_key(|edit| edit.span().start);
        let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
        self.parts.push(Part { file, is_broken: !errors.is_empty(), edits, once, text: text.clone() });
        above.push(part);
        for (pattern, span) in included {
            self.include(&folder, &pattern, span, above);
        }
        above.pop();
    }

    /// Reads the patterns of `include` and replaces the key by blanks.
    fn included(
        &mut self,
        part: usize,
        text: &str,
        key: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        edits: &mut Vec<Edit>,
    ) -> Vec<(String, Range<usize>)> {
        let mut patterns = Vec::new();
        let items = value.get_ref().as_array();
        for item in items.into_iter().flat_map(|items| items.iter()) {
            if let Some(pattern) = item.get_ref().as_str().filter(|text| !text.is_empty()) {
                patterns.push((pattern.to_owned(), item.span()));
            }
        }
        if items.is_none_or(|items| items.len() != patterns.len()) {
            let message = "`include` is no list of files".to_owned();
            let remedy = "for example `include = [\"common.toml\", \"parts/*.toml\"]`".to_owned();
            self.fault(part, value.span(), message, "a list of paths in quotes", remedy);
        }
        if is_assigned(text, &key) {
            edits.push(Edit::Blank(key.start..value.span().end));
        }
        patterns
    }

    fn include(&mut self, folder: &Path, pattern: &str, span: Range<usize>, above: &mut Vec<usize>) {
        let part = above.last().copied().unwrap_or_default();
        let files = match self.files.find(folder, pattern) {
            Ok(files) => files,
            Err(why) => {
                let message = format!("`include` names {:?}, which cannot be read: {why}", clipped(pattern));
                self.fault(part, span, message, "a plant file, relative to this one", String::new());
                return;
            }
        };
        for file in files {
            if let Some(at) = above.iter().position(|part| self.parts[*part].file == file) {
                let shown = |part: &usize| self.parts[*part].file.display().to_string();
                let mut path: Vec<String> = above[at..].iter().map(shown).collect();
                path.push(file.display().to_string());
                let message = format!("files include each other: {}", path.join(" includes "));
                self.fault(part, span.clone(), message, "files without a cycle", "remove this `include`".to_owned());
            } else if self.parts.iter().any(|part| part.file == file) {
                // Several files may include the same file.
            } else if above.len() > DEPTH_MAX {
                let message = format!("{} is included through {DEPTH_MAX} files", file.display());
                self.fault(part, span.clone(), message, "at most 8", "include it further up".to_owned());
            } else if self.parts.len() >= FILES_MAX {
                let message = format!("the plant has more than {FILES_MAX} files");
                self.fault(part, span.clone(), message, "at most 64", "join some of them".to_owned());
                return;
            } else {
                match self.files.text(&file) {
                    Ok(text) if self.bytes + text.len() > TEXT_BYTES_MAX => {
                        let message = format!("with {} the plant has more than {TEXT_BYTES_MAX} bytes", file.display());
                        self.fault(part, span.clone(), message, "at most 1 MiB in all files", String::new());
                    }
                    Ok(text) => {
                        self.bytes += text.len();
                        self.visit(file, text, above);
                    }
                    Err(why) => {
                        let message = format!("{} cannot be included: {why}", file.display());
                        self.fault(part, span.clone(), message, "a plant file", String::new());
                    }
                }
            }
        }
    }

    /// Checks whether a table of an included file stays complete when the text of another file precedes it.
    fn shape(&mut self, part: usize, text: &str, key: Range<usize>, word: &str, value: &Spanned<DeValue<'_>>) {
        if is_assigned(text, &key) {
            let message = format!("`{}` before the first table of an included file", clipped(word));
            let remedy = if LISTS.contains(&word) { format!("write [[{word}]]") } else { format!("write [{word}]") };
            self.fault(part, key, message, "only `include` there", remedy);
        } else if LISTS.contains(&word) && value.get_ref().is_table() {
            let message = format!("a part of [[{word}]] in a file that has no [[{word}]] above it");
            self.fault(part, key, message, "the whole table in one file", "move it to that file".to_owned());
        }
    }

    fn fault(
        &mut self,
        part: usize,
        span: Range<usize>,
        message: String,
        expected: &'static str,
        remedy: impl Into<String>,
    ) {
        self.faults.push(Fault { part, span, message, expected, remedy: remedy.into() });
    }

    fn joined(mut self) -> Joined {
        let files: Vec<_> =
            self.parts.iter().map(|part| (part.file.display().to_string(), part.text.clone())).collect();
        let mut joined = Joined::of_files(files);
        let doubles = self.doubles();
        if !self.faults.is_empty() {
            // Members may be missing, so errors about sums and names are not reported.
            joined.suspect(usize::MAX..usize::MAX);
        }
        for part in 0..self.parts.len() {
            let text = std::mem::take(&mut self.parts[part].text);
            let edits = std::mem::take(&mut self.parts[part].edits);
            let mut at = 0;
            for edit in edits {
                // This edit is inside the previous one.
                if edit.span().start < at {
                    continue;
                }
                joined.push(part, &text[at..edit.span().start], at..edit.span().start);
                at = edit.span().end;
                self.edit(part, &text, edit, &mut joined);
            }
            joined.push(part, &text[at..], at..text.len());
            if !text.ends_with('\n') {
                joined.push(part, "\n", text.len()..text.len());
            }
        }
        doubles.into_iter().for_each(|(part, span)| joined.suspect_origin(part, span));
        for Fault { part, span, message, expected, remedy } in self.faults {
            joined.fault(part, span, message, expected, remedy);
        }
        joined
    }

    fn edit(&mut self, part: usize, text: &str, edit: Edit, joined: &mut Joined) {
        let origin = edit.span().clone();
        let original = &text[origin.clone()];
        let start = joined.text().len();
        match edit {
            Edit::Blank(_) => {
                let blank: String = original.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
                joined.push(part, &blank, origin);
            }
            Edit::Fill(_, content) => {
                let filled = filled(&content, &self.variables, &*self.files);
                if let Ok(text) = &filled
                    && !self.parts[part].is_broken
                {
                    joined.push(part, &quoted(text), origin.clone());
                } else {
                    joined.push(part, original, origin.clone());
                    joined.suspect(start..start + original.len());
                }
                // In a text that is not valid TOML this may be a consequential error.
                if let Err(wrong) = filled
                    && !self.parts[part].is_broken
                {
                    let at = original
                        .find(&wrong.reference)
                        .map_or(origin.clone(), |at| origin.start + at..origin.start + at + wrong.reference.len());
                    self.faults.push(Fault {
                        part,
                        span: at,
                        message: wrong.message,
                        expected: wrong.expected,
                        remedy: wrong.remedy,
                    });
                }
            }
        }
    }

    /// Tables that may occur in one file only: all occurrences after the first file that has the table.
    fn doubles(&mut self) -> Vec<(usize, Range<usize>)> {
        let mut doubles = Vec::new();
        for part in 1..self.parts.len() {
            for (word, span) in &self.parts[part].once {
                let earlier = self.parts[..part]
                    .iter()
                    .find_map(|other| other.once.iter().find(|(name, _)| name == word).map(|(_, span)| (other, span)));
                let Some((other, first)) = earlier else { continue };
                let line = other.text.as_bytes()[..first.start].iter().filter(|byte| **byte == b'\n').count() + 1;
                self.faults.push(Fault {
                    part,
                    span: span.clone(),
                    message: format!("[{}] is already in {}:{line}", clipped(word), other.file.display()),
                    expected: "this table in one file",
                    remedy: "remove one of them, or join them".to_owned(),
                });
                doubles.push((part, span.clone()));
            }
        }
        doubles
    }
}

/// Whether a key at the top of a file is assigned a value there, in contrast to the name of a `[table]`.
fn is_assigned(text: &str, key: &Range<usize>) -> bool {
    let before = text.get(..key.start).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    !before[line..].trim_start().starts_with('[')
}

/// Finds the quoted texts in a value that refer to variables.
fn texts(value: &Spanned<DeValue<'_>>, edits: &mut Vec<Edit>) {
    match value.get_ref() {
        DeValue::String(text) if text.contains("${") => edits.push(Edit::Fill(value.span(), text.to_string())),
        DeValue::Array(items) => items.iter().for_each(|item| texts(item, edits)),
        DeValue::Table(table) => table.iter().for_each(|(_, value)| texts(value, edits)),
        _ => {}
    }
}

/// Quotes a text for TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\U{:08X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
