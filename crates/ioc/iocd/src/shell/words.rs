//! Parser of command lines: words, quotes, redirections.

/// A parsed line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The command and its arguments.
    pub(super) words: Vec<String>,
    /// File from which commands are read.
    pub(super) input: Option<String>,
    /// Output file of the command, and whether to append to it.
    pub(super) output: Option<(String, bool)>,
}

/// The reason why a line cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadLine {
    #[error("two redirections in a row")]
    Redirections,
    #[error("no file after \"{0}\"")]
    NoFile(char),
    #[error("trailing backslash")]
    Backslash,
    #[error("unbalanced quote {0}")]
    Quote(char),
}

/// Parses a line. Blanks, commas and brackets separate words. Quotes of both kinds keep a word together.
///
/// # Errors
/// If a quote is not closed, a backslash is at the end, or a redirection has no file.
pub(super) fn split(text: &str) -> Result<CommandLine, BadLine> {
    let mut line = CommandLine::default();
    let mut chars = text.chars().peekable();
    let mut redirect: Option<char> = None;
    let mut append = false;
    while let Some(&next) = chars.peek() {
        if next.is_whitespace() || matches!(next, ',' | '(' | ')') {
            chars.next();
            continue;
        }
        if matches!(next, '<' | '>') {
            chars.next();
            append = next == '>' && chars.next_if_eq(&'>').is_some();
            if redirect.replace(next).is_some() {
                return Err(BadLine::Redirections);
            }
            continue;
        }
        let word = word(&mut chars)?;
        match redirect.take() {
            Some('<') => line.input = Some(word),
            Some(_) => line.output = Some((word, append)),
            None => line.words.push(word),
        }
    }
    match redirect {
        Some(sign) => Err(BadLine::NoFile(sign)),
        None => Ok(line),
    }
}

/// Parses a word. As in C, a quote may begin and end within a word. A backslash outside of quotes escapes the next character.
/// Inside of quotes it is an ordinary character, and the command interprets it.
fn word(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, BadLine> {
    let mut word = String::new();
    let mut quote: Option<char> = None;
    while let Some(&next) = chars.peek() {
        match quote {
            Some(open) if next == open => quote = None,
            Some(_) => word.push(next),
            None if matches!(next, '"' | '\'') => quote = Some(next),
            None if next.is_whitespace() || matches!(next, ',' | '(' | ')' | '<' | '>') => break,
            None if next == '\\' => {
                chars.next();
                word.push(*chars.peek().ok_or(BadLine::Backslash)?);
            }
            None => word.push(next),
        }
        chars.next();
    }
    match quote {
        Some(open) => Err(BadLine::Quote(open)),
        None => Ok(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_of_calls_are_parsed() {
        for (text, words) in [
            ("dbLoadRecords(\"a b.db\", \"P=X:,Q=1\")", vec!["dbLoadRecords", "a b.db", "P=X:,Q=1"]),
            ("dbpf X:ai 5", vec!["dbpf", "X:ai", "5"]),
            (r"dbpf X it\'s\ \a", vec!["dbpf", "X", "it's a"]),
            (r#"dbpf w:s '["q\"q"]'"#, vec!["dbpf", "w:s", r#"["q\"q"]"#]),
            (r#"dbpf w:s "a\\b""#, vec!["dbpf", "w:s", r"a\\b"]),
            (r#"echo a"b c"d"#, vec!["echo", "ab cd"]),
            ("asynOctetSetInputEos(L0,0,\"\\r\\n\")", vec!["asynOctetSetInputEos", "L0", "0", "\\r\\n"]),
            ("dbpf X \"\"", vec!["dbpf", "X", ""]),
            ("   ", vec![]),
        ] {
            assert_eq!(split(text).unwrap().words, words, "{text}");
        }
    }

    #[test]
    fn redirections_name_their_file() {
        let line = split("dbl ai >> out.txt").unwrap();
        assert_eq!((line.words.len(), line.output), (2, Some(("out.txt".into(), true))));
        assert_eq!(split("< st.cmd").unwrap().input, Some("st.cmd".into()));
        assert!(split("dbl >").is_err() && split("echo \"a").is_err() && split(r"echo a\").is_err());
    }
}
