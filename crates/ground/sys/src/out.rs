//! Printing. A reader that went away (`tahti ps | head`) is no error: who only looks ends quietly, who
//! changes the machine finishes its work without the words.
//!
//! `println!`, `eprintln!` and their kin mean these where a crate begins with `#[macro_use] extern crate sys`; std's would panic. What is printed to a terminal may
//! hold names and words of programs and peers, and goes through [`Visible`]: none of them can steer the terminal.

use base::Visible;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something could not be printed, but for a reader that went away.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether something could not be printed to standard output, as on a full disk. A reader that went away is no failure.
#[must_use]
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Reports the first failure to print: the disk behind a redirection is full, or worse.
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

/// What a stream leads to.
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

/// Whether the terminal can do no more than print (`TERM` is `dumb` or not set).
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|value| value == "dumb")
}

/// Whether colours are wanted on standard output: on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
pub fn colours() -> bool {
    Looks::out().colours
}

/// Writes as it is to a file or pipe, made visible to a terminal.
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
/// That of the write, also when nobody reads any more: for who has nothing else to do.
pub fn tell(text: Arguments<'_>) -> io::Result<()> {
    noted(write(io::stdout().lock(), Looks::out(), text))
}

/// Prints. What cannot be printed is dropped; [`has_failed`] knows of it.
pub fn print(text: Arguments<'_>) {
    // It is noted.
    let _ = tell(text);
}

/// Replaces the last line of a terminal.
///
/// # Errors
/// That of the write.
pub fn live(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = write!(out, "\r{}\x1b[K", Visible { text, colours: colours() });
    noted(written.and_then(|()| out.flush()))
}

/// Sends a terminal our own control sequences.
///
/// # Errors
/// That of the write.
pub fn control(sequence: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(sequence.as_bytes())?;
    out.flush()
}

/// Replaces all that a terminal shows, without flicker; elsewhere prints what there is behind what there was.
///
/// # Errors
/// That of the write, also when nobody reads any more.
pub fn screen(text: &str) -> io::Result<()> {
    if !is_terminal() {
        return tell(format_args!("{text}"));
    }
    let shown = Visible { text, colours: colours() }.to_string();
    let mut out = io::stdout().lock();
    // Home; each line with what is left of the old one cleared; what is below cleared. Raw terminals want CR, too.
    write!(out, "\x1b[H{}\x1b[K\x1b[J", shown.replace('\n', "\x1b[K\r\n"))?;
    out.flush()
}

/// Prints to standard error; where that is closed there is nobody to tell.
pub fn complain(text: Arguments<'_>) {
    let _ = write(io::stderr().lock(), Looks::err(), text);
}

/// Prints to standard output, visibly where that is a terminal.
#[macro_export]
macro_rules! print {
    ($($word:tt)*) => { $crate::out::print(format_args!($($word)*)) };
}

/// Prints a line to standard output, visibly where that is a terminal.
#[macro_export]
macro_rules! println {
    () => { $crate::out::print(format_args!("\n")) };
    ($($word:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($word)*))) };
}

/// Prints to standard error, visibly where that is a terminal.
#[macro_export]
macro_rules! eprint {
    ($($word:tt)*) => { $crate::out::complain(format_args!($($word)*)) };
}

/// Prints a line to standard error, visibly where that is a terminal.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::out::complain(format_args!("\n")) };
    ($($word:tt)*) => { $crate::out::complain(format_args!("{}\n", format_args!($($word)*))) };
}
