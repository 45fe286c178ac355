//! Data for operator reports.

pub(crate) mod json;
pub(crate) mod links;
