//! Device supports: selection by record, and those of EPICS base that need the outside world (time, environment, streams).
//! Supports added by other crates are in `support`.

pub(crate) mod readback;
pub(crate) mod support;

use crate::model::id::RecId;
use crate::model::link::LinkKind;
use crate::model::slot::Slot;
use crate::run::engine::Db;

/// A device support of EPICS base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Device {
    /// DTYP names no known device support.
    #[default]
    Missing = 0,
    Soft,
    SoftRaw,
    SoftAsync,
    SoftTimestamp,
    GeneralTime,
    Stdio,
    Getenv,
    DbState,
    /// The simulated axis of a motor record, or the simulated counters of a scaler record.
    Simulated,
    /// A support added by another crate ([`crate::Support`]).
    External,
}

/// Output stream of a `stdio` device support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// The error log.
    Log,
}

impl Device {
    fn from_name(name: &str) -> Self {
        match name {
            "Soft Channel" => Self::Soft,
            "Raw Soft Channel" => Self::SoftRaw,
            "Async Soft Channel" => Self::SoftAsync,
            "Soft Timestamp" => Self::SoftTimestamp,
            "General Time" => Self::GeneralTime,
            "stdio" => Self::Stdio,
            "getenv" => Self::Getenv,
            "Db State" => Self::DbState,
            "Simulated Motor" | "Simulated Scaler" => Self::Simulated,
            _ => Self::Missing,
        }
    }
}

/// Selects the device support for a record's DTYP and link.
pub(crate) fn choose(db: &mut Db, rec: RecId) -> Device {
    let kind = db.records.type_of(rec);
    if kind.devices.is_empty() {
        return Device::Soft;
    }
    let Some(entry) = kind.devices.get(usize::from(db.records[rec].dtyp)) else { return Device::Missing };
    let device = Device::from_name(&entry.name);
    let wants_address = entry.link != "CONSTANT";
    if let Some(field) = kind.field("INP").or_else(|| kind.field("OUT")) {
        fit_link(db, rec, field, wants_address);
    }
    match device {
        Device::Missing => {
            let name = db.records.type_of(rec).devices[usize::from(db.records[rec].dtyp)].name.clone();
            let address = db.address(rec);
            db.attach(rec, &name, &address).unwrap_or(Device::Missing)
        }
        Device::GeneralTime => {
            let known = crate::rec::general_times(db.records[rec].kind());
            let address = db.address(rec);
            let asked = address.trim_start_matches('@').trim();
            if known.iter().any(|known| known.eq_ignore_ascii_case(asked)) {
                return Device::GeneralTime;
            }
            db.notice(format!(
                "{}: General Time has no \"{asked}\" for this type of record, expected {}",
                db.records.name(rec),
                known.join(" or ")
            ));
            // The record is active from the start, as C's device support leaves it.
            db.records[rec].broken = true;
            db.records[rec].pact = 1;
            Device::Missing
        }
        device => device,
    }
}

/// Ensures that a link is a device address, or is not, as DTYP requires. As in C, a link of the wrong kind is reported and
/// replaced by an empty one.
fn fit_link(db: &mut Db, rec: RecId, field: u16, wants_address: bool) {
    let Slot::Link(link) = db.records.peek(rec, field) else { return };
    let (unset, is_address) = (link.is_empty(), link.brief().kind == LinkKind::Hardware);
    if is_address == wants_address {
        return;
    }
    if !unset {
        let expected = if wants_address {
            "a device address such as @…"
        } else {
            "a constant or the name of a process variable"
        };
        let link = db.link_text(rec, field);
        let record = db.records.name(rec);
        let text = format!("{record}: the link \"{link}\" does not fit DTYP, expected {expected}; it is left empty");
        db.notice(text);
    }
    db.set_link(rec, field, if wants_address { "@" } else { "" });
}

impl Db {
    /// The device support of a record.
    #[inline]
    pub(crate) fn device(&self, rec: RecId) -> Device {
        self.records[rec].device
    }

    /// Texts written by `stdio` device supports since the last call.
    pub fn take_output(&mut self) -> Vec<(Stream, String)> {
        std::mem::take(&mut self.outbox.output)
    }

    /// Sets an environment variable for `getenv` device supports.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    /// Sets a state for `Db State` device supports and filters (dbStateSet). Creates it if it does not exist.
    pub fn set_state(&mut self, name: &str, on: bool) {
        let known = self.states.get_mut(name);
        let changed = known.as_ref().is_none_or(|state| **state != on);
        match known {
            Some(state) => *state = on,
            None => drop(self.states.insert(name.to_owned(), on)),
        }
        if changed {
            self.signal(crate::run::scan::Signal::State(base::Str40::from(name), on));
        }
    }

    /// A state; `None` if it does not exist.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<bool> {
        self.states.get(name).copied()
    }

    /// All states with their values.
    pub fn states(&self) -> impl Iterator<Item = (&str, bool)> {
        self.states.iter().map(|(name, on)| (name.as_str(), *on))
    }
}
