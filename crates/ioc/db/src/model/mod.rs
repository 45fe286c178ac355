//! Data model: field tables, field storage, links as data, names, values.

pub(crate) mod constant;
pub(crate) mod deadband;
pub(crate) mod id;
pub(crate) mod json_link;
pub(crate) mod link;
pub(crate) mod names;
pub(crate) mod pva_link;
pub(crate) mod schema;
pub(crate) mod slot;
pub(crate) mod values;
