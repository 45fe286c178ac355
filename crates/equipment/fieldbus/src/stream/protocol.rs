//! One protocol with variables, arguments and references resolved.

use super::convert::{Conversion, Format, Kind};
use super::file::{Error, File, Placed, Position, Statement, Wrong};
use super::format::{self, MessageItem, Reading};
use super::given::{RunInputs, RunOutputs};
use super::words::Words;
use base::DurNs;
use std::collections::BTreeMap;

/// Maximum nesting of references.
const DEPTH_MAX: usize = 16;
/// Maximum number of commands in a protocol.
const COMMANDS_MAX: usize = 256;
/// Numeric settings.
const NUMBERS: &[&str] = &["ReplyTimeout", "ReadTimeout", "WriteTimeout", "PollPeriod", "LockTimeout", "MaxInput"];
/// The other settings.
const TEXTS: &[&str] = &["Terminator", "InTerminator", "OutTerminator", "Separator", "ExtraInput"];

/// The reason why `event` is refused.
const NO_EVENTS: &str = "command event: TCP and serial lines have no events except their bytes (GPIB's SRQ is one); \
    expected \"in\" for a line that arrives without a request";
/// The reason why `exec` is refused.
const NO_EXEC: &str = "command exec: text from a device or a client would run as a command of the IOC's user; \
    expected the command in the start-up script";

/// Finds a setting by its name in a file. Case does not matter.
fn setting(among: &[&'static str], name: &str) -> Option<&'static str> {
    among.iter().copied().find(|known| known.eq_ignore_ascii_case(name))
}

/// One step of a protocol.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Out(Vec<MessageItem>),
    In(Vec<MessageItem>),
    Wait(DurNs),
    Nothing,
    Disconnect,
}

/// A protocol with everything resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    pub(super) commands: Vec<Command>,
    pub(super) mismatch: Vec<Command>,
    pub(super) reply_timeout_handler: Vec<Command>,
    pub(super) read_timeout_handler: Vec<Command>,
    pub(super) init: Vec<Command>,
    pub(super) in_terminator: Option<Vec<u8>>,
    pub(super) out_terminator: Option<Vec<u8>>,
    pub(super) separator: Vec<MessageItem>,
    pub(super) reply_timeout: DurNs,
    pub(super) read_timeout: DurNs,
    /// Maximum time to wait for access to the port.
    pub lock_timeout: DurNs,
    pub(super) max_input: usize,
    pub(super) ignore_extra: bool,
}

impl Protocol {
    /// Sets the terminators of the port if the protocol sets none.
    pub fn set_default_terminators(&mut self, input: &[u8], output: &[u8]) {
        if !input.is_empty() {
            self.in_terminator.get_or_insert_with(|| input.to_vec());
        }
        if !output.is_empty() {
            self.out_terminator.get_or_insert_with(|| output.to_vec());
        }
    }

    /// Returns whether one of its `in` commands reads a value for the record that runs the protocol.
    #[must_use]
    pub fn takes_own_value(&self) -> bool {
        let own = |format: &Format| format.takes_value() && !format.compares();
        self.commands.iter().any(|command| matches!(command, Command::In(_)) && command.formats().any(own))
    }

    /// The terminator of received lines. If it is empty, a silence ends the line.
    #[must_use]
    pub fn in_terminator(&self) -> &[u8] {
        self.in_terminator.as_deref().unwrap_or_default()
    }

    /// Returns whether the protocol reads a line before it writes one. Such lines may be unsolicited.
    #[must_use]
    pub fn begins_with_in(&self) -> bool {
        matches!(self.commands.first(), Some(Command::In(_)))
    }

    /// Returns whether the protocol has an `@init` handler.
    #[must_use]
    pub const fn has_init(&self) -> bool {
        !self.init.is_empty()
    }

    /// Matches an unsolicited line (without its terminator) with the first command, if that is `in`.
    #[must_use]
    pub fn unasked(&self, line: &[u8], given: &RunInputs) -> Option<RunOutputs> {
        match self.commands.first() {
            Some(Command::In(items)) => {
                let mut taken = RunOutputs::default();
                self.reading(given).scan(items, line, &mut taken).then_some(taken)
            }
            _ => None,
        }
    }

    pub(super) fn reading<'a>(&'a self, given: &'a RunInputs) -> Reading<'a> {
        Reading { separator: &self.separator, ignore_extra: self.ignore_extra, given }
    }

    /// The fields named by `%(…)` in all commands and handlers, with the kind of value. Each pair occurs once.
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

    /// Returns whether the protocol writes the value of the record that runs it, or compares input with it.
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
        let items = match self {
            Self::Out(items) | Self::In(items) => items.as_slice(),
            Self::Wait(_) | Self::Nothing | Self::Disconnect => &[],
        };
        items.iter().filter_map(|item| if let MessageItem::Format(format) = item { Some(format) } else { None })
    }
}

/// Builds a protocol from the statements of its file.
pub(super) struct Builder<'a> {
    file: &'a File,
    words: Words<'a>,
    place: Position,
}

#[derive(Default)]
struct Built {
    commands: Vec<Command>,
    handlers: BTreeMap<String, Vec<Command>>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(file: &'a File, name: &'a str, arguments: &'a [String]) -> Self {
        let place = file.protocols.get(&name.to_ascii_lowercase()).map_or(Position::START, |body| body.place);
        Self { file, words: Words::new(name, arguments), place }
    }

    pub(super) fn build(mut self, name: &str) -> Result<Protocol, Error> {
        self.protocol(name).map_err(|(Position { line, column }, what)| Error {
            file: self.file.name.clone(),
            line,
            column,
            what,
        })
    }

    /// An error at the current position.
    fn wrong<T>(&self, what: String) -> Result<T, Wrong> {
        Err((self.place, what))
    }

    fn protocol(&mut self, name: &str) -> Result<Protocol, Wrong> {
        let file = self.file;
        let Some(body) = file.protocols.get(&name.to_ascii_lowercase()) else {
            return self.wrong(self.unknown(name));
        };
        let globals = &file.globals[..body.globals];
        let mut built = Built::default();
        self.assignments(globals)?;
        self.assignments(&body.statements)?;
        self.body(globals, &body.statements, &mut built, 0, true)?;
        self.body(&body.statements, &[], &mut built, 0, true)?;
        let words = &self.words;
        let terminator = |own: &str| -> Result<Option<Vec<u8>>, Wrong> {
            let set = [own, "Terminator"].into_iter().find_map(|name| words.get(name));
            set.map(|value| {
                let place = value.first().map_or(body.place, |placed| placed.place);
                format::literal(&words.coded(value)?).map_err(|wrong| (place, wrong.to_string()))
            })
            .transpose()
        };
        let (in_terminator, out_terminator) = (terminator("InTerminator")?, terminator("OutTerminator")?);
        let separator = words.get("Separator").map_or(Ok(Vec::new()), |value| words.coded(value))?;
        let mut handler = |name: &str| built.handlers.remove(name);
        let init = handler("init").unwrap_or_default();
        let ignore_extra = match self.word("ExtraInput")?.as_deref() {
            None | Some("error") => false,
            Some("ignore") => true,
            Some(other) => return self.wrong(format!("ExtraInput = {other}; expected Error or Ignore")),
        };
        Ok(Protocol {
            mismatch: handler("mismatch").unwrap_or_default(),
            reply_timeout_handler: handler("replytimeout").unwrap_or_default(),
            read_timeout_handler: handler("readtimeout").unwrap_or_default(),
            commands: built.commands,
            init,
            in_terminator,
            out_terminator,
            separator: format::separator(separator),
            reply_timeout: self.time("ReplyTimeout", 1000)?,
            read_timeout: self.time("ReadTimeout", 100)?,
            lock_timeout: self.time("LockTimeout", 5000)?,
            max_input: self.number("MaxInput", 0)? as usize,
            ignore_extra,
        })
    }

    fn unknown(&self, name: &str) -> String {
        let known = self.file.names().collect::<Vec<_>>().join(", ");
        format!("no protocol or command \"{name}\"; protocols are {known}")
    }

    /// Appends the commands of another protocol.
    fn include(&mut self, name: &str, built: &mut Built, depth: usize) -> Result<(), Wrong> {
        if depth > DEPTH_MAX {
            return self.wrong(format!("protocols refer to each other more than {DEPTH_MAX} deep"));
        }
        let Some(body) = self.file.protocols.get(name) else { return self.wrong(self.unknown(name)) };
        // Its assignments apply only to variables that are not settings and that this protocol has not set.
        for statement in &body.statements {
            if let Statement::Assign(name, value) = statement
                && [NUMBERS, TEXTS].iter().all(|all| setting(all, name).is_none())
                && self.words.get(name).is_none()
            {
                self.words.assign(name, value)?;
            }
        }
        self.body(&body.statements, &[], built, depth, false)
    }

    /// Processes the assignments of the file or of a protocol. As in StreamDevice, each applies to all commands.
    fn assignments(&mut self, body: &[Statement]) -> Result<(), Wrong> {
        for statement in body {
            if let Statement::Assign(name, value) = statement {
                self.words.assign(name, value)?;
                if let Some(name) = setting(NUMBERS, name) {
                    self.number(name, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Appends commands and handlers. Handlers of a referenced protocol (not `own`) are ignored. So are handlers that are
    /// overridden later in `body` or in `later`, because they may need arguments that are not given.
    fn body(
        &mut self,
        body: &[Statement],
        later: &[Statement],
        built: &mut Built,
        depth: usize,
        own: bool,
    ) -> Result<(), Wrong> {
        let all = body;
        for (at, statement) in all.iter().enumerate() {
            match statement {
                Statement::Assign(..) => {}
                Statement::Handler(..) if !own => {}
                Statement::Handler(name, body, place) => {
                    self.place = *place;
                    if !matches!(name.as_str(), "init" | "mismatch" | "replytimeout" | "readtimeout" | "writetimeout") {
                        return self.wrong(format!(
                            "@{name}; expected @init, @mismatch, @replytimeout, @readtimeout or @writetimeout"
                        ));
                    }
                    let same = |other: &Statement| matches!(other, Statement::Handler(other, ..) if other == name);
                    if all[at + 1..].iter().chain(later).any(same) {
                        continue;
                    }
                    let mut inner = Built::default();
                    self.body(body, &[], &mut inner, depth + 1, true)?;
                    built.handlers.insert(name.clone(), inner.commands);
                }
                Statement::Command(word, arguments, place) => {
                    self.place = *place;
                    if built.commands.len() >= COMMANDS_MAX {
                        return self.wrong(format!("more than {COMMANDS_MAX} commands"));
                    }
                    self.command(word, arguments, built, depth)?;
                }
            }
        }
        Ok(())
    }

    fn command(&mut self, word: &str, given: &[Placed], built: &mut Built, depth: usize) -> Result<(), Wrong> {
        let command = match word {
            "out" => Command::Out(self.items(given)?),
            "in" => Command::In(self.read(given)?),
            "wait" => {
                let word = self.words.plain(given, self.place)?;
                let Some(time) = format::whole(&word).and_then(|time| u32::try_from(time).ok()) else {
                    return self.wrong(format!("wait {word}; expected milliseconds"));
                };
                Command::Wait(DurNs::from_ms(time.into()))
            }
            "connect" => Command::Nothing,
            "disconnect" => Command::Disconnect,
            "event" => return self.wrong(NO_EVENTS.to_owned()),
            "exec" => return self.wrong(NO_EXEC.to_owned()),
            name if given.is_empty() => return self.include(name, built, depth + 1),
            name => return self.wrong(format!("command \"{name}\"; expected out, in, wait, connect or disconnect")),
        };
        built.commands.push(command);
        Ok(())
    }

    fn items(&self, value: &[Placed]) -> Result<Vec<MessageItem>, Wrong> {
        let coded = self.words.coded(value)?;
        format::items(&coded).map_err(|wrong| (self.place, wrong.to_string()))
    }

    /// Parses the items of an `in`.
    fn read(&self, value: &[Placed]) -> Result<Vec<MessageItem>, Wrong> {
        let items = self.items(value)?;
        let cannot = |item: &MessageItem| match item {
            MessageItem::Format(Format { conversion: Conversion::Time(time), .. }) => time.cannot_read(),
            _ => None,
        };
        match items.iter().find_map(cannot) {
            Some(what) => self.wrong(what),
            None => Ok(items),
        }
    }

    fn word(&self, name: &str) -> Result<Option<String>, Wrong> {
        self.words.get(name).map(|value| self.words.plain(value, self.place)).transpose()
    }

    fn number(&self, name: &str, default: u32) -> Result<u32, Wrong> {
        let Some(word) = self.word(name)? else { return Ok(default) };
        let place = self.words.get(name).and_then(|value| value.first()).map_or(self.place, |placed| placed.place);
        format::whole(&word)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| (place, format!("{name} = {word}; expected a whole number")))
    }

    fn time(&self, name: &str, default: u32) -> Result<DurNs, Wrong> {
        Ok(DurNs::from_ms(self.number(name, default)?.into()))
    }
}
