//! Fields of a record: reading, writing, properties.

pub(crate) mod get;
pub(crate) mod meta;
pub(crate) mod put;
