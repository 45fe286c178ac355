//! Channels of Channel Access servers.

use super::{ChannelValue, Unavailable, Unfit, Unwritten};
use crate::value::{Native, States, of_saved, to_saved};
use base::{DurNs, MonoNs};
use ca::client::{ChannelId, ChannelInfo, Event, IoId, RequestError};
use ca::{Basic, Class, Dbr, Eca};
use canet::session::Session;
use db::SavedValue;
use std::collections::HashMap;
use std::io;

/// Channels over one session.
pub(super) struct CaChannels {
    session: Session,
    ids: Vec<ChannelId>,
    names: Vec<String>,
    /// Type and state names of each channel, from the last read.
    known: Vec<Option<(Basic, Vec<String>)>>,
    /// Maximum time to wait for the servers of all channels together.
    within: DurNs,
}

impl CaChannels {
    pub(super) fn open(names: Vec<String>, within: DurNs) -> io::Result<Self> {
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        let ids = names.iter().map(|name| session.client.channel(Session::now(), name, 0)).collect();
        Ok(Self { session, ids, known: vec![None; names.len()], names, within })
    }

    pub(super) fn read(&mut self) -> io::Result<Vec<Result<ChannelValue, Unavailable>>> {
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
                            let is_text = is_text(&self.names[at]);
                            let value = to_saved(&reading.value, is_text);
                            self.known[at] = Some((info.native, labels.clone()));
                            let native = Native::Ca { ty: info.native, is_text };
                            let (may_write, states) = (info.access.write, States::Number(None));
                            Ok(ChannelValue { value, may_write, native, labels, states })
                        }
                        Err(Eca::NORDACCESS) => Err(Unavailable::NoAccess),
                        Err(status) => Err(Unavailable::Refused(status.to_string())),
                    };
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(found)
    }

    pub(super) fn write(&mut self, at: usize, saved: (&SavedValue, &States)) -> io::Result<Result<(), Unwritten>> {
        let Some((ty, labels)) = &self.known[at] else { return Ok(Err(Unwritten::Disconnected)) };
        let (ty, is_text) = (*ty, is_text(&self.names[at]));
        let unfit = || Unwritten::BadValue(Unfit::of(saved, Native::Ca { ty, is_text }, labels));
        let Some(value) = of_saved(saved, ty, labels, is_text) else { return Ok(Err(unfit())) };
        let waits = match self.session.client.write(self.ids[at], &value, true) {
            Ok(Some(io)) => io,
            Ok(None) | Err(RequestError::Disconnected) => return Ok(Err(Unwritten::Disconnected)),
            Err(RequestError::NoAccess) => return Ok(Err(Unwritten::NoAccess)),
            Err(RequestError::BadType | RequestError::BadCount) => return Ok(Err(unfit())),
        };
        let until: MonoNs = Session::now() + self.within;
        loop {
            match self.session.step(until)? {
                Some(Event::Written { io, result, .. }) if io == waits => {
                    return Ok(result.map_err(|status| Unwritten::Refused(status.to_string())));
                }
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
