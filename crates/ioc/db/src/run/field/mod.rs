//! Fields of a record: read, written, described.

pub(crate) mod get;
pub(crate) mod meta;
pub(crate) mod put;
