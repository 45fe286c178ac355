//! Shared parts of the tests of several crates: the guest that runs a test, machines as texts, a model of the kernel, Cassandra nodes.
//!
//! To be used only as a dev-dependency. Shipped code must not depend on it.
#![forbid(unsafe_code)]

pub mod cassandra;
pub mod guest;
pub mod kernel;
pub mod machine;

pub use kernel::FakeKernel;
pub use machine::MachineText;
