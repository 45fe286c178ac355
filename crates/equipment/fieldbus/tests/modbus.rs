//! Modbus: written values are read back, faults of a device are reported, and no bytes cause a panic.

use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use fieldbus::modbus::{
    DataType, Exception, Failure, FrameError, Framing, Number, PduError, Request, Response, Table, Transaction, decode,
    encode,
};
use proptest::prelude::*;

const LIMIT: DurNs = DurNs::from_ms(500);

fn read(table: Table, address: u16, count: u16) -> Request {
    Request::Read { table, address, count }
}

fn sent(framing: Framing, request: Request) -> (Transaction, Vec<u8>) {
    let mut transaction = Transaction::new(framing, 0x0102, 0x11, request, LIMIT).unwrap();
    let mut out = Vec::new();
    transaction.poll_transmit(MonoNs(0), &mut out);
    (transaction, out)
}

#[test]
fn requests_have_the_bytes_of_the_specification() {
    // The examples of "MODBUS Application Protocol Specification V1.1b3".
    let examples: [(Request, &[u8]); 8] = [
        (read(Table::Coils, 0x13, 0x13), &[1, 0, 0x13, 0, 0x13]),
        (read(Table::Discrete, 0xc4, 0x16), &[2, 0, 0xc4, 0, 0x16]),
        (read(Table::Holding, 0x6b, 3), &[3, 0, 0x6b, 0, 3]),
        (read(Table::Input, 8, 1), &[4, 0, 8, 0, 1]),
        (Request::WriteCoil { address: 0xac, on: true }, &[5, 0, 0xac, 0xff, 0]),
        (Request::WriteRegister { address: 1, value: 3 }, &[6, 0, 1, 0, 3]),
        (
            Request::WriteCoils {
                address: 0x13,
                values: [1, 0, 1, 1, 0, 0, 1, 1, 1, 0].iter().map(|bit| *bit == 1).collect(),
            },
            &[15, 0, 0x13, 0, 10, 2, 0xcd, 1],
        ),
        (Request::WriteRegisters { address: 1, values: vec![10, 0x102] }, &[16, 0, 1, 0, 2, 4, 0, 10, 1, 2]),
    ];
    for (request, bytes) in examples {
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(Request::decode(bytes), Ok(request));
    }
}

#[test]
fn an_answer_may_arrive_in_pieces_and_after_a_late_one() {
    let (mut transaction, out) = sent(Framing::Tcp, read(Table::Discrete, 0xc4, 22));
    assert_eq!(out, [1, 2, 0, 0, 0, 6, 0x11, 2, 0, 0xc4, 0, 22]);
    let late = [9, 9, 0, 0, 0, 3, 0x11, 0x83, 2];
    let answer = [1, 2, 0, 0, 0, 6, 0x11, 2, 3, 0xac, 0xdb, 0x35];
    for byte in late.iter().chain(&answer) {
        assert!(!transaction.is_over());
        transaction.handle_bytes(MonoNs(1), &[*byte]);
    }
    let Some(Ok(Response::Bits(bits))) = transaction.result() else { panic!("{:?}", transaction.result()) };
    assert_eq!((bits.len(), &bits[..4], bits[21]), (22, &[false, false, true, true][..], true));
    assert_eq!(transaction.poll_timeout(), None);
}

#[test]
fn a_refusal_is_reported_with_the_name_of_the_specification() {
    let (mut transaction, _) = sent(Framing::Tcp, read(Table::Holding, 0, 1));
    transaction.handle_bytes(MonoNs(1), &[1, 2, 0, 0, 0, 3, 0x11, 0x83, 2]);
    let failure = transaction.result().unwrap().unwrap_err();
    assert_eq!(failure, Failure::Exception(Exception(2)));
    assert_eq!(failure.to_string(), "the device answers with exception 2 (illegal data address)");
    assert!(!transaction.spoils_line());
}

#[test]
fn silence_ends_a_transaction_at_its_time_limit_and_not_before() {
    let (mut transaction, _) = sent(Framing::Tcp, read(Table::Holding, 0, 1));
    let until = transaction.poll_timeout().unwrap();
    assert_eq!(until, MonoNs(500_000_000));
    transaction.handle_timeout(MonoNs(until.0 - 1));
    assert!(!transaction.is_over());
    transaction.handle_timeout(until);
    assert_eq!(transaction.result(), Some(Err(Failure::Timeout(LIMIT))));
    assert!(!transaction.spoils_line(), "a late answer has another number");
}

#[test]
fn garbage_makes_the_connection_unusable() {
    let (mut transaction, _) = sent(Framing::Tcp, read(Table::Holding, 0, 1));
    transaction.handle_bytes(MonoNs(1), b"HTTP/1.1 400 Bad Request");
    assert_eq!(transaction.result(), Some(Err(Failure::Frame(FrameError::Protocol(0x5450)))));
    assert!(transaction.spoils_line());
    let (mut transaction, _) = sent(Framing::Tcp, Request::WriteRegister { address: 1, value: 3 });
    transaction.handle_bytes(MonoNs(1), &[1, 2, 0, 0, 0, 6, 0x11, 6, 0, 1, 0, 4]);
    assert_eq!(transaction.result(), Some(Err(Failure::Answer(PduError::Echo))));
}

#[test]
fn a_serial_line_has_a_crc_and_its_errors() {
    let (mut transaction, out) = sent(Framing::Rtu, read(Table::Holding, 0x6b, 3));
    assert_eq!(out, [0x11, 3, 0, 0x6b, 0, 3, 0x76, 0x87]);
    let mut answer = Vec::new();
    encode(Framing::Rtu, 0, 0x11, &[3, 6, 0xae, 0x41, 0x56, 0x52, 0x43, 0x40], &mut answer);
    let mut bad = answer.clone();
    bad[4] ^= 1;
    transaction.handle_bytes(MonoNs(1), &answer);
    assert_eq!(transaction.result(), Some(Ok(Response::Registers(vec![0xae41, 0x5652, 0x4340]))));
    let (mut transaction, _) = sent(Framing::Rtu, read(Table::Holding, 0x6b, 3));
    transaction.handle_bytes(MonoNs(1), &bad);
    assert!(matches!(transaction.result(), Some(Err(Failure::Frame(FrameError::Crc { .. })))));
    assert_eq!(Framing::Rtu.silence(9600), DurNs(4_010_416));
}

#[test]
fn a_request_beyond_the_limits_is_not_sent() {
    let refused = |request| Transaction::new(Framing::Tcp, 0, 0, request, LIMIT).unwrap_err().to_string();
    assert_eq!(refused(read(Table::Holding, 0, 126)), "126 cells in one request; expected 1 to 125");
    assert_eq!(refused(read(Table::Coils, 0, 0)), "0 cells in one request; expected 1 to 2000");
    assert_eq!(refused(read(Table::Input, 65_535, 2)), "2 cells from address 65535 reach beyond 65535");
    let many = Request::WriteRegisters { address: 0, values: vec![0; 124] };
    assert_eq!(refused(many), "124 cells in one request; expected 1 to 123");
}

#[test]
fn numbers_are_encoded_in_registers_by_their_types() {
    let pi: f32 = 3.5;
    let cases: [(&str, Number, &[u16]); 9] = [
        ("UINT16", Number::Int(40_000), &[40_000]),
        ("INT16", Number::Int(-2), &[0xfffe]),
        ("INT16SM", Number::Int(-2), &[0x8002]),
        ("BCD_UNSIGNED", Number::Int(1234), &[0x1234]),
        ("BCD_SIGNED", Number::Int(-123), &[0x8123]),
        ("INT32_BE", Number::Int(-2), &[0xffff, 0xfffe]),
        ("UINT32_LE", Number::Int(0x1234_5678), &[0x5678, 0x1234]),
        ("FLOAT32_BE", Number::Float(pi.into()), &[0x4060, 0]),
        ("FLOAT32_LE_BS", Number::Float(pi.into()), &[0, 0x6040]),
    ];
    for (name, number, registers) in cases {
        let data: DataType = name.parse().unwrap();
        let mut out = Vec::new();
        assert!(data.encode(number, &mut out));
        assert_eq!((out.as_slice(), data.decode(registers)), (registers, Some(number)), "{name}");
        assert_eq!(data.to_string(), name);
        assert_eq!(data.decode(&registers[1..]), None);
    }
    let refused = |name: &str, number| !name.parse::<DataType>().unwrap().encode(number, &mut Vec::new());
    assert!(refused("UINT16", Number::Int(-1)) && refused("INT16", Number::Float(f64::NAN)));
    assert!(refused("BCD_UNSIGNED", Number::Int(10_000)) && refused("INT32_LE", Number::Float(1e12)));
    assert_eq!("BCD_UNSIGNED".parse::<DataType>().unwrap().decode(&[0x12a4]), None);
    assert!("FLOAT16".parse::<DataType>().unwrap_err().to_string().contains("expected UINT16"));
}

fn any_request() -> impl Strategy<Value = Request> {
    const TABLES: [Table; 4] = [Table::Coils, Table::Discrete, Table::Holding, Table::Input];
    prop_oneof![
        (prop::sample::select(&TABLES[..]), 0u16..60_000, 1u16..=125)
            .prop_map(|(table, address, count)| read(table, address, count)),
        (any::<u16>(), any::<bool>()).prop_map(|(address, on)| Request::WriteCoil { address, on }),
        (any::<u16>(), any::<u16>()).prop_map(|(address, value)| Request::WriteRegister { address, value }),
        (0u16..60_000, prop::collection::vec(any::<bool>(), 1..1969))
            .prop_map(|(address, values)| Request::WriteCoils { address, values }),
        (0u16..60_000, prop::collection::vec(any::<u16>(), 1..124))
            .prop_map(|(address, values)| Request::WriteRegisters { address, values }),
    ]
}

proptest! {
    #[test]
    fn requests_and_answers_survive_a_round_trip(request in any_request(), number: u16, seed: u16) {
        let framing = Framing::Tcp;
        let mut transaction = Transaction::new(framing, number, 1, request.clone(), LIMIT).unwrap();
        let mut out = Vec::new();
        transaction.poll_transmit(MonoNs(0), &mut out);
        let (frame, len) = decode(framing, &out).unwrap().unwrap();
        prop_assert_eq!((len, frame.transaction), (out.len(), number));
        prop_assert_eq!(Request::decode(&frame.pdu), Ok(request.clone()));
        let response = match &request {
            Request::Read { table, count, .. } if table.is_bits() => {
                Response::Bits((0..*count).map(|bit| seed >> (bit % 16) & 1 == 1).collect())
            }
            Request::Read { count, .. } => Response::Registers((0..*count).map(|at| seed.wrapping_mul(at)).collect()),
            _ => Response::Written,
        };
        let (mut pdu, mut answer) = (Vec::new(), Vec::new());
        response.encode(&request, &mut pdu);
        encode(framing, number, 1, &pdu, &mut answer);
        transaction.handle_bytes(MonoNs(1), &answer);
        prop_assert_eq!(transaction.result(), Some(Ok(response)));
    }

    #[test]
    fn no_bytes_panic_a_transaction_or_grow_its_memory(
        request in any_request(),
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..8),
        rtu: bool,
    ) {
        let framing = if rtu { Framing::Rtu } else { Framing::Tcp };
        let mut transaction = Transaction::new(framing, 0, 1, request, LIMIT).unwrap();
        transaction.poll_transmit(MonoNs(0), &mut Vec::new());
        for chunk in chunks {
            transaction.handle_bytes(MonoNs(1), &chunk);
            let _ = Request::decode(&chunk);
        }
    }
}
