//! The guest of `cargo xtask test-vm` that a test runs in.
//!
//! A guest's machine belongs to its tests: they may isolate, unplug and starve CPUs as they like. Anywhere else they
//! must not run at all, and say so.

use std::fs;

/// The name of the guest that this test runs in.
///
/// # Panics
/// Outside a guest, with the command that runs the test in one.
#[must_use]
pub fn name() -> String {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    match boot_word(&line, "tahti.guest") {
        Some(name) => name.to_owned(),
        None => panic!("this test changes its whole machine and runs only in a guest: use `cargo xtask test-vm`"),
    }
}

/// Says that this test belongs into a guest.
///
/// # Panics
/// Outside a guest, with the command that runs the test in one.
pub fn required() {
    drop(name());
}

/// Says that the machine is to end now by itself, and not by this test's end: with the last test of a guest, that is its success.
///
/// # Panics
/// If nobody outside can be told.
pub fn ends_here() {
    write("/out/ends", "");
}

/// The value of `key=value` in the kernel's command line.
fn boot_word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// Reads a file of the kernel without its last newline.
///
/// # Panics
/// If it cannot be read, with its name.
#[must_use]
pub fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim_end().to_owned()
}

/// Writes to a file of the kernel.
///
/// # Panics
/// If the kernel refuses, with file, value and its answer.
pub fn write(path: &str, value: &str) {
    try_write(path, value).unwrap_or_else(|error| panic!("{path} <- {value:?}: {error}"));
}

/// Writes to a file of the kernel that may refuse.
///
/// # Errors
/// The kernel's answer.
pub fn try_write(path: &str, value: &str) -> std::io::Result<()> {
    fs::write(path, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_found_whole() {
        let line = "quiet tahti.guest=rt tahti.guests=no\n";
        assert_eq!(boot_word(line, "tahti.guest"), Some("rt"));
        assert_eq!(boot_word(line, "quiet"), None);
        assert_eq!(boot_word("", "tahti.guest"), None);
    }
}
