//! Modbus: requests and responses, their framing, one transaction, and number formats in registers.
//!
//! After "MODBUS Application Protocol Specification V1.1b3" and "MODBUS Messaging on TCP/IP Implementation Guide V1.0b".
//!
//! | to | call |
//! |---|---|
//! | query a device | [`Transaction`], driven as an [`Exchange`](crate::Exchange) |
//! | encode or decode a protocol data unit | [`Request::encode`], [`Request::decode`], [`Response::encode`], [`Response::decode`] |
//! | frame it for a line | [`encode`], [`decode`] with a [`Framing`] |
//! | run several transactions without interruption | [`Chain`] |
//! | decode numbers and texts from registers | [`DataType`], [`Contents`] |

mod chain;
mod data;
mod frame;
mod pdu;
mod register;
mod transaction;

pub use chain::{Chain, Step};
pub use data::{DataType, NoDataType, Number};
pub use frame::{Frame, FrameError, Framing, decode, encode};
pub use pdu::{Exception, PduError, Request, Response, Table};
pub use register::{Characters, Contents};
pub use transaction::{Failure, Transaction};
