//! Command lines in the style of C's getopt, as existing scripts use them: clustered letters, and values with or without a
//! blank.

use std::process::ExitCode;

/// A part of a command line.
pub(crate) enum Part<'a> {
    /// A name or a value.
    Word(&'a str),
    /// An option with its value. The value is empty if the option takes none.
    Option(char, &'a str),
}

/// Why a tool does not begin.
pub(crate) enum End {
    /// It has printed its help or its version.
    Printed,
    /// The command line is wrong: found and expected.
    Wrong(String),
}

impl End {
    /// Prints what is wrong. Returns the exit code.
    pub(crate) fn report(self, tool: &str) -> ExitCode {
        match self {
            Self::Printed => ExitCode::SUCCESS,
            Self::Wrong(message) => {
                eprintln!("{message} ('{tool} -h' for help.)");
                ExitCode::FAILURE
            }
        }
    }
}

/// Passes the parts of a command line to `take`, in their order. In `letters`, a colon follows each option that takes a value.
/// `--help` is `-h`. Options may follow words only if they may be `anywhere`.
///
/// # Errors
/// An unknown option, an option without its value, or the error of `take`.
pub(crate) fn each(
    letters: &str,
    anywhere: bool,
    words: &[String],
    mut take: impl FnMut(Part<'_>) -> Result<(), End>,
) -> Result<(), End> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.is_empty()) else {
            take(Part::Word(word))?;
            if anywhere {
                continue;
            }
            break;
        };
        if cluster == "-" {
            break;
        }
        if cluster == "-help" && letters.contains('h') {
            take(Part::Option('h', ""))?;
            continue;
        }
        let mut cluster = cluster.chars();
        while let Some(letter) = cluster.next() {
            let unknown = || End::Wrong(format!("Unrecognized option: '-{letter}'."));
            let at = letters.find(letter).filter(|_| letter != ':').ok_or_else(unknown)?;
            let mut value = "";
            if letters[at + letter.len_utf8()..].starts_with(':') {
                value = cluster.as_str();
                cluster = "".chars();
                if value.is_empty() {
                    let missing = || End::Wrong(format!("Option '-{letter}' requires an argument."));
                    value = rest.next().ok_or_else(missing)?;
                }
            }
            take(Part::Option(letter, value))?;
        }
    }
    rest.try_for_each(|word| take(Part::Word(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(letters: &str, words: &[&str]) -> Option<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut taken = String::new();
        let done = each(letters, true, &words, |part| {
            match part {
                Part::Word(word) => taken.push_str(word),
                Part::Option(letter, value) => taken.push_str(&format!("-{letter}{value}")),
            }
            Ok(())
        });
        done.is_ok().then_some(taken)
    }

    #[test]
    fn the_long_option_for_help_is_the_short_one() {
        assert_eq!(letters("hw:", &["--help"]).as_deref(), Some("-h"));
        assert_eq!(letters("hw:", &["-w1", "a", "--help"]).as_deref(), Some("-w1a-h"));
        assert_eq!(letters("hw:", &["--", "--help"]).as_deref(), Some("--help"));
        assert_eq!(letters("w:", &["--help"]), None);
    }
}
