//! Protocol files: tokens, assignments, protocols; and one protocol with everything put in its place.

use super::convert::{Format, Value};
use super::format::{self, Piece};
use base::DurNs;
use std::collections::BTreeMap;
use std::fmt;

/// Deepest nesting of references and blocks.
const DEPTH_MAX: usize = 16;
/// Largest file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Most commands of a protocol.
const COMMANDS_MAX: usize = 256;

/// What is wrong with a protocol file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Found and expected.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, a number, or a byte's name.
    Word(String),
    /// A quoted text, with its escapes.
    Text(String),
    /// `$name`, `${name}`, `$1`.
    Reference(String),
    /// `@name`.
    Handler(String),
    /// `{ } = ; ( ) ,`.
    Sign(char),
}

#[derive(Clone, Debug)]
struct Placed {
    token: Token,
    line: usize,
}

#[derive(Clone, Debug)]
enum Statement {
    /// `name = value;`
    Assign(String, Vec<Placed>),
    /// `command arguments;`, or the name of another protocol.
    Command(String, Vec<Placed>, usize),
    /// `@name { … }`
    Handler(String, Vec<Self>, usize),
}

/// A protocol file.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    /// What stands before the first protocol that is assigned globally, in order with the protocols' positions.
    globals: Vec<Statement>,
    protocols: BTreeMap<String, (Vec<Statement>, usize)>,
}

/// One step of a protocol.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Out(Vec<Piece>),
    In(Vec<Piece>),
    Wait(DurNs),
    Nothing,
    Disconnect,
}

/// A protocol, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    pub(super) commands: Vec<Command>,
    pub(super) mismatch: Vec<Command>,
    pub(super) reply_timeout_handler: Vec<Command>,
    pub(super) read_timeout_handler: Vec<Command>,
    pub(super) init: Vec<Command>,
    pub(super) in_terminator: Option<Vec<u8>>,
    pub(super) out_terminator: Option<Vec<u8>>,
    pub(super) separator: Vec<Piece>,
    pub(super) reply_timeout: DurNs,
    pub(super) read_timeout: DurNs,
    /// How long it may wait for its port.
    pub lock_timeout: DurNs,
    pub(super) max_input: usize,
    pub(super) ignore_extra: bool,
}

impl File {
    /// Reads a protocol file; `name` is for errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str, name: &str) -> Result<Self, Error> {
        let error = |line, what: String| Error { file: name.to_owned(), line, what };
        if text.len() > FILE_BYTES_MAX {
            return Err(error(1, format!("{} bytes; expected at most {FILE_BYTES_MAX}", text.len())));
        }
        let tokens = tokens(text).map_err(|(line, what)| error(line, what))?;
        let mut reader = Reader { tokens, at: 0 };
        let mut file = Self { name: name.to_owned(), globals: Vec::new(), protocols: BTreeMap::new() };
        while let Some(Placed { token, line }) = reader.next() {
            let Token::Word(word) = token else {
                return Err(error(line, format!("found {}, expected a protocol's name or a variable", show(&token))));
            };
            match reader.next().map(|placed| placed.token) {
                Some(Token::Sign('=')) => {
                    let value = reader.until_semicolon().map_err(|what| error(line, what))?;
                    file.globals.push(Statement::Assign(word, value));
                }
                Some(Token::Sign('{')) => {
                    let body = reader.block(0).map_err(|(line, what)| error(line, what))?;
                    if file.protocols.insert(word.clone(), (body, line)).is_some() {
                        return Err(error(line, format!("protocol \"{word}\" is there already")));
                    }
                }
                _ => return Err(error(line, format!("found \"{word}\" alone, expected = or {{ behind it"))),
            }
        }
        Ok(file)
    }

    /// One protocol, with its arguments put in.
    ///
    /// # Errors
    /// No such protocol, or what is wrong with it.
    pub fn protocol(&self, name: &str, arguments: &[String]) -> Result<Protocol, Error> {
        let line = self.protocols.get(name).map_or(1, |(_, line)| *line);
        let mut builder = Builder { file: self, variables: BTreeMap::new(), line };
        builder.variables.insert("0".to_owned(), vec![Placed { token: Token::Text(name.to_owned()), line }]);
        for (at, argument) in arguments.iter().enumerate().take(9) {
            let token = Token::Text(argument.clone());
            builder.variables.insert((at + 1).to_string(), vec![Placed { token, line }]);
        }
        builder.protocol(name).map_err(|what| Error { file: self.name.clone(), line: builder.line, what })
    }
}

fn show(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("\"{word}\""),
        Token::Text(text) => format!("the text \"{text}\""),
        Token::Reference(name) => format!("${name}"),
        Token::Handler(name) => format!("@{name}"),
        Token::Sign(sign) => format!("'{sign}'"),
    }
}

fn tokens(text: &str) -> Result<Vec<Placed>, (usize, String)> {
    let mut out = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        let here = line;
        let token = match next {
            '\n' => {
                line += 1;
                continue;
            }
            next if next.is_whitespace() => continue,
            '#' => {
                while chars.peek().is_some_and(|next| *next != '\n') {
                    chars.next();
                }
                continue;
            }
            '{' | '}' | '=' | ';' | '(' | ')' | ',' => Token::Sign(next),
            '"' | '\'' => {
                let mut quoted = String::new();
                loop {
                    match chars.next() {
                        None | Some('\n') => return Err((here, format!("a quote {next} that is not closed"))),
                        Some(found) if found == next => break,
                        Some('\\') => {
                            quoted.push('\\');
                            quoted.extend(chars.next_if(|next| *next != '\n'));
                        }
                        Some(found) => quoted.push(found),
                    }
                }
                Token::Text(quoted)
            }
            '$' if chars.next_if_eq(&'{').is_some() => {
                let mut name = String::new();
                loop {
                    match chars.next() {
                        Some('}') => break,
                        Some(found) if found != '\n' => name.push(found),
                        _ => return Err((here, "\"${\" that is not closed".to_owned())),
                    }
                }
                Token::Reference(name)
            }
            first => {
                let mut word = String::new();
                if !matches!(first, '$' | '@') {
                    word.push(first);
                }
                let ends = |next: char| next.is_whitespace() || "{}=;(),\"'$@#".contains(next);
                while let Some(found) = chars.next_if(|next| !ends(*next)) {
                    word.push(found);
                }
                match first {
                    '$' => Token::Reference(word),
                    '@' => Token::Handler(word),
                    _ => Token::Word(word),
                }
            }
        };
        out.push(Placed { token, line: here });
    }
    Ok(out)
}

struct Reader {
    tokens: Vec<Placed>,
    at: usize,
}

impl Reader {
    fn next(&mut self) -> Option<Placed> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    fn until_semicolon(&mut self) -> Result<Vec<Placed>, String> {
        let mut value = Vec::new();
        loop {
            match self.next() {
                Some(Placed { token: Token::Sign(';'), .. }) => return Ok(value),
                Some(Placed { token: Token::Sign(sign @ ('{' | '}' | '=')), line }) => {
                    return Err(format!("found '{sign}' in line {line}, expected ; before it"));
                }
                Some(placed) => value.push(placed),
                None => return Err("the file ends, expected ;".to_owned()),
            }
        }
    }

    fn block(&mut self, depth: usize) -> Result<Vec<Statement>, (usize, String)> {
        let last = self.tokens.last().map_or(1, |placed| placed.line);
        if depth > DEPTH_MAX {
            return Err((last, format!("blocks nested more than {DEPTH_MAX} deep")));
        }
        let mut body = Vec::new();
        loop {
            let Some(Placed { token, line }) = self.next() else {
                return Err((last, "the file ends, expected }".to_owned()));
            };
            match token {
                Token::Sign('}') => return Ok(body),
                Token::Sign(';') => {}
                Token::Handler(name) => match self.next().map(|placed| placed.token) {
                    Some(Token::Sign('{')) => body.push(Statement::Handler(name, self.block(depth + 1)?, line)),
                    _ => return Err((line, format!("found @{name} alone, expected {{ behind it"))),
                },
                Token::Word(word) => {
                    let assigns = self.tokens.get(self.at).is_some_and(|next| next.token == Token::Sign('='));
                    self.at += usize::from(assigns);
                    let value = self.until_semicolon().map_err(|what| (line, what))?;
                    body.push(if assigns {
                        Statement::Assign(word, value)
                    } else {
                        Statement::Command(word, value, line)
                    });
                }
                other => return Err((line, format!("found {}, expected a command or a variable", show(&other)))),
            }
        }
    }
}

struct Builder<'a> {
    file: &'a File,
    variables: BTreeMap<String, Vec<Placed>>,
    line: usize,
}

#[derive(Default)]
struct Built {
    commands: Vec<Command>,
    handlers: BTreeMap<String, Vec<Command>>,
}

impl Builder<'_> {
    fn protocol(&mut self, name: &str) -> Result<Protocol, String> {
        let file = self.file;
        for global in &file.globals {
            if let Statement::Assign(name, value) = global {
                self.assign(name, value)?;
            }
        }
        let mut built = Built::default();
        self.include(name, &mut built, 0)?;
        let terminator = |builder: &Self, own: &str| -> Result<Option<Vec<u8>>, String> {
            match builder.variables.get(own).or_else(|| builder.variables.get("Terminator")) {
                Some(_) => {
                    let own = if builder.variables.contains_key(own) { own } else { "Terminator" };
                    format::literal(&builder.pieces_of(own)?).map(Some)
                }
                None => Ok(None),
            }
        };
        let (in_terminator, out_terminator) = (terminator(self, "InTerminator")?, terminator(self, "OutTerminator")?);
        let mut handler = |name: &str| built.handlers.remove(name);
        let init = handler("init").unwrap_or_default();
        let ignore_extra = match self.word("ExtraInput")?.as_deref() {
            None | Some("Error" | "error") => false,
            Some("Ignore" | "ignore") => true,
            Some(other) => return Err(format!("ExtraInput = {other}; expected Error or Ignore")),
        };
        Ok(Protocol {
            mismatch: handler("mismatch").unwrap_or_default(),
            reply_timeout_handler: handler("replytimeout").unwrap_or_default(),
            read_timeout_handler: handler("readtimeout").unwrap_or_default(),
            commands: built.commands,
            init,
            in_terminator,
            out_terminator,
            separator: self.pieces_of("Separator")?,
            reply_timeout: self.time("ReplyTimeout", 1000)?,
            read_timeout: self.time("ReadTimeout", 100)?,
            lock_timeout: self.time("LockTimeout", 5000)?,
            max_input: self.number("MaxInput", 0)? as usize,
            ignore_extra,
        })
    }

    /// What a protocol says, put behind what is there.
    fn include(&mut self, name: &str, built: &mut Built, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("protocols refer to each other more than {DEPTH_MAX} deep"));
        }
        let file = self.file;
        let Some((body, _)) = file.protocols.get(name) else {
            let known = file.protocols.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!("no protocol or command \"{name}\"; protocols are {known}"));
        };
        self.body(body, built, depth)
    }

    fn body(&mut self, body: &[Statement], built: &mut Built, depth: usize) -> Result<(), String> {
        for statement in body {
            match statement {
                Statement::Assign(name, value) => self.assign(name, value)?,
                Statement::Handler(name, body, line) => {
                    self.line = *line;
                    if !matches!(name.as_str(), "init" | "mismatch" | "replytimeout" | "readtimeout" | "writetimeout") {
                        return Err(format!(
                            "@{name}; expected @init, @mismatch, @replytimeout, @readtimeout or @writetimeout"
                        ));
                    }
                    let mut inner = Built::default();
                    self.body(body, &mut inner, depth + 1)?;
                    built.handlers.insert(name.clone(), inner.commands);
                }
                Statement::Command(word, arguments, line) => {
                    self.line = *line;
                    if built.commands.len() >= COMMANDS_MAX {
                        return Err(format!("more than {COMMANDS_MAX} commands"));
                    }
                    match word.as_str() {
                        "out" => built.commands.push(Command::Out(self.pieces(arguments)?)),
                        "in" => built.commands.push(Command::In(self.pieces(arguments)?)),
                        "wait" => built.commands.push(Command::Wait(milliseconds(&self.first(arguments)?)?)),
                        "connect" => built.commands.push(Command::Nothing),
                        "disconnect" => built.commands.push(Command::Disconnect),
                        "event" | "exec" => return Err(format!("command {word} is not known here")),
                        name if arguments.is_empty() => self.include(name, built, depth + 1)?,
                        name => {
                            return Err(format!("command \"{name}\"; expected out, in, wait, connect or disconnect"));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn assign(&mut self, name: &str, value: &[Placed]) -> Result<(), String> {
        const NUMBERS: &[&str] =
            &["ReplyTimeout", "ReadTimeout", "WriteTimeout", "PollPeriod", "LockTimeout", "MaxInput"];
        self.line = value.first().map_or(self.line, |placed| placed.line);
        // References mean what they mean here, not what they come to mean later.
        let mut resolved = Vec::new();
        for placed in value {
            match &placed.token {
                Token::Reference(name) => resolved.extend(self.variable(name)?.iter().cloned()),
                _ => resolved.push(placed.clone()),
            }
        }
        self.variables.insert(name.to_owned(), resolved);
        if NUMBERS.contains(&name) {
            self.number(name, 0)?;
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<&Vec<Placed>, String> {
        self.variables.get(name).ok_or_else(|| match name.parse::<u8>() {
            Ok(_) => format!("argument ${name} is used, but was not given"),
            Err(_) => format!("variable ${name} is used, but not set"),
        })
    }

    fn pieces_of(&self, name: &str) -> Result<Vec<Piece>, String> {
        self.variables.get(name).map_or(Ok(Vec::new()), |value| self.pieces(value))
    }

    fn pieces(&self, value: &[Placed]) -> Result<Vec<Piece>, String> {
        let lookup = |name: &str| -> Result<String, String> {
            let parts = self.variable(name)?.iter().map(|placed| match &placed.token {
                Token::Text(text) | Token::Word(text) => Ok(text.clone()),
                other => Err(format!("${name} holds {}, expected a text", show(other))),
            });
            parts.collect()
        };
        let mut pieces = Vec::new();
        for placed in value {
            match &placed.token {
                Token::Text(text) => format::text(text, &lookup, &mut pieces)?,
                Token::Word(word) => pieces.push(format::byte(word)?),
                Token::Reference(name) => pieces.extend(self.pieces(&self.variable(name)?.clone())?),
                Token::Sign(',') => {}
                other => return Err(format!("found {}, expected a text or a byte", show(other))),
            }
        }
        Ok(pieces)
    }

    fn first(&self, value: &[Placed]) -> Result<String, String> {
        for placed in value {
            match &placed.token {
                Token::Word(text) | Token::Text(text) => return Ok(text.clone()),
                Token::Reference(name) => {
                    let inner = self.variable(name)?;
                    if let Some(Placed { token: Token::Word(text) | Token::Text(text), .. }) = inner.first() {
                        return Ok(text.clone());
                    }
                }
                _ => {}
            }
        }
        Err("a value is missing".to_owned())
    }

    fn word(&self, name: &str) -> Result<Option<String>, String> {
        self.variables.get(name).map(|value| self.first(value)).transpose()
    }

    fn number(&self, name: &str, default: u32) -> Result<u32, String> {
        let Some(word) = self.word(name)? else { return Ok(default) };
        word.parse().map_err(|_| format!("{name} = {word}; expected a whole number"))
    }

    fn time(&self, name: &str, default: u32) -> Result<DurNs, String> {
        Ok(DurNs::from_ms(self.number(name, default)?.into()))
    }
}

fn milliseconds(word: &str) -> Result<DurNs, String> {
    let time: u32 = word.parse().map_err(|_| format!("wait {word}; expected milliseconds"))?;
    Ok(DurNs::from_ms(time.into()))
}

impl Protocol {
    /// Terminators where the protocol sets none, as a port has them.
    pub fn set_default_terminators(&mut self, input: &[u8], output: &[u8]) {
        if !input.is_empty() {
            self.in_terminator.get_or_insert_with(|| input.to_vec());
        }
        if !output.is_empty() {
            self.out_terminator.get_or_insert_with(|| output.to_vec());
        }
    }

    /// The conversions that take a value (those with `*` do not), of output and of input.
    pub fn conversions(&self) -> (Vec<&Format>, Vec<&Format>) {
        let of = |wanted: fn(&Command) -> Option<&Vec<Piece>>| {
            let pieces = self.commands.iter().filter_map(wanted).flatten();
            pieces
                .filter_map(|piece| if let Piece::Format(format) = piece { Some(format) } else { None })
                .filter(|format| format.takes_value())
                .collect()
        };
        (
            of(|command| if let Command::Out(pieces) = command { Some(pieces) } else { None }),
            of(|command| if let Command::In(pieces) = command { Some(pieces) } else { None }),
        )
    }

    /// What ends a line that comes; empty: silence does.
    #[must_use]
    pub fn in_terminator(&self) -> &[u8] {
        self.in_terminator.as_deref().unwrap_or_default()
    }

    /// Whether it waits for a line before it says anything: such lines may come unasked.
    #[must_use]
    pub fn begins_with_in(&self) -> bool {
        matches!(self.commands.first(), Some(Command::In(_)))
    }

    /// Matches a line that nobody asked for (without its terminator) with the first command, if that is `in`.
    #[must_use]
    pub fn unasked(&self, line: &[u8]) -> Option<Vec<Value>> {
        match self.commands.first() {
            Some(Command::In(pieces)) => {
                let mut values = Vec::new();
                format::scan(pieces, &self.separator, line, self.ignore_extra, &mut values).then_some(values)
            }
            _ => None,
        }
    }
}
