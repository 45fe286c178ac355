//! The C preprocessor: macros, included files, conditions. A macro call does not extend over a line of the preprocessor.

use crate::error::{Pos, SnlError};
use crate::lex::{Scanner, Tok, Token};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Maximum depth of included files, and of macros in arguments of macros.
const DEPTH_MAX: usize = 20;
/// Highest number in a line marker. Lines after it have room to count on.
const LINE_MAX: u32 = 1 << 30;
/// Name of the parameter for all further arguments.
const REST: &str = "__VA_ARGS__";
/// Maximum number of included files, each counted as often as it is read.
const INCLUDES_MAX: usize = 1_000;
/// Maximum number of tokens of a program, and of bytes of the texts that its macros put together.
const TOKENS_MAX: usize = 1_000_000;

struct Macro {
    /// Names of the parameters of a macro with arguments.
    params: Option<Vec<Rc<str>>>,
    body: Vec<Token>,
}

/// Open `#if`.
struct Condition {
    /// Whether a branch was used already, or the condition is itself in an unused branch.
    done: bool,
    active: bool,
}

/// Returns the name and the text of an included file, from the name of the including file and the name as written.
pub type Include<'a> = dyn FnMut(&str, &str) -> Option<(String, String)> + 'a;

/// The preprocessor. `include` returns the text of a file, from the including file's name and the written name.
pub(crate) struct Preprocessor<'a> {
    pub(crate) files: Vec<String>,
    include: &'a mut Include<'a>,
    macros: HashMap<Rc<str>, Macro>,
    out: Vec<Token>,
    /// Tokens, and bytes of texts that macros put together.
    made: usize,
    included: usize,
}

impl<'a> Preprocessor<'a> {
    pub(crate) fn new(include: &'a mut Include<'a>) -> Self {
        Self { files: Vec::new(), include, macros: HashMap::new(), out: Vec::new(), made: 0, included: 0 }
    }

    /// Number of a file name.
    fn file_number(&mut self, name: &str) -> u16 {
        let found = self.files.iter().position(|file| file == name).unwrap_or_else(|| {
            self.files.push(name.to_owned());
            self.files.len() - 1
        });
        u16::try_from(found).unwrap_or(u16::MAX)
    }

    /// The tokens of a program.
    pub(crate) fn run(&mut self, text: &str, name: &str) -> Result<Vec<Token>, SnlError> {
        self.read(text, name, 0)?;
        Ok(std::mem::take(&mut self.out))
    }

    fn read(&mut self, text: &str, name: &str, depth: usize) -> Result<(), SnlError> {
        let mut scanner = Scanner::new(text, self.file_number(name), 1);
        let mut conditions: Vec<Condition> = Vec::new();
        let mut pending = Vec::new();
        loop {
            let active = conditions.last().is_none_or(|condition| condition.active);
            let token = match scanner.next() {
                Ok(token) => token,
                Err(_) if !active => {
                    scanner.skip_line();
                    continue;
                }
                Err(error) => return Err(error),
            };
            match &token.tok {
                Tok::End => break,
                Tok::Directive(line) => {
                    let ready = std::mem::take(&mut pending);
                    self.expand_to_out(ready)?;
                    let (word, rest) = first_word(line);
                    match word {
                        "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif" => {
                            self.condition(word, rest, token.pos, &mut conditions)?;
                        }
                        _ if !active => {}
                        "include" => self.include(rest, token.pos, depth)?,
                        _ if word.starts_with(|first: char| first.is_ascii_digit()) || word == "line" => {
                            let rest = if word == "line" { rest } else { line };
                            self.line_marker(rest, &mut scanner);
                        }
                        _ => self.define(word, rest, token.pos)?,
                    }
                }
                _ if active => {
                    self.made += 1;
                    if self.made > TOKENS_MAX {
                        return Err(too_long(token.pos));
                    }
                    pending.push(token);
                }
                _ => {}
            }
        }
        if !conditions.is_empty() {
            return Err(SnlError::new(scanner.pos(), "found the end of the file, expected #endif"));
        }
        self.expand_to_out(pending)
    }

    fn expand_to_out(&mut self, tokens: Vec<Token>) -> Result<(), SnlError> {
        let expanded = self.expand(tokens, 0)?;
        self.out.extend(expanded);
        Ok(())
    }

    /// `# 12 "file"`, as other preprocessors write it.
    fn line_marker(&mut self, rest: &str, scanner: &mut Scanner<'_>) {
        let (number, file) = first_word(rest);
        if let Ok(number) = number.parse::<u32>() {
            scanner.line = number.clamp(1, LINE_MAX) - 1;
        }
        if let Some(name) = file.strip_prefix('"').and_then(|file| file.split('"').next()) {
            scanner.file = self.file_number(name);
        }
    }

    fn condition(&mut self, word: &str, rest: &str, pos: Pos, conditions: &mut Vec<Condition>) -> Result<(), SnlError> {
        let outer = match word {
            "if" | "ifdef" | "ifndef" => conditions.last().is_none_or(|condition| condition.active),
            _ => conditions.iter().rev().nth(1).is_none_or(|condition| condition.active),
        };
        if matches!(word, "if" | "ifdef" | "ifndef") {
            if conditions.len() >= 100 {
                return Err(SnlError::new(pos, "found more than 100 nested #if"));
            }
            let holds = outer
                && match word {
                    "if" => self.value(rest, pos)?,
                    _ => self.macros.contains_key(first_word(rest).0) == (word == "ifdef"),
                };
            conditions.push(Condition { done: holds || !outer, active: holds });
            return Ok(());
        }
        let Some(done) = conditions.last().map(|last| last.done) else {
            return Err(SnlError::new(pos, format!("found #{word}, expected #if before it")));
        };
        let holds = match word {
            "elif" => !done && outer && self.value(rest, pos)?,
            "else" => !done && outer,
            _ => {
                conditions.pop();
                return Ok(());
            }
        };
        if let Some(last) = conditions.last_mut() {
            last.active = holds;
            last.done |= holds;
        }
        Ok(())
    }

    /// Value of the expression of an `#if`.
    fn value(&mut self, text: &str, pos: Pos) -> Result<bool, SnlError> {
        let mut tokens = scan(text, pos)?;
        // `defined` applies to names before they are replaced.
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at].tok == Tok::Name("defined".into()) {
                let parts: Vec<&Tok> = tokens[at + 1..].iter().take(3).map(|token| &token.tok).collect();
                let (name, len) = match parts.as_slice() {
                    [Tok::Sign("("), Tok::Name(name), Tok::Sign(")")] => (name, 4),
                    [Tok::Name(name), ..] => (name, 2),
                    _ => return Err(SnlError::new(pos, "expected a name after \"defined\"")),
                };
                let known = if self.macros.contains_key(name) { "1" } else { "0" };
                tokens.splice(at..at + len, [Token { tok: Tok::Number(known.into()), pos, space: true }]);
            }
            at += 1;
        }
        let tokens = self.expand(tokens, 0)?;
        let mut sum = Arithmetic { tokens: &tokens, at: 0, depth: 0 };
        match (sum.expression(0), sum.at == tokens.len()) {
            (Some(value), true) => Ok(value != 0),
            _ => Err(SnlError::new(pos, format!("found \"{text}\", expected a condition of whole numbers"))),
        }
    }

    fn include(&mut self, rest: &str, pos: Pos, depth: usize) -> Result<(), SnlError> {
        // Headers of C's libraries are not read, because their functions are known here.
        if rest.starts_with('<') {
            return Ok(());
        }
        let Some(name) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
            return Err(SnlError::new(pos, format!("found #include {rest}, expected a file name in quotes")));
        };
        if depth >= DEPTH_MAX {
            return Err(SnlError::new(pos, format!("{name}: files include each other more than {DEPTH_MAX} deep")));
        }
        if self.included >= INCLUDES_MAX {
            let what = format!("found more than {INCLUDES_MAX} included files");
            return Err(
                SnlError::new(pos, what).remedy("put #ifndef NAME, #define NAME and #endif around included files")
            );
        }
        self.included += 1;
        let from = self.files.get(usize::from(pos.file)).cloned().unwrap_or_default();
        let Some((file, text)) = (self.include)(&from, name) else {
            let what = format!("found #include \"{name}\", expected a file that can be read");
            return Err(
                SnlError::new(pos, what).remedy("put the file into the program's folder, or its folder into SNL_PATH")
            );
        };
        self.read(&text, &file, depth + 1)
    }

    fn define(&mut self, word: &str, rest: &str, pos: Pos) -> Result<(), SnlError> {
        match word {
            "define" => {
                let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let after = &rest[name.len()..];
                let (mut params, mut body) = (None, after);
                if let Some(after) = after.strip_prefix('(') {
                    let Some((list, rest)) = after.split_once(')') else {
                        return Err(SnlError::new(pos, format!("found #define {name}(, expected \")\"")));
                    };
                    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                    let names = names.map(|name| if name == "..." { REST } else { name });
                    params = Some(names.map(Into::into).collect());
                    body = rest;
                }
                self.macros.insert(name.into(), Macro { params, body: scan(body, pos)? });
            }
            "undef" => drop(self.macros.remove(first_word(rest).0)),
            "error" => return Err(SnlError::new(pos, format!("#error {rest}"))),
            // As in C, other lines have no effect here.
            "" | "pragma" | "warning" | "ident" => {}
            other => return Err(SnlError::new(pos, format!("found #{other}, expected a line of the preprocessor"))),
        }
        Ok(())
    }

    /// Replaces macros.
    fn expand(&mut self, mut tokens: Vec<Token>, depth: usize) -> Result<Vec<Token>, SnlError> {
        tokens.reverse();
        let mut active: HashSet<Rc<str>> = HashSet::new();
        let mut out = Vec::with_capacity(tokens.len());
        while let Some(token) = tokens.pop() {
            let name = match &token.tok {
                Tok::EndMacro(name) => {
                    active.remove(name);
                    continue;
                }
                Tok::Name(name) if !active.contains(name) => Rc::clone(name),
                _ => {
                    out.push(token);
                    continue;
                }
            };
            let pos = token.pos;
            match &*name {
                "__LINE__" => {
                    out.push(Token { tok: Tok::Number(pos.line.to_string().into()), ..token });
                    continue;
                }
                "__FILE__" => {
                    let file = self.files.get(usize::from(pos.file)).map_or("", String::as_str);
                    out.push(Token { tok: Tok::Text(file.as_bytes().into()), ..token });
                    continue;
                }
                _ => {}
            }
            let Some(found) = self.macros.get(&name) else {
                out.push(token);
                continue;
            };
            let (params, body) = (found.params.clone(), found.body.clone());
            let body = match params {
                None => body,
                Some(params) => {
                    // Without arguments, it is an ordinary name.
                    let next = tokens.iter().rev().find(|token| !matches!(token.tok, Tok::EndMacro(_)));
                    if next.is_none_or(|next| next.tok != Tok::Sign("(")) {
                        out.push(token);
                        continue;
                    }
                    let count = params.len();
                    let has_rest = params.last().is_some_and(|last| &**last == REST);
                    let mut arguments = arguments(&mut tokens, &mut active, &name, pos)?;
                    if has_rest && arguments.len() > count {
                        // The commas stay between the arguments.
                        let comma = Token { tok: Tok::Sign(","), pos, space: false };
                        let rest = arguments.split_off(count - 1);
                        arguments.push(rest.join(&comma));
                    }
                    self.substitute(&body, &params, &arguments, depth, pos)?
                }
            };
            self.made += body.len() + 1;
            if self.made > TOKENS_MAX {
                return Err(too_long(pos));
            }
            active.insert(Rc::clone(&name));
            tokens.push(Token { tok: Tok::EndMacro(name), pos, space: false });
            tokens.extend(body.into_iter().rev().map(|part| Token { pos, ..part }));
        }
        Ok(out)
    }

    fn substitute(
        &mut self,
        body: &[Token],
        params: &[Rc<str>],
        arguments: &[Vec<Token>],
        depth: usize,
        pos: Pos,
    ) -> Result<Vec<Token>, SnlError> {
        if depth >= DEPTH_MAX {
            return Err(SnlError::new(pos, format!("macros call each other more than {DEPTH_MAX} deep")));
        }
        let argument = |token: Option<&Token>| -> Option<&Vec<Token>> {
            let Tok::Name(name) = &token?.tok else { return None };
            arguments.get(params.iter().position(|param| param == name)?)
        };
        let mut out: Vec<Token> = Vec::new();
        let mut at = 0;
        while at < body.len() {
            let token = &body[at];
            at += 1;
            match &token.tok {
                Tok::Sign("#") if argument(body.get(at)).is_some() => {
                    let text = argument(body.get(at)).map(|tokens| spelled(tokens)).unwrap_or_default();
                    self.made += text.len();
                    out.push(Token { tok: Tok::Text(text.into_bytes().into()), ..token.clone() });
                    at += 1;
                }
                Tok::Sign("##") => {
                    let next = body.get(at);
                    at += 1;
                    let right = match argument(next) {
                        Some(tokens) => tokens.clone(),
                        None => next.cloned().into_iter().collect(),
                    };
                    let left = out.pop().map(|token| token.tok.text()).unwrap_or_default();
                    let joined = left + &right.first().map(|token| token.tok.text()).unwrap_or_default();
                    self.made += joined.len();
                    out.extend(scan(&joined, pos)?);
                    out.extend(right.into_iter().skip(1));
                }
                _ => match argument(Some(token)) {
                    // Next to `##`, an argument is used as written.
                    Some(tokens) if body.get(at).is_some_and(|next| next.tok == Tok::Sign("##")) => {
                        out.extend(tokens.iter().cloned());
                        if tokens.is_empty() {
                            out.push(Token { tok: Tok::EndMacro("".into()), pos, space: false });
                        }
                    }
                    Some(tokens) => out.extend(self.expand(tokens.clone(), depth + 1)?),
                    None => out.push(token.clone()),
                },
            }
            self.made += 1;
            if out.len() > TOKENS_MAX || self.made > TOKENS_MAX {
                return Err(too_long(pos));
            }
        }
        Ok(out)
    }
}

/// Takes the arguments of a macro call, from `(` to `)`.
fn arguments(
    tokens: &mut Vec<Token>,
    active: &mut HashSet<Rc<str>>,
    name: &str,
    pos: Pos,
) -> Result<Vec<Vec<Token>>, SnlError> {
    let mut arguments = vec![Vec::new()];
    let mut depth = 0;
    while let Some(token) = tokens.pop() {
        match &token.tok {
            Tok::EndMacro(name) => {
                active.remove(name);
                continue;
            }
            Tok::Sign("(") if depth == 0 => {
                depth = 1;
                continue;
            }
            Tok::Sign("(") => depth += 1,
            Tok::Sign(")") if depth == 1 => return Ok(arguments),
            Tok::Sign(")") => depth -= 1,
            Tok::Sign(",") if depth == 1 => {
                arguments.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = arguments.last_mut() {
            last.push(token);
        }
    }
    Err(SnlError::new(pos, format!("found a call of the macro {name} without end, expected \")\"")))
}

fn too_long(pos: Pos) -> SnlError {
    SnlError::new(pos, format!("found more than {TOKENS_MAX} tokens, after the expansion of macros"))
}

fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Tokens of a part of a line.
fn scan(text: &str, pos: Pos) -> Result<Vec<Token>, SnlError> {
    let mut scanner = Scanner::new(text, pos.file, pos.line);
    scanner.not_at_line_start();
    let mut tokens = Vec::new();
    loop {
        let token = scanner.next()?;
        match token.tok {
            Tok::End => return Ok(tokens),
            _ => tokens.push(Token { pos, ..token }),
        }
    }
}

/// Text of an argument, for `#`, as far as a program can have it.
fn spelled(tokens: &[Token]) -> String {
    let mut out = String::new();
    for token in tokens {
        if out.len() > TOKENS_MAX {
            break;
        }
        if token.space && !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&token.tok.text());
    }
    out
}

/// Whole-number arithmetic of `#if`.
struct Arithmetic<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
}

/// Binary operators with their precedence.
const OPERATORS: [(&str, u8); 18] = [
    ("||", 1),
    ("&&", 2),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("==", 6),
    ("!=", 6),
    ("<", 7),
    (">", 7),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

impl Arithmetic<'_> {
    fn next(&mut self) -> Option<&Tok> {
        self.at += 1;
        self.tokens.get(self.at - 1).map(|token| &token.tok)
    }

    fn expression(&mut self, lowest: u8) -> Option<i64> {
        let mut left = self.operand()?;
        while let Some(Tok::Sign(sign)) = self.tokens.get(self.at).map(|token| &token.tok)
            && let Some((sign, rank)) = OPERATORS.into_iter().find(|(known, rank)| known == sign && *rank > lowest)
        {
            self.at += 1;
            let right = self.expression(rank)?;
            left = match sign {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "<<" => left.checked_shl(u32::try_from(right).ok()?)?,
                ">>" => left.checked_shr(u32::try_from(right).ok()?)?,
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                "/" => left.checked_div(right)?,
                _ => left.checked_rem(right)?,
            };
        }
        Some(left)
    }

    fn operand(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > 1_000 {
            return None;
        }
        match self.next()?.clone() {
            Tok::Number(text) => crate::parse::whole(&text).map(|(value, ..)| value as i64),
            // A name that is not a macro is 0. One that looks like a call of a macro is not a condition.
            Tok::Name(_) => Some(0),
            Tok::Char(byte) => Some(i64::from(byte)),
            Tok::Sign("!") => Some(i64::from(self.operand()? == 0)),
            Tok::Sign("-") => Some(self.operand()?.wrapping_neg()),
            Tok::Sign("+") => self.operand(),
            Tok::Sign("~") => Some(!self.operand()?),
            Tok::Sign("(") => {
                let value = self.expression(0)?;
                (self.next()? == &Tok::Sign(")")).then_some(value)
            }
            _ => None,
        }
    }
}
