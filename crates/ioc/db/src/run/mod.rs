//! The engine: record processing, links, scans, callbacks, events.

pub(crate) mod autosave;
pub(crate) mod callback;
pub(crate) mod channel;
pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod field;
pub(crate) mod filter;
pub(crate) mod function;
pub(crate) mod link;
pub(crate) mod notify;
pub(crate) mod pool;
pub(crate) mod scan;
pub(crate) mod split;
pub(crate) mod start;
pub(crate) mod stop;
