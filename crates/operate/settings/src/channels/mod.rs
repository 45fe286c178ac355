//! Reading and writing channels: over Channel Access, and those named `pva://NAME` over PVAccess.

mod channel_access;
mod pvaccess;

use crate::file::Saved;
use crate::value::{Native, States, named, of_saved, shown};
use base::DurNs;
use channel_access::CaChannels;
use db::SavedValue;
use pvaccess::PvaChannels;
use std::io;

/// The present value of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelValue {
    /// The value as text. States are numbers.
    pub value: SavedValue,
    /// The server permits writing, as far as is known: PVAccess servers report it only after a write.
    pub may_write: bool,
    native: Native,
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
        if self.native.is_state() { named(saved, states, &self.labels) } else { saved.clone() }
    }

    /// Compares states: `Some` if the value is a state, whether the saved text means the same one. Other comparisons then do not
    /// apply.
    pub(crate) fn is_state(&self, saved: &[u8], states: &States, now: &[u8]) -> Option<bool> {
        match (self.native.is_state(), states, &self.states) {
            (true, _, _) => {
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
        Self { value, may_write: true, native: Native::NUMBER, labels: Vec::new(), states }
    }

    /// Returns whether a saved value can be written to the channel.
    pub(crate) fn check(&self, saved: (&SavedValue, &States)) -> Result<(), Unfit> {
        let is_fit = match self.native {
            Native::Ca { ty, is_text } => of_saved(saved, ty, &self.labels, is_text).is_some(),
            Native::Pva { .. } | Native::PvaState => pvaccess::of_saved(saved, self.native, &self.labels).is_some(),
        };
        if is_fit { Ok(()) } else { Err(Unfit::of(saved, self.native, &self.labels)) }
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
    Refused(String),
    /// Its value is a structure of another kind.
    #[error("its value is not a number, a text, a state or an array of them")]
    NotSimple,
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
    fn of((saved, states): (&SavedValue, &States), native: Native, labels: &[String]) -> Self {
        let found = match states {
            // Several states may have the saved name.
            States::Number(Some(name)) => format!("{} ({name})", shown(saved)),
            States::Number(None) | States::Name => shown(saved),
        };
        Self { found, expected: native.expected(labels) }
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
    Refused(String),
    /// No completion was received in time. The value may have been written.
    #[error("its server did not say in time that it was done: it may have been written")]
    NoAnswer,
}

/// Channels by name. Blocks while it waits for servers; allocates.
pub struct Channels {
    ca: Option<CaChannels>,
    pva: Option<PvaChannels>,
    /// The place of each channel among those of its protocol.
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
enum Place {
    Ca(usize),
    Pva(usize),
}

impl Channels {
    /// Starts the search for the channels, with EPICS' environment variables. `within` is the maximum time to wait for the servers
    /// of all channels together.
    ///
    /// # Errors
    /// The socket for searches cannot be opened.
    pub fn open(names: &[String], within: DurNs) -> io::Result<Self> {
        let (mut ca, mut pva) = (Vec::new(), Vec::new());
        let place = |name: &String| match name.strip_prefix(pva::SCHEME) {
            Some(name) => {
                pva.push(name.to_owned());
                Place::Pva(pva.len() - 1)
            }
            None => {
                ca.push(name.clone());
                Place::Ca(ca.len() - 1)
            }
        };
        let places = names.iter().map(place).collect();
        let ca = if ca.is_empty() { None } else { Some(CaChannels::open(ca, within)?) };
        let pva = if pva.is_empty() { None } else { Some(PvaChannels::open(&pva, within)?) };
        Ok(Self { ca, pva, places })
    }

    /// Reads all channels, first those of Channel Access. The results are in the order of the names.
    ///
    /// # Errors
    /// An error from the kernel while waiting.
    pub fn read(&mut self) -> io::Result<Vec<Result<ChannelValue, Unavailable>>> {
        let ca = self.ca.as_mut().map_or(Ok(Vec::new()), CaChannels::read)?;
        let pva = self.pva.as_mut().map_or(Ok(Vec::new()), PvaChannels::read)?;
        let (mut ca, mut pva) = (ca.into_iter(), pva.into_iter());
        let each = self.places.iter().map(|place| match place {
            Place::Ca(_) => ca.next(),
            Place::Pva(_) => pva.next(),
        });
        Ok(each.map(|value| value.unwrap_or(Err(Unavailable::NotFound))).collect())
    }

    /// Writes one channel that was read before, and waits until its server reports completion.
    ///
    /// # Errors
    /// The outer error is from the kernel, while waiting.
    pub fn write(&mut self, at: usize, saved: &Saved) -> io::Result<Result<(), Unwritten>> {
        let Some(value) = &saved.value else {
            let nothing = Unfit { found: String::new(), expected: "a value".to_owned() };
            return Ok(Err(Unwritten::BadValue(nothing)));
        };
        let value = (value, &saved.states);
        match (self.places[at], &mut self.ca, &mut self.pva) {
            (Place::Ca(at), Some(ca), _) => ca.write(at, value),
            (Place::Pva(at), _, Some(pva)) => pva.write(at, value),
            _ => Ok(Err(Unwritten::Disconnected)),
        }
    }
}
