//! Ports: connections to equipment over TCP or a serial line, also behind a terminal server (RFC 2217), each with its own
//! thread.
//!
//! A [`Port`] runs one exchange at a time ([`fieldbus::Exchange`]), in the order of submission. It
//! connects for the first one, reconnects with bounded back-off, and passes unsolicited bytes to its
//! [listeners](Port::listen). Records of the IOC and equipment managers use it.
//!
//! Not for real-time threads: they pass their requests to other threads.
//!
//! ```
//! use base::DurNs;
//! use fieldbus::Exchange;
//! use fieldbus::modbus::{Framing, Request, Response, Table, Transaction};
//! use port::{Job, Port};
//! use std::sync::mpsc::{Sender, channel};
//! # use std::io::{Read as _, Write as _};
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?.to_string();
//! # std::thread::spawn(move || {
//! #     let (mut stream, _) = listener.accept().unwrap();
//! #     stream.read_exact(&mut [0; 12]).unwrap();
//! #     let mut answer = Vec::new();
//! #     fieldbus::modbus::encode(Framing::Tcp, 1, 1, &[3, 2, 0, 111], &mut answer);
//! #     stream.write_all(&answer).unwrap();
//! # });
//!
//! /// Reads a register, and sends the result to the waiting thread.
//! struct Ask {
//!     transaction: Transaction,
//!     to: Sender<Result<Response, String>>,
//! }
//!
//! impl Job for Ask {
//!     fn exchange(&mut self) -> &mut dyn Exchange {
//!         &mut self.transaction
//!     }
//!     fn done(self: Box<Self>) {
//!         let result = self.transaction.result().ok_or("not over".to_owned());
//!         let _ = self.to.send(result.and_then(|result| result.map_err(|failure| failure.to_string())));
//!     }
//!     fn missed(self: Box<Self>, why: &str) {
//!         let _ = self.to.send(Err(why.to_owned()));
//!     }
//! }
//!
//! let port = Port::open("plc", address.parse()?, 16)?;
//! let request = Request::Read { table: Table::Holding, address: 7, count: 1 };
//! let transaction = Transaction::new(Framing::Tcp, 1, 1, request, DurNs::from_secs(5))?;
//! let (to, answers) = channel();
//! assert!(port.submit_or_refuse(Box::new(Ask { transaction, to })).is_ok(), "16 wait already");
//! assert_eq!(answers.recv()?, Ok(Response::Registers(vec![111])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod connection;
mod pace;
mod queue;
mod telnet;
pub mod trace;

pub use address::{Address, BadAddress, BadOption, Com, Parity, Serial, Tcp, Udp};
pub use connection::{ConnectError, Connection, Status};
pub use queue::{Job, Listener, Port};
pub use trace::Trace;
