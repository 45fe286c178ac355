//! What to do, never doing it: the machine as a value, plans over it, supervision as a state machine.
//!
//! Pure: no file, clock, thread or process; `now` is an argument.
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

/// Declares modules and the table of what they have for it, in this order: `module: Type Type;`. What a module is stands in
/// it; its line here is all that is said of it elsewhere. `cargo fmt` does not see these files, `cargo xtask test fmt` does.
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
