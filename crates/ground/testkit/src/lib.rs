//! What tests of several crates share: the guest that a test runs in, invented machines, a model of the kernel, nodes of Cassandra.
//!
//! Only ever a dev-dependency: nothing that is shipped may rest on it.
#![forbid(unsafe_code)]

pub mod cassandra;
pub mod guest;
pub mod kernel;
pub mod machine;

pub use kernel::FakeKernel;
pub use machine::MachineText;
