//! Definitions, types, triggers and writes of groups.

use super::*;
use crate::codec::{Array, Kind};
use base::{Alarm, Annotation, Severity, Stamp, Status};

/// The fields of a test database.
fn shape(channel: &str) -> Result<Shape, String> {
    Ok(match channel.trim_end_matches(".VAL") {
        "a" | "b" => Shape::Array(Kind::F64),
        "labels" => Shape::Array(Kind::Text),
        "n" | "save" => Shape::Scalar(Kind::I32),
        "x" | "y" => Shape::Scalar(Kind::F64),
        "state" => Shape::Enum,
        "a.SEVR" => Shape::Enum,
        _ => return Err(format!("no record \"{channel}\"")),
    })
}

fn build(texts: &[(&str, Option<&str>)]) -> Built {
    let mut definitions = Definitions::default();
    for (text, record) in texts {
        definitions.add(text, record.unwrap_or("file.json"), *record);
    }
    definitions.build(|name| name == "x", shape)
}

fn one(text: &str) -> Group {
    let mut built = build(&[(text, None)]);
    assert_eq!(built.groups.len(), 1, "{:?}", built.faults);
    built.groups.remove(0)
}

/// Names and types of a structure, in order.
fn fields(ty: &Type) -> Vec<String> {
    let (Type::Struct(fields) | Type::StructArray(fields)) = ty else { return Vec::new() };
    fields.fields().iter().map(|(name, ty)| format!("{name} {}", fields_of(ty))).collect()
}

fn fields_of(ty: &Type) -> String {
    match ty {
        Type::Scalar(kind) => kind.name().into(),
        Type::Array(kind) => format!("{}[]", kind.name()),
        Type::Any => "any".into(),
        Type::Struct(inner) => format!("{}{{{}}}", inner.id(), fields(ty).join(", ")),
        Type::StructArray(inner) => format!("{}[]{{{}}}", inner.id(), fields(ty).join(", ")),
        other => format!("{other:?}"),
    }
}

const TABLE: [(&str, Option<&str>); 4] = [
    (r#"{"T": {"+id": "epics:nt/NTTable:1.0", "labels": {"+type": "plain", "+channel": "VAL"}}}"#, Some("labels")),
    (
        r#"{"T": {"value.B": {"+type": "plain", "+channel": "VAL", "+putorder": 0}, "": {"+type": "meta", "+channel": "VAL"}}}"#,
        Some("b"),
    ),
    (r#"{"T": {"value.A": {"+type": "plain", "+channel": "VAL", "+putorder": 1}}}"#, Some("a")),
    (r#"{"T": {"_save": {"+type": "proc", "+channel": "VAL", "+putorder": 2, "+trigger": "*"}}}"#, Some("save")),
];

impl Group {
    fn value_at<'a>(&self, value: &'a Value, name: &str) -> Option<&'a Value> {
        Place::of(&Type::Struct(self.ty.clone()), &tree::parts(name).ok()?)?.get(value)
    }
}

#[test]
fn a_table_is_built_from_several_records_in_the_order_of_its_writes() {
    let built = build(&TABLE);
    assert_eq!(built.faults, Vec::<String>::new());
    let group = &built.groups[0];
    assert_eq!(group.ty().id(), "epics:nt/NTTable:1.0");
    let expected = [
        "record {_options {queueSize int, atomic boolean}}",
        "alarm alarm_t{severity int, status int, message string}",
        "timeStamp time_t{secondsPastEpoch long, nanoseconds int, userTag int}",
        "labels string[]",
        "value {B double[], A double[]}",
    ];
    assert_eq!(fields(&Type::Struct(group.ty().clone())), expected);
    let names: Vec<&str> = group.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["", "labels", "value.B", "value.A", "_save"]);
    let triggers: Vec<&[usize]> = group.members.iter().map(|member| member.triggers.as_slice()).collect();
    assert_eq!(triggers, [&[][..], &[], &[], &[], &[0, 1, 2, 3, 4]]);
    assert_eq!(group.members[1].channel.as_deref(), Some("labels.VAL"));
}

#[test]
fn names_lead_into_structures_and_elements_of_arrays() {
    let group = one(r#"{"g": {
        "dimension[1].size": {"+type": "plain", "+channel": "n"},
        "attribute[0]": {"+type": "meta", "+channel": "x"},
        "attribute[0].value": {"+type": "any", "+channel": "state", "+putorder": 0},
        "s": {"+type": "structure", "+id": "a/type:1.0"},
        "s.inner.y": {"+channel": "y"},
        "s.c": {"+type": "const", "+const": 14}
    }}"#);
    let types = fields(&Type::Struct(group.ty().clone()));
    assert_eq!(types[1].split("{").next(), Some("attribute []"));
    assert!(types[1].ends_with("userTag int}, value any}"), "{}", types[1]);
    assert_eq!(types[2], "dimension []{size int}");
    assert!(types[3].starts_with("s a/type:1.0{c long, inner {y epics:nt/NTScalar:1.0{value double, "), "{}", types[3]);
    let (mut value, mut marks) = (group.template().clone(), group.constants().clone());
    let state = base::Value::Scalar(base::Scalar::Enum(2));
    let index = |name: &str| group.members.iter().position(|member| member.name == name).unwrap();
    let view = View::of_value(&state, Alarm::NONE, Stamp::EPOCH, Annotation::NONE);
    let any = index("attribute[0].value");
    group.patch(any, group.everything(any), &view, &mut value, &mut marks);
    let variant = Value::Any(Some(Box::new((Type::Scalar(Kind::U16), Value::U16(2)))));
    assert_eq!(group.value_at(&value, "attribute[0].value"), Some(&variant));
    assert_eq!(group.value_at(&value, "s.c"), Some(&Value::I64(14)));
    assert_eq!(group.value_at(&value, "dimension[1].size"), Some(&Value::I32(0)));
    // The array has one bit for all its elements, after the five of `record`.
    assert!(marks.has(5) && !marks.has(6), "{marks:?}");
}

#[test]
fn an_event_changes_the_parts_that_it_is_about() {
    let group = one(
        r#"{"g": {"x": {"+channel": "x", "+trigger": "x,p , y"}, "y": {"+channel": "y"}, "p": {"+type": "plain", "+channel": "n"},
             "": {"+type": "meta", "+channel": "x", "+trigger": "*"}}}"#,
    );
    let [meta, p, x, y] = ["", "p", "x", "y"].map(|name| group.members.iter().position(|it| it.name == name).unwrap());
    assert_eq!(group.members[x].triggers, [p, x, y], "blanks around names are ignored");
    let (value, alarm) = (EventMask::VALUE, EventMask::ALARM);
    assert_eq!(group.changed(x, value), 1 << 1 | 7 << 7);
    assert_eq!(group.changed(x, alarm), 7 << 3 | 7 << 7);
    assert_eq!(group.changed(p, value | alarm), 1 << 1);
    assert_eq!(group.changed(meta, value | alarm), 7 << 3 | 7 << 7);
    assert_eq!(group.changed(x, EventMask::LOG), 0);
    assert!(group.is_trigger(x, EventMask::LOG) && group.is_trigger(x, value));
    assert!(group.is_trigger(meta, alarm) && !group.is_trigger(meta, value), "a meta mapping follows the alarm");
    assert!(!group.is_trigger(y, value), "it has no trigger");
    assert!(group.needs_properties(x, group.everything(x)) && !group.needs_properties(p, group.everything(p)));
}

#[test]
fn members_are_written_in_their_order_and_only_if_they_have_one() {
    let group = &build(&TABLE).groups[0];
    let ty = Type::Struct(group.ty().clone());
    let bit = |name: &str| Place::of(&ty, &tree::parts(name).unwrap()).unwrap().bit;
    let mut value = group.template().clone();
    for name in ["value.A", "value.B"] {
        let place = Place::of(&ty, &tree::parts(name).unwrap()).unwrap();
        *place.get_mut(&mut value).unwrap() = Value::Array(Array::F64(vec![f64::from(place.bit)]));
    }
    let marks = Mask::of([bit("value"), bit("labels")]);
    let (writes, ignored) = group.writes(&marks, &value).unwrap();
    let written: Vec<(usize, bool)> = writes.iter().map(|write| (write.member, write.value.is_some())).collect();
    assert_eq!(written, [(2, true), (3, true), (4, false)], "B, A, then the record is processed");
    assert_eq!(ignored, ["labels"]);
    let whole = group.writes(&Mask::of([0]), &value).unwrap();
    assert_eq!(whole.0.len(), 3, "the bit of the whole value selects all members");
    assert_eq!(group.writes(&Mask::default(), &value).unwrap().0.len(), 1, "nothing marked: only processing");
    let group = one(r#"{"g": {"n": {"+type": "plain", "+channel": "n"}, "e": {"+channel": "state", "+putorder": 0}}}"#);
    let refused = group.writes(&Mask::of([5]), group.template()).unwrap_err();
    assert!(refused.to_string().starts_with("No fields changed: n is read only"), "{refused}");
    let marks = Mask::of((5..20).filter(|bit| *bit == 8));
    assert_eq!(group.writes(&marks, group.template()).unwrap().0.len(), 1, "the index of a state");
}

#[test]
fn a_wrong_definition_is_reported_and_the_other_groups_are_served() {
    let good = r#""good": {"y": {"+channel": "y"}}"#;
    for (bad, expected) in [
        (r#""bad": 5"#, "file.json: group \"bad\": found 5, expected members, {\"field\": {…}}"),
        (r#""bad": {"y": 5}"#, "group \"bad\", field \"y\": found 5, expected options"),
        (r#""bad": {"y": {}}"#, "field \"y\": found no +channel, expected a field such as \"VAL\""),
        (
            r#""bad": {"y": {"+channel": "z"}}"#,
            "field \"y\": found +channel \"z\", expected a field of a record: no record \"z\"",
        ),
        (
            r#""bad": {"y": {"+channel": "y", "+type": "scaler"}}"#,
            "found +type \"scaler\", expected one of scalar, plain",
        ),
        (r#""bad": {"y": {"+channel": "y", "+putorder": "a"}}"#, "found +putorder \"a\", expected an integer"),
        (r#""bad": {"y": {"+type": "const"}}"#, "found no +const, expected a number"),
        (r#""bad": {"y.": {"+channel": "y"}}"#, "found the name \"y.\", expected parts like \"a.b\""),
        (
            r#""bad": {"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a": {"+channel": "y"}}"#,
            "found a name with 17 parts, expected at most 16",
        ),
        (r#""bad": {"y[5000]": {"+channel": "y"}}"#, "found element 5000 in \"y[5000]\", expected less than 1000"),
        (
            r#""bad": {"y": {"+type": "plain", "+channel": "y"}, "y.z": {"+channel": "y"}}"#,
            "in a field that is no structure",
        ),
        (r#""bad": {"+atomic": "maybe"}"#, "found +atomic \"maybe\", expected true or false"),
        (r#""x": {"y": {"+channel": "y"}}"#, "group \"x\": found a record of this name"),
        (r#""": {"y": {"+channel": "y"}}"#, "found an empty name"),
    ] {
        let built = build(&[(&format!("{{{bad}, {good}}}"), None)]);
        assert_eq!(built.groups.len(), 1, "{bad}");
        assert_eq!(built.groups[0].name, "good");
        let [fault] = &built.faults[..] else { panic!("{bad}: {:?}", built.faults) };
        assert!(fault.contains(expected), "{fault}\nexpected: {expected}");
    }
    let built = build(&[("{\n \"g\": {]}", None), (&format!("{{{good}}}"), None)]);
    assert_eq!(built.faults, ["file.json: line 2, column 8: found ']', expected a key or '}'"]);
    assert_eq!(built.groups.len(), 1, "a file with an error in its text does not affect others");
}

#[test]
fn what_is_ignored_is_reported_and_the_group_is_served() {
    for (members, expected) in [
        (r#""+ID": "x", "y": {"+channel": "y"}"#, "found option \"+ID\", expected +id, +atomic"),
        (r#""y": {"+channel": "y", "+Trigger": "*"}"#, "found option \"+Trigger\", expected one of +type"),
        (r#""y": {"+channel": "y", "+trigger": "*,z"}"#, "found +trigger \"z\", expected \"*\" or a field"),
        (
            r#""": {"+channel": "y"}, "y": {"+channel": "y"}"#,
            "found +type \"scalar\" without a name, expected \"meta\"",
        ),
        (
            r#""y": {"+channel": "y"}, "s": {"+type": "structure", "+channel": "y"}"#,
            "expected none with +type \"structure\"",
        ),
        (r#""y": {"+channel": "y"}, "n": {"+channel": "n"}"#, "found no +trigger, expected \"*\" or names"),
    ] {
        let built = build(&[(&format!("{{\"g\": {{{members}}}}}"), None)]);
        assert_eq!(built.groups.len(), 1, "{members}");
        let [fault] = &built.faults[..] else { panic!("{members}: {:?}", built.faults) };
        assert!(fault.contains(expected), "{fault}\nexpected: {expected}");
    }
    let again = r#"{"g": {"y": {"+channel": "VAL"}}}"#;
    let built = build(&[(again, Some("y")), (again, Some("x"))]);
    assert!(
        built.faults[0].contains("this field is also defined at y: group \"g\", field \"y\""),
        "{:?}",
        built.faults
    );
    assert_eq!(built.groups[0].members[0].channel.as_deref(), Some("y.VAL"));
}

#[test]
fn the_parts_of_a_field_are_copied_to_their_places() {
    let group = one(r#"{"g": {"in.x": {"+channel": "x"}}}"#);
    let (mut value, mut marks) = (group.template().clone(), Mask::default());
    let number = base::Value::from(2.5);
    let alarm = Alarm { severity: Severity::Major, status: Status::High };
    let view = View::of_value(&number, alarm, Stamp::EPOCH, Annotation::NONE);
    group.patch(0, group.everything(0), &view, &mut value, &mut marks);
    assert_eq!(group.value_at(&value, "in.x.value"), Some(&Value::F64(2.5)));
    assert_eq!(group.value_at(&value, "in.x.alarm.severity"), Some(&Value::I32(2)));
    assert_eq!(group.value_at(&value, "in.x.timeStamp.secondsPastEpoch"), Some(&Value::I64(631_152_000)));
    // `record` has bits 1 to 4, `in` 5, `x` 6, its value 7.
    assert!(marks.has(7) && marks.has(9) && !marks.has(6) && !marks.has(0));
}

proptest::proptest! {
    #[test]
    fn no_definition_panics(
        members in proptest::collection::vec(("[a-c.\\[\\]0-2]{0,5}", "[+a-z]{0,9}", "[a-c*,]{0,4}", 0usize..9), 0..6),
    ) {
        let kinds = ["scalar", "plain", "any", "meta", "proc", "structure", "const", "none", ""];
        let channels = ["x", "y", "n", "a", "state", "labels", "z"];
        let member = |(name, key, trigger, nth): &(String, String, String, usize)| {
            let (kind, channel) = (kinds[*nth], channels[nth % 7]);
            format!(
                "\"{name}\": {{\"+type\": \"{kind}\", \"+channel\": \"{channel}\", \"{key}\": 1, \
                 \"+trigger\": \"{trigger}\", \"+const\": {nth}, \"+putorder\": {nth}}}"
            )
        };
        let text = format!("{{\"g\": {{{}}}}}", members.iter().map(member).collect::<Vec<_>>().join(", "));
        for group in build(&[(&text, None)]).groups {
            let (value, mut marks) = (group.template().clone(), Mask::default());
            let number = base::Value::from(1.0);
            let view = View::of_value(&number, Alarm::NONE, Stamp::EPOCH, Annotation::NONE);
            let mut patched = value.clone();
            for member in 0..group.members.len() {
                group.patch(member, group.everything(member), &view, &mut patched, &mut marks);
            }
            let ty = Type::Struct(group.ty().clone());
            let mut out = crate::codec::Writer::new(crate::codec::Order::Little);
            out.fields_of(&ty, &marks, &patched);
            let mut read = Value::zero(&ty);
            let mut reader = crate::codec::Reader::new(&out.bytes, crate::codec::Order::Little);
            reader.fields_of(&ty, &marks, &mut read, &mut crate::codec::TypeTable::default()).unwrap();
            proptest::prop_assert!(reader.rest().is_empty());
            let _ = group.writes(&Mask::of([0]), &patched);
        }
    }
}

#[test]
fn a_structure_without_options_has_no_length_of_the_queue() {
    let columns = Value::Struct(vec![Value::I32(1), Value::I32(2)]);
    let table = Value::Struct(vec![Value::Array(Array::empty(Kind::Text)), columns.clone()]);
    let number = Value::Struct(vec![columns]);
    assert_eq!([&table, &number, &Value::I32(1)].map(has_options), [false; 3]);
    assert!(has_options(&Value::Struct(vec![Value::Struct(vec![Value::Struct(vec![])])])));
}
