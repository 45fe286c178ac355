//! The interface as its clients use it, on an archive in memory.

mod model;
mod pb;
mod processors;
mod retrieval;
