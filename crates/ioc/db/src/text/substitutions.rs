//! `.substitutions` files: templates to load, each with its macros.

use crate::text::error::{FileError, Position};
use crate::text::lex::{Lexer, Token};

/// One instantiation of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The template.
    pub file: String,
    /// Its macros in the format of [`crate::Macros::parse`], those of `global` first.
    pub macros: String,
    /// Its position, for errors in the template.
    pub place: Position,
    /// The first value beyond the pattern. As in C, the value is ignored.
    pub surplus: Option<FileError>,
}

/// Maximum number of instances per file.
const INSTANCES_MAX: usize = 1_000_000;

/// Parses a `.substitutions` file: `file NAME { pattern {A, B} {1, 2} … }`, `file NAME { {A=1, B=2} … }`, `global {…}`.
///
/// ```
/// let text = "file magnet.db { pattern {P, N} {ring, 1} {ring, 2} }";
/// let instances = db::parse_substitutions(text, "magnets.substitutions")?;
/// assert_eq!(instances.len(), 2);
/// assert_eq!(instances[1].file, "magnet.db");
/// assert_eq!(db::Macros::parse(&instances[1].macros).get("N").as_deref(), Some("2"));
/// # Ok::<(), db::FileError>(())
/// ```
///
/// # Errors
/// The first malformed item, with file, line and column.
pub fn parse_substitutions(text: &str, file: &str) -> Result<Vec<Instance>, FileError> {
    let lexer = Lexer::of_substitutions(text, file);
    let mut parser = Parser { lexer, globals: String::new(), all: Vec::new(), surplus: None };
    loop {
        match parser.lexer.next()? {
            (Token::End, _) => return Ok(parser.all),
            (Token::Word { text, quoted: false }, _) if text == "global" => parser.globals()?,
            (Token::Word { text, quoted: false }, _) if text == "file" => parser.template()?,
            (_, place) => return Err(parser.lexer.error(place, "expected file or global")),
        }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    globals: String,
    all: Vec<Instance>,
    /// Error of the instance that is being parsed.
    surplus: Option<FileError>,
}

impl Parser<'_> {
    fn globals(&mut self) -> Result<(), FileError> {
        self.lexer.punct(b'{', "after global")?;
        let added = self.definitions()?;
        self.globals.push_str(&added);
        Ok(())
    }

    /// Parses `A=1, B="2" }`; the result has a comma after each definition.
    fn definitions(&mut self) -> Result<String, FileError> {
        let mut out = String::new();
        loop {
            if self.lexer.take(b'}') {
                return Ok(out);
            }
            if self.lexer.take(b',') {
                continue;
            }
            let (name, _) = self.lexer.word("the name of a macro or }")?;
            // As in msi, a name alone, such as `{None}`, has no value: the instance needs no macros.
            if matches!(self.lexer.peek()?, Token::Punct(b'}' | b',')) {
                out.push_str(&name);
                out.push(',');
                continue;
            }
            self.lexer.punct(b'=', "after the name of a macro")?;
            let (value, _) = self.value("the value of the macro")?;
            define(&mut out, &name, value);
        }
    }

    /// A value and whether it is quoted.
    fn value(&mut self, what: &str) -> Result<((String, bool), Position), FileError> {
        match self.lexer.next()? {
            (Token::Word { text, quoted }, place) => Ok(((text.into_owned(), quoted), place)),
            (_, place) => Err(self.lexer.error(place, format!("expected {what}"))),
        }
    }

    /// `NAME { … }`
    fn template(&mut self) -> Result<(), FileError> {
        let (file, place) = self.lexer.word("the name of a template")?;
        let file = file.into_owned();
        if file.is_empty() {
            return Err(self.lexer.error(place, "the name of the template is empty"));
        }
        self.lexer.punct(b'{', "after the name of the template")?;
        let mut pattern: Option<Vec<String>> = None;
        let mut first = true;
        loop {
            match self.lexer.next()? {
                (Token::Punct(b'}'), _) => return Ok(()),
                (Token::Punct(b'{'), place) => {
                    let macros = match &pattern {
                        Some(names) => self.values(&names.clone())?,
                        None => self.definitions()?,
                    };
                    if self.all.len() >= INSTANCES_MAX {
                        return Err(self.lexer.error(place, format!("more than {INSTANCES_MAX} instances")));
                    }
                    let macros = format!("{}{macros}", self.globals);
                    let surplus = self.surplus.take();
                    self.all.push(Instance { file: file.clone(), macros, place, surplus });
                }
                (Token::Word { text, quoted: false }, _) if text == "pattern" && first => {
                    self.lexer.punct(b'{', "after pattern")?;
                    let mut names = Vec::new();
                    while !self.lexer.take(b'}') {
                        if !self.lexer.take(b',') {
                            names.push(self.lexer.word("the name of a macro or }")?.0.into_owned());
                        }
                    }
                    pattern = Some(names);
                }
                (Token::Word { text, quoted: false }, _) if text == "global" => {
                    self.globals()?;
                    continue;
                }
                // Old files have a record name before each brace; it is ignored.
                (Token::Word { .. }, _) if *self.lexer.peek()? == Token::Punct(b'{') => continue,
                (_, place) => return Err(self.lexer.error(place, "expected pattern, global, { or }")),
            }
            first = false;
        }
    }

    /// Parses `1, "2" }` for the macros of a pattern.
    fn values(&mut self, names: &[String]) -> Result<String, FileError> {
        let mut out = String::new();
        let mut count = 0;
        while !self.lexer.take(b'}') {
            if self.lexer.take(b',') {
                continue;
            }
            let (value, place) = self.value("a value or }")?;
            match names.get(count) {
                Some(name) => define(&mut out, name, value),
                None if self.surplus.is_none() => {
                    let what = format!("value {} of a pattern of {} macros is left out", count + 1, names.len());
                    self.surplus = Some(self.lexer.error(place, what));
                }
                None => {}
            }
            count += 1;
        }
        Ok(out)
    }
}

fn define(out: &mut String, name: &str, (value, quoted): (String, bool)) {
    out.push_str(name);
    out.push('=');
    if quoted {
        out.push('"');
    }
    out.push_str(&value);
    if quoted {
        out.push('"');
    }
    out.push(',');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::macros::Macros;
    use proptest::prelude::*;

    #[test]
    fn patterns_and_definitions_give_the_same_instances() {
        let text = "global { P=X:, T=\"a b\" }\n\
            file \"m.db\" { pattern { N, V } { 1, 10 } {2 \"$(P)20\"} }\n\
            file n.db { { N=3, V='v,w' } global {T=c} {N=4} old{N=5} {} }";
        let all = parse_substitutions(text, "t.substitutions").unwrap();
        let seen: Vec<String> = all
            .iter()
            .map(|one| {
                let macros = Macros::parse(&one.macros);
                format!("{} {}", one.file, macros.expand("$(P)|$(T)|$(N=-)|$(V=-)").0)
            })
            .collect();
        assert_eq!(
            seen,
            [
                "m.db X:|a b|1|10",
                "m.db X:|a b|2|X:20",
                "n.db X:|a b|3|v,w",
                "n.db X:|c|4|-",
                "n.db X:|c|5|-",
                "n.db X:|c|-|-"
            ]
        );
    }

    #[test]
    fn surplus_values_of_a_pattern_are_ignored_and_reported() {
        let all = parse_substitutions("file a.db { pattern {A} {1, 2} {3} }", "t.sub").unwrap();
        assert_eq!(all[0].macros, "A=1,");
        let surplus = all[0].surplus.as_ref().map(ToString::to_string);
        assert_eq!(surplus.as_deref(), Some("t.sub:1:29: value 2 of a pattern of 1 macros is left out"));
        assert_eq!((all[1].macros.as_str(), &all[1].surplus), ("A=3,", &None));
    }

    #[test]
    fn values_may_be_macros_without_quotes_and_an_instance_may_have_none() {
        let text =
            "file a.db { pattern {P, N} {$(P), $(P)x$(N=$(M))} { ${P}, b } }\nfile b.db { {None} {A=$(P):1, B=2} }";
        let all = parse_substitutions(text, "t.sub").unwrap();
        let macros: Vec<&str> = all.iter().map(|one| one.macros.as_str()).collect();
        assert_eq!(macros, ["P=$(P),N=$(P)x$(N=$(M)),", "P=${P},N=b,", "None,", "A=$(P):1,B=2,"]);
        let error = parse_substitutions("file a.db { pattern {P} {$(P\n} }", "t.sub").unwrap_err().to_string();
        assert_eq!(error, "t.sub:1:26: this macro is not closed on its line, expected )");
    }

    #[test]
    fn errors_name_their_place() {
        for (text, expected) in [
            ("fil a.db {}", "t.sub:1:1: expected file or global"),
            ("file a.db { {A 1} }", "t.sub:1:16: found \"1\", expected \"=\" after the name of a macro"),
            ("file a.db { pattern {A} {1 ", "t.sub:1:28: expected a value or }"),
        ] {
            assert_eq!(parse_substitutions(text, "t.sub").unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "(file|global|pattern|[{}=,a'\" \n#]){0,60}") {
            let _ = parse_substitutions(&text, "t.sub");
        }
    }
}
