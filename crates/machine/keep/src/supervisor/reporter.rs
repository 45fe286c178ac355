//! The supervisor's messages: to the terminal, and with a timestamp to its log.

use super::logs::Level;
use super::sink::Sink;
use crate::appended::Appended;
use crate::forward::Forward;
use base::{DurNs, MonoNs, Visible};
use host::health::Outcome;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use sys::clock::mono_now;

/// Size in bytes at which the log is rotated.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Width assumed for a terminal that does not report its size.
const COLUMNS: usize = 100;
/// Minimum width for wrapping; a narrower terminal wraps by itself.
const COLUMNS_MIN: usize = 40;

/// Writes messages to the terminal, the log and the system journal.
#[derive(Debug)]
pub(crate) struct Reporter {
    out: Sink,
    log: Log,
    /// System journal that also receives each line, if configured.
    journal: Option<Forward>,
    since: MonoNs,
    /// The live line is on the terminal now.
    live: bool,
    tty: bool,
    colours: bool,
    quiet: bool,
    /// Unavailable settings with their subjects, each once.
    shortfalls: Vec<(String, String)>,
}

/// Options of the messages.
#[derive(Debug)]
pub(crate) struct ReporterOptions {
    /// Print nothing on the terminal.
    pub(crate) quiet: bool,
    /// Use colours if the output is a terminal.
    pub(crate) colours: bool,
    /// Whether writing the log may block. A separate thread writes it then.
    pub(crate) aside: bool,
}

/// The log: in memory, written at once, or on a disk, written by a separate thread.
#[derive(Debug)]
enum Log {
    Here(LogFile, u64),
    Aside(Sink),
}

/// A log file that is rotated when it is full.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: Appended,
}

impl LogFile {
    fn new(path: PathBuf) -> Self {
        Self { file: Appended::open(path.clone()), path }
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.file.size() > LOG_BYTES_MAX {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            // If the rename fails, the file keeps growing.
            let _ = std::fs::rename(&self.path, old);
        }
        // Appends to the file at this path, even if another program has moved the previous one.
        self.file.append(bytes).1.map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Reporter {
    pub(crate) fn new(path: PathBuf, since: MonoNs, wishes: &ReporterOptions) -> Self {
        let tty = std::io::stdout().is_terminal();
        let log = LogFile::new(path);
        let log = if wishes.aside { Log::Aside(Sink::new("tahti-log", log)) } else { Log::Here(log, 0) };
        let (out, journal) = (Sink::new("tahti-tell", std::io::stdout()), None);
        let (quiet, colours) = (wishes.quiet, wishes.colours);
        Self { out, log, journal, since, live: false, tty, colours, quiet, shortfalls: Vec::new() }
    }

    /// Also sends each line to the system journal.
    pub(crate) fn forward(&mut self, journal: Forward) {
        self.journal = Some(journal);
    }

    /// Why no line reaches the system journal, if it is configured.
    pub(crate) fn forward_fault(&self) -> Option<String> {
        self.journal.as_ref().and_then(Forward::fault)
    }

    /// Number of lines that could not be written to the log.
    pub(crate) fn lost(&self) -> u64 {
        match &self.log {
            Log::Here(_, lost) => *lost,
            Log::Aside(sink) => sink.lost(),
        }
    }

    /// Reports an event.
    pub(crate) fn event(&mut self, now: MonoNs, who: &str, what: &str) {
        self.message(Level::Info, now, who, what);
    }

    /// Reports a warning.
    pub(crate) fn warning(&mut self, now: MonoNs, who: &str, what: &str) {
        self.message(Level::Warning, now, who, what);
    }

    /// Reports an error.
    pub(crate) fn error(&mut self, now: MonoNs, who: &str, what: &str) {
        self.message(Level::Error, now, who, what);
    }

    /// Reports an event of this severity.
    pub(crate) fn message(&mut self, level: Level, now: MonoNs, who: &str, what: &str) {
        self.line(&self.wrapped(now, who, what));
        self.record(level, who, what);
    }

    /// Prints a message on the terminal only.
    pub(crate) fn show(&mut self, now: MonoNs, who: &str, what: &str) {
        self.line(&self.wrapped(now, who, what));
    }

    /// Reports an unavailable setting with its remedy, once.
    pub(crate) fn shortfall(&mut self, who: &str, what: String) {
        if self.shortfalls.iter().any(|(_, known)| *known == what) {
            return;
        }
        self.warning(mono_now(), who, &what);
        self.shortfalls.push((who.to_owned(), what));
    }

    /// Unavailable settings of the subjects that `is_meant` accepts.
    pub(crate) fn unavailable(&self, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        self.shortfalls.iter().filter(move |(who, _)| is_meant(who)).map(|(_, what)| what.as_str())
    }

    /// A line with its time: wrapped on a terminal, whole in a pipe or file.
    fn wrapped(&self, now: MonoNs, who: &str, what: &str) -> String {
        let start = format!("{:>9.3}  {who:<12} ", (now - self.since).0 as f64 / 1e9);
        if self.tty { hang(&start, what, terminal_columns()) } else { start + what }
    }

    /// Prints a line, above the live line.
    pub(crate) fn line(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        self.clear();
        // A closed or stopped terminal must neither end nor delay the plant.
        self.out.say(match self.tty {
            true => format!("{}\n", Visible { text, colours: self.colours }),
            false => format!("{text}\n"),
        });
    }

    /// Shows the live line. On a terminal it replaces the previous one.
    pub(crate) fn live(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        if self.tty {
            // A wrapped line cannot be replaced.
            let text = brief(text, terminal_columns() - 1);
            let text = Visible { text: &text, colours: self.colours };
            self.out.say(format!("\r\x1b[K{text}"));
            self.live = true;
        } else {
            self.out.say(format!("{text}\n"));
        }
    }

    /// Whether lines go to a terminal.
    pub(crate) fn is_tty(&self) -> bool {
        self.tty && !self.quiet
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.live) {
            self.out.say("\r\x1b[K".to_owned());
        }
    }

    fn record(&mut self, level: Level, who: &str, what: &str) {
        let text = format!("{} {}{who}: {what}\n", utc_now(), level.mark());
        match &mut self.log {
            Log::Here(log, lost) => *lost += u64::from(log.write_all(text.as_bytes()).is_err()),
            Log::Aside(sink) => sink.say(text),
        }
        if let Some(journal) = &mut self.journal {
            journal.line(format!("{who}: {what}").as_bytes());
        }
    }
}

/// Width of the terminal at standard output.
fn terminal_columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col)) {
        0 => COLUMNS,
        columns => columns,
    }
}

/// A line for standard output: `start` followed by `text`, wrapped on a terminal, whole in a pipe or file.
#[must_use]
pub fn fitted(start: &str, text: &str) -> String {
    match std::io::stdout().is_terminal() {
        true => hang(start, text, terminal_columns()),
        false => format!("{start}{text}"),
    }
}

/// The outcome for standard output: on a terminal each reason on a line, failures first; in a pipe or file all on one line.
#[must_use]
pub fn fitted_outcome(outcome: &Outcome) -> String {
    match std::io::stdout().is_terminal() {
        true => outcome_in_lines(outcome, terminal_columns()),
        false => outcome.words(short),
    }
}

/// The outcome, and each reason on a line.
fn outcome_in_lines(outcome: &Outcome, columns: usize) -> String {
    let reasons = outcome.summary();
    let lines = reasons
        .iter()
        .map(|reason| "\n".to_owned() + &hang(&format!("  {}: ", reason.word()), &reason.words(short), columns));
    outcome.word().to_owned() + &lines.collect::<String>()
}

/// `start` followed by `text`. If longer than `columns`, `text` is wrapped between words and indented to its first word. A
/// word longer than the line is not split.
#[must_use]
pub fn hang(start: &str, text: &str, columns: usize) -> String {
    let indent = start.chars().count();
    let mut out = start.to_owned();
    if columns < COLUMNS_MIN.max(indent + COLUMNS_MIN / 2) || indent + text.chars().count() <= columns {
        return out + text;
    }
    let mut column = indent;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > indent && column + 1 + width > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        }
        if column > indent {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += width;
    }
    out
}

/// Text of at most `letters` characters: cut between words, with `…`.
#[must_use]
pub fn brief(text: &str, letters: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(letters) else { return text.to_owned() };
    let room = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
    let kept = &text[..room];
    let word = kept.rfind([' ', ',', ';']).filter(|at| *at * 2 > room).unwrap_or(room);
    format!("{}…", kept[..word].trim_end_matches([' ', ',', ';', ':']))
}

/// The wall clock as `2026-11-21T05:28:32.123Z`, as in the processes' logs.
pub(crate) fn utc_now() -> String {
    let now = sys::clock::wall_ns();
    let text = base::Stamp::from_unix(now / 1_000_000_000, (now % 1_000_000_000) as u32).to_string();
    text.get(..23).unwrap_or(&text).replace(' ', "T") + "Z"
}

/// A time for display: three digits and a unit.
#[must_use]
pub fn short(time: DurNs) -> String {
    let ns = time.0 as f64;
    match time.0.unsigned_abs() {
        n if n < 1_000 => format!("{n} ns"),
        n if n < 10_000 => format!("{:.2} µs", ns / 1e3),
        n if n < 100_000 => format!("{:.1} µs", ns / 1e3),
        n if n < 1_000_000 => format!("{:.0} µs", ns / 1e3),
        n if n < 10_000_000 => format!("{:.2} ms", ns / 1e6),
        n if n < 100_000_000 => format!("{:.1} ms", ns / 1e6),
        n if n < 1_000_000_000 => format!("{:.0} ms", ns / 1e6),
        n if n < 60_000_000_000 => format!("{:.1} s", ns / 1e9),
        n if n < 3_600_000_000_000 => format!("{}m{:02}s", n / 60_000_000_000, n / 1_000_000_000 % 60),
        n => format!("{}h{:02}m", n / 3_600_000_000_000, n / 60_000_000_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_wrapped_under_its_first_word_and_no_word_is_lost() {
        let text = hang("ab  ", &"word ".repeat(30), 100);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= 100), "{text}");
        assert!(lines[0].starts_with("ab  word") && lines[1].starts_with("    word"), "{text}");
        assert_eq!(text.matches("word").count(), 30);
        assert_eq!(hang("a ", &"x".repeat(200), 100), format!("a {}", "x".repeat(200)));
        assert_eq!(hang("a ", "fits  as it is", 100), "a fits  as it is");
        let narrow = "word ".repeat(30);
        assert_eq!(hang("a ", &narrow, 12), format!("a {narrow}"), "a narrow terminal wraps by itself");
    }

    #[test]
    fn each_reason_of_an_outcome_has_its_line_on_a_terminal() {
        let reason = |subject: &str, is_failure| host::health::Reason {
            subject: subject.to_owned(),
            promise: "runs".to_owned(),
            line: Some(3),
            file: None,
            found: "word ".repeat(8) + "end",
            from: DurNs::from_secs(1),
            lasted: DurNs::from_secs(2),
            lasts: false,
            count: 1,
            gaps: 0,
            whole_life: false,
            is_failure,
        };
        let text = outcome_in_lines(&Outcome::Failed(vec![reason("a", true), reason("b", false)]), 60);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[0], "failed");
        assert!(lines[1].starts_with("  failed: a: word") && lines[3].starts_with("  degraded: b: word"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 60), "{text}");
        assert_eq!(outcome_in_lines(&Outcome::Good, 60), "good");
    }

    #[test]
    fn a_brief_text_is_cut_at_a_word_within_its_length() {
        assert_eq!(brief("as it is", 8), "as it is");
        assert_eq!(brief("as it is, and more", 12), "as it is…");
        assert_eq!(brief("µµµµµµµµµµ", 4), "µµµ…");
        for letters in 1..30 {
            let short = brief("no shield on CPUs 1: it takes root", letters);
            assert!(short.chars().count() <= letters, "{short:?} at {letters}");
        }
    }
}
