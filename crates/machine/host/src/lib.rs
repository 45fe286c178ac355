//! What to do, never doing it: the machine as a value, plans over it, supervision as a state machine.
//!
//! Pure: no file, clock, thread or process; `now` is an argument.
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
pub mod knob;
pub mod plan;
pub mod plant;
pub mod reach;
pub mod snapshot;
pub mod suggest;
pub mod supervise;
