//! One request and its response.

use super::{Exception, FrameError, Framing, PduError, Request, Response, decode, encode};
use crate::exchange::Exchange;
use base::{DurNs, MonoNs};

/// The reason why a transaction has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The device refused the request.
    #[error("the device answers with {0}")]
    Exception(Exception),
    /// The time limit passed without a response.
    #[error("no answer in {0}")]
    Timeout(DurNs),
    /// The line was closed or could not be opened.
    #[error("no connection: {0}")]
    Closed(String),
    /// The message is not a response to the request.
    #[error("bad answer: {0}")]
    Answer(#[from] PduError),
    /// The received bytes are not Modbus.
    #[error("bad answer: {0}")]
    Frame(#[from] FrameError),
}

/// One request and its response, as an [`Exchange`]. Ignores late responses to previous transactions.
#[derive(Clone, Debug)]
pub struct Transaction {
    framing: Framing,
    number: u16,
    unit: u8,
    request: Request,
    limit: DurNs,
    /// The deadline of the response; `None` before the request is sent.
    until: Option<MonoNs>,
    bytes: Vec<u8>,
    result: Option<Result<Response, Failure>>,
}

impl Transaction {
    /// Makes a request to unit `unit`. `number` identifies its response among others on the same connection; `limit` is the
    /// maximum time until the response.
    ///
    /// # Errors
    /// The request is outside the specification's limits.
    pub fn new(framing: Framing, number: u16, unit: u8, request: Request, limit: DurNs) -> Result<Self, PduError> {
        request.check()?;
        Ok(Self { framing, number, unit, request, limit, until: None, bytes: Vec::new(), result: None })
    }

    /// The request.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The response or the failure, once the exchange is over.
    #[must_use]
    pub fn result(&self) -> Option<Result<Response, Failure>> {
        self.result.clone()
    }

    fn end(&mut self, result: Result<Response, Failure>) {
        if self.result.is_none() {
            self.result = Some(result);
        }
    }

    fn read(&mut self) -> Result<(), Failure> {
        while let Some((frame, len)) = decode(self.framing, &self.bytes)? {
            let mine = match self.framing {
                Framing::Tcp => frame.transaction == self.number,
                Framing::Rtu | Framing::Ascii => frame.unit == self.unit,
            };
            if mine {
                let response = Response::decode(&self.request, &frame.pdu)?;
                self.end(match response {
                    Response::Exception(exception) => Err(Failure::Exception(exception)),
                    response => Ok(response),
                });
                return Ok(());
            }
            self.bytes.drain(..len);
        }
        Ok(())
    }
}

impl Exchange for Transaction {
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        if self.until.is_none() && self.result.is_none() {
            self.until = Some(now + self.limit);
            let mut pdu = Vec::with_capacity(256);
            self.request.encode(&mut pdu);
            encode(self.framing, self.number, self.unit, &pdu, out);
        }
    }

    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
        // Bytes received before the request cannot be its response.
        if self.until.is_none() || self.result.is_some() {
            return;
        }
        // Processes one message length at a time, which bounds the memory for any amount of input.
        for chunk in bytes.chunks(self.framing.message_max()) {
            self.bytes.extend_from_slice(chunk);
            if let Err(failure) = self.read() {
                self.end(Err(failure));
            }
            if self.result.is_some() {
                return;
            }
        }
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        self.until.filter(|_| self.result.is_none())
    }

    fn handle_timeout(&mut self, now: MonoNs) {
        if self.until.is_some_and(|until| until <= now) {
            self.end(Err(Failure::Timeout(self.limit)));
        }
    }

    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        self.end(Err(Failure::Closed(why.to_owned())));
    }

    fn is_over(&self) -> bool {
        self.result.is_some()
    }

    fn spoils_line(&self) -> bool {
        match &self.result {
            Some(Err(Failure::Frame(_) | Failure::Answer(_))) => true,
            // On a serial line a late response cannot be distinguished from the next one.
            Some(Err(Failure::Timeout(_))) => self.framing != Framing::Tcp,
            _ => false,
        }
    }
}
