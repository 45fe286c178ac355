//! Parser: tokens to a tree. It stops at the first error.

mod define;
mod expr;
mod stmt;

use crate::ast::{Next, Set, State, Stmt, Tree, When};
use crate::error::{Pos, SnlError};
use crate::lex::{Tok, Token};

/// Maximum depth of expressions, statements and types.
const DEPTH_MAX: u16 = 100;
/// Maximum number of bytes of a text.
const TEXT_MAX: usize = 64 << 10;

type Result<T> = std::result::Result<T, SnlError>;

pub(crate) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u16,
    end: Token,
}

/// A whole number as written, whether its type is unsigned, and whether it is `long`.
pub(crate) fn whole(text: &str) -> Option<(u64, bool, bool)> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = text[digits.len()..].to_ascii_lowercase();
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok()?,
        None => digits.parse().ok()?,
    };
    Some((value, suffix.contains('u'), suffix.contains('l')))
}

impl Parser {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        let pos = tokens.last().map_or(Pos { file: 0, line: 1 }, |token| token.pos);
        Self { tokens, at: 0, depth: 0, end: Token { tok: Tok::End, pos, space: false } }
    }

    fn token(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&self.end)
    }

    fn tok(&self) -> &Tok {
        &self.token().tok
    }

    fn ahead(&self, count: usize) -> &Tok {
        self.tokens.get(self.at + count).map_or(&Tok::End, |token| &token.tok)
    }

    fn pos(&self) -> Pos {
        self.token().pos
    }

    fn is(&self, text: &str) -> bool {
        match self.tok() {
            Tok::Sign(sign) => *sign == text,
            Tok::Name(name) => &**name == text,
            _ => false,
        }
    }

    fn accept(&mut self, text: &str) -> bool {
        let found = self.is(text);
        self.at += usize::from(found);
        found
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        Err(SnlError::new(self.pos(), format!("found {}, expected {what}", self.tok().text())))
    }

    fn need(&mut self, text: &str) -> Result<()> {
        if self.accept(text) { Ok(()) } else { self.expected(&format!("\"{text}\"")) }
    }

    fn name(&mut self, what: &str) -> Result<String> {
        match self.tok() {
            Tok::Name(name) if !RESERVED.contains(&&**name) => {
                let name = name.to_string();
                self.at += 1;
                Ok(name)
            }
            _ => self.expected(what),
        }
    }

    /// One or more texts in a row, which are one.
    fn text(&mut self) -> Result<Option<Vec<u8>>> {
        let mut text: Option<Vec<u8>> = None;
        while let Tok::Text(bytes) = self.tok() {
            let text = text.get_or_insert_default();
            text.extend_from_slice(bytes);
            if text.len() > TEXT_MAX {
                return Err(SnlError::new(self.pos(), format!("found a text of more than {TEXT_MAX} bytes")));
            }
            self.at += 1;
        }
        Ok(text)
    }

    fn string(&mut self, what: &str) -> Result<String> {
        match self.text()? {
            Some(bytes) => Ok(base::raw::decode(&bytes).into_owned()),
            None => self.expected(what),
        }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEPTH_MAX {
            return Err(SnlError::new(self.pos(), format!("found more than {DEPTH_MAX} nested parts"))
                .remedy("split the expression or statement"));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    // Program.

    pub(crate) fn program(&mut self) -> Result<Tree> {
        let mut defs = Vec::new();
        // C code in front of the program, as includes.
        while matches!(self.tok(), Tok::Code(_)) {
            self.def(&mut defs, true)?;
        }
        if !self.accept("program") {
            return self.expected("\"program NAME\"");
        }
        let name = self.name("the name of the program")?;
        let mut params = String::new();
        if self.accept("(") {
            params = self.string("the program's parameters in quotes")?;
            self.need(")")?;
        }
        while !self.is("ss") && !self.is("entry") {
            if self.tok() == &Tok::End {
                return self.expected("\"ss NAME {\"");
            }
            // Older programs have a semicolon here.
            if !self.accept(";") {
                self.def(&mut defs, true)?;
            }
        }
        let entry = self.block_after("entry")?;
        let mut sets = Vec::new();
        while self.is("ss") {
            sets.push(self.set()?);
        }
        if sets.is_empty() {
            return self.expected("\"ss NAME {\"");
        }
        let exit = self.block_after("exit")?;
        while self.tok() != &Tok::End {
            self.def(&mut defs, true)?;
        }
        Ok(Tree { name, params, defs, entry, sets, exit })
    }

    fn block_after(&mut self, word: &str) -> Result<Option<Vec<Stmt>>> {
        if self.accept(word) { self.block().map(Some) } else { Ok(None) }
    }

    fn set(&mut self) -> Result<Set> {
        let pos = self.pos();
        self.need("ss")?;
        let name = self.name("the name of the state set")?;
        self.need("{")?;
        let (mut defs, mut states) = (Vec::new(), Vec::new());
        while !self.is("state") && !self.is("}") {
            self.def(&mut defs, false)?;
        }
        while !self.accept("}") {
            states.push(self.state()?);
        }
        if states.is_empty() {
            return Err(SnlError::new(
                pos,
                format!("found state set {name} without states, expected \"state NAME {{\""),
            ));
        }
        Ok(Set { name, defs, states, pos })
    }

    fn state(&mut self) -> Result<State> {
        let pos = self.pos();
        if !self.accept("state") {
            return self.expected("\"state NAME {\" or \"}\"");
        }
        let name = self.name("the name of the state")?;
        self.need("{")?;
        let mut defs = Vec::new();
        while !self.is("entry") && !self.is("when") && !self.is("exit") && !self.is("}") {
            self.def(&mut defs, false)?;
        }
        let entry = self.block_after("entry")?;
        let mut whens = Vec::new();
        while self.is("when") {
            whens.push(self.when()?);
        }
        let exit = self.block_after("exit")?;
        if !self.accept("}") {
            return self.expected("\"when (\", \"exit {\" or \"}\"");
        }
        Ok(State { name, defs, entry, whens, exit, pos })
    }

    fn when(&mut self) -> Result<When> {
        let pos = self.pos();
        self.need("when")?;
        self.need("(")?;
        let condition = if self.is(")") { None } else { Some(self.comma()?) };
        self.need(")")?;
        let body = self.block()?;
        if self.accept("exit") {
            return Ok(When { condition, body, next: Next::Exit, pos });
        }
        let at = self.pos();
        if !self.accept("state") {
            return self.expected("\"state NAME\" or \"exit\"");
        }
        let next = Next::State(self.name("the name of a state")?, at);
        Ok(When { condition, body, next, pos })
    }
}

/// Whether embedded C code has only comments and includes, whose functions are known here.
fn only_includes(code: &str) -> bool {
    let mut rest = code;
    let mut bare = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        bare.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    bare.push_str(rest);
    bare.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with("//") || line.replace(' ', "").starts_with("#include")
    })
}

/// Remedy for embedded C code.
pub(crate) const C_CODE: &str =
    "write it in SNL, or as a record (sub, aSub with dlload, calc) that the program writes and reads";

/// Words that are not names of variables.
const RESERVED: [&str; 43] = [
    "assign", "break", "char", "const", "continue", "do", "double", "else", "entry", "enum", "evflag", "exit", "float",
    "for", "foreign", "goto", "if", "int", "long", "monitor", "option", "program", "return", "short", "signed",
    "sizeof", "ss", "state", "static", "string", "struct", "switch", "sync", "syncq", "syncQ", "to", "typename",
    "uint32_t", "union", "unsigned", "void", "when", "while",
];
