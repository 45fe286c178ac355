//! Frames: which activity runs in which minor frame, whether that plan is feasible, and what happens on a fault.
//!
//! The model is that of SGI's REACT frame scheduler. A *major frame* is a sequence of *minor frames*. Each minor frame has
//! an ordered queue of *activities*, each of which runs once and yields. This crate adds budgets with an admission check, a
//! recovery for each activity, modes, and minors that are counted as lost instead of being run late.
//!
//! The user describes a frame by a [`Spec`]. [`Plan::admit`] and [`share`](share()) refuse a frame that cannot work, with
//! the arithmetic. A [`Machine`] decides at each border between minors. Time is always an argument: the crate uses no
//! clocks, files, threads or shared memory.
//!
//! ```
//! use base::{DurNs, MonoNs};
//! use frame::{Activity, Machine, Plan, ActivityProgress, Spec};
//! let control = Activity::new("control", Some(DurNs::from_us(300)), 0..2);
//! let spec = Spec::new("fast", vec![DurNs::from_ms(1); 2], vec![control]);
//! let mut machine = Machine::new(Plan::admit(&spec).unwrap(), 0, MonoNs(0));
//! let seen = |_activity| ActivityProgress { present: true, ran: true, yielded: true };
//! let border = machine.border(MonoNs(1_000_000), 1, seen, |judgement| panic!("{judgement:?}"));
//! assert_eq!((border.pulse, border.minor, border.lost), (1, 1, 0));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admit;
mod beat;
mod draw;
mod machine;
mod share;
mod spec;
mod sum;

pub use admit::{ACTIVITIES_MAX, Entry, MINORS_MAX, Plan, Refusal};
pub use beat::{Beat, Rhythm};
pub use draw::draw;
pub use machine::{Action, ActivityProgress, Border, Extension, Fault, Judgement, Machine, Totals};
pub use share::share;
pub use spec::{Activity, Config, Discipline, Mode, PRIORITY_MIN, ParseWordError, Recovery, Spec, TimeBase, minors_of};
