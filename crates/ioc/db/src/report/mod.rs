//! What operators look at.

pub(crate) mod json;
pub(crate) mod links;
