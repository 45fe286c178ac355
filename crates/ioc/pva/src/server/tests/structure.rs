//! A channel that is a structure of two numbers, like a group.

use super::*;
use crate::codec::{Kind, Struct};

/// The type of the channel `s`.
pub(super) struct Shared(pub(super) Arc<Struct>);

impl Default for Shared {
    fn default() -> Self {
        let part = |fields: Vec<(&str, Type)>| {
            Struct::new("", fields.into_iter().map(|(name, ty)| (name.to_owned(), ty)).collect()).unwrap()
        };
        let options = part(vec![("queueSize", Type::Scalar(Kind::I32)), ("atomic", Type::Scalar(Kind::Bool))]);
        let record = part(vec![("_options", Type::Struct(options))]);
        let number = Type::Scalar(Kind::F64);
        Self(part(vec![("record", Type::Struct(record)), ("value", number.clone()), ("other", number)]))
    }
}

/// A whole value with both numbers and the option marked.
pub(super) fn snapshot(number: f64, atomic: Option<bool>) -> Snapshot {
    let options = Tree::Struct(vec![Tree::I32(0), Tree::Bool(atomic.unwrap_or(true))]);
    let value = Tree::Struct(vec![Tree::Struct(vec![options]), Tree::F64(number), Tree::F64(-number)]);
    Snapshot { marks: Mask::of([4, 5, 6]), value: Arc::new(value) }
}

impl Bench {
    fn post_structure(&mut self, number: f64, marks: &[u32]) {
        let snapshot = Snapshot { marks: Mask::of(marks.iter().copied()), ..snapshot(number, None) };
        self.server.post_structure(2, &snapshot);
    }

    /// The bodies of all updates of a monitor: marked bits, whole value, overrun bits.
    fn updates(&mut self) -> Vec<(Mask, Tree, Mask)> {
        let ty = Type::Struct(self.values.structure.0.clone());
        let decode = |payload: &[u8]| {
            let mut reader = Reader::new(&payload[5..], Order::Little);
            let (marks, mut value) = (reader.mask().unwrap(), Tree::zero(&ty));
            reader.fields_of(&ty, &marks, &mut value, &mut TypeTable::default()).unwrap();
            let overrun = reader.mask().unwrap();
            assert!(reader.rest().is_empty());
            (marks, value, overrun)
        };
        self.take().iter().map(|(_, payload)| decode(payload)).collect()
    }
}

fn part(value: &Tree, path: &[usize]) -> Tree {
    path.iter().fold(value.clone(), |value, index| match value {
        Tree::Struct(fields) => fields[*index].clone(),
        _ => panic!("no structure"),
    })
}

#[test]
fn a_structure_is_read_with_its_selected_fields() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "s");
    let (status, ty) = bench.init(command::GET, sid, 1, "field(other)record[atomic=false]", None);
    assert_eq!((status, ty), (Status::OK, Some(Type::Struct(bench.values.structure.0.clone()))));
    bench.ask(command::GET, sid, 1, 0);
    assert_eq!(bench.one().1, [&[1, 0, 0, 0, 0, 0xFF, 1, 1 << 6][..], &(-1.5f64).to_le_bytes()].concat());
    bench.init(command::GET, sid, 2, "record[atomic=false]", None);
    bench.ask(command::GET, sid, 2, 0);
    let (_, payload) = bench.one();
    assert_eq!(payload[5..9], [0xFF, 1, 0x70, 0], "both numbers, and that they were not read at once");
    bench.values.later = true;
    bench.ask(command::GET, sid, 1, 0);
    assert!(bench.take().is_empty());
    let token = bench.values.asked[0];
    bench.server.answer_structure(token, Err(Status::error("the record is gone")), &mut bench.values);
    assert_eq!(super::status(&bench.one().1), Status::error("the record is gone"));
    bench.values.access = Some(Access { read: false, write: true });
    bench.server.refresh_access(&mut bench.values);
    bench.ask(command::GET, sid, 1, 0);
    assert_eq!(super::status(&bench.one().1), Status::error("no read access"));
}

#[test]
fn a_monitor_of_a_structure_starts_with_its_length_and_sends_what_changed() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "s");
    bench.init(command::MONITOR, sid, 1, "record[queueSize=7]", None);
    bench.ask(command::MONITOR, sid, 1, 0x44);
    let updates = bench.updates();
    let [(marks, value, overrun)] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!((marks, overrun), (&Mask::of([3, 4, 5, 6]), &Mask::default()));
    assert_eq!(part(value, &[0, 0, 0]), Tree::I32(7));
    bench.post_structure(2.0, &[5]);
    bench.post_structure(3.0, &[]);
    let updates = bench.updates();
    let [(marks, value, _)] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!((marks, part(value, &[1])), (&Mask::of([5]), Tree::F64(2.0)));
    assert_eq!(bench.values.watched, 1);
    bench.ask(command::MONITOR, sid, 1, 0x10);
    assert_eq!(bench.values.watched, 0);
}

#[test]
fn updates_of_a_structure_that_wait_are_merged_and_mark_what_was_replaced() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "s");
    bench.init(command::MONITOR, sid, 1, "record[pipeline=true,queueSize=1]", Some(0));
    bench.ask(command::MONITOR, sid, 1, 0x44);
    bench.post_structure(2.0, &[5]);
    bench.post_structure(3.0, &[6]);
    assert!(bench.updates().is_empty(), "no credit");
    bench.send(command::MONITOR, |out| {
        out.u32(sid);
        out.u32(1);
        out.u8(0x80);
        out.u32(1);
    });
    let updates = bench.updates();
    let [(marks, value, overrun)] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!((marks, overrun), (&Mask::of([3, 4, 5, 6]), &Mask::of([5, 6])));
    assert_eq!((part(value, &[1]), part(value, &[0, 0, 0])), (Tree::F64(3.0), Tree::I32(1)), "the newest values");
    assert_eq!(bench.server.counters.replaced, 2);
}

#[test]
fn a_write_to_a_structure_has_its_marks_and_warnings() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "s");
    bench.init(command::PUT, sid, 1, "record[atomic=true]", None);
    bench.values.warnings.push("other: no putorder, ignore write".into());
    bench.put_mask(sid, 1, 1 << 5 | 1 << 6, &[4.0, 5.0]);
    let all = bench.take();
    assert_eq!(all.iter().map(|(command, _)| *command).collect::<Vec<_>>(), [command::MESSAGE, command::PUT]);
    let Some((2, Write::Structure { marks, value, options }, false)) = bench.values.writes.pop() else { panic!() };
    assert_eq!((marks, options), (Mask::of([5, 6]), Options { atomic: Some(true) }));
    assert_eq!((part(&value, &[1]), part(&value, &[2])), (Tree::F64(4.0), Tree::F64(5.0)));
}

impl Bench {
    fn put_mask(&mut self, sid: u32, ioid: u32, mask: u64, numbers: &[f64]) {
        self.send(command::PUT, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(0);
            out.mask64(mask);
            numbers.iter().for_each(|number| out.f64(*number));
        });
    }
}
