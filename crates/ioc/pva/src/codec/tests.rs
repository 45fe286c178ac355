//! Bytes of the specification and of peers, round trips, and arbitrary bytes.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn written(order: Order, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::new(order);
    write(&mut out);
    out.bytes
}

fn read_type(bytes: &[u8]) -> Result<Type, Fault> {
    Reader::new(bytes, Order::Little).ty(&mut TypeTable::default())
}

fn pair() -> Arc<Struct> {
    let fields = vec![("user".into(), Type::Scalar(Kind::Text)), ("host".into(), Type::Scalar(Kind::Text))];
    Struct::new("", fields).unwrap()
}

#[test]
fn sizes_take_one_byte_or_five() {
    for (size, bytes) in [(0, "00"), (253, "fd"), (254, "fefe000000"), (70_000, "fe70110100")] {
        assert_eq!(written(Order::Little, |out| out.size(size)), hex(bytes));
        assert_eq!(Reader::new(&hex(bytes), Order::Little).size(), Ok(size));
    }
    assert_eq!(Reader::new(&[255], Order::Little).size_or_null(), Ok(None));
    assert_eq!(Reader::new(&[255], Order::Little).size(), Err(Fault::Size), "null where none is allowed");
    assert_eq!(Reader::new(&hex("fe00000080"), Order::Little).size(), Err(Fault::Size), "2^31 or more");
}

#[test]
fn the_authentication_of_a_client_is_decoded() {
    // As the peers send it: a structure of two texts, without a type identifier.
    let bytes = hex("80 00 02 04 75736572 60 04 686f7374 60 02 6d65 04 68657265");
    let mut reader = Reader::new(&bytes, Order::Little);
    let ty = reader.ty(&mut TypeTable::default()).unwrap();
    assert_eq!(ty, Type::Struct(pair()));
    let value = reader.value(&ty).unwrap();
    assert_eq!(value, Value::Struct(vec![Value::Text("me".into()), Value::Text("here".into())]));
    assert!(reader.rest().is_empty());
    let again = written(Order::Little, |out| {
        out.ty(&ty);
        out.value(&value);
    });
    assert_eq!(again, bytes);
}

#[test]
fn a_status_of_success_is_one_byte() {
    assert_eq!(written(Order::Little, |out| out.status(&Status::OK)), [0xFF]);
    let bytes = hex("02 03 626164 00");
    assert_eq!(Reader::new(&bytes, Order::Little).status(), Ok(Status::error("bad")));
    assert_eq!(written(Order::Little, |out| out.status(&Status::error("bad"))), bytes);
    assert_eq!(Reader::new(&[9], Order::Little).status(), Err(Fault::StatusKind(9)));
}

#[test]
fn sets_of_fields_are_bytes_with_the_lowest_bit_first() {
    // A get of an enumeration from QSRV2, and the first update of a number from QSRV1.
    for (bytes, bits) in [
        ("02 ec2e", vec![2, 3, 5, 6, 7, 9, 10, 11, 13]),
        ("01 01", vec![0]),
        ("02 ba03", vec![1, 3, 4, 5, 7, 8, 9]),
        ("00", vec![]),
    ] {
        let mask = Reader::new(&hex(bytes), Order::Little).mask().unwrap();
        assert_eq!(mask, Mask::of(bits));
        assert_eq!(written(Order::Little, |out| out.mask(&mask)), hex(bytes));
        assert_eq!(written(Order::Little, |out| out.mask64(mask.words().first().copied().unwrap_or(0))), hex(bytes));
    }
    // Whole words have the byte order of the connection, the rest has not.
    let mask = Mask::of([0, 63, 64, 73]);
    let big = written(Order::Big, |out| out.mask(&mask));
    assert_eq!(big, hex("0a 8000000000000001 0102"));
    assert_eq!(Reader::new(&big, Order::Big).mask(), Ok(mask.clone()));
    assert_eq!(written(Order::Little, |out| out.mask(&mask)), hex("0a 0100000000000080 0102"));
}

#[test]
fn the_bit_of_a_structure_includes_its_fields_once() {
    let ty = Type::Struct(Struct::new("", vec![("a".into(), Type::Struct(pair())), ("b".into(), Type::Any)]).unwrap());
    assert_eq!((ty.nodes(), Mask::of([1, 2]).leaves(&ty)), (5, Mask::of([2, 3])));
    assert_eq!(Mask::of([0, 3]).leaves(&ty), Mask::of([2, 3, 4]));
    // Both the structure and one of its fields are marked: the values come once.
    let bytes = hex("01 78 01 79");
    let mut value = Value::zero(&ty);
    let mut reader = Reader::new(&bytes, Order::Little);
    reader.fields_of(&ty, &Mask::of([1, 3, 99]), &mut value, &mut TypeTable::default()).unwrap();
    assert!(reader.rest().is_empty());
    let inner = Value::Struct(vec![Value::Text("x".into()), Value::Text("y".into())]);
    assert_eq!(value, Value::Struct(vec![inner, Value::Any(None)]));
}

#[test]
fn a_type_that_was_numbered_is_sent_as_its_number() {
    let mut sent = SentTypes::default();
    let ty = pair();
    let bytes = written(Order::Little, |out| {
        out.numbered(&ty, &mut sent);
        out.numbered(&ty, &mut sent);
    });
    assert_eq!(bytes, hex("fd0100 80 00 02 04 75736572 60 04 686f7374 60 fe0100"));
    let mut table = TypeTable::default();
    let mut reader = Reader::new(&bytes, Order::Little);
    let both = [reader.ty(&mut table).unwrap(), reader.ty(&mut table).unwrap()];
    assert_eq!(both, [Type::Struct(ty.clone()), Type::Struct(ty)]);
    assert_eq!(Reader::new(&hex("fe0700"), Order::Little).ty(&mut table), Err(Fault::UnknownType(7)));
    // A new definition replaces the earlier one.
    assert_eq!(Reader::new(&hex("fd010022"), Order::Little).ty(&mut table), Ok(Type::Scalar(Kind::I32)));
    assert_eq!(Reader::new(&hex("fe0100"), Order::Little).ty(&mut table), Ok(Type::Scalar(Kind::I32)));
}

#[test]
fn bounded_and_fixed_types_are_decoded_like_unbounded_ones() {
    assert_eq!(read_type(&hex("8305")), Ok(Type::Scalar(Kind::Text)));
    assert_eq!(read_type(&hex("5305")), Ok(Type::Array(Kind::F64)));
    assert_eq!(read_type(&hex("5b05")), Ok(Type::Array(Kind::F64)));
    assert_eq!(read_type(&hex("4b")), Ok(Type::Array(Kind::F64)));
    assert_eq!(read_type(&hex("fc")), Err(Fault::TypeCode(0xFC)));
    assert_eq!(read_type(&hex("8824")), Err(Fault::TypeCode(0x88)), "an array of structures of numbers");
}

#[test]
fn unions_and_variants_may_be_null() {
    let members = Struct::new("", vec![("i".into(), Type::Scalar(Kind::I32)), ("a".into(), Type::Any)]).unwrap();
    let union = Type::Union(members.clone());
    let read = |bytes: &str, ty: &Type| Reader::new(&hex(bytes), Order::Little).value(ty);
    assert_eq!(read("ff", &union), Ok(Value::Union(None)));
    assert_eq!(read("00 05000000", &union), Ok(Value::Union(Some((0, Box::new(Value::I32(5)))))));
    assert_eq!(read("02", &union), Err(Fault::Selector));
    assert_eq!(read("ff", &Type::Any), Ok(Value::Any(None)));
    let any = Value::Any(Some(Box::new((Type::Scalar(Kind::U8), Value::U8(7)))));
    assert_eq!(read("24 07", &Type::Any), Ok(any));
    let elements = Value::Elements(vec![None, Some(Value::Union(None))]);
    assert_eq!(read("02 00 01 ff", &Type::UnionArray(members)), Ok(elements));
}

#[test]
fn nested_types_end_at_a_depth() {
    let nested = |depth: usize| [hex("80 00 01 01 61").repeat(depth), vec![0x22]].concat();
    assert!(read_type(&nested(DEPTH_MAX as usize - 1)).is_ok());
    assert_eq!(read_type(&nested(DEPTH_MAX as usize)), Err(Fault::Depth));
    // A million variants inside of each other.
    assert_eq!(Reader::new(&vec![0x82; 1 << 20], Order::Little).value(&Type::Any), Err(Fault::Depth));
    assert_eq!(read_type(&vec![0x88; 1 << 20]), Err(Fault::Depth));
}

#[test]
fn numbered_types_cannot_multiply_memory() {
    // Each type has the previous one eight times: after 20 levels it would have 8^20 fields.
    let mut table = TypeTable::default();
    let mut refused = None;
    for id in 1..20u16 {
        let before = if id == 1 { vec![0x22] } else { vec![0xFE, (id - 1) as u8, 0] };
        let field = [vec![1, b'a'], before].concat();
        let bytes = [vec![0xFD, id as u8, 0, 0x80, 0, 8], field.repeat(8)].concat();
        if let Err(fault) = Reader::new(&bytes, Order::Little).ty(&mut table) {
            refused = Some((id, fault));
            break;
        }
    }
    assert_eq!(refused, Some((6, Fault::Nodes)), "8^5 nodes are less than the limit, 8^6 are more");
}

#[test]
fn elements_without_bytes_are_limited() {
    let mut inner = Type::Struct(Struct::new("", vec![]).unwrap());
    for _ in 0..3 {
        let fields = (0..30).map(|n| (n.to_string(), inner.clone())).collect();
        inner = Type::Struct(Struct::new("", fields).unwrap());
    }
    let Type::Struct(fields) = inner else { unreachable!("made above") };
    // 200 elements of 27,931 empty structures each, in 201 bytes.
    let bytes = [vec![200], vec![1; 200]].concat();
    assert_eq!(Reader::new(&bytes, Order::Little).value(&Type::StructArray(fields)), Err(Fault::Nodes));
}

#[test]
fn a_count_beyond_the_message_is_refused_before_memory_is_reserved() {
    let read = |bytes: &str, ty: &Type| Reader::new(&hex(bytes), Order::Little).value(ty);
    assert_eq!(read("feffffff7f 00", &Type::Array(Kind::U8)), Err(Fault::Size));
    assert_eq!(read("feffffff7f 00", &Type::Array(Kind::F64)), Err(Fault::Size));
    assert_eq!(read("feffffff7f 00", &Type::AnyArray), Err(Fault::Size));
    assert_eq!(read("feffffff7f 00", &Type::Scalar(Kind::Text)), Err(Fault::Short));
    assert_eq!(read_type(&hex("80 00 feffffff7f")), Err(Fault::Size));
}

#[test]
fn a_table_of_types_has_a_limit() {
    let mut table = TypeTable::default();
    let name = "x".repeat(60_000);
    let define = |id: u16, table: &mut TypeTable| {
        let bytes = written(Order::Little, |out| {
            out.u8(0xFD);
            out.u16(id);
            out.ty(&Type::Struct(Struct::new(name.clone(), vec![]).unwrap()));
        });
        Reader::new(&bytes, Order::Little).ty(table).map(|_| ())
    };
    assert!((0..1000).all(|_| define(1, &mut table).is_ok()), "a replaced type does not count");
    assert_eq!((2..1000).find_map(|id| define(id, &mut table).err()), Some(Fault::TableFull));
}

#[test]
fn a_text_that_is_not_utf_8_is_read_as_latin_1() {
    assert_eq!(Reader::new(b"\x03m\xb2s", Order::Little).text().unwrap(), "m\u{b2}s");
}

#[test]
fn a_text_is_a_value_if_it_has_the_form_and_is_in_the_range_of_the_kind() {
    for (kind, text, value) in [
        (Kind::Bool, "TRUE", Value::Bool(true)),
        (Kind::Bool, "0", Value::Bool(false)),
        (Kind::I8, " -0x80 ", Value::I8(-128)),
        (Kind::I64, "-9223372036854775808", Value::I64(i64::MIN)),
        (Kind::U64, "18446744073709551615", Value::U64(u64::MAX)),
        (Kind::F32, "0.1", Value::F32(0.1)),
        (Kind::F64, "-inf", Value::F64(f64::NEG_INFINITY)),
        (Kind::Text, " 1 ", Value::Text(" 1 ".into())),
    ] {
        assert_eq!(kind.parse(text), Some(value));
    }
    for (kind, text) in [
        (Kind::Bool, "2"),
        (Kind::I8, "128"),
        (Kind::U16, "-1"),
        (Kind::I32, "1.5"),
        (Kind::I32, "--1"),
        (Kind::U64, "18446744073709551616"),
        (Kind::F64, "1 mm"),
        (Kind::F64, ""),
    ] {
        assert_eq!(kind.parse(text), None, "{text}");
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

fn types() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        kinds().prop_map(Type::Scalar),
        kinds().prop_map(Type::Array),
        Just(Type::Any),
        Just(Type::AnyArray),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let fields = ("[a-z:/.]{0,12}", proptest::collection::vec(("[a-zA-Z_]{1,8}", inner), 0..5));
        let made = fields.prop_map(|(id, fields)| Struct::new(id, fields).unwrap());
        prop_oneof![
            made.clone().prop_map(Type::Struct),
            made.clone().prop_map(Type::Union),
            made.clone().prop_map(Type::StructArray),
            made.prop_map(Type::UnionArray),
        ]
    })
}

fn scalar(kind: Kind) -> BoxedStrategy<Value> {
    match kind {
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::I8 => any::<i8>().prop_map(Value::I8).boxed(),
        Kind::I16 => any::<i16>().prop_map(Value::I16).boxed(),
        Kind::I32 => any::<i32>().prop_map(Value::I32).boxed(),
        Kind::I64 => any::<i64>().prop_map(Value::I64).boxed(),
        Kind::U8 => any::<u8>().prop_map(Value::U8).boxed(),
        Kind::U16 => any::<u16>().prop_map(Value::U16).boxed(),
        Kind::U32 => any::<u32>().prop_map(Value::U32).boxed(),
        Kind::U64 => any::<u64>().prop_map(Value::U64).boxed(),
        Kind::F32 => (-1e6f32..1e6).prop_map(Value::F32).boxed(),
        Kind::F64 => (-1e9..1e9).prop_map(Value::F64).boxed(),
        Kind::Text => ".{0,20}".prop_map(Value::Text).boxed(),
    }
}

fn array(kind: Kind) -> BoxedStrategy<Value> {
    use proptest::collection::vec;
    macro_rules! arrays {
        ($($variant:ident $elements:expr),*) => {
            match kind {
                $(Kind::$variant => vec($elements, 0..300).prop_map(|values| Value::Array(Array::$variant(values))).boxed(),)*
            }
        };
    }
    arrays!(Bool any::<bool>(), I8 any::<i8>(), I16 any::<i16>(), I32 any::<i32>(), I64 any::<i64>(), U8 any::<u8>(),
        U16 any::<u16>(), U32 any::<u32>(), U64 any::<u64>(), F32 -1e6f32..1e6, F64 -1e9..1e9, Text ".{0,5}")
}

fn values(ty: &Type) -> BoxedStrategy<Value> {
    use proptest::option::of;
    let elements = |ty: Type| proptest::collection::vec(of(values(&ty)), 0..4).prop_map(Value::Elements).boxed();
    match ty {
        Type::Scalar(kind) => scalar(*kind),
        Type::Array(kind) => array(*kind),
        Type::Struct(fields) => {
            let each: Vec<_> = fields.fields().iter().map(|(_, ty)| values(ty)).collect();
            each.prop_map(Value::Struct).boxed()
        }
        Type::Union(members) => {
            let each: Vec<_> = members.fields().iter().map(|(_, ty)| values(ty)).collect();
            if each.is_empty() {
                return Just(Value::Union(None)).boxed();
            }
            let one = (0..each.len()).prop_flat_map(move |index| {
                each[index].clone().prop_map(move |value| Some((index as u32, Box::new(value))))
            });
            prop_oneof![Just(Value::Union(None)), one.prop_map(Value::Union)].boxed()
        }
        Type::Any => {
            let one = kinds().prop_flat_map(|kind| {
                scalar(kind).prop_map(move |value| Value::Any(Some(Box::new((Type::Scalar(kind), value)))))
            });
            prop_oneof![Just(Value::Any(None)), one].boxed()
        }
        Type::StructArray(fields) => elements(Type::Struct(fields.clone())),
        Type::UnionArray(members) => elements(Type::Union(members.clone())),
        Type::AnyArray => elements(Type::Any),
    }
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Little), Just(Order::Big)]
}

proptest! {
    #[test]
    fn types_and_values_survive_a_round_trip(
        (ty, value) in types().prop_flat_map(|ty| values(&ty).prop_map(move |value| (ty.clone(), value))),
        order in orders(),
    ) {
        let bytes = written(order, |out| {
            out.ty(&ty);
            out.value(&value);
        });
        let mut reader = Reader::new(&bytes, order);
        let read = reader.ty(&mut TypeTable::default()).unwrap();
        prop_assert_eq!(&read, &ty);
        prop_assert_eq!(reader.value(&read).unwrap(), value);
        prop_assert!(reader.rest().is_empty());
    }

    #[test]
    fn marked_fields_survive_a_round_trip(
        (ty, value) in types().prop_flat_map(|ty| values(&ty).prop_map(move |value| (ty.clone(), value))),
        bits in proptest::collection::vec(0u32..40, 0..10),
        order in orders(),
    ) {
        let mask = Mask::of(bits);
        let bytes = written(order, |out| {
            out.mask(&mask);
            out.fields_of(&ty, &mask, &value);
        });
        let mut reader = Reader::new(&bytes, order);
        let read = reader.mask().unwrap();
        prop_assert_eq!(&read, &mask);
        let mut copy = value.clone();
        reader.fields_of(&ty, &read, &mut copy, &mut TypeTable::default()).unwrap();
        prop_assert!(reader.rest().is_empty());
        prop_assert_eq!(copy, value);
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), ty in types(), order in orders()) {
        let mut reader = Reader::new(&bytes, order);
        let mut table = TypeTable::default();
        while let Ok(ty) = reader.ty(&mut table) {
            if reader.value_with(&ty, &mut table).is_err() {
                break;
            }
        }
        let _ = Reader::new(&bytes, order).value(&ty);
        let _ = Reader::new(&bytes, order).status();
        let mut reader = Reader::new(&bytes, order);
        if let Ok(mask) = reader.mask() {
            let _ = reader.fields_of(&ty, &mask, &mut Value::zero(&ty), &mut table);
        }
    }
}
