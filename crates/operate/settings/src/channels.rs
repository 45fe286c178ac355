//! Reading and writing channels of Channel Access servers.

use crate::file::Saved;
use crate::value::{States, expected, named, of_saved, shown, to_saved};
use base::{DurNs, MonoNs};
use ca::client::{ChannelId, ChannelInfo, Event, IoId, RequestError};
use ca::{Basic, Class, Dbr, Eca};
use canet::session::Session;
use db::SavedValue;
use std::collections::HashMap;
use std::io;

/// The present value of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelValue {
    /// The value as text. States are numbers.
    pub value: SavedValue,
    /// The server permits writing.
    pub may_write: bool,
    native: Basic,
    labels: Vec<String>,
    /// The meaning of the text of a state, if the value comes from a file.
    states: States,
}

impl ChannelValue {
    /// The value for display. A state includes its name.
    #[must_use]
    pub fn named(&self) -> SavedValue {
        named(&self.value, &self.states, &self.labels)
    }

    /// The name of the present state.
    pub(crate) fn label(&self) -> Option<&str> {
        let SavedValue::Text(text) = &self.value else { return None };
        let at = self.states.index_of(text, &self.labels)?;
        self.labels.get(at).map(String::as_str).filter(|label| !label.is_empty())
    }

    /// A saved value for display, with the present names of the states.
    pub(crate) fn named_as_now(&self, saved: &SavedValue, states: &States) -> SavedValue {
        if self.native == Basic::Enum { named(saved, states, &self.labels) } else { saved.clone() }
    }

    /// Compares states: `Some` if the value is a state, whether the saved text means the same one. Other comparisons then do not
    /// apply.
    pub(crate) fn is_state(&self, saved: &[u8], states: &States, now: &[u8]) -> Option<bool> {
        match (self.native, states, &self.states) {
            (Basic::Enum, _, _) => {
                let index = states.index_of(saved, &self.labels);
                Some(index.is_some() && index == self.states.index_of(now, &self.labels))
            }
            // Two files: compared by names if both have them, or if one has only names.
            (_, States::Number(Some(one)), States::Number(Some(other))) => Some(one == other),
            (_, States::Number(Some(name)), States::Name) => Some(name.as_bytes() == now),
            (_, States::Name, States::Number(Some(name))) => Some(name.as_bytes() == saved),
            (_, States::Number(Some(_)), _) | (_, _, States::Number(Some(_))) => Some(saved == now),
            _ => None,
        }
    }

    /// A channel from the data in a file.
    pub(crate) fn of_file(value: SavedValue, states: States) -> Self {
        Self { value, may_write: true, native: Basic::Double, labels: Vec::new(), states }
    }
}

/// The reason why the value of a channel is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// No server has the channel.
    #[error("no server has it, or none that answered in time")]
    NotFound,
    /// The server does not permit reading.
    #[error("its server does not let it be read")]
    NoAccess,
    /// The server did not answer in time, or the connection was lost.
    #[error("its server did not answer in time")]
    NoAnswer,
    /// The server reports an error.
    #[error("its server answers {0}")]
    Refused(Eca),
    /// The other file has no value of this channel.
    #[error("the other file has no value of it")]
    NotSaved,
}

/// A saved value that is invalid for the type or the states of its channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved value is {found:?}; expected {expected}")]
pub struct Unfit {
    /// The saved value.
    pub found: String,
    /// The values that the channel takes.
    pub expected: String,
}

impl Unfit {
    fn of((saved, states): (&SavedValue, &States), native: Basic, labels: &[String]) -> Self {
        let found = match states {
            // Several states may have the saved name.
            States::Number(Some(name)) => format!("{} ({name})", shown(saved)),
            States::Number(None) | States::Name => shown(saved),
        };
        Self { found, expected: expected(native, labels) }
    }
}

/// The reason why a channel was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// It was not read before.
    #[error("it is not connected")]
    Disconnected,
    /// The saved value is invalid for the type of the channel.
    #[error("{0}")]
    BadValue(Unfit),
    /// The server does not permit writing.
    #[error("its server does not let it be written")]
    NoAccess,
    /// The server reports an error.
    #[error("its server answers {0}")]
    Refused(Eca),
    /// No completion was received in time. The value may have been written.
    #[error("its server did not say in time that it was done: it may have been written")]
    NoAnswer,
}

/// Channels by name, over one session. Blocks while it waits for servers; allocates.
pub struct Channels {
    session: Session,
    ids: Vec<ChannelId>,
    names: Vec<String>,
    /// Type and state names of each channel, from the last read.
    known: Vec<Option<(Basic, Vec<String>)>>,
    /// Maximum time to wait for the servers of all channels together.
    within: DurNs,
}

impl Channels {
    /// Starts the search for the channels, with EPICS' environment variables.
    ///
    /// # Errors
    /// The socket for searches cannot be opened.
    pub fn open(names: &[String], within: DurNs) -> io::Result<Self> {
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        let ids = names.iter().map(|name| session.client.channel(Session::now(), name, 0)).collect();
        Ok(Self { session, ids, names: names.to_vec(), known: vec![None; names.len()], within })
    }

    /// Reads all channels. The results are in the order of the names.
    ///
    /// # Errors
    /// An error from the kernel while waiting.
    pub fn read(&mut self) -> io::Result<Vec<Result<ChannelValue, Unavailable>>> {
        let until = Session::now() + self.within;
        while self.ids.iter().any(|id| self.session.client.info(*id).is_none()) {
            if self.session.step(until)?.is_none() {
                break;
            }
        }
        let mut found = vec![Err(Unavailable::NotFound); self.ids.len()];
        let mut waiting: HashMap<IoId, (usize, ChannelInfo)> = HashMap::new();
        for (at, id) in self.ids.iter().enumerate() {
            let Some(info) = self.session.client.info(*id) else { continue };
            // Only this class contains state names. Other types need none.
            let dbr =
                if info.native == Basic::Enum { Dbr::new(Class::Ctrl, info.native) } else { Dbr::plain(info.native) };
            // Requests the present number of elements, not the maximum.
            let count = if info.count == 1 { 1 } else { 0 };
            found[at] = match self.session.client.read(*id, dbr, count) {
                Ok(io) => {
                    waiting.insert(io, (at, info));
                    Err(Unavailable::NoAnswer)
                }
                Err(RequestError::NoAccess) => Err(Unavailable::NoAccess),
                Err(_) => Err(Unavailable::NotFound),
            };
        }
        let until = Session::now() + self.within;
        while !waiting.is_empty() {
            match self.session.step(until)? {
                Some(Event::Read { io, result, .. }) => {
                    let Some((at, info)) = waiting.remove(&io) else { continue };
                    found[at] = match result {
                        Ok((_, reading)) => {
                            let labels: Vec<String> = reading.meta.labels.iter().map(ToString::to_string).collect();
                            let value = to_saved(&reading.value, is_text(&self.names[at]));
                            self.known[at] = Some((info.native, labels.clone()));
                            let (may_write, states) = (info.access.write, States::Number(None));
                            Ok(ChannelValue { value, may_write, native: info.native, labels, states })
                        }
                        Err(Eca::NORDACCESS) => Err(Unavailable::NoAccess),
                        Err(status) => Err(Unavailable::Refused(status)),
                    };
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(found)
    }

    /// Returns whether a saved value can be written to a channel with these properties.
    pub(crate) fn check(&self, at: usize, saved: (&SavedValue, &States), found: &ChannelValue) -> Result<(), Unfit> {
        let value = of_saved(saved, found.native, &found.labels, is_text(&self.names[at]));
        value.map(|_| ()).ok_or_else(|| Unfit::of(saved, found.native, &found.labels))
    }

    /// Writes one channel that was read before, and waits until its server reports completion.
    ///
    /// # Errors
    /// The outer error is from the kernel, while waiting.
    pub fn write(&mut self, at: usize, saved: &Saved) -> io::Result<Result<(), Unwritten>> {
        let Some((native, labels)) = &self.known[at] else { return Ok(Err(Unwritten::Disconnected)) };
        let Some(text) = &saved.value else {
            let expected = expected(*native, labels);
            return Ok(Err(Unwritten::BadValue(Unfit { found: String::new(), expected })));
        };
        let unfit = || Unwritten::BadValue(Unfit::of((text, &saved.states), *native, labels));
        let Some(value) = of_saved((text, &saved.states), *native, labels, is_text(&self.names[at])) else {
            return Ok(Err(unfit()));
        };
        let waits = match self.session.client.write(self.ids[at], &value, true) {
            Ok(Some(io)) => io,
            Ok(None) | Err(RequestError::Disconnected) => return Ok(Err(Unwritten::Disconnected)),
            Err(RequestError::NoAccess) => return Ok(Err(Unwritten::NoAccess)),
            Err(RequestError::BadType | RequestError::BadCount) => return Ok(Err(unfit())),
        };
        let until: MonoNs = Session::now() + self.within;
        loop {
            match self.session.step(until)? {
                Some(Event::Written { io, result, .. }) if io == waits => return Ok(result.map_err(Unwritten::Refused)),
                Some(_) => {}
                None => return Ok(Err(Unwritten::NoAnswer)),
            }
        }
    }
}

/// Returns whether the characters of a channel are requested as a text.
fn is_text(name: &str) -> bool {
    name.ends_with('$')
}
