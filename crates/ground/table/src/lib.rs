//! Reading files that people write: every finding at once, each with its place, what was found, what was expected,
//! what to do.
//!
//! A file is described by tables of keys ([`Table`], [`Key`]), which are also its documentation; [`Section`] reads typed
//! values and collects a [`Diagnostic`] for each that does not fit.
//!
//! Never here: what the keys mean, files, or anything of the machine.
#![forbid(unsafe_code)]

mod diag;
mod keys;
mod read;
mod utf8;

pub use diag::{Diagnostic, Diagnostics, Severity, render_all};
pub use keys::{Key, Table, key, rows};
pub use read::{Placed, Section, clipped, integer, split_words, tables};
pub use utf8::{NotUtf8, utf8};
