//! One run of a protocol.

use super::convert::Value;
use super::format;
use super::given::{RunInputs, RunOutputs};
use super::protocol::{Command, Protocol};
use crate::exchange::Exchange;
use base::{DurNs, MonoNs};
use std::sync::Arc;

/// Maximum length of a received line in bytes.
const LINE_MAX: usize = 1 << 20;

/// The reason why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The reply did not begin before the timeout.
    #[error("no reply in {0}")]
    NoReply(DurNs),
    /// The reply stopped before its end.
    #[error("the reply stopped after \"{}\"", .0.escape_ascii())]
    Unfinished(Vec<u8>),
    /// The reply does not match the `in` command.
    #[error("the reply \"{}\" does not fit the protocol", .0.escape_ascii())]
    Mismatch(Vec<u8>),
    /// A value cannot be written with its conversion.
    #[error("the value does not fit the conversion of \"out\"")]
    Output,
    /// The line was closed or could not be opened.
    #[error("no connection: {0}")]
    Closed(String),
}

/// The event that the run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// None: the run continues at the next [`poll_transmit`](Exchange::poll_transmit).
    No,
    /// The first byte of a line.
    First(MonoNs),
    /// The rest of a line.
    Rest(MonoNs),
    /// The end of `wait`.
    Time(MonoNs),
}

/// The list of commands that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandList {
    Main,
    Init,
    Mismatch,
    NoReply,
    Unfinished,
}

/// One run of a protocol, as an [`Exchange`].
#[derive(Clone, Debug)]
pub struct Session {
    protocol: Arc<Protocol>,
    given: RunInputs,
    list: CommandList,
    at: usize,
    waits: Waits,
    bytes: Vec<u8>,
    /// The number of leading `bytes` that were already searched for the terminator.
    searched: usize,
    /// The line that did not match, for the first `in` of the handler.
    again: Option<Vec<u8>>,
    taken: RunOutputs,
    trouble: Option<Trouble>,
    over: bool,
    hang_up: bool,
}

impl Session {
    /// A run that writes the values in `given`.
    #[must_use]
    pub fn new(protocol: Arc<Protocol>, given: RunInputs) -> Self {
        Self {
            protocol,
            given,
            list: CommandList::Main,
            at: 0,
            waits: Waits::No,
            bytes: Vec::new(),
            searched: 0,
            again: None,
            taken: RunOutputs::default(),
            trouble: None,
            over: false,
            hang_up: false,
        }
    }

    /// A run of the `@init` handler; `None` if the protocol has none.
    #[must_use]
    pub fn init(protocol: Arc<Protocol>, given: RunInputs) -> Option<Self> {
        protocol.has_init().then(|| Self { list: CommandList::Init, ..Self::new(protocol, given) })
    }

    /// The protocol of this run.
    #[must_use]
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// The values to write. Changes have an effect only before the run begins.
    pub fn given_mut(&mut self) -> &mut RunInputs {
        &mut self.given
    }

    /// The values read or the fault, once the run is over.
    #[must_use]
    pub fn result(&self) -> Option<Result<&RunOutputs, &Trouble>> {
        self.over.then(|| self.trouble.as_ref().map_or(Ok(&self.taken), Err))
    }

    /// The values read for fields that the protocol names. Available even if the run failed afterwards.
    #[must_use]
    pub fn fields(&self) -> &[(String, Vec<Value>)] {
        &self.taken.fields
    }

    fn commands(&self) -> &[Command] {
        match self.list {
            CommandList::Main => &self.protocol.commands,
            CommandList::Init => &self.protocol.init,
            CommandList::Mismatch => &self.protocol.mismatch,
            CommandList::NoReply => &self.protocol.reply_timeout_handler,
            CommandList::Unfinished => &self.protocol.read_timeout_handler,
        }
    }

    /// Continues with a handler if there is one. The first fault remains the result of the run.
    fn fail(&mut self, trouble: Trouble) {
        let handler = match &trouble {
            Trouble::Mismatch(line) => {
                self.again = Some(line.clone());
                CommandList::Mismatch
            }
            Trouble::NoReply(_) => CommandList::NoReply,
            Trouble::Unfinished(_) => CommandList::Unfinished,
            Trouble::Output | Trouble::Closed(_) => CommandList::Main,
        };
        let first = matches!(self.list, CommandList::Main | CommandList::Init) && handler != CommandList::Main;
        self.trouble.get_or_insert(trouble);
        (self.list, self.at, self.waits) = (if first { handler } else { self.list }, 0, Waits::No);
        if !first || self.commands().is_empty() {
            self.over = true;
        }
    }

    /// Runs commands until one has to wait.
    fn go(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        while !self.over && self.waits == Waits::No {
            let Some(command) = self.commands().get(self.at).cloned() else {
                self.over = true;
                return;
            };
            match command {
                Command::Out(items) => {
                    self.at += 1;
                    // Bytes received before the request cannot be its reply.
                    self.bytes.clear();
                    self.searched = 0;
                    match format::print(&items, &self.protocol.separator, &self.given) {
                        Some(bytes) => {
                            out.extend(bytes);
                            out.extend(self.protocol.out_terminator.as_deref().unwrap_or_default());
                        }
                        None => self.fail(Trouble::Output),
                    }
                }
                Command::In(_) => match self.again.take() {
                    Some(line) => self.take_line(&line),
                    None => {
                        self.waits = Waits::First(now + self.protocol.reply_timeout);
                        self.look(now);
                    }
                },
                Command::Wait(time) => {
                    self.waits = Waits::Time(now + time);
                }
                Command::Nothing => self.at += 1,
                Command::Disconnect => {
                    self.at += 1;
                    self.hang_up = true;
                }
            }
        }
    }

    /// Searches the received bytes for the end of a line.
    fn look(&mut self, now: MonoNs) {
        let terminator = self.protocol.in_terminator();
        let ends = if terminator.is_empty() {
            None
        } else {
            let from = self.searched.min(self.bytes.len());
            let found = self.bytes[from..].windows(terminator.len()).position(|bytes| bytes == terminator);
            self.searched = self.bytes.len().saturating_sub(terminator.len() - 1);
            found.map(|at| (from + at, terminator.len()))
        };
        let max = self.protocol.max_input;
        let ends = match ends {
            Some((at, _)) if max > 0 && at > max => Some((max, 0)),
            None if max > 0 && self.bytes.len() >= max => Some((max, 0)),
            None if self.bytes.len() > LINE_MAX => {
                let line = std::mem::take(&mut self.bytes);
                self.searched = 0;
                self.fail(Trouble::Mismatch(line[..64].to_vec()));
                return;
            }
            found => found,
        };
        match ends {
            Some((at, len)) => {
                let line: Vec<u8> = self.bytes[..at].to_vec();
                self.bytes.drain(..at + len);
                self.searched = 0;
                self.take_line(&line);
            }
            None if !self.bytes.is_empty() => self.waits = Waits::Rest(now + self.protocol.read_timeout),
            None => {}
        }
    }

    fn take_line(&mut self, line: &[u8]) {
        self.waits = Waits::No;
        let Some(Command::In(items)) = self.commands().get(self.at) else { return };
        let mut taken = RunOutputs::default();
        if self.protocol.reading(&self.given).scan(items, line, &mut taken) {
            self.at += 1;
            // A handler cannot change the value of the record.
            if matches!(self.list, CommandList::Main | CommandList::Init) {
                self.taken.values.append(&mut taken.values);
            }
            self.taken.fields.append(&mut taken.fields);
        } else {
            self.fail(Trouble::Mismatch(line.to_vec()));
        }
    }
}

impl Exchange for Session {
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        self.go(now, out);
    }

    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]) {
        if self.over {
            return;
        }
        // Bytes received early (during `wait`, or after the end of a line) are kept for the next `in`.
        let room = (LINE_MAX + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if matches!(self.waits, Waits::First(_) | Waits::Rest(_)) {
            self.look(now);
        }
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        match self.waits {
            Waits::No => None,
            Waits::First(until) | Waits::Rest(until) | Waits::Time(until) => Some(until),
        }
    }

    fn handle_timeout(&mut self, now: MonoNs) {
        match self.waits {
            Waits::First(until) if until <= now => self.fail(Trouble::NoReply(self.protocol.reply_timeout)),
            Waits::Rest(until) if until <= now => {
                let line = std::mem::take(&mut self.bytes);
                self.searched = 0;
                // Without a terminator, silence ends a line.
                if self.protocol.in_terminator().is_empty() {
                    self.take_line(&line);
                } else {
                    self.fail(Trouble::Unfinished(line));
                }
            }
            Waits::Time(until) if until <= now => {
                self.waits = Waits::No;
                self.at += 1;
            }
            _ => {}
        }
    }

    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        if !self.over {
            self.trouble.get_or_insert_with(|| Trouble::Closed(why.to_owned()));
            self.over = true;
        }
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn spoils_line(&self) -> bool {
        self.hang_up
    }
}
