//! The oscilloscope on exported variables: the loop that writes them samples the chosen ones in each of its cycles, and
//! decides there about triggers; whoever looks reads memory that the loop never waits for.
//!
//! ```text
//! who looks ──setup, force, stop──► tahti-scope-NAME (a thread of the loop's process that is not real time)
//!     ▲                                    │ Latest: taken by the loop at the end of a cycle
//!     └──── memory, read only ◄── rows ── loop
//! ```
//!
//! Who may look may also set it up: who runs as the loop's user, or root.

mod client;
mod machine;
mod request;
mod sampler;
mod shared;

pub use client::{Oscilloscope, Rows, ScopeError, Status, exported};
pub use machine::{Cause, Condition, Machine, Mode, Phase, Seen, Step, Timing, Watch};
pub use request::{Request, RequestError};
pub use ring::{CAPTURES_MAX, CHANNELS_MAX, ROW_WORDS, marks};
pub use sampler::Sampler;
pub(crate) use shared::Shared;
