//! Arithmetic for control loops, by the vector instructions that the CPU has.
//!
//! Everything is made once, before a loop begins; no call of a kernel allocates, blocks or asks the system for anything, and
//! each takes a time that depends on its sizes alone. What is computed depends on the instructions only where it says so.
//!
//! `unsafe` stands here for two things: reading and writing vectors, and calling what is compiled for more than the least
//! CPU, which a [`Level`] proves that this one can do.
#![allow(unsafe_code, reason = "vector instructions")]

mod centroids;
mod elements;
mod filters;
mod half;
mod level;
mod panels;
mod products;
mod read;
mod scaled;
mod tracker;

pub use centroids::{BadAperture, Centroids, Light, SIDE_MAX, Without};
pub use elements::{calibrate, each, each_counted, finite};
pub use filters::{BadFilter, Biquads, Fir, Real, Section};
pub use half::F16;
pub use level::{Level, NotHere};
pub use panels::{Misfit, PANEL, Panels, Stored};
pub use products::products;
pub use read::read;
pub use scaled::{BLOCK_MAX, Scaled};
pub use tracker::{BadTracker, REACH_MAX, REFERENCE_MAX, Shift, Tracked, Tracker};
