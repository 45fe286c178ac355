//! Several transactions in a row that no other exchange interrupts.

use super::{Failure, Framing, Request, Response, Transaction};
use crate::exchange::Exchange;
use base::{DurNs, MonoNs};
use std::collections::VecDeque;

/// One part of a [`Chain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request.
    Request(Request),
    /// Changes some bits of a holding register: reads it and writes it back.
    Bits {
        /// The register.
        address: u16,
        /// Bits to change.
        mask: u16,
        /// Their values.
        value: u16,
        /// Whether it is written with function 16 instead of 6.
        many: bool,
    },
}

impl Step {
    /// The first request of the step.
    fn first(&self) -> Request {
        match self {
            Self::Request(request) => request.clone(),
            Self::Bits { address, .. } => Request::Read { table: super::Table::Holding, address: *address, count: 1 },
        }
    }
}

/// Transactions in a row, as one [`Exchange`]. It ends with the first failure.
#[derive(Clone, Debug)]
pub struct Chain {
    framing: Framing,
    number: u16,
    unit: u8,
    limit: DurNs,
    /// Pause before each request.
    delay: DurNs,
    steps: VecDeque<Step>,
    current: Option<Transaction>,
    /// Time of the next request.
    at: Option<MonoNs>,
    /// Request that follows from the last response.
    follows: Option<Request>,
    last: Option<Response>,
    result: Option<Result<Response, Failure>>,
}

impl Chain {
    /// A chain of steps to unit `unit`, each with a time limit and a pause before its requests. `number` is the number of
    /// the first transaction; each request uses the next one.
    #[must_use]
    pub fn new(framing: Framing, number: u16, unit: u8, steps: Vec<Step>, limit: DurNs, delay: DurNs) -> Self {
        Self {
            framing,
            number,
            unit,
            limit,
            delay,
            steps: steps.into(),
            current: None,
            at: None,
            follows: None,
            last: None,
            result: None,
        }
    }

    /// Numbers that the transactions of some steps use.
    #[must_use]
    pub fn numbers(steps: &[Step]) -> u16 {
        steps.iter().map(|step| if matches!(step, Step::Bits { .. }) { 2 } else { 1 }).sum()
    }

    /// The last response or the failure, once the exchange is over.
    #[must_use]
    pub fn result(&self) -> Option<Result<Response, Failure>> {
        self.result.clone()
    }

    /// Takes the response of the current transaction, if it is over.
    fn proceed(&mut self) {
        let Some(result) = self.current.as_ref().and_then(Transaction::result) else { return };
        // After a failure the transaction remains, because it knows whether the line is unusable.
        let response = match result {
            Ok(response) => response,
            Err(failure) => return self.result = Some(Err(failure)),
        };
        self.current = None;
        self.at = None;
        if let Some(Step::Bits { address, mask, value, many }) = self.steps.front()
            && let Response::Registers(registers) = &response
        {
            let value = registers.first().copied().unwrap_or_default() & !mask | value & mask;
            self.follows = Some(match many {
                true => Request::WriteRegisters { address: *address, values: vec![value] },
                false => Request::WriteRegister { address: *address, value },
            });
        }
        if self.follows.is_none() {
            self.steps.pop_front();
        }
        self.last = Some(response);
    }

    /// The next request; `None` at the end.
    fn next(&mut self) -> Option<Request> {
        match self.follows.take() {
            Some(request) => {
                self.steps.pop_front();
                Some(request)
            }
            None => self.steps.front().map(Step::first),
        }
    }
}

impl Exchange for Chain {
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        if self.result.is_some() {
            return;
        }
        if let Some(current) = &mut self.current {
            return current.poll_transmit(now, out);
        }
        if self.steps.is_empty() {
            self.result = Some(self.last.take().map_or(Ok(Response::Written), Ok));
            return;
        }
        if *self.at.get_or_insert(now + self.delay) > now {
            return;
        }
        let Some(request) = self.next() else { return };
        match Transaction::new(self.framing, self.number, self.unit, request, self.limit) {
            Ok(mut transaction) => {
                self.number = self.number.wrapping_add(1);
                transaction.poll_transmit(now, out);
                self.current = Some(transaction);
            }
            Err(error) => self.result = Some(Err(Failure::Answer(error))),
        }
    }

    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]) {
        if let Some(current) = &mut self.current {
            current.handle_bytes(now, bytes);
        }
        self.proceed();
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        match &self.current {
            _ if self.result.is_some() => None,
            Some(current) => current.poll_timeout(),
            None => self.at,
        }
    }

    fn handle_timeout(&mut self, now: MonoNs) {
        if let Some(current) = &mut self.current {
            current.handle_timeout(now);
        }
        self.proceed();
    }

    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        self.result.get_or_insert_with(|| Err(Failure::Closed(why.to_owned())));
    }

    fn is_over(&self) -> bool {
        self.result.is_some()
    }

    fn spoils_line(&self) -> bool {
        self.current.as_ref().is_some_and(Transaction::spoils_line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modbus::{Exception, Table, decode, encode};
    use std::collections::VecDeque;

    /// Runs a chain against a device with these registers, and returns its requests.
    fn run(steps: Vec<Step>, registers: &mut [u16], delay: DurNs) -> (Vec<Request>, Result<Response, Failure>) {
        let mut chain = Chain::new(Framing::Tcp, 65_535, 1, steps, DurNs::from_secs(1), delay);
        let (mut seen, mut now, mut bytes) = (Vec::new(), MonoNs(0), Vec::new());
        let mut queue = VecDeque::new();
        for _ in 0..100 {
            chain.poll_transmit(now, &mut bytes);
            if chain.is_over() {
                break;
            }
            if bytes.is_empty() {
                now = chain.poll_timeout().unwrap();
                chain.handle_timeout(now);
                continue;
            }
            let (frame, len) = decode(Framing::Tcp, &bytes).unwrap().unwrap();
            let request = Request::decode(&frame.pdu).unwrap();
            let response = match &request {
                Request::Read { table: Table::Holding, address, .. } => {
                    Response::Registers(vec![registers[usize::from(*address)]])
                }
                Request::WriteRegister { address, value } => {
                    registers[usize::from(*address)] = *value;
                    Response::Written
                }
                _ => Response::Exception(Exception(1)),
            };
            let (mut pdu, mut answer) = (Vec::new(), Vec::new());
            response.encode(&request, &mut pdu);
            encode(Framing::Tcp, frame.transaction, 1, &pdu, &mut answer);
            queue.push_back(request);
            bytes.drain(..len);
            chain.handle_bytes(now, &answer);
        }
        seen.extend(queue);
        (seen, chain.result().unwrap())
    }

    #[test]
    fn changing_bits_reads_the_register_and_keeps_its_other_bits() {
        let mut registers = [0, 0xff00];
        let bits = Step::Bits { address: 1, mask: 0x0ff0, value: 0xf0a5, many: false };
        let (seen, result) = run(vec![bits], &mut registers, DurNs::ZERO);
        assert_eq!(result, Ok(Response::Written));
        let read = Request::Read { table: Table::Holding, address: 1, count: 1 };
        assert_eq!(seen, [read, Request::WriteRegister { address: 1, value: 0xf0a0 }]);
    }

    #[test]
    fn steps_follow_each_other_until_the_first_failure() {
        let one = |address, value| Step::Request(Request::WriteRegister { address, value });
        let refused = Step::Request(Request::WriteCoil { address: 0, on: true });
        let mut registers = [0; 3];
        let (seen, result) = run(vec![one(0, 7), one(1, 8), refused, one(2, 9)], &mut registers, DurNs::from_ms(5));
        assert_eq!((seen.len(), registers), (3, [7, 8, 0]));
        assert_eq!(result, Err(Failure::Exception(Exception(1))));
    }

    #[test]
    fn each_request_waits_for_the_delay() {
        let delay = DurNs::from_ms(5);
        let step = Step::Request(Request::WriteRegister { address: 0, value: 1 });
        let mut chain = Chain::new(Framing::Tcp, 1, 1, vec![step], DurNs::from_secs(1), delay);
        let mut out = Vec::new();
        chain.poll_transmit(MonoNs(0), &mut out);
        assert_eq!((out.len(), chain.poll_timeout()), (0, Some(MonoNs(0) + delay)));
        chain.poll_transmit(MonoNs(0) + delay, &mut out);
        assert_eq!(out.len(), 12);
    }
}
