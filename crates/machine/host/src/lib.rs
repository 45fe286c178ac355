//! Decisions without effects: the machine as a value, plans that change it, and supervision as a state machine.
//!
//! All functions are pure: they access no file, clock, thread or process. The present time is the argument `now`.
//!
//! ```
//! use host::plant::{Anywhere, check};
//!
//! let text = r#"
//! [plant]
//! name = "ring"
//!
//! [[process]]
//! name = "loop"
//! command = "./loop --period 1ms"
//! class = "fifo:80"
//! "#;
//! let plant = check(text, &Anywhere).plant.expect("nothing is wrong with it");
//! assert_eq!(plant.processes[0].command, ["./loop", "--period", "1ms"]);
//! assert!(check(&text.replace("fifo:80", "fifo:800"), &Anywhere).plant.is_none());
//! ```
#![forbid(unsafe_code)]

/// Declares modules and a table of their items, in this order: `module: Type Type;`. Each module documents itself; the
/// line here is the only other mention of it. `cargo fmt` does not see these files; `cargo xtask test fmt` checks them.
macro_rules! table {
    ($(#[$about:meta])* $all:ident: $of:ty = $vis:vis mod { $($(#[$note:meta])* $module:ident: $($item:ident)+;)* }) => {
        $($(#[$note])* $vis mod $module;)*

        $(#[$about])*
        pub static $all: &[&$of] = &[$($(&$module::$item,)+)*];
    };
}

pub mod doctor;
pub mod guard;
pub mod health;
pub mod knob;
pub mod partition;
pub mod plan;
pub mod plant;
pub mod reach;
pub mod snapshot;
pub mod suggest;
pub mod supervise;
