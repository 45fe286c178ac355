//! Modbus: requests and responses, their framing, one transaction, and how numbers lie in registers.
//!
//! After "MODBUS Application Protocol Specification V1.1b3" and "MODBUS Messaging on TCP/IP Implementation Guide V1.0b".
//!
//! | to | call |
//! |---|---|
//! | ask a device | [`Transaction`], driven as an [`Exchange`](crate::Exchange) |
//! | write or read protocol data alone | [`Request::encode`], [`Request::decode`], [`Response::encode`], [`Response::decode`] |
//! | put them on a line | [`encode`], [`decode`] with a [`Framing`] |
//! | read numbers from registers | [`DataType`] |

mod data;
mod frame;
mod pdu;
mod transaction;

pub use data::{DataType, Number};
pub use frame::{Frame, FrameError, Framing, decode, encode};
pub use pdu::{Exception, PduError, Request, Response, Table};
pub use transaction::{Failure, Transaction};
