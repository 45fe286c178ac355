//! Equipment tables: the objects of an equipment manager, and the effect of a request to each of them.
//!
//! The file of a manager lists *devices* (their drivers and addresses) and *rows* (`map`: which requests access which point
//! of which device, and the conversion between raw and engineering values). [`check`] reads the file and reports all errors
//! together. [`Tables`] interprets requests. A [`Lane`] executes requests, autonomous loops and polls, with `now` as an
//! argument.
//!
//! This crate contains no message server, sockets, shared memory or threads. The caller that runs a lane supplies the devices.
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
//! let checked = check("magnets.toml", text, &drivers, &mut |_| Err(std::io::ErrorKind::NotFound.into()), &());
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
pub use device::{Access, DRIVERS, Device, Driver, ExpectedPoint, Pace};
pub use dry::{DryRunError, dry_run};
pub use keys::document;
pub use lane::{Answer, Answers, Lane, LaneError, PENDING_MAX};
pub use pattern::{BadPattern, NoValue, Pattern};
pub use read::{At, Checked, FileFindings, Machine, POLLED_NAME_BYTES_MAX, POLLED_UNIT_BYTES_MAX, Wrong, check};
pub use tables::{DeviceSpec, Entry, Poll, Reached, Row, Settings, Tables};
pub use unit::Unit;
