//! One protocol, with everything put in its place.

use super::convert::{Format, Kind};
use super::file::{Error, File, Placed, Statement, Token, show};
use super::format::{self, Piece, Reading};
use super::given::{Given, Taken};
use base::DurNs;
use std::collections::BTreeMap;

/// Deepest nesting of references.
const DEPTH_MAX: usize = 16;
/// Most commands of a protocol.
const COMMANDS_MAX: usize = 256;
/// Settings that are numbers.
const NUMBERS: &[&str] = &["ReplyTimeout", "ReadTimeout", "WriteTimeout", "PollPeriod", "LockTimeout", "MaxInput"];
/// The other settings.
const TEXTS: &[&str] = &["Terminator", "InTerminator", "OutTerminator", "Separator", "ExtraInput"];

/// A setting by its name in a file.
fn setting(among: &[&'static str], name: &str) -> Option<&'static str> {
    among.iter().copied().find(|known| known.eq_ignore_ascii_case(name))
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

    /// Whether one of its `in` takes a value for the record that runs it.
    #[must_use]
    pub fn takes_own_value(&self) -> bool {
        let own = |format: &Format| format.takes_value() && !format.compares();
        self.commands.iter().any(|command| matches!(command, Command::In(_)) && command.formats().any(own))
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
    pub fn unasked(&self, line: &[u8], given: &Given) -> Option<Taken> {
        match self.commands.first() {
            Some(Command::In(pieces)) => {
                let mut taken = Taken::default();
                self.reading(given).scan(pieces, line, &mut taken).then_some(taken)
            }
            _ => None,
        }
    }

    pub(super) fn reading<'a>(&'a self, given: &'a Given) -> Reading<'a> {
        Reading { separator: &self.separator, ignore_extra: self.ignore_extra, given }
    }

    /// The fields that `%(…)` names, in all commands and handlers: each with what it is read as, once.
    #[must_use]
    pub fn fields(&self) -> Vec<(&str, Kind)> {
        let mut found: Vec<(&str, Kind)> = Vec::new();
        for format in self.all_commands().flat_map(Command::formats) {
            if let Some(name) = format.field()
                && !found.contains(&(name, format.kind()))
            {
                found.push((name, format.kind()));
            }
        }
        found
    }

    /// Whether the value of the record that runs the protocol is written, or compared with.
    #[must_use]
    pub fn says_own_value(&self) -> bool {
        self.all_commands().any(|command| {
            let written = |format: &&Format| format.compares() || matches!(command, Command::Out(_));
            command.formats().filter(written).any(Format::takes_value)
        })
    }

    fn all_commands(&self) -> impl Iterator<Item = &Command> {
        let handlers = [&self.mismatch, &self.reply_timeout_handler, &self.read_timeout_handler, &self.init];
        self.commands.iter().chain(handlers.into_iter().flatten())
    }
}

impl Command {
    fn formats(&self) -> impl Iterator<Item = &Format> {
        let pieces = match self {
            Self::Out(pieces) | Self::In(pieces) => pieces.as_slice(),
            Self::Wait(_) | Self::Nothing | Self::Disconnect => &[],
        };
        pieces.iter().filter_map(|piece| if let Piece::Format(format) = piece { Some(format) } else { None })
    }
}

/// Makes a protocol of what its file says.
pub(super) struct Builder<'a> {
    file: &'a File,
    variables: BTreeMap<String, Vec<Placed>>,
    line: usize,
}

#[derive(Default)]
struct Built {
    commands: Vec<Command>,
    handlers: BTreeMap<String, Vec<Command>>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(file: &'a File, name: &str, arguments: &[String]) -> Self {
        let line = file.protocols.get(&name.to_ascii_lowercase()).map_or(1, |body| body.line);
        let text = |text: &str| vec![Placed { token: Token::Text(text.to_owned()), line }];
        let mut variables = BTreeMap::from([("0".to_owned(), text(name))]);
        variables.extend(arguments.iter().enumerate().take(9).map(|(at, given)| ((at + 1).to_string(), text(given))));
        Self { file, variables, line }
    }

    pub(super) fn build(mut self, name: &str) -> Result<Protocol, Error> {
        self.protocol(name).map_err(|what| Error { file: self.file.name.clone(), line: self.line, what })
    }

    fn protocol(&mut self, name: &str) -> Result<Protocol, String> {
        let file = self.file;
        let body = file.protocols.get(&name.to_ascii_lowercase()).ok_or_else(|| self.unknown(name))?;
        let mut built = Built::default();
        self.body(&file.globals[..body.globals], &mut built, 0, true)?;
        self.body(&body.statements, &mut built, 0, true)?;
        let terminator = |builder: &Self, own: &str| -> Result<Option<Vec<u8>>, String> {
            let set = [own, "Terminator"].into_iter().find(|name| builder.get(name).is_some());
            set.map(|name| format::literal(&builder.pieces_of(name)?)).transpose()
        };
        let (in_terminator, out_terminator) = (terminator(self, "InTerminator")?, terminator(self, "OutTerminator")?);
        let mut separator = self.pieces_of("Separator")?;
        // A blank at its beginning is any white space.
        if let Some(first @ Piece::Byte(b' ')) = separator.first_mut() {
            *first = Piece::Blank;
        }
        let mut handler = |name: &str| built.handlers.remove(name);
        let init = handler("init").unwrap_or_default();
        let ignore_extra = match self.word("ExtraInput")?.as_deref() {
            None | Some("error") => false,
            Some("ignore") => true,
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
            separator,
            reply_timeout: self.time("ReplyTimeout", 1000)?,
            read_timeout: self.time("ReadTimeout", 100)?,
            lock_timeout: self.time("LockTimeout", 5000)?,
            max_input: self.number("MaxInput", 0)? as usize,
            ignore_extra,
        })
    }

    fn unknown(&self, name: &str) -> String {
        let known = self.file.protocols.keys().cloned().collect::<Vec<_>>().join(", ");
        format!("no protocol or command \"{name}\"; protocols are {known}")
    }

    /// What another protocol does, put behind what is there.
    fn include(&mut self, name: &str, built: &mut Built, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("protocols refer to each other more than {DEPTH_MAX} deep"));
        }
        let body = self.file.protocols.get(name).ok_or_else(|| self.unknown(name))?;
        self.body(&body.statements, built, depth, false)
    }

    /// Statements, put behind what is there. Of a protocol that is referred to (not `own`) settings and handlers do not count.
    fn body(&mut self, body: &[Statement], built: &mut Built, depth: usize, own: bool) -> Result<(), String> {
        for statement in body {
            match statement {
                Statement::Assign(name, _)
                    if !own && [NUMBERS, TEXTS].iter().any(|all| setting(all, name).is_some()) => {}
                Statement::Assign(name, value) => self.assign(name, value)?,
                Statement::Handler(..) if !own => {}
                Statement::Handler(name, body, line) => {
                    self.line = *line;
                    if !matches!(name.as_str(), "init" | "mismatch" | "replytimeout" | "readtimeout" | "writetimeout") {
                        return Err(format!(
                            "@{name}; expected @init, @mismatch, @replytimeout, @readtimeout or @writetimeout"
                        ));
                    }
                    let mut inner = Built::default();
                    self.body(body, &mut inner, depth + 1, true)?;
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
        if let Some(name) = setting(NUMBERS, name) {
            self.number(name, 0)?;
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&Vec<Placed>> {
        self.variables.get(&name.to_ascii_lowercase())
    }

    fn variable(&self, name: &str) -> Result<&Vec<Placed>, String> {
        self.get(name).ok_or_else(|| match name.parse::<u8>() {
            Ok(_) => format!("argument ${name} is used, but was not given"),
            Err(_) => format!("variable ${name} is used, but not set"),
        })
    }

    fn pieces_of(&self, name: &str) -> Result<Vec<Piece>, String> {
        self.get(name).map_or(Ok(Vec::new()), |value| self.pieces(value))
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
        self.get(name).map(|value| self.first(value)).transpose()
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
