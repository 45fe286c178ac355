//! Reader of configuration files. It reports all findings at once, each with its place, the found and the expected text,
//! and a remedy.
//!
//! A file is described by tables of keys ([`Table`], [`Key`]), which are also its documentation; [`Section`] reads typed
//! values and collects a [`Diagnostic`] for each that does not fit.
//!
//! The meaning of keys, files and the machine are outside of this crate.
#![forbid(unsafe_code)]

mod diag;
mod joined;
mod keys;
mod read;
mod utf8;

pub use diag::{Diagnostic, Diagnostics, Severity, render_all};
pub use joined::Joined;
pub use keys::{Key, Table, key, rows};
pub use read::{Placed, Section, Unfinished, clipped, integer, split_words, tables};
pub use utf8::{NotUtf8, one_byte_letters, utf8, utf8_part};
