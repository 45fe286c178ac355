//! The adaptive-optics loop as a process: receives pixels from a socket or a network card's queue, multiplies with a team of threads, sends
//! commands through a socket.
//!
//! Path of a frame: [`Pixels`] receives datagrams → [`Control`] finds the spots of each row and has the team multiply them while the next rows
//! arrive → the command is sent after the last row. `optics` and `kernels` define the meaning of a frame and the computation. Other threads
//! control a running loop through its [`Desk`]. [`Streams`] publish each stage to other programs.
//!
//! This crate contains no pixel arithmetic, no argument parsing and no printing. Code that an armed loop calls neither allocates nor locks.
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
pub use spec::{Spec, SpotWork, receiver, sender};
pub use streams::Streams;
