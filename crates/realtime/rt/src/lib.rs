//! Real-time threads: periodic loops that neither allocate nor cause page faults once they are armed, with counters as
//! proof.
//!
//! A process first *builds*: it allocates memory, opens files, spawns threads, and adds its loops. [`Rt::arm`] then locks
//! its memory, prepares the loops' threads (name, CPU, class, stack) and reports the properties that it could not obtain.
//! From [`Rt::start`] on the loops run on an absolute schedule and record every cycle in their [loop page](ring::LoopPage),
//! which other processes can read at any time.
//!
//! ```no_run
//! use base::{DurNs, Policy, Priority};
//! use rt::{Flow, LoopSpec, Rt, SharedPage};
//! let page = SharedPage::from_env_or_own("feedback").unwrap();
//! let mut rt = Rt::new();
//! let spec = LoopSpec { class: Some(Policy::Fifo(Priority(80))), ..LoopSpec::new("feedback", DurNs::from_ms(1)) };
//! rt.add_loop(spec, page.clone(), |_pulse| Flow::Continue);
//! let mut armed = rt.arm().unwrap();
//! for missing in armed.missing() {
//!     eprintln!("{missing}");
//! }
//! armed.start(DurNs::from_ms(20));
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! armed.stop();
//! println!("{:?} late at most", page.read().wake().max());
//! ```
//!
//! After arming, a loop's thread does not allocate, lock or log, and makes no decision about processes.
#![forbid(unsafe_code)]

mod armed;
mod barrier;
mod condition;
pub mod device;
mod disturbance;
pub mod frames;
mod looping;
mod obtained;
mod page;
mod preempt;
mod program_events;
mod quiet;
pub mod scope;
mod share;
mod source;
pub mod team;
mod variables;
mod waiter;
mod watch;

pub use armed::{ArmError, Armed, Building, Rt};
pub use barrier::{Barrier, Met};
pub use condition::{Condition, Ticket};
pub use looping::{Event, EventLoop, Flow, LoopSpec, Pulse};
pub use obtained::Obtained;
pub use page::{PageError, SharedPage};
pub use preempt::{Switch, parse_switch};
pub use program_events::{EVENT_NAME_BYTES, EVENT_THREADS_MAX, ProgramEvent, ProgramEvents, program_event};
pub use quiet::{GAPS_KEPT, Gap, Gaps, Quiet, QuietError, QuietReport, quiet};
pub use ring::{Counter, Wait};
pub use ring::{LOOP_FD, Number, VariableSpec};
pub use share::{ShareError, ask, offer};
pub use source::{LOOK_AFTER, Source, SourceView};
pub use sys::alloc::Counting;
pub use sys::mutex::{Lock, LockGuard, Mutex, MutexGuard};
pub use variables::{Exports, Imports, stale_after};
pub use waiter::spin_window;
pub use watch::{Watch, WatchReport, between_pulses};
