//! Fields of a record: reading, writing, properties.

mod check;
pub(crate) mod get;
pub(crate) mod meta;
pub(crate) mod put;
