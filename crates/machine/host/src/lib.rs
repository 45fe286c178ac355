//! What to do, never doing it: the machine as a value, plans over it, supervision as a state machine.
//!
//! Pure: no file, clock, thread or process; `now` is an argument.
#![forbid(unsafe_code)]

pub mod doctor;
pub mod guard;
pub mod knob;
pub mod plan;
pub mod plant;
pub mod reach;
pub mod snapshot;
pub mod suggest;
pub mod supervise;
