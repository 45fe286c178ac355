//! Regular expressions in conversions: `%/regex/` and `%#/regex/text/`.

use super::format::Coded;
use super::syntax::Syntax;
use base::Directive;

/// Maximum number of backtracking steps of one search. A search that needs more finds nothing.
const BACKTRACK_MAX: usize = 100_000;
/// Maximum number of replacements in one message.
const REPLACED_MAX: usize = 100_000;
/// Maximum length in bytes of a message with replacements.
const LEN_MAX: usize = 1 << 20;

/// A regular expression over bytes, in Perl's syntax without Unicode: `.` is any byte except a newline, `\\w` is ASCII.
#[derive(Clone, Debug)]
pub struct Regex {
    found: fancy_regex::Regex,
    /// The group whose match is the value; 0 is the whole match.
    group: usize,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.found.as_str() == other.found.as_str() && self.group == other.group
    }
}

/// A substitution.
#[derive(Clone, Debug, PartialEq)]
pub struct Substitution {
    pub(super) regex: Regex,
    /// The replacement text, with `&`, `\1`, `\U1` and similar references.
    pub(super) text: Vec<Coded>,
}

/// The positions of the match and of its groups.
type MatchGroups = Vec<Option<(usize, usize)>>;

impl Regex {
    pub(super) fn new(pattern: &[Coded], group: Option<usize>) -> Result<Self, Syntax> {
        let mut text = String::new();
        for coded in pattern {
            match coded {
                Coded::Plain(byte) if !byte.is_ascii() => text.push_str(&format!("\\x{byte:02x}")),
                Coded::Plain(byte) => text.push(char::from(*byte)),
                Coded::Literal(b'/') => text.push('/'),
                // A control character or a sign is literal, even if it has a meaning in expressions.
                Coded::Literal(byte) if *byte < b'0' => text.push_str(&format!("\\x{byte:02x}")),
                Coded::Literal(byte) => text.extend(['\\', char::from(*byte)]),
                Coded::Any => text.push_str("\\?"),
                Coded::Blank => return Err(Syntax::BlankInRegex),
            }
        }
        let mut builder = fancy_regex::RegexBuilder::new(&text);
        let built = builder.bytes_mode(fancy_regex::BytesMode::Ascii).backtrack_limit(BACKTRACK_MAX).build();
        let found = built.map_err(|error| Syntax::Regex(text.clone(), Box::new(error)))?;
        let group = group.unwrap_or(0);
        if group > 9 || group >= found.captures_len() {
            let most = found.captures_len() - 1;
            return Err(Syntax::Group { group, text, most });
        }
        Ok(Self { found, group })
    }

    /// Finds the expression in `bytes`. Returns the positions of the match and of its groups.
    fn find(&self, bytes: &[u8]) -> Option<MatchGroups> {
        let captures = self.found.captures(bytes).ok()??;
        Some((0..captures.len()).map(|number| captures.get(number).map(|found| (found.start(), found.end()))).collect())
    }

    /// Returns the number of bytes consumed and the value. Bytes before the match are skipped.
    pub(super) fn scan(&self, directive: &Directive, skip: bool, rest: &[u8]) -> Option<(usize, Vec<u8>)> {
        // A zero byte ends the line, as in C strings.
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let most = if directive.width > 0 { directive.width.min(end) } else { end };
        let found = self.find(&rest[..most])?;
        let (from, to) = found[self.group]?;
        // Without a value, input is consumed up to the end of the group.
        let taken = if skip { to } else { found[0]?.1 };
        Some((taken, rest[from..to].to_vec()))
    }
}

impl Substitution {
    /// Replaces the matches in `line` after `start`.
    pub(super) fn replace(&self, directive: &Directive, line: &mut Vec<u8>, start: usize) {
        let mut len = line.len().saturating_sub(start);
        let mut start = start;
        if directive.width > 0 {
            len = len.min(directive.width);
        }
        if directive.left {
            start = line.len() - len;
        }
        let wanted = directive.precision.unwrap_or(0);
        let (mut at, mut count) = (0, 0);
        while at < len && count < REPLACED_MAX && line.len() <= LEN_MAX {
            count += 1;
            let Some(found) = self.regex.find(&line[start + at..start + len]) else { return };
            let Some((from, to)) = found[0] else { return };
            let matched = to - from;
            // With `+` the first `wanted` matches are replaced, without it only match number `wanted`.
            if directive.plus || count >= wanted {
                let text = self.expanded(&line[start + at..], &found);
                let place = start + at + from;
                line.splice(place..place + matched, text.iter().copied());
                len = len - matched + text.len();
                at += text.len();
            } else {
                at += matched;
            }
            at += from + usize::from(matched == 0);
            if count == wanted {
                return;
            }
        }
    }

    fn expanded(&self, line: &[u8], found: &MatchGroups) -> Vec<u8> {
        let group = |number: usize| {
            let place = found.get(number).copied();
            place.map(|place| place.map_or(&line[..0], |(from, to)| &line[from..to]))
        };
        let mut out = Vec::new();
        let mut rest = &self.text[..];
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            match first {
                Coded::Plain(b'&') => out.extend(group(0).unwrap_or_default()),
                Coded::Literal(case @ (b'u' | b'l' | b'U' | b'L')) => {
                    let number = match behind.first().and_then(|number| number.byte()) {
                        Some(b'&') => Some(0),
                        Some(digit @ b'0'..=b'9') => Some(usize::from(digit - b'0')),
                        _ => None,
                    };
                    let Some(text) = number.and_then(group) else {
                        out.push(*case);
                        continue;
                    };
                    rest = &behind[1..];
                    let changed =
                        out.len()..out.len() + if case.is_ascii_uppercase() { text.len() } else { text.len().min(1) };
                    out.extend_from_slice(text);
                    if case.eq_ignore_ascii_case(&b'u') {
                        out[changed].make_ascii_uppercase();
                    } else {
                        out[changed].make_ascii_lowercase();
                    }
                }
                Coded::Literal(number @ 1..=9) if usize::from(*number) < found.len() => {
                    out.extend(group(usize::from(*number)).unwrap_or_default());
                }
                Coded::Plain(byte) | Coded::Literal(byte) => out.push(*byte),
                Coded::Any => out.push(b'?'),
                Coded::Blank => out.push(b' '),
            }
        }
        out
    }
}
