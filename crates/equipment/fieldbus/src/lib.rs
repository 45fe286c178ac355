//! Protocols of equipment: Modbus, line protocols described by protocol files, and messages without one.
//!
//! The crate is pure: it opens no socket, reads no clock, starts no thread and does not depend on records. Received
//! bytes and the time `now` are arguments; bytes to send and wake-up times are results ([`Exchange`]). IOC records and
//! the steps of an equipment manager use the same engines. The crate `port` transfers their bytes.
//!
//! ```
//! use base::{DurNs, MonoNs};
//! use fieldbus::{Exchange, modbus::{Framing, Request, Response, Table, Transaction}};
//!
//! let request = Request::Read { table: Table::Holding, address: 100, count: 2 };
//! let mut exchange = Transaction::new(Framing::Tcp, 7, 1, request, DurNs::from_ms(500)).unwrap();
//! let mut out = Vec::new();
//! exchange.poll_transmit(MonoNs(0), &mut out);
//! assert_eq!(out, [0, 7, 0, 0, 0, 6, 1, 3, 0, 100, 0, 2]);
//! exchange.handle_bytes(MonoNs(1), &[0, 7, 0, 0, 0, 7, 1, 3, 4, 0, 10, 0, 11]);
//! assert_eq!(exchange.result(), Some(Ok(Response::Registers(vec![10, 11]))));
//! ```
#![forbid(unsafe_code)]

pub mod checksum;
pub mod exchange;
pub mod modbus;
pub mod octet;
pub mod stream;

pub use exchange::Exchange;
