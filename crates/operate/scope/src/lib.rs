//! Captures of the oscilloscope (`rt::scope`): measurements, zoom, spectrum and files; and triggers in text form.
//!
//! ```
//! use scope::{Capture, Trigger, Window};
//! let trigger: Trigger = "voltage > 1.5 rising".parse().unwrap();
//! assert!(matches!(trigger, Trigger::Loop { on: Some(name), .. } if name == "voltage"));
//! let capture = Capture::of_values("voltage", "MV", 1e-3, (0..64).map(|k| (f64::from(k) * 0.785).sin()));
//! assert!(scope::measure(&capture, 0).unwrap().peak_to_peak() > 1.9);
//! assert_eq!(scope::spectrum(&capture, 0, Window::Hann).unwrap().highest().unwrap().0.round(), 125.0);
//! assert_eq!(Capture::from_csv(&capture.to_csv()).unwrap(), capture);
//! ```
//!
//! The crate uses no files, sockets, clocks or threads.

mod capture;
mod envelope;
mod fft;
mod file;
mod maths;
mod measure;
mod npy;
mod plot;
mod trigger;
mod wanted;

pub use capture::{Capture, Channel, TRIGGER_MARK};
pub use envelope::{Persistence, Span, envelope};
pub use fft::{Spectrum, Window, average, fft, spectrum};
pub use file::{FileError, Kind};
pub use maths::{Operation, maths};
pub use measure::{Cursors, Measured, cursors, measure};
pub use plot::plot;
pub use trigger::{Beside, Trigger, TriggerError};
pub use wanted::{CaptureSettings, Mode};
