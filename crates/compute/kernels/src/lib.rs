//! Arithmetic for control loops with the vector instructions of the CPU.
//!
//! All objects are made before a loop starts. No kernel allocates, blocks or makes a system call, and its duration depends only on the sizes.
//! Results depend on the instruction set only where the documentation states it.
//!
//! `unsafe` is used for two things: to read and write vectors, and to call functions compiled for more than the baseline CPU. A [`Level`]
//! proves that the CPU supports them.
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
