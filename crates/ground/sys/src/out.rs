//! Printing. A closed reader (`tahti ps | head`) is not an error: commands that only display end silently, commands
//! that change the machine finish their work without output.
//!
//! In crates that begin with `#[macro_use] extern crate sys`, `println!`, `eprintln!` and the other macros are these;
//! those of std would panic. Output to a terminal may contain text from programs and peers. It passes through
//! [`Visible`], so that none of it can control the terminal.

use base::Visible;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether printing failed for a reason other than a closed reader.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether printing to standard output failed, as on a full disk. A closed reader is not a failure.
#[must_use]
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Reports the first failure to print, such as a full disk behind a redirection.
fn noted(printed: io::Result<()>) -> io::Result<()> {
    if let Err(error) = &printed
        && error.kind() != io::ErrorKind::BrokenPipe
        && !FAILED.swap(true, Ordering::Relaxed)
    {
        complain(format_args!(
            "tahti: failed to print: {error}; check the file or disk that standard output leads to\n"
        ));
    }
    printed
}

/// Properties of an output stream.
#[derive(Clone, Copy, Debug)]
struct Looks {
    terminal: bool,
    colours: bool,
}

impl Looks {
    fn of(stream: &impl IsTerminal) -> Self {
        let terminal = stream.is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, colours: terminal && !unwanted && !is_dumb() }
    }

    fn out() -> Self {
        static LOOKS: OnceLock<Looks> = OnceLock::new();
        *LOOKS.get_or_init(|| Self::of(&io::stdout()))
    }

    fn err() -> Self {
        static LOOKS: OnceLock<Looks> = OnceLock::new();
        *LOOKS.get_or_init(|| Self::of(&io::stderr()))
    }
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    Looks::out().terminal
}

/// Whether the terminal supports only plain text (`TERM` is `dumb` or not set).
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|value| value == "dumb")
}

/// Whether to use colours on standard output: on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
pub fn colours() -> bool {
    Looks::out().colours
}

/// Writes text unchanged to a file or pipe, and escaped to a terminal.
fn write(mut out: impl Write, looks: Looks, text: Arguments<'_>) -> io::Result<()> {
    match looks.terminal {
        true => write!(out, "{}", Visible { text: &text.to_string(), colours: looks.colours })?,
        false => out.write_fmt(text)?,
    }
    out.flush()
}

/// Prints.
///
/// # Errors
/// That of the write, also if the reader has closed. For callers that then have nothing left to do.
pub fn tell(text: Arguments<'_>) -> io::Result<()> {
    noted(write(io::stdout().lock(), Looks::out(), text))
}

/// Prints. Output that cannot be printed is dropped; [`has_failed`] reports it.
pub fn print(text: Arguments<'_>) {
    // `tell` has recorded the error.
    let _ = tell(text);
}

/// Replaces the last line on a terminal.
///
/// # Errors
/// That of the write.
pub fn live(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = write!(out, "\r{}\x1b[K", Visible { text, colours: colours() });
    noted(written.and_then(|()| out.flush()))
}

/// Sends tahti's own control sequences to a terminal.
///
/// # Errors
/// That of the write.
pub fn control(sequence: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(sequence.as_bytes())?;
    out.flush()
}

/// Replaces the whole contents of a terminal without flicker. If standard output is not a terminal, appends the text.
///
/// # Errors
/// That of the write, also if the reader has closed.
pub fn screen(text: &str) -> io::Result<()> {
    if !is_terminal() {
        return tell(format_args!("{text}"));
    }
    let shown = Visible { text, colours: colours() }.to_string();
    let mut out = io::stdout().lock();
    // Home; for each line, clears the rest of the old one; then clears everything below. Raw terminals also need CR.
    write!(out, "\x1b[H{}\x1b[K\x1b[J", shown.replace('\n', "\x1b[K\r\n"))?;
    out.flush()
}

/// Prints to standard error. An error there cannot be reported.
pub fn complain(text: Arguments<'_>) {
    let _ = write(io::stderr().lock(), Looks::err(), text);
}

/// Prints to standard output, escaped on a terminal.
#[macro_export]
macro_rules! print {
    ($($word:tt)*) => { $crate::out::print(format_args!($($word)*)) };
}

/// Prints a line to standard output, escaped on a terminal.
#[macro_export]
macro_rules! println {
    () => { $crate::out::print(format_args!("\n")) };
    ($($word:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($word)*))) };
}

/// Prints to standard error, escaped on a terminal.
#[macro_export]
macro_rules! eprint {
    ($($word:tt)*) => { $crate::out::complain(format_args!($($word)*)) };
}

/// Prints a line to standard error, escaped on a terminal.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::out::complain(format_args!("\n")) };
    ($($word:tt)*) => { $crate::out::complain(format_args!("{}\n", format_args!($($word)*))) };
}
