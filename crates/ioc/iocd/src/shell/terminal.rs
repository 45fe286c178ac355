//! The interpreter on a terminal: line editing, history, completion of commands, records and files.

use super::commands;
use crate::engine::Mailbox;
use base::Visible;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use rustix::time::Timespec;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use std::io::{self, BufRead as _};
use std::sync::{Arc, OnceLock};

/// Maximum number of record names offered for completion.
const NAMES_MAX: usize = 200;

/// Terminal settings before the first line was read.
static BEFORE: OnceLock<Termios> = OnceLock::new();

/// Restores the terminal settings if the process ends during line editing.
pub(super) fn restore() {
    if let Some(before) = BEFORE.get() {
        // A closed terminal needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
    }
}

/// Result of reading a line.
pub(super) enum Entered {
    Line(String),
    /// Ctrl-C: the line is discarded.
    Nothing,
    /// End of input.
    End,
}

/// Period at which an unattached terminal is checked.
const WATCH_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// The reason why lines cannot be edited.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoEditing {
    #[error(transparent)]
    Settings(#[from] rustix::io::Errno),
    #[error(transparent)]
    Editor(#[from] ReadlineError),
}

/// Reads lines from a terminal.
pub(super) struct Terminal {
    editor: Editor<Completing, MemHistory>,
    /// Whether a keeper logs the terminal. Line editing, with its escape sequences, then starts when a user attaches.
    logged: bool,
}

impl Terminal {
    /// Opens the terminal and keeps `lines` of history. `ioc` provides record names once it runs.
    ///
    /// # Errors
    /// If the terminal's settings cannot be read.
    pub(super) fn open(lines: usize, ioc: Arc<OnceLock<Mailbox>>) -> Result<Self, NoEditing> {
        let settings = tcgetattr(io::stdin())?;
        let _ = BEFORE.set(settings);
        let config = Config::builder().max_history_size(lines)?;
        let config = config.auto_add_history(true).completion_type(rustyline::CompletionType::List).build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history)?;
        editor.set_helper(Some(Completing { files: FilenameCompleter::new(), ioc }));
        Ok(Self { editor, logged: std::env::var_os("TAHTI_PROCESS").is_some() })
    }

    /// Reads the next line.
    pub(super) fn read(&mut self, prompt: &str) -> Entered {
        if self.logged
            && let Some(entered) = plain(prompt)
        {
            return entered;
        }
        match self.editor.readline(prompt) {
            Ok(line) => Entered::Line(line),
            Err(ReadlineError::Interrupted) => Entered::Nothing,
            Err(ReadlineError::Eof) => Entered::End,
            Err(error) => {
                eprintln!("terminal: {error}");
                Entered::End
            }
        }
    }
}

/// Whether the terminal has a size. A keeper's terminal has none until a user attaches.
fn is_watched() -> bool {
    tcgetwinsize(io::stdout()).is_ok_and(|size| size.ws_row > 0)
}

/// Reads a line with the kernel's line editing; `None` if the terminal gets a size first.
fn plain(prompt: &str) -> Option<Entered> {
    if is_watched() {
        return None;
    }
    // If the terminal is closed, the input ends below.
    let _ = sys::out::tell(format_args!("{prompt}"));
    while !is_watched() {
        let input = io::stdin();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&WATCH_PERIOD)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return Some(Entered::End),
        }
        let mut line = Vec::new();
        return Some(match input.lock().read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => Entered::End,
            Ok(_) => Entered::Line(base::raw::decode(&line).into_owned()),
        });
    }
    None
}

/// Completion at the cursor.
struct Completing {
    files: FilenameCompleter,
    ioc: Arc<OnceLock<Mailbox>>,
}

impl Completer for Completing {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        let start = before.rfind(|c: char| c.is_whitespace() || "(,\"'<>".contains(c)).map_or(0, |found| found + 1);
        let word = &before[start..];
        if before[..start].trim().is_empty() {
            let names = commands::all().map(|command| command.name).chain(["exit"]);
            let mut names: Vec<&str> = names.filter(|name| name.starts_with(word)).collect();
            names.sort_unstable();
            return Ok((start, names.into_iter().map(|name| offer(name.to_owned())).collect()));
        }
        // Names with terminal control characters are not offered, because the edited line is printed unfiltered.
        let plain = |name: &String| Visible { text: name, colours: false }.to_string() == *name;
        let mut offers: Vec<Pair> = self.records(word).into_iter().filter(plain).map(offer).collect();
        if offers.is_empty() {
            let (from, files) = self.files.complete(line, at, context)?;
            return Ok((from, files));
        }
        offers.truncate(NAMES_MAX);
        Ok((start, offers))
    }
}

fn offer(text: String) -> Pair {
    Pair { display: text.clone(), replacement: text }
}

impl Completing {
    /// Record names, or after a dot the record's field names, that begin with `word`.
    fn records(&self, word: &str) -> Vec<String> {
        let (Some(ioc), word) = (self.ioc.get(), word.to_owned()) else { return Vec::new() };
        ioc.ask(move |engine| {
            let db = &engine.store.db;
            if let Some((record, field)) = word.split_once('.') {
                let Ok(channel) = db.find(record) else { return Vec::new() };
                let fields = db.fields(channel.record).iter().filter(|def| def.name.starts_with(field));
                return fields.map(|def| format!("{record}.{}", def.name)).collect();
            }
            let names = db.all_names().map(|(name, _)| name).filter(|name| name.starts_with(&word));
            let mut names: Vec<String> = names.take(NAMES_MAX).map(str::to_owned).collect();
            names.sort_unstable();
            names
        })
        .unwrap_or_default()
    }
}

impl Hinter for Completing {
    type Hint = String;
}
impl Highlighter for Completing {}
impl Validator for Completing {}
impl Helper for Completing {}
