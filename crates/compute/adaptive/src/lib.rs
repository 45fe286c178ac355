//! The adaptive-optics loop as a process: pixels from a socket or a network card's queue, a team that multiplies, commands out by a socket.
//!
//! The way of a frame: [`Pixels`] takes datagrams as they come → [`Control`] finds the spots of each row and has the team multiply them while
//! the rest is on its way → after the last row the command goes out. What a frame means and what is computed from it is in `optics` and
//! `kernels`. Whoever else wants something of a loop that runs asks at its [`Desk`]; [`Streams`] show each stage to other programs.
//!
//! Never here: arithmetic on pixels, arguments, printing. What the loop calls after it was armed neither allocates nor locks.
#![forbid(unsafe_code)]

mod calibrate;
mod control;
mod desk;
mod error;
mod input;
mod pixels;
mod shown;
mod spec;
mod streams;

pub use calibrate::{Before, Calibrated, Frames, calibrate};
pub use control::Control;
pub use desk::{Desk, Latency};
pub use error::Error;
pub use input::{Card, Input, InputWatch};
pub use pixels::Pixels;
pub use shown::{Chosen, Figures, Shown, counted};
pub use spec::{Spec, receiver, sender};
pub use streams::Streams;
