//! Adaptive optics without threads and sockets: datagrams of pixels and commands, assembly of frames, calibration of detector and mirror,
//! control, and a simulated telescope.
//!
//! Path of a frame: [`gvsp`] datagrams → [`Assembly`] classifies each → [`kernels::Centroids`] measures a row of sub-apertures when it has
//! arrived → the [`reconstructor`](reconstruct) → [`Integrator`] → a [`Command`].
//!
//! This crate uses no files, clocks, sockets or threads. Functions for use in a loop do not allocate, and their documentation states it.

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

pub use assembly::{Assembly, Counts, FrameEnd, RowAction};
pub use command::{Command, CommandError, Source};
pub use control::{Integrator, Settings, Step};
pub use detector::Detector;
pub use geometry::{ACROSS_MAX, Geometry, GeometryError, SIDE};
pub use share::{Share, Stored, rms, slopes_of, unpack};
pub use telescope::{Sky, Telescope};
