//! The oscilloscope for exported variables. The loop that writes the variables samples the selected ones in each of its
//! cycles and evaluates the trigger. Clients read the captures from shared memory, and the loop never waits for them.
//!
//! ```text
//! client    ──setup, force, stop──► tahti-scope-NAME (a thread of the loop's process that is not real time)
//!     ▲                                    │ Latest: taken by the loop at the end of a cycle
//!     └──── memory, read only ◄── rows ── loop
//! ```
//!
//! A client may read and set up the oscilloscope if it runs as the loop's user or as root.

mod client;
mod machine;
mod request;
mod sampler;
mod shared;

pub use client::{Oscilloscope, Rows, ScopeError, Status, exported};
pub use machine::{Cause, Condition, CycleInput, Machine, Mode, Phase, Step, Timing, Watch};
pub use request::{Request, RequestError};
pub use ring::{CAPTURES_MAX, CHANNELS_MAX, ROW_WORDS, marks};
pub use sampler::Sampler;
pub(crate) use shared::Shared;
