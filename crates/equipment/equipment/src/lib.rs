//! Equipment managers' tables: what objects there are, and what a request to one of them does.
//!
//! A manager's file lists *devices* (what there is, how it is reached) and *rows* (`map`: which requests mean which point of
//! which device, and how raw values become engineering values). [`check`] reads them with every finding at once;
//! [`Tables`] answers what a request means; a [`Lane`] carries requests out, runs autonomous loops and polls, with `now` as
//! an argument.
//!
//! Never here: the message server, sockets, shared memory, threads. Devices are given by whoever runs a lane.
//!
//! ```
//! use equipment::{DRIVERS, check, dry_run};
//!
//! let text = r#"
//! [manager]
//! name = "magnets"
//!
//! [[device]]
//! name = "ps_b"
//! driver = "power-supply"
//!
//! [[map]]
//! verb = "put"
//! object = "sr_mag_{name}"
//! device = "{name}"
//! point = "setpoint"
//! convert = [{ scale = 0.5 }]
//! unit = "A"
//! limits = [0, 600]
//! "#;
//! let drivers: Vec<_> = DRIVERS.iter().collect();
//! let checked = check("magnets.toml", text, &drivers, &mut |name| Err(format!("no file {name}")), &());
//! let tables = checked.tables.as_ref().unwrap_or_else(|| panic!("{}", checked.render()));
//! let steps = dry_run(tables, "put/sr_mag_ps_b/120.5A", None).unwrap();
//! assert!(steps.contains("ps_b (power-supply, rt-safe, real-time lane): write setpoint"), "{steps}");
//! assert!(dry_run(tables, "put/sr_mag_ps_b/601A", None).unwrap_err().why.contains("expected 0A to 600A"));
//! ```
#![forbid(unsafe_code)]

mod agent;
mod convert;
mod csv;
mod datum;
mod device;
mod dry;
mod execute;
mod keys;
mod lane;
mod pattern;
mod read;
pub mod sim;
mod tables;
mod unit;

pub use agent::{Agent, is_agent};
pub use convert::Convert;
pub use datum::{Datum, DeviceFault, Fault};
pub use device::{Access, DRIVERS, Device, Driver, Pace};
pub use dry::{DryRunError, dry_run};
pub use keys::document;
pub use lane::{Answer, Answers, Lane, LaneError, PENDING_MAX};
pub use pattern::Pattern;
pub use read::{At, Checked, FileFindings, Machine, POLLED_NAME_BYTES_MAX, POLLED_UNIT_BYTES_MAX, Wrong, check};
pub use tables::{DeviceSpec, Entry, Poll, Reached, Row, Settings, Tables};
pub use unit::Unit;
