//! Words as users type them: corrections of mistyped words, and patterns.

/// Maximum length of a word that is corrected.
const WORD_CHARS_MAX: usize = 64;

/// The most similar candidate for a mistyped word, with at most a third of its letters wrong.
///
/// Real-time: does not allocate; at most 64 × 64 comparisons for each candidate. Longer words have no correction.
#[must_use]
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word = Letters::of(word)?;
    let limit = word.as_slice().len().max(3) / 3;
    let scored = candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(word.as_slice(), Letters::of(candidate)?.as_slice()), candidate)));
    scored.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, found)| found)
}

/// A word's letters in lower case.
struct Letters {
    letters: [char; WORD_CHARS_MAX],
    len: usize,
}

impl Letters {
    /// `None` if there are too many letters.
    fn of(word: &str) -> Option<Self> {
        let mut found = Self { letters: ['\0'; WORD_CHARS_MAX], len: 0 };
        for letter in word.chars().flat_map(char::to_lowercase) {
            *found.letters.get_mut(found.len)? = letter;
            found.len += 1;
        }
        Some(found)
    }

    fn as_slice(&self) -> &[char] {
        &self.letters[..self.len]
    }
}

/// Number of letters to insert, delete, replace or swap with their neighbour to turn one word into the other.
fn distance(from: &[char], to: &[char]) -> usize {
    // Rows of the table of distances between prefixes: the current row, and the two before it.
    let mut before_last = [0; WORD_CHARS_MAX + 1];
    let mut last: [usize; WORD_CHARS_MAX + 1] = core::array::from_fn(|at| at);
    for i in 1..=from.len() {
        let mut row = [i; WORD_CHARS_MAX + 1];
        for j in 1..=to.len() {
            let differs = usize::from(from[i - 1] != to[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + differs);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = last;
        last = row;
    }
    last[to.len()]
}

/// Whether `text` fits `pattern`: `*` matches any text, `?` one character.
///
/// Real-time: does not allocate; at most pattern times text comparisons.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    // Position to continue at if the text after the last star does not match.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, from));
                at += 1;
            }
            Some(b'?') => (at, from) = (at + 1, from + width(text[from])),
            Some(byte) if *byte == text[from] => (at, from) = (at + 1, from + 1),
            _ => match retry {
                Some((star, start)) => {
                    let next = start + width(text[start]);
                    retry = Some((star, next));
                    (at, from) = (star + 1, next);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

/// Bytes of the character that starts with `first`.
fn width(first: u8) -> usize {
    (first.leading_ones() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_words_find_the_nearest_known_word() {
        let known = ["command", "class", "cpus", "heartbeat"];
        for (word, meant) in [
            ("comand", Some("command")),
            ("clas", Some("class")),
            ("cpsu", Some("cpus")),
            ("CPUS", Some("cpus")),
            ("hartbeet", Some("heartbeat")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, fits) in [
            ("sr_*", "sr_mag_ps_b", true),
            ("sr_*", "sr", false),
            ("*", "", true),
            ("?", "é", true),
            ("*?", "aé", true),
            ("c*Sup?", "cbLowSup1", true),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbx", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }
}
