//! A group with a field of the housekeeping shard and fields of a scan group's owner, which the test simulates.

use super::*;
use crate::store::tests::Ioc;
use base::Value;
use pva::codec::{Array, Type};
use pva::server::{Options, Source, StructureGet, Token};

const PEER: server::Peer<'_> = server::Peer { user: "ann", address: "10.0.0.9:4000" };
const TOKEN: Token = Token(7);

const GROUP: &str = r#"{"g": {
    "here": {"+type": "plain", "+channel": "here.VAL", "+putorder": 1},
    "there": {"+type": "plain", "+channel": "there.VAL", "+putorder": 1, "+trigger": "*"},
    "text": {"+type": "plain", "+channel": "there:text.VAL", "+putorder": 2},
    "wave": {"+type": "plain", "+channel": "there:w.VAL"}
}}"#;

/// Names of the members, in the order of the type after `record`.
const NAMES: [&str; 4] = ["wave", "here", "there", "text"];

struct Bench {
    ioc: Ioc,
    handle: u64,
}

impl Bench {
    fn new(text: &str) -> Self {
        let mut ioc = Ioc::new();
        let mut definitions = Definitions::default();
        definitions.add(text, "test.json", None);
        assert_eq!(ioc.store.define_groups(definitions), Vec::<String>::new());
        let opened = Source::open(&mut ioc.store, b"g", PEER).expect("the group is served");
        assert_eq!(opened.shape, Shape::Structure);
        Self { ioc, handle: opened.handle }
    }

    /// The values of the members, and whether each was marked.
    fn values(snapshot: &Snapshot) -> Vec<(String, bool)> {
        let Tree::Struct(fields) = &*snapshot.value else { panic!("no structure") };
        let values = fields[1..].iter().enumerate();
        values
            .map(|(index, value)| {
                let text = match value {
                    Tree::Array(Array::I32(values)) => format!("{values:?}"),
                    Tree::Text(text) => text.clone(),
                    value => value.to_f64().unwrap().to_string(),
                };
                (text, snapshot.marks.has(5 + index as u32))
            })
            .collect()
    }

    fn read(&mut self) -> Vec<String> {
        let got = self.ioc.store.read_structure(self.handle, Options::default(), TOKEN);
        let snapshot = match got {
            StructureGet::Done(snapshot) => snapshot,
            StructureGet::Sent => {
                self.ioc.settle();
                match self.ioc.store.groups.next_result() {
                    Some(GroupResult::Answer(TOKEN, Ok(snapshot))) => snapshot,
                    _ => panic!("no answer"),
                }
            }
            StructureGet::Failed(why) => panic!("{why}"),
        };
        assert!(Self::values(&snapshot).iter().all(|(_, marked)| *marked), "all members are marked");
        Self::values(&snapshot).into_iter().map(|(text, _)| text).collect()
    }

    fn start(&mut self, here: f64, there: f64, text: &str) -> Put {
        self.start_with(here, there, text, false)
    }

    fn start_with(&mut self, here: f64, there: f64, text: &str, wait: bool) -> Put {
        let ty = Type::Struct(self.ioc.store.structure(self.handle).unwrap());
        let mut value = Tree::zero(&ty);
        if let Tree::Struct(fields) = &mut value {
            fields[2] = Tree::F64(here);
            fields[3] = Tree::F64(there);
            fields[4] = Tree::Text(text.into());
        }
        let write = server::Write::Structure { marks: Mask::of([6, 7, 8]), value, options: Options::default() };
        Source::write(&mut self.ioc.store, self.handle, PEER, write, TOKEN, wait)
    }

    fn write(&mut self, here: f64, there: f64, text: &str) -> Put {
        match self.start(here, there, text) {
            Put::Sent => {
                self.ioc.settle();
                match self.ioc.store.groups.next_result() {
                    Some(GroupResult::Written(TOKEN, put)) => put,
                    _ => panic!("no answer"),
                }
            }
            put => put,
        }
    }
}

fn texts(words: [&str; 4]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[test]
fn fields_of_several_owners_are_read_and_written_together() {
    let mut bench = Bench::new(GROUP);
    assert_eq!(bench.read(), texts(["[]", "0", "0", ""]), "{NAMES:?}");
    assert_eq!(bench.write(1.5, 2.5, "a"), Put::Done);
    assert_eq!(bench.read(), texts(["[]", "1.5", "2.5", "a"]));
    assert_eq!(bench.ioc.get_there("there"), Value::from(2.5));
    assert!(Source::exists(&mut bench.ioc.store, b"g"));
    assert!(Source::names(&bench.ioc.store).contains(&"g".to_owned()));
}

#[test]
fn a_refused_member_of_one_owner_keeps_all_members_of_the_others_unwritten() {
    let mut bench = Bench::new(GROUP);
    bench.ioc.put_there("there.DISP", Value::from(1));
    let Put::Failed(why) = bench.write(1.0, 2.0, "a") else { panic!("it is written") };
    assert_eq!(why, "there.VAL: the record's DISP field forbids writing; put 0 to DISP first");
    assert_eq!(bench.read(), texts(["[]", "0", "0", ""]));
    bench.ioc.put_there("there.DISP", Value::from(0));
    let long = "a text that is longer than forty characters";
    let Put::Failed(why) = bench.write(1.0, 2.0, long) else { panic!("it is written") };
    assert!(why.starts_with("text: the text has 43 bytes"), "{why}");
    assert_eq!(bench.read(), texts(["[]", "0", "0", ""]));
}

#[test]
fn no_client_reads_a_group_between_the_rounds_of_a_write() {
    let mut bench = Bench::new(GROUP);
    // `text` is written in a later round, because its order is later.
    assert_eq!(bench.start(1.0, 1.0, "one"), Put::Sent);
    let second = Token(8);
    let handle = bench.handle;
    assert_eq!(bench.ioc.store.read_structure(handle, Options::default(), second), StructureGet::Sent);
    let ty = Type::Struct(bench.ioc.store.structure(handle).unwrap());
    let mut value = Tree::zero(&ty);
    if let Tree::Struct(fields) = &mut value {
        fields[2] = Tree::F64(2.0);
    }
    let write = server::Write::Structure { marks: Mask::of([6]), value, options: Options::default() };
    assert_eq!(Source::write(&mut bench.ioc.store, handle, PEER, write, Token(9), false), Put::Sent);
    bench.ioc.settle();
    let mut seen = Vec::new();
    while let Some(result) = bench.ioc.store.groups.next_result() {
        match result {
            GroupResult::Written(token, Put::Done) => seen.push((token.0, Vec::new())),
            GroupResult::Answer(token, Ok(snapshot)) => {
                seen.push((token.0, Bench::values(&snapshot).into_iter().map(|(text, _)| text).collect()));
            }
            _ => panic!("something else"),
        }
    }
    seen.sort();
    assert_eq!(seen[0], (7, Vec::new()));
    assert_eq!(seen[1].1[2..], ["1".to_owned(), "one".to_owned()], "the read sees the whole first write");
    assert_eq!(seen[2], (9, Vec::new()));
    assert_eq!(bench.read(), texts(["[]", "2", "1", "one"]));
}

#[test]
fn a_trigger_sends_its_targets_of_all_owners_in_one_update() {
    let mut bench = Bench::new(GROUP);
    Source::watch(&mut bench.ioc.store, bench.handle);
    bench.ioc.settle();
    assert!(bench.ioc.store.groups.next_result().is_none());
    assert_eq!(bench.write(1.0, 0.0, "a"), Put::Done);
    assert!(bench.ioc.store.groups.next_result().is_none(), "no trigger changed its value");
    bench.ioc.put_there("there:w", Value::from(vec![1, 2]));
    bench.ioc.put_there("there", Value::from(3.0));
    bench.ioc.scan();
    bench.ioc.settle();
    let Some(GroupResult::Post(watch, snapshot)) = bench.ioc.store.groups.next_result() else { panic!("no update") };
    assert_eq!(watch, bench.handle);
    let expected = [("[1, 2]", true), ("1", true), ("3", true), ("a", true)];
    assert_eq!(Bench::values(&snapshot), expected.map(|(text, marked)| (text.to_owned(), marked)));
    assert!(!snapshot.marks.has(pva::group::ATOMIC_BIT));
    Source::unwatch(&mut bench.ioc.store, bench.handle);
    bench.ioc.put_there("there", Value::from(4.0));
    bench.ioc.scan();
    bench.ioc.settle();
    assert!(bench.ioc.store.groups.next_result().is_none(), "no client is left");
}

#[test]
fn a_client_needs_the_right_to_every_member() {
    let mut bench = Bench::new(GROUP);
    let rules = "UAG(ops) { ann } ASG(DEFAULT) { RULE(1, READ) RULE(1, WRITE) { UAG(ops) } }";
    let parse = |text| db::Security::parse(text, "test.acf", &db::Macros::default()).unwrap();
    bench.ioc.store.guard.set(parse(rules), false);
    assert_eq!(bench.write(1.0, 1.0, "a"), Put::Done);
    let guest = server::Peer { user: "guest", address: "10.0.0.9:4001" };
    let ty = Type::Struct(bench.ioc.store.structure(bench.handle).unwrap());
    let write = server::Write::Structure { marks: Mask::of([6]), value: Tree::zero(&ty), options: Options::default() };
    let put = Source::write(&mut bench.ioc.store, bench.handle, guest, write, TOKEN, false);
    assert_eq!(put, Put::Failed("here: no write access to here".into()));
    let none = "UAG(ops) { ann } ASG(DEFAULT) { RULE(1, READ) { UAG(ops) } }";
    bench.ioc.store.guard.set(parse(none), false);
    assert!(!Source::access(&mut bench.ioc.store, bench.handle, guest).read);
    assert!(Source::access(&mut bench.ioc.store, bench.handle, PEER).read);
}

#[test]
fn a_write_with_completion_is_answered_after_the_processing_of_all_members() {
    let mut bench = Bench::new(GROUP);
    assert_eq!(bench.start_with(1.0, 1.0, "a", true), Put::Sent);
    bench.ioc.settle();
    assert!(matches!(bench.ioc.store.groups.next_result(), Some(GroupResult::Written(TOKEN, Put::Done))));
    assert!(bench.ioc.store.groups.calls.is_empty() && bench.ioc.store.groups.completions.is_empty());
    Source::forget(&mut bench.ioc.store, TOKEN);
}

#[test]
fn too_many_fields_of_a_thread_with_scans_are_refused_in_an_atomic_group() {
    let mut ioc = Ioc::new();
    let members: Vec<String> = (0..=MEMBERS_MAX)
        .map(|number| {
            format!("\"f{number}\": {{\"+type\": \"plain\", \"+channel\": \"there.VAL\", \"+trigger\": \"*\"}}")
        })
        .collect();
    let mut definitions = Definitions::default();
    definitions.add(&format!("{{\"g\": {{{}}}}}", members.join(", ")), "test.json", None);
    definitions.add(&format!("{{\"h\": {{\"+atomic\": false, {}}}}}", members.join(", ")), "test.json", None);
    let faults = ioc.store.define_groups(definitions);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("group \"g\": found 65 fields that the thread of \"scans\" owns"), "{faults:?}");
    let handle = Source::open(&mut ioc.store, b"h", PEER).unwrap().handle;
    assert_eq!(ioc.store.read_structure(handle, Options::default(), TOKEN), StructureGet::Sent);
    ioc.settle();
    assert!(matches!(ioc.store.groups.next_result(), Some(GroupResult::Answer(TOKEN, Ok(_)))), "in several jobs");
}

#[test]
fn a_group_ends_with_the_record_of_a_member() {
    let mut bench = Bench::new(GROUP);
    let record = bench.ioc.store.db.find("here").unwrap().record;
    let gone: Vec<u64> = bench.ioc.store.handles_of(record).collect();
    assert_eq!(bench.ioc.store.drop_groups(&gone), [bench.handle]);
    bench.ioc.store.end_group(bench.handle);
    assert!(!bench.ioc.store.groups.has("g"));
    assert!(bench.ioc.store.handles_of(record).next().is_none(), "its fields are closed");
}
