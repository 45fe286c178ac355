//! Alarms as a control room has them: what is wrong is latched until somebody has acknowledged it and it is over.
//!
//! The rules are those of Phoebus' alarm server, the states beside them those of ISA-18.2 (IEC 62682): [`Alarm`] is one of
//! them, [`Panel`] all of a plant, whose changes come out as [`Entry`], the lines of a journal. A panel is made again by
//! giving it the entries of its journal. [`wire`] is what is said with those who look and acknowledge.
//!
//! Never here: files, sockets, clocks. What time it is comes in as [`Now`]. All of it allocates; none of it blocks.
#![forbid(unsafe_code)]

mod config;
mod figures;
mod filter;
mod logic;
mod panel;
mod severity;
mod state;
#[cfg(test)]
mod tests;
pub mod wire;
pub mod xml;

pub use config::{Action, Area, Config, DEFAULT_NAME, DOCUMENT, Guide, Help, Spec, check_plant, read, read_told};
pub use figures::{Aside, Chatter, Figures, Often, Reckoner, Standing};
pub use filter::{Filter, FilterError};
pub use logic::{Alarm, Happened, Now, Rules, Update};
pub use panel::{Act, ActError, Actor, ChannelUse, Entry, Panel, What, is_meant};
pub use severity::Severity;
pub use state::{Mark, Moment, Shelf, State, Wall};
