//! Data for operator reports.

pub(crate) mod c_headers;
pub(crate) mod json;
pub(crate) mod links;
