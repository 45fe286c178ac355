//! A limit on phrases that pages and messages avoid, in phrases per 10,000 words, so that their number can only fall.

use std::collections::BTreeMap;
use std::path::Path;

/// Phrases that pages and messages avoid, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again"),
    ("any more", "no longer"),
    ("anybody", "any client, any user"),
    ("be had", "be available"),
    ("beside", "next to, under (load)"),
    ("by turns", "alternating"),
    ("everybody", "all clients, all users"),
    ("given up", "skipped, missed"),
    ("goes on", "continues"),
    ("looked at", "read, checked"),
    ("looks at", "reads, checks"),
    ("mended", "fixed"),
    ("no more", "no longer"),
    ("nobody", "no client, no process"),
    ("of before", "previous"),
    ("put aside", "shelved"),
    ("put back", "restored"),
    ("says so", "reports it"),
    ("somebody", "another process, a user"),
    ("stands", "is"),
    ("tells", "reports"),
    ("those who", "the clients that"),
    ("told", "reported, set"),
    ("whoever", "the client that"),
    ("where there is none", "if none is configured"),
];

/// Words that do not begin a statement: its subject is a thing with a name.
const SUBJECTS: &[&str] = &["what", "who"];

/// Names that say nothing about a type. A type is called by the noun of the field.
const TYPE_NAMES: &[&str] = &[
    "Again", "Around", "Asked", "Done", "Found", "How", "Kept", "Known", "Looked", "Of", "Said", "Seen", "Sent",
    "Taken", "Told", "Unsent", "Untold", "Way", "What", "Where", "Which", "Who", "Why",
];

/// A finding for each type of a source file whose name says nothing.
pub(crate) fn type_names(file: &Path, source: &str, findings: &mut Vec<String>) {
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let mut words =
            line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
        let kind = words.find(|word| !["pub", "crate", "super", "in"].contains(word));
        let name = words
            .next()
            .filter(|_| kind.is_some_and(|kind| ["struct", "enum", "trait", "type", "union"].contains(&kind)));
        if let Some(name) = name.filter(|name| TYPE_NAMES.contains(name)) {
            findings.push(format!(
                "{}: a type {name}: expected the noun of the field, such as Reading or PlantStatus",
                file.display()
            ));
        }
    }
}

/// Phrases and words of one kind of text.
pub(crate) struct Wording {
    kind: &'static str,
    /// Most phrases per 10,000 words. Lower it when the figure has fallen.
    limit: f64,
    words: usize,
    phrases: BTreeMap<&'static str, usize>,
}

impl Wording {
    /// The pages: Markdown outside of code blocks.
    pub(crate) fn of_pages() -> Self {
        Self { kind: "pages", limit: 1.5, words: 0, phrases: BTreeMap::new() }
    }

    /// The messages: string literals of three words or more, outside of tests.
    pub(crate) fn of_messages() -> Self {
        Self { kind: "messages", limit: 2.0, words: 0, phrases: BTreeMap::new() }
    }

    /// Counts a page.
    pub(crate) fn page(&mut self, page: &str) {
        for text in page.split("```").step_by(2) {
            text.lines().for_each(|line| self.text(line));
        }
    }

    /// Counts a string literal. Shorter ones are mostly names.
    pub(crate) fn message(&mut self, literal: &str) {
        if literal.split_whitespace().nth(2).is_some() {
            self.text(literal);
        }
    }

    fn text(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let plain: Vec<String> = words.iter().map(|word| bare(word)).collect();
        self.words += words.len();
        for (phrase, _) in PHRASES {
            let phrase_words: Vec<&str> = phrase.split(' ').collect();
            let found = plain.windows(phrase_words.len()).filter(|window| *window == phrase_words).count();
            self.add(phrase, found);
        }
        let asks = text.contains('?');
        // `{what}` is a placeholder for a noun.
        let is_word = |at: usize| !words[at].starts_with('{');
        for subject in SUBJECTS {
            let begins = |at: usize| at == 0 || words[at - 1].ends_with(['.', ':', ';']);
            let found =
                (0..words.len()).filter(|at| !asks && plain[*at] == *subject && begins(*at) && is_word(*at)).count();
            self.add(subject, found);
        }
    }

    fn add(&mut self, phrase: &'static str, found: usize) {
        if found > 0 {
            *self.phrases.entry(phrase).or_default() += found;
        }
    }

    /// Avoided phrases per 10,000 words.
    fn share(&self) -> f64 {
        self.phrases.values().sum::<usize>() as f64 * 1e4 / self.words.max(1) as f64
    }

    /// A finding if the limit is exceeded. Prints the figure if the limit can be lowered.
    pub(crate) fn check(&self, findings: &mut Vec<String>) {
        let (kind, share, limit) = (self.kind, self.share(), self.limit);
        if share > limit {
            let mut most: Vec<_> = self.phrases.iter().collect();
            most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let most: Vec<String> = most.iter().map(|(phrase, count)| format!("{phrase:?} {count}")).collect();
            findings.push(format!(
                "{kind}: {share:.1} avoided phrases per 10,000 words, limit {limit:.1}; xtask/src/wording.rs has the words to use: {}",
                most.join(", ")
            ));
        } else if share + 1.0 < limit {
            println!(
                "{kind}: {share:.1} avoided phrases per 10,000 words; lower the limit of {limit:.1} in xtask/src/wording.rs"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_a_question_word_or_a_participle_is_found() {
        let mut findings = Vec::new();
        let source = "pub(crate) struct Found {\n    What(u8),\nenum What {\n// type Way\nlet found: Found;\ntype Readings = Told;\nstruct Finding;";
        type_names(Path::new("a.rs"), source, &mut findings);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("a.rs: a type Found: expected"), "{findings:?}");
    }

    #[test]
    fn avoided_phrases_are_counted_as_whole_words_and_not_in_code_blocks() {
        let mut pages = Wording::of_pages();
        pages.page("Nobody is told. It understands.\n```\nsomebody\n```\nThe value is (put back).\n");
        assert_eq!(pages.phrases, BTreeMap::from([("nobody", 1), ("told", 1), ("put back", 1)]));
        assert_eq!(pages.words, 10);
    }

    #[test]
    fn question_words_as_subjects_are_counted_and_questions_are_not() {
        let mut messages = Wording::of_messages();
        messages.message("failed: what was read");
        messages.message("What is the time?");
        messages.message("reads what it wrote");
        messages.message("what next");
        messages.message("{what} is no number: {who} sent it");
        assert_eq!(messages.phrases, BTreeMap::from([("what", 1)]));
    }

    #[test]
    fn a_share_above_the_limit_is_a_finding_that_names_the_phrases() {
        let mut messages = Wording { limit: 999.0, ..Wording::of_messages() };
        messages.message("one two three four five six seven eight nobody told");
        let mut findings = Vec::new();
        messages.check(&mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("2000.0") && findings[0].contains("\"nobody\" 1, \"told\" 1"), "{findings:?}");
        messages.limit = 2000.0;
        messages.check(&mut findings);
        assert_eq!(findings.len(), 1, "a share at the limit is accepted");
    }
}
