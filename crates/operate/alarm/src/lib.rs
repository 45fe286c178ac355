//! Alarm logic of a control room: an alarm is latched until it is acknowledged and its cause is over.
//!
//! The rules are those of Phoebus' alarm server; the states for hiding alarms are those of ISA-18.2 (IEC 62682). An [`Alarm`] is
//! one alarm; a [`Panel`] contains all alarms of a plant. Its changes are [`Entry`] values, the lines of a journal, from which a
//! panel can be restored. [`wire`] is the protocol with clients, [`notify`] decides about messages to webhooks and mail addresses.
//!
//! This crate uses no files, sockets or clocks. The time is passed in as [`Now`]. All operations may allocate; none blocks.
#![forbid(unsafe_code)]

mod config;
mod destination;
mod figures;
mod filter;
mod logic;
pub mod notify;
mod panel;
mod severity;
mod state;
#[cfg(test)]
mod tests;
pub mod wire;
pub mod xml;

pub use config::{
    Action, Area, Config, DEFAULT_NAME, DOCUMENT, Guide, Help, PVACCESS, Spec, check_plant, read, read_told,
};
pub use destination::{Destination, Server, Target};
pub use figures::{Chatter, Figures, FrequentAlarm, HiddenAlarm, Reckoner, StaleAlarm};
pub use filter::{Filter, FilterError};
pub use logic::{Alarm, Now, Rules, StateChange, Update};
pub use panel::{Act, ActError, Actor, ChannelUse, Entry, EntryContent, Panel, is_meant};
pub use severity::Severity;
pub use state::{Mark, Moment, Shelf, State, Wall};
