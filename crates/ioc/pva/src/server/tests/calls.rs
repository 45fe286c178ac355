//! A channel that is a function.

use super::*;
use crate::codec::Kind;

/// The function's handle.
pub(super) const FUNCTION: u64 = 3;

const NUMBER: Type = Type::Scalar(Kind::F64);

/// Twice the argument.
pub(super) fn doubled(argument: Option<Typed>) -> Call {
    match argument.and_then(|(_, value)| value.to_f64()) {
        Some(number) => Call::Done((NUMBER, Tree::F64(2.0 * number))),
        None => Call::Failed(Status::error("expected a number")),
    }
}

impl Bench {
    fn call(&mut self, sid: u32, ioid: u32, sub: u8, argument: Option<f64>) {
        self.send(command::RPC, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(sub);
            match argument {
                Some(number) => {
                    out.ty(&NUMBER);
                    out.value(&Tree::F64(number));
                }
                None => out.u8(0xFF),
            }
        });
    }

    /// The status of the last answer, and the number of a successful one.
    fn result(&mut self) -> (String, Option<f64>) {
        let (command, payload) = self.one();
        assert_eq!(command, command::RPC);
        let mut reader = Reader::new(&payload[5..], Order::Little);
        let status = reader.status().unwrap();
        if reader.rest().is_empty() {
            return (status.message.to_string(), None);
        }
        let ty = reader.ty(&mut TypeTable::default()).unwrap();
        (status.message.to_string(), reader.value(&ty).unwrap().to_f64())
    }
}

#[test]
fn a_function_is_called_repeatedly_and_answers_at_once_or_later() {
    let mut bench = Bench::new(Limits { operations: 1, ..Limits::default() });
    let sid = bench.create(1, "f");
    assert!(bench.init(command::RPC, sid, 1, "", None).0.is_success());
    assert!(!bench.init(command::RPC, sid, 1, "", None).0.is_success(), "the operation exists");
    assert!(!bench.init(command::RPC, sid, 2, "", None).0.is_success(), "too many operations");
    for number in [1.0, 2.0] {
        bench.call(sid, 1, 0, Some(number));
        assert_eq!(bench.result(), (String::new(), Some(2.0 * number)));
    }
    bench.call(sid, 1, 0, None);
    assert_eq!(bench.result(), ("expected a number".into(), None));
    bench.call(sid, 9, 0, None);
    assert_eq!(bench.result(), ("bad request id".into(), None));
    bench.values.later = true;
    bench.call(sid, 1, 0, None);
    bench.call(sid, 1, 0, None);
    assert_eq!(bench.result(), ("the previous request is not complete".into(), None));
    let token = *bench.values.asked.last().unwrap();
    bench.server.answer_call(token, Ok((NUMBER, Tree::F64(7.0))), &mut bench.values);
    assert_eq!(bench.result(), (String::new(), Some(7.0)));
    // The last call ends the operation.
    bench.values.later = false;
    bench.call(sid, 1, 0x10, Some(4.0));
    assert_eq!(bench.result().1, Some(8.0));
    bench.call(sid, 1, 0, Some(4.0));
    assert_eq!(bench.result().0, "bad request id");
}

#[test]
fn a_call_needs_read_access_and_its_result_is_forgotten_when_the_client_cancels_or_leaves() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "f");
    bench.init(command::RPC, sid, 1, "", None);
    bench.values.later = true;
    bench.call(sid, 1, 0, None);
    bench.send(command::CANCEL_REQUEST, |out| {
        out.u32(sid);
        out.u32(1);
    });
    bench.call(sid, 1, 0, None);
    bench.send(command::DESTROY_CHANNEL, |out| {
        out.u32(sid);
        out.u32(1);
    });
    assert_eq!((bench.values.forgotten.len(), bench.take().len()), (2, 1), "only the end of the channel is answered");
    for token in bench.values.asked.clone() {
        bench.server.answer_call(token, Ok((NUMBER, Tree::F64(7.0))), &mut bench.values);
    }
    assert_eq!(bench.take(), []);
    bench.values.access = Some(Access { read: false, write: true });
    let sid = bench.create(1, "f");
    bench.init(command::RPC, sid, 1, "", None);
    bench.call(sid, 1, 0, Some(1.0));
    assert_eq!(bench.result(), ("no read access".into(), None));
}
