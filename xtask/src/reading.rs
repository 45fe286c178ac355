//! Limits of the pages that users read, so that they stay easy to read: the length of sentences and of paragraphs.

/// Maximum of the mean length of a page's sentences, in words.
const MEAN_SENTENCE: usize = 20;

/// Maximum length of a paragraph or of an item of a list, in words.
const PARAGRAPH: usize = 80;

/// Checks the text of one page outside code blocks, tables and headings.
pub(crate) fn check(page: &str, text: &str, findings: &mut Vec<String>) {
    let (mut words, mut sentences) = (0, 0);
    for paragraph in paragraphs(text) {
        let length = paragraph.split_whitespace().count();
        if length > PARAGRAPH {
            let start: Vec<&str> = paragraph.split_whitespace().take(8).collect();
            findings.push(format!(
                "{page}: the paragraph \"{} …\" has {length} words, expected at most {PARAGRAPH}: split it",
                start.join(" ")
            ));
        }
        words += length;
        sentences += paragraph.split_whitespace().filter(|word| ends_sentence(word)).count();
        // The last sentence may end without a mark.
        sentences += usize::from(!paragraph.split_whitespace().next_back().is_some_and(ends_sentence));
    }
    if words > MEAN_SENTENCE * sentences {
        findings.push(format!(
            "{page}: its {sentences} sentences have {words} words, expected at most {MEAN_SENTENCE} per sentence on average"
        ));
    }
}

/// Checks that every code block ends, on any page.
pub(crate) fn fences(page: &str, text: &str, findings: &mut Vec<String>) {
    if text.lines().filter(|line| is_fence(line)).count() % 2 == 1 {
        findings.push(format!("{page}: a code block has no end"));
    }
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// A word that ends a sentence, also within brackets, quotes and emphasis.
fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches([')', '"', '*', '`', '_']).ends_with(['.', '!', '?', ':'])
}

/// Paragraphs and items of lists, each as one text.
fn paragraphs(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let (mut in_block, mut is_open) = (false, false);
    for line in text.lines() {
        let is_fence = is_fence(line);
        in_block ^= is_fence;
        let line = line.trim();
        let ends = line.is_empty() || line.starts_with(['#', '|', '<', '!']);
        if in_block || is_fence || ends {
            is_open = false;
            continue;
        }
        let item = item(line);
        match all.last_mut().filter(|_| is_open && item.is_none()) {
            Some(last) => {
                last.push(' ');
                last.push_str(line);
            }
            None => all.push(item.unwrap_or(line).to_owned()),
        }
        is_open = true;
    }
    all
}

/// The text of a line that begins an item of a list.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = if number.len() < line.len() { number.strip_prefix(". ") } else { None };
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paragraphs_and_long_sentences_are_findings() {
        let words = |count: usize| vec!["word"; count].join(" ");
        for (text, expected) in [
            (format!("{}.\n{}.", words(15), words(25)), 0),
            (format!("{}.\n{}.", words(15), words(26)), 1),
            (format!("{}.\n", words(20)).repeat(4), 0),
            (format!("{}.\n", words(9)).repeat(9), 1),
            (format!("- {}.\n", words(9)).repeat(9), 0),
            (format!("{}.\n\n", words(9)).repeat(9), 0),
            (format!("1. {}:\n\n```\n{}\n```\n", words(9), words(200)), 0),
            (format!("# {}\n| {} |\n", words(99), words(99)), 0),
            (format!("{} (`end.`) {}.", words(19), words(20)), 0),
        ] {
            let mut findings = Vec::new();
            check("a.md", &text, &mut findings);
            assert_eq!(findings.len(), expected, "{text}: {findings:?}");
        }
    }

    #[test]
    fn a_code_block_without_end_is_a_finding() {
        for (text, expected) in [("a\n```\nb\n```\n", 0), ("a\n```\nb\n", 1), ("1. a\n   ```\n   b\n   ```\n", 0)] {
            let mut findings = Vec::new();
            fences("a.md", text, &mut findings);
            assert_eq!(findings.len(), expected, "{text}");
        }
    }
}
