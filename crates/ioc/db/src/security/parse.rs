//! Parser of `.acf` files.

use super::{Condition, DEFAULT_GROUP, Grant, Group, Input, Members, Rule, Security};
use crate::calc::{self, INPUTS};
use crate::text::error::{FileError, Position};
use crate::text::lex::{Lexer, Token};
use crate::text::macros::{Macros, expand_lines};
use base::nearest;

/// Maximum file size in bytes.
const BYTES_MAX: usize = 16 << 20;

impl Security {
    /// Parses an `.acf` file after macro expansion.
    ///
    /// # Errors
    /// The first malformed item, with file, line, column, and the word that was probably meant.
    pub fn parse(text: &str, file: &str, macros: &Macros) -> Result<Self, FileError> {
        if text.len() > BYTES_MAX {
            let what = format!("the file has {} bytes, expected at most {BYTES_MAX}", text.len());
            return Err(FileError { file: file.to_owned(), place: Position::default(), what });
        }
        let (expanded, undefined) = expand_lines(text, macros);
        let mut parser = Parser { lexer: Lexer::new(&expanded, file), file, rules: Self::default() };
        for (line, name) in undefined {
            parser.rules.notices.push(format!("{file}:{line}: macro {name} is undefined"));
        }
        parser.file()?;
        let mut rules = parser.rules;
        if !rules.groups.iter().any(|group| group.name == DEFAULT_GROUP) {
            rules.groups.push(Group::new(DEFAULT_GROUP));
        }
        rules.users.sort_by(|a, b| a.name.cmp(&b.name));
        rules.hosts.sort_by(|a, b| a.name.cmp(&b.name));
        rules.groups.sort_by(|a, b| a.name.cmp(&b.name));
        for group in &mut rules.groups {
            group.bad = group.inputs.iter().fold(0, |bits, input| bits | 1 << input.letter);
            group.compute(u32::MAX);
        }
        Ok(rules)
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    file: &'a str,
    rules: Security,
}

impl Parser<'_> {
    fn file(&mut self) -> Result<(), FileError> {
        const HEADS: [&str; 3] = ["UAG", "HAG", "ASG"];
        loop {
            let (token, place) = self.lexer.next()?;
            let word = match token {
                Token::End => return Ok(()),
                Token::Word { text, quoted: false } => text,
                _ => return Err(self.lexer.error(place, "expected UAG, HAG or ASG")),
            };
            match &*word {
                "UAG" => {
                    let group = self.members("users")?;
                    self.rules.users.push(group);
                }
                "HAG" => {
                    let mut group = self.members("hosts")?;
                    group.members.iter_mut().for_each(|host| host.make_ascii_lowercase());
                    self.rules.hosts.push(group);
                }
                "ASG" => self.group()?,
                other => return Err(self.unknown(place, other, &HEADS)),
            }
        }
    }

    fn unknown(&self, place: Position, found: &str, known: &[&str]) -> FileError {
        let hint =
            nearest(found, known.iter().copied()).map_or(String::new(), |near| format!("; nearest is \"{near}\""));
        self.lexer.error(place, format!("found \"{found}\", expected {}{hint}", known.join(", ")))
    }

    /// Parses `(NAME)`. The name must not be defined already.
    fn name(&mut self, what: &str, taken: impl Fn(&Security, &str) -> bool) -> Result<String, FileError> {
        self.lexer.punct(b'(', what)?;
        let (name, place) = self.lexer.word("the name of the group")?;
        self.lexer.punct(b')', "after the name")?;
        if taken(&self.rules, &name) {
            return Err(self.lexer.error(place, format!("the file has {what}({name}) already, expected another name")));
        }
        Ok(name.into_owned())
    }

    /// Parses comma-separated words between brackets.
    fn list(&mut self, open: u8, close: u8, what: &str) -> Result<Vec<(String, Position)>, FileError> {
        self.lexer.punct(open, "before the list")?;
        let mut words = Vec::new();
        loop {
            let (word, place) = self.lexer.word(what)?;
            words.push((word.into_owned(), place));
            if !self.lexer.take(b',') {
                self.lexer.punct(close, "after the list")?;
                return Ok(words);
            }
        }
    }

    /// `(NAME) { a, b }` of a UAG or HAG.
    fn members(&mut self, what: &str) -> Result<Members, FileError> {
        let users = what == "users";
        let name = self.name(if users { "UAG" } else { "HAG" }, |rules, name| {
            (if users { &rules.users } else { &rules.hosts }).iter().any(|group| group.name == name)
        })?;
        let members = if *self.lexer.peek()? == Token::Punct(b'{') {
            self.list(b'{', b'}', if users { "a user" } else { "a host" })?
        } else {
            Vec::new()
        };
        Ok(Members { name, members: members.into_iter().map(|(word, _)| word).collect() })
    }

    /// `(NAME) { INPA(…) RULE(…) }`
    fn group(&mut self) -> Result<(), FileError> {
        let name = self.name("ASG", |rules, name| rules.groups.iter().any(|group| group.name == name))?;
        let mut group = Group::new(&name);
        if self.lexer.take(b'{') {
            while !self.lexer.take(b'}') {
                let (word, place) = self.lexer.word("INPA to INPU, RULE or }")?;
                let letter = word.strip_prefix("INP").and_then(|letter| match letter.as_bytes() {
                    [letter @ b'A'..=b'U'] => Some(letter - b'A'),
                    _ => None,
                });
                match (letter, &*word) {
                    (Some(letter), _) => {
                        self.lexer.punct(b'(', "after the input")?;
                        let (channel, _) = self.lexer.word("the name of a channel")?;
                        self.lexer.punct(b')', "after the channel")?;
                        group.inputs.push(Input { letter, channel: channel.into_owned() });
                    }
                    (None, "RULE") => {
                        let rule = self.rule()?;
                        group.rules.push(rule);
                    }
                    (None, other) => return Err(self.unknown(place, other, &["INPA to INPU", "RULE"])),
                }
            }
        }
        self.rules.groups.push(group);
        Ok(())
    }

    /// `(LEVEL, GRANT, TRAP) { … }`
    fn rule(&mut self) -> Result<Rule, FileError> {
        self.lexer.punct(b'(', "after RULE")?;
        let (level, place) = self.lexer.word("the security level, 0 or 1")?;
        let level = level
            .parse()
            .map_err(|_| self.lexer.error(place, format!("found \"{level}\", expected the security level, 0 or 1")))?;
        self.lexer.punct(b',', "after the level")?;
        let (word, place) = self.lexer.word("NONE, READ or WRITE")?;
        let grant = match &*word {
            "NONE" => Grant::None,
            "READ" => Grant::Read,
            // RPC belongs to PVAccess. A client that may call may also write.
            "WRITE" | "RPC" => Grant::Write,
            other => return Err(self.unknown(place, other, &["NONE", "READ", "WRITE"])),
        };
        let mut trap = false;
        if self.lexer.take(b',') {
            let (word, place) = self.lexer.word("TRAPWRITE or NOTRAPWRITE")?;
            trap = match &*word {
                "TRAPWRITE" => true,
                "NOTRAPWRITE" => false,
                other => return Err(self.unknown(place, other, &["TRAPWRITE", "NOTRAPWRITE"])),
            };
        }
        self.lexer.punct(b')', "after the rule's head")?;
        let mut rule = Rule { level, grant, trap, users: Vec::new(), hosts: Vec::new(), condition: None, never: false };
        if self.lexer.take(b'{') {
            while !self.lexer.take(b'}') {
                self.condition(&mut rule)?;
            }
        }
        Ok(rule)
    }

    /// One condition of a rule.
    fn condition(&mut self, rule: &mut Rule) -> Result<(), FileError> {
        const KNOWN: [&str; 6] = ["UAG", "HAG", "CALC", "METHOD", "AUTHORITY", "PROTOCOL"];
        let (word, place) = self.lexer.word("UAG, HAG, CALC or }")?;
        match &*word {
            "UAG" | "HAG" => {
                let users = &*word == "UAG";
                for (name, place) in self.list(b'(', b')', "the name of a group")? {
                    let known = if users { &self.rules.users } else { &self.rules.hosts };
                    if !known.iter().any(|group| group.name == name) {
                        let hint = nearest(&name, known.iter().map(|group| group.name.as_str()))
                            .map_or(String::new(), |near| format!("; nearest is \"{near}\""));
                        let what = format!("{word}({name}) is not defined before this rule{hint}");
                        return Err(self.lexer.error(place, what));
                    }
                    (if users { &mut rule.users } else { &mut rule.hosts }).push(name);
                }
            }
            "CALC" => {
                self.lexer.punct(b'(', "after CALC")?;
                let (text, place) = self.lexer.word("an expression")?;
                self.lexer.punct(b')', "after the expression")?;
                rule.condition = Some(self.calc(&text, place)?);
            }
            "METHOD" | "AUTHORITY" | "PROTOCOL" => {
                let wanted = self.list(b'(', b')', "a name")?;
                let met = match &*word {
                    "METHOD" => wanted.iter().any(|(name, _)| name == "ca"),
                    "PROTOCOL" => wanted.iter().any(|(name, _)| name.eq_ignore_ascii_case("tcp")),
                    _ => false,
                };
                if !met {
                    rule.never = true;
                    let text = "is not applicable to Channel Access, which knows no certificates; its rule never holds";
                    let (line, column) = (place.line, place.column);
                    self.rules.notices.push(format!("{}:{line}:{column}: {word} {text}", self.file));
                }
            }
            other => return Err(self.unknown(place, other, &KNOWN)),
        }
        Ok(())
    }

    fn calc(&mut self, text: &str, place: Position) -> Result<Condition, FileError> {
        let program = calc::compile(text.as_bytes())
            .map_err(|error| self.lexer.error(place, format!("CALC \"{text}\": {error}")))?;
        if program.stores != 0 {
            return Err(self.lexer.error(place, format!("CALC \"{text}\" assigns to an input, expected a condition")));
        }
        if program.inputs & ((1 << INPUTS) - 1) == 0 {
            let (line, column) = (place.line, place.column);
            let text =
                format!("{}:{line}:{column}: CALC \"{text}\" uses no input; as in EPICS it is never true", self.file);
            self.rules.notices.push(text);
        }
        Ok(Condition { text: text.to_owned(), holds: false, program })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        Security::parse(text, "t.acf", &Macros::default()).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_place_and_nearest_word() {
        for (text, expected) in [
            ("UAGS(a) {b}", "t.acf:1:1: found \"UAGS\", expected UAG, HAG, ASG; nearest is \"UAG\""),
            (
                "UAG(operators) {b}\nASG(x) { RULE(1,WRITE) { UAG(operator) } }",
                "t.acf:2:30: UAG(operator) is not defined before this rule; nearest is \"operators\"",
            ),
            (
                "ASG(x) { RULE(1,WRIET) }",
                "t.acf:1:17: found \"WRIET\", expected NONE, READ, WRITE; nearest is \"WRITE\"",
            ),
            (
                "ASG(x) { RULE(1,READ) { CALC(\"A+\") } }",
                "t.acf:1:30: CALC \"A+\": Incomplete expression, operand missing",
            ),
            ("ASG(x) { INPV(y) }", "t.acf:1:10: found \"INPV\", expected INPA to INPU, RULE"),
            ("ASG(x) ASG(x)", "t.acf:1:12: the file has ASG(x) already, expected another name"),
            ("ASG(x) {", "t.acf:1:9: found the end of the file, expected INPA to INPU, RULE or }"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(words in proptest::collection::vec(
            prop_oneof!["UAG|HAG|ASG|RULE|CALC|INPA|READ|WRITE|METHOD", "[(){},]", "\"A(<|\\+)?B?\"", "[a-c0-9#\"\n]"], 0..40)) {
            let _ = Security::parse(&words.join(" "), "t.acf", &Macros::default());
        }
    }
}
