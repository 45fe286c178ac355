//! Words as people type them: what a mistyped one meant, and which ones a pattern means.

use alloc::vec;
use alloc::vec::Vec;

/// Longest word for which a correction is looked for.
const WORD_CHARS_MAX: usize = 64;

/// The candidate that a mistyped word most probably meant: at most a third of its letters wrong.
///
/// Allocates; bounded by the length of the words.
#[must_use]
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let length = word.chars().count();
    if length > WORD_CHARS_MAX {
        return None;
    }
    let limit = length.max(3) / 3;
    let near = candidates.into_iter().filter(|candidate| candidate.chars().count() <= WORD_CHARS_MAX);
    let scored = near.map(|candidate| (distance(word, candidate), candidate));
    scored.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, found)| found)
}

/// Letters to insert, delete, replace or swap with their neighbour to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().flat_map(char::to_lowercase).collect();
    let to: Vec<char> = to.chars().flat_map(char::to_lowercase).collect();
    let mut rows = vec![vec![0usize; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let differs = usize::from(from[i - 1] != to[j - 1]);
                let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + differs);
                if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[from.len()][to.len()]
}

/// Whether `text` fits `pattern`: `*` stands for any text, `?` for one character.
///
/// Real-time: does not allocate; at most pattern times text comparisons.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    // Where to go on if what follows the last star does not fit.
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
    fn mistyped_words_find_what_was_meant() {
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
