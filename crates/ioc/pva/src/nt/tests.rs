//! What clients receive, and what they write.

use super::*;
use crate::codec::{Array, Order, Reader, TypeTable, Value};

/// What a client decodes.
fn sent(layout: &Layout, marks: u64, view: &View<'_>) -> Value {
    let mut out = Writer::new(Order::Little);
    layout.encode(marks, view, &mut out);
    let mut value = Value::zero(layout.ty());
    let mut reader = Reader::new(&out.bytes, Order::Little);
    let mask = Mask::from_words(vec![marks]);
    reader.fields_of(layout.ty(), &mask, &mut value, &mut TypeTable::default()).unwrap();
    assert!(reader.rest().is_empty(), "{layout:?}");
    value
}

fn at<'a>(layout: &'a Layout, mut value: &'a Value, path: &str) -> &'a Value {
    let mut ty = layout.ty();
    for part in path.split('.') {
        (value, ty) = value.field(ty.fields().unwrap(), part).unwrap();
    }
    value
}

#[test]
fn every_shape_encodes_all_its_fields() {
    let meta = Meta {
        units: "mm".into(),
        precision: 3,
        display: base::Range { low: -20.0, high: 20.0 },
        labels: vec!["off".into(), "on".into()],
        ..Meta::default()
    };
    let value = base::Value::from(1i32);
    let alarm = Alarm { status: Status::Hihi, severity: Severity::Major };
    let stamp = Stamp::from_unix(1_795_240_867, 5);
    let view = View {
        value: &value,
        alarm,
        stamp,
        note: Annotation::NONE,
        hints: Hints::NONE,
        meta: &meta,
        description: "an input".into(),
    };
    let shapes = Kind::ALL.into_iter().flat_map(|kind| [Shape::Scalar(kind), Shape::Array(kind)]);
    for shape in shapes.chain([Shape::Enum]) {
        let layout = Layout::new(shape);
        assert!(layout.ty().nodes() < 64 && layout.all().count_ones() < layout.ty().nodes());
        let value = sent(&layout, layout.all(), &view);
        assert_eq!(at(&layout, &value, "alarm.message"), &Value::Text("HIHI".into()), "{shape:?}");
        assert_eq!(at(&layout, &value, "timeStamp.secondsPastEpoch"), &Value::I64(1_795_240_867));
        assert_eq!(at(&layout, &value, "display.description"), &Value::Text("an input".into()));
    }
    let layout = Layout::new(Shape::Scalar(Kind::F64));
    let value = sent(&layout, layout.all(), &view);
    assert_eq!(at(&layout, &value, "value"), &Value::F64(1.0));
    assert_eq!(at(&layout, &value, "display.limitHigh"), &Value::F64(20.0));
    assert_eq!(at(&layout, &value, "display.precision"), &Value::I32(3));
    assert_eq!(at(&layout, &value, "display.units"), &Value::Text("mm".into()));
    let Value::F64(limit) = at(&layout, &value, "valueAlarm.highAlarmLimit") else { panic!() };
    assert!(limit.is_nan(), "no limit");
    let layout = Layout::new(Shape::Enum);
    let choices = Array::Text(vec!["off".into(), "on".into()]);
    let value = sent(&layout, layout.all(), &view);
    assert_eq!(at(&layout, &value, "value"), &Value::Struct(vec![Value::I32(1), Value::Array(choices)]));
}

#[test]
fn masks_have_the_bits_that_qsrv_sends() {
    let number = Layout::new(Shape::Scalar(Kind::F64));
    assert_eq!(number.changed(EventMask::VALUE), 0x0382);
    assert_eq!(number.changed(EventMask::VALUE | EventMask::ALARM), 0x03BA);
    let choice = Layout::new(Shape::Enum);
    assert_eq!(choice.all(), 0x2EEC, "as a get of an enumeration from QSRV2");
}

#[test]
fn names_select_fields_and_missing_names_do_not() {
    let layout = Layout::new(Shape::Scalar(Kind::F64));
    let select = |names: &[&str]| layout.select(names.iter().copied()).map(|mask| mask.words()[0]);
    assert_eq!(select(&[]).map(|all| all & layout.all()), Some(layout.all()));
    assert_eq!(select(&["value"]), Some(2));
    assert_eq!(select(&["alarm", "nothing"]), Some(0x38));
    assert_eq!(select(&["timeStamp.nanoseconds"]), Some(0x100));
    assert_eq!(select(&["nothing", "value.x"]), None);
}

#[test]
fn a_written_value_is_taken_by_the_bit_of_the_field_or_of_a_structure_around_it() {
    let layout = Layout::new(Shape::Enum);
    let mut value = Value::zero(layout.ty());
    let Value::Struct(fields) = &mut value else { panic!() };
    fields[0] = Value::Struct(vec![Value::I32(2), Value::Array(Array::Text(vec![]))]);
    let two = Some(Written::Value(base::Value::Scalar(Scalar::Enum(2))));
    for bit in 0..3 {
        assert_eq!(layout.written(&Mask::of([bit]), value.clone()), Ok(two.clone()));
    }
    assert_eq!(layout.written(&Mask::of([3]), value.clone()), Ok(None), "choices are not written");
    let Value::Struct(fields) = &mut value else { panic!() };
    fields[0] = Value::Struct(vec![Value::I32(-1), Value::Array(Array::Text(vec![]))]);
    let unfit = layout.written(&Mask::of([2]), value).unwrap_err();
    assert_eq!(unfit.to_string(), "state -1 does not exist, expected 0 to 65535");
    let layout = Layout::new(Shape::Array(Kind::Text));
    let Value::Struct(mut fields) = Value::zero(layout.ty()) else { panic!() };
    fields[0] = Value::Array(Array::Text(vec!["x".repeat(40)]));
    let unfit = layout.written(&Mask::of([1]), Value::Struct(fields)).unwrap_err();
    assert_eq!(unfit.to_string(), "the text has 40 bytes, the field holds 39");
}

#[test]
fn a_long_text_ends_at_its_zero_and_is_valid_utf_8() {
    let layout = Layout::new(Shape::Scalar(Kind::Text));
    let characters = base::Value::from("\u{e4}b\0c".bytes().map(|byte| byte as i8).collect::<Vec<_>>());
    let view = |value| View {
        value,
        alarm: Alarm::NONE,
        stamp: Stamp::EPOCH,
        note: Annotation::NONE,
        hints: Hints::NONE,
        meta: const {
            &Meta {
                units: Str40::EMPTY,
                precision: 0,
                text_precision: None,
                display: base::Range { low: 0.0, high: 0.0 },
                control: base::Range { low: 0.0, high: 0.0 },
                alarm: base::AlarmLimits::NONE,
                labels: Vec::new(),
                beyond: None,
            }
        },
        description: Str40::EMPTY,
    };
    assert_eq!(at(&layout, &sent(&layout, 2, &view(&characters)), "value"), &Value::Text("\u{e4}b".into()));
    let latin = base::Value::Scalar(Scalar::String(Str40::new(b"m\xb2")));
    assert_eq!(at(&layout, &sent(&layout, 2, &view(&latin)), "value"), &Value::Text("m\u{b2}".into()));
}

#[test]
fn tags_of_a_record_select_the_form_and_the_bits_of_the_user_tag() {
    assert_eq!(
        ["nsec:lsb:20", "nsec:lsb:0", "nsec:lsb:32", "lsb:4", "nsec:lsb:x"].map(Hints::tag_bits),
        [Some(20), Some(0), None, None, None]
    );
    assert_eq!(["Default", "Hex", "hex"].map(Hints::form), [Some(0), Some(4), None]);
    let layout = Layout::new(Shape::Scalar(Kind::F64));
    let value = base::Value::from(1.0);
    let note = Annotation { user_tag: 7, message: "field INP" };
    let alarm = Alarm { status: Status::Link, severity: Severity::Invalid };
    let plain = View::of_value(&value, alarm, Stamp::from_unix(1_800_000_000, 0x12345), note);
    let part = |view: &View<'_>, bit: u32| layout.leaf(bit, view).1;
    assert_eq!(
        part(&plain, 5),
        Value::Text("field INP".into()),
        "the message of the record, not the name of its status"
    );
    assert_eq!([part(&plain, 8), part(&plain, 9), part(&plain, 17)], [0x12345, 7, 0].map(Value::I32));
    let tagged = View { hints: Hints { tag_bits: 8, form: 4 }, ..plain };
    assert_eq!([part(&tagged, 8), part(&tagged, 9), part(&tagged, 17)], [0x12300, 0x45, 4].map(Value::I32));
}

#[test]
fn a_write_of_the_value_alone_is_the_same_as_one_of_the_whole() {
    for (shape, value) in [
        (Shape::Scalar(Kind::F64), Value::F64(2.5)),
        (Shape::Scalar(Kind::Text), Value::Text("a text".into())),
        (Shape::Array(Kind::I32), Value::Array(Array::I32(vec![1, 2]))),
        (Shape::Enum, Value::I32(1)),
        (Shape::Enum, Value::I32(-1)),
    ] {
        let layout = Layout::new(shape);
        let bit = layout.value().trailing_zeros();
        let mut alone = Writer::new(Order::Little);
        alone.value(&value);
        let read = |marks: u64, bytes: &[u8]| {
            let marks = Mask::from_words(vec![marks]);
            layout.read_written(&marks, &mut Reader::new(bytes, Order::Little), &mut TypeTable::default())
        };
        // Also with a field that is not written: the seconds of the time stamp.
        let mut more = alone.clone();
        more.i64(1);
        let seconds = layout.time() & layout.time().wrapping_neg();
        let (one, two) = (read(1 << bit, &alone.bytes).unwrap(), read(1 << bit | seconds, &more.bytes).unwrap());
        assert_eq!(one, two, "{shape:?}");
        assert_eq!(one.is_err(), value == Value::I32(-1));
        assert!(read(1 << bit, &alone.bytes[..alone.bytes.len() - 1]).is_err(), "too few bytes");
        assert_eq!(read(0, &[]), Ok(Ok(None)), "nothing is marked");
    }
}
