//! Printing. A reader that went away (`tahti ps | head`) is no error: who only looks ends quietly, who
//! changes the machine finishes its work without the words.
//!
//! `println!` and `print!` of this crate mean these; std's would panic.

use std::fmt::Arguments;
use std::io::Write;

/// Prints; what a closed pipe does not take is dropped.
pub(crate) fn print(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        // The one place where words cannot be printed: the disk behind a redirection is full, or worse.
        eprintln!("tahti: failed to print: {error}");
    }
}

macro_rules! print {
    ($($word:tt)*) => { $crate::out::print(format_args!($($word)*)) };
}

macro_rules! println {
    () => { $crate::out::print(format_args!("\n")) };
    ($($word:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($word)*))) };
}
