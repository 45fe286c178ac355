//! Adaptive optics without its threads and sockets: pixels and commands as datagrams, frames of which datagrams are lost, calibration of
//! detector and mirror, control, and a telescope to try it all on.
//!
//! The way of a frame: [`gvsp`] datagrams → [`Assembly`] says what each is good for → [`kernels::Centroids`], a row of sub-apertures
//! as soon as it has come → the [`reconstructor`](reconstruct) → [`Integrator`] → a [`Command`].
//!
//! Never here: files, clocks, sockets, threads. What is called in a loop does not allocate; it says so.

mod assembly;
mod command;
mod control;
mod detector;
pub mod ethernet;
mod geometry;
pub mod gvsp;
pub mod matrix;
pub mod reconstruct;
mod share;
mod telescope;

pub use assembly::{Assembly, Counts, Taken, Whole};
pub use command::{Command, CommandError, Source};
pub use control::{Integrator, Settings, Step};
pub use detector::Detector;
pub use geometry::{ACROSS_MAX, Geometry, GeometryError, SIDE};
pub use share::{Share, Stored, rms, slopes_of, unpack};
pub use telescope::{Sky, Telescope};
