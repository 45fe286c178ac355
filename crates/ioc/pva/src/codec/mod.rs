//! Types and values as bytes, in both byte orders.
//!
//! [`Reader`] decodes borrowed bytes, [`Writer`] appends to a buffer. [`Type`] is a decoded description, [`Value`] a decoded
//! value. [`TypeTable`] holds the types that a peer has numbered.

mod mask;
mod reader;
mod status;
mod table;
mod types;
mod value;
mod writer;

#[cfg(test)]
mod tests;

pub use mask::Mask;
pub use reader::Reader;
pub use status::{Kind as StatusKind, Status};
pub use table::{SentTypes, TypeTable};
pub use types::{Kind, Struct, Type};
pub use value::{Array, Value};
pub use writer::Writer;

use std::fmt;

/// Maximum depth of nested types and of values in values.
pub const DEPTH_MAX: u32 = 20;
/// Maximum number of nodes of a type, with all nested structures.
pub const NODES_MAX: u32 = 65_536;

/// The byte order of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// The reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end before the value does.
    Short,
    /// A size is negative or larger than the message can hold.
    Size,
    /// The first byte of a type is unknown.
    TypeCode(u8),
    /// A type refers to a number that the peer has not defined.
    UnknownType(u16),
    /// Types or values are nested deeper than [`DEPTH_MAX`].
    Depth,
    /// A type has more than [`NODES_MAX`] nodes, or a value has more than its bytes justify.
    Nodes,
    /// The numbered types need too much memory.
    TableFull,
    /// A union selects a member that it does not have.
    Selector,
    /// A status has an unknown kind.
    StatusKind(u8),
    /// A message does not start with 0xCA.
    Magic(u8),
    /// A message has protocol version 0.
    Version,
    /// A message is marked as sent in the wrong direction.
    Direction,
    /// A segment does not continue the previous one.
    Segment,
    /// A message is larger than the limit.
    TooLong,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the message is too short"),
            Self::Size => f.write_str("a size is larger than the message"),
            Self::TypeCode(code) => write!(f, "unknown type code 0x{code:02x}"),
            Self::UnknownType(id) => write!(f, "type number {id} is not defined"),
            Self::Depth => write!(f, "types are nested deeper than {DEPTH_MAX}"),
            Self::Nodes => f.write_str("a type or value has too many fields"),
            Self::TableFull => f.write_str("too many numbered types"),
            Self::Selector => f.write_str("a union selects a member that it does not have"),
            Self::StatusKind(kind) => write!(f, "unknown kind of status {kind}"),
            Self::Magic(byte) => write!(f, "a message starts with 0x{byte:02x}, expected 0xca"),
            Self::Version => f.write_str("a message has protocol version 0"),
            Self::Direction => f.write_str("a message is marked as sent in the wrong direction"),
            Self::Segment => f.write_str("a segment does not continue the previous one"),
            Self::TooLong => f.write_str("a message is larger than the limit"),
        }
    }
}

impl std::error::Error for Fault {}
