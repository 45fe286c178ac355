//! Splits a database into several: each whole lock set goes to the group that scans it.

use base::{Stamp, Value};
use db::{Db, Macros, Now, RecId, RecordLocation, RemoteRequest, ScanGroup};

fn loaded(text: &str) -> Db {
    let mut db = Db::new();
    db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap_or_else(|error| panic!("{error}"));
    db
}

fn group(scans: &[&str], owners: usize) -> ScanGroup {
    ScanGroup { scans: scans.iter().map(|scan| (*scan).to_owned()).collect(), owners }
}

fn now() -> Now {
    Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }, ..Now::default() }
}

/// Splits the database and starts all shards.
fn split(db: &mut Db, groups: &[ScanGroup]) -> Vec<Db> {
    let mut shards = db.split(groups).unwrap();
    for (number, shard) in shards.iter_mut().enumerate() {
        shard.init(now());
        db.learn(number, shard);
    }
    db.init(now());
    shards
}

fn shard_of(db: &Db, name: &str) -> Option<usize> {
    db.location_of(db.find(name).unwrap().record).map(|location| location.shard)
}

const TEXT: &str = r#"
record(calc, "fast") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "fast") field(FLNK, "after") alias("quick") }
record(waveform, "after") { field(FTVL, SHORT) field(NELM, 5) info(tag, "x") }
record(calc, "slow") { field(SCAN, "1 second") field(CALC, "A+1") field(INPA, "slow") }
record(ai, "reader") { field(INP, "fast CP") field(SCAN, "Passive") }
record(ao, "plain") {}
"#;

#[test]
fn whole_lock_sets_go_to_the_group_that_scans_them() {
    let mut db = loaded(TEXT);
    let mut shards = split(&mut db, &[group(&["0.1 second"], 1)]);
    assert_eq!(
        ["fast", "quick", "after", "slow", "reader", "plain"].map(|name| shard_of(&db, name)),
        [Some(0), Some(0), Some(0), None, None, None]
    );
    let shard = &mut shards[0];
    assert_eq!(shard.records().count(), 2);
    assert_eq!(shard.find("quick").unwrap(), shard.find("fast").unwrap());
    assert_eq!(shard.info_tags(shard.find("after").unwrap().record), [("tag".to_owned(), "x".to_owned())]);
    let scan = shard.scans().into_iter().find(|scan| scan.name == ".1 second").unwrap();
    assert_eq!(scan.records, 1);
    shard.scan(scan.index, now());
    let fast = shard.find("fast").unwrap();
    assert_eq!(shard.get(&fast, 1), Value::from(1.0));
    assert!(db.scans().iter().all(|scan| scan.records == usize::from(scan.name == "1 second")));
}

#[test]
fn the_directory_has_the_type_and_size_of_channels_in_other_shards() {
    let mut db = loaded(TEXT);
    let shards = split(&mut db, &[group(&[".1 second"], 1)]);
    for name in ["fast", "after", "after.NORD", "fast.CALC"] {
        let (here, location) = (db.find(name).unwrap(), shards[0].find(name).unwrap());
        assert_eq!(db.info(&here), shards[0].info(&location), "{name}");
        assert_eq!(db.location_of(here.record), Some(RecordLocation { shard: 0, record: location.record }));
    }
    assert_eq!(db.info(&db.find("after").unwrap()).elements_max, 5);
}

#[test]
fn links_between_owners_are_requested_from_the_shell() {
    let mut db = loaded(TEXT);
    let mut shards = split(&mut db, &[group(&[".1 second"], 1)]);
    let asked: Vec<RemoteRequest> = std::iter::from_fn(|| db.next_remote()).collect();
    assert!(matches!(&asked[..], [RemoteRequest::Connect { name, monitor: true, .. }] if name == "fast"), "{asked:?}");
    assert!(shards[0].next_remote().is_none());
    // A link that is changed at run time does not join the sets.
    let link = db.find("plain.FLNK").unwrap();
    db.put(&link, &Value::from("fast.PROC CA"), now()).unwrap();
    assert_eq!(std::iter::from_fn(|| db.next_remote()).count(), 1);
}

#[test]
fn a_lock_set_reached_by_two_groups_goes_to_the_first_and_is_reported() {
    let text = "record(ai, \"a\") { field(SCAN, \"1 second\") field(INP, \"b\") }\nrecord(ai, \"b\") { field(SCAN, \"2 second\") }";
    let mut db = loaded(text);
    let shards = split(&mut db, &[group(&["2 second"], 1), group(&["1 second"], 1)]);
    assert_eq!((shard_of(&db, "a"), shard_of(&db, "b")), (Some(0), Some(0)));
    assert_eq!(shards[1].records().count(), 0);
    let notices = db.take_notices();
    assert!(notices.iter().any(|notice| notice.0.contains("a: its lock set (2 records)")), "{notices:?}");
}

#[test]
fn several_owners_share_a_groups_lock_sets_evenly() {
    let mut text = String::new();
    for set in 0..10 {
        for record in 0..=set {
            text +=
                &format!("record(ai, \"s{set}r{record}\") {{ field(SCAN, \"1 second\") field(INP, \"s{set}r0\") }}\n");
        }
    }
    let mut db = loaded(&text);
    let shards = split(&mut db, &[group(&["1 second"], 3)]);
    let counts: Vec<usize> = shards.iter().map(|shard| shard.records().count()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 55);
    assert!(counts.iter().all(|count| (17..=20).contains(count)), "{counts:?}");
    assert_eq!(db.shards().values().sum::<usize>(), 55);
}

#[test]
fn a_scan_that_does_not_exist_or_is_claimed_twice_is_refused() {
    let error = loaded(TEXT).split(&[group(&["3 parsec"], 1)]).err().unwrap();
    assert!(error.to_string().contains("\"3 parsec\"") && error.to_string().contains("\".1 second\""), "{error}");
    let error = loaded(TEXT).split(&[group(&["1 second"], 1), group(&["1 Hz"], 1)]).err().unwrap();
    assert!(error.to_string().contains("twice"), "{error}");
}

#[test]
fn a_record_of_another_owner_cannot_be_redefined_and_is_removed_from_the_directory() {
    let mut db = loaded(TEXT);
    split(&mut db, &[group(&[".1 second"], 1)]);
    let again = db.load_records("record(calc, \"fast\") {}", "more.db", &Macros::default(), &mut |_| None);
    assert!(again.unwrap_err().to_string().contains("scan group"));
    let record = db.find("fast").unwrap().record;
    db.remove_remote(record);
    assert!(db.find("fast").is_err() && db.location_of(record).is_none());
    assert_eq!(db.find("plain").map(|channel| channel.record != RecId(0)), Ok(true));
}

#[test]
fn records_loaded_later_go_to_the_owners_of_their_scans_and_links() {
    let mut db = loaded(TEXT);
    let shards = split(&mut db, &[group(&[".1 second"], 2), group(&["1 second"], 1)]);
    assert_eq!(shards.len(), 3);
    let fast = shard_of(&db, "fast").unwrap();
    let later = r#"
    record(calc, "first") { field(SCAN, ".1 second") field(FLNK, "second") }
    record(calc, "second") {}
    record(calc, "beside") { field(INPA, "after") }
    record(calc, "both") { field(SCAN, "1 second") field(INPA, "fast") }
    record(calc, "apart") { field(SCAN, "1 second") field(INPA, "fast CP") }
    record(calc, "home") { field(SCAN, "2 second") field(INPA, "plain") }
    "#;
    db.load_records(later, "later.db", &Macros::default(), &mut |_| None).unwrap();
    let mut number = 2;
    let mut fresh = db.split_new(|_| {
        number += 1;
        Some(number)
    });
    let owners: Vec<(usize, usize)> = fresh.iter().map(|(owner, shard, _)| (*owner, *shard)).collect();
    assert_eq!(owners, [(0, 3), (1, 4), (2, 5)]);
    for (_, shard, late) in &mut fresh {
        late.init(now());
        db.learn(*shard, late);
    }
    db.init(now());
    let owner_of = |name: &str| shard_of(&db, name).map(|shard| shard % 3);
    // A set without links to older records goes to the owner with fewer records. The others go to the owner of the records
    // that they link to; a group of higher priority wins.
    assert_eq!(["first", "second"].map(owner_of), [Some(1 - fast); 2]);
    assert_eq!(["beside", "both"].map(owner_of), [Some(fast); 2]);
    assert_eq!(["apart", "home"].map(owner_of), [Some(2), None]);
    let notices: Vec<String> = db.take_notices().into_iter().map(|notice| notice.0).collect();
    assert!(notices.iter().any(|text| text.contains("scanned by 2 scan groups")), "{notices:?}");
    // Without space the records stay, and a notice reports it.
    db.load_records("record(ai, \"late\") { field(SCAN, \".1 second\") }", "l.db", &Macros::default(), &mut |_| None)
        .unwrap();
    assert!(db.split_new(|_| None).is_empty());
    db.init(now());
    assert_eq!(shard_of(&db, "late"), None);
    assert!(db.take_notices().iter().any(|notice| notice.0.contains("1 records stay out")));
    let tenth = db.scans().into_iter().find(|scan| scan.name == ".1 second").unwrap();
    assert_eq!(tenth.records, 1);
}

#[test]
fn links_to_a_removed_record_become_remote_links() {
    let mut db = loaded(
        "record(calc, \"a\") { field(INPA, \"b\") field(INPB, \"b.DESC$ CP\") field(FLNK, \"b\") } record(ai, \"b\") {}",
    );
    db.init(now());
    while db.next_remote().is_some() {}
    let b = db.find("b").unwrap().record;
    db.remove_record(b);
    db.unlink(b, 0, u32::MAX);
    let names: Vec<String> = std::iter::from_fn(|| db.next_remote())
        .filter_map(|request| match request {
            RemoteRequest::Connect { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&"b".to_owned()) && names.contains(&"b.DESC$".to_owned()));
    // In strict mode, a file with an error adds no record.
    db.set_strict(true);
    let bad = "record(ai, \"b\") {} record(ai, \"c\") { field(NO, 1) }";
    assert!(db.load_records(bad, "bad.db", &Macros::default(), &mut |_| None).is_err());
    db.init(now());
    assert!(db.find("b").is_err() && db.find("c").is_err());
}
