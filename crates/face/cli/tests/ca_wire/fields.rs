//! Reads every field of every record type in every type with its properties and stamp.

use crate::wire::Wire;
use ca::wire::{Header, command};
use ca::{Dbr, decode};
use harness::ioc::Ioc;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Folder with the fields of each record type, generated from the same definitions as C's.
const TYPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ioc/db/src/rec");
const COMMON: &str = include_str!("../../../../ioc/db/src/rec/common.dbd");

/// Record types of tahti that C's EPICS base does not have.
const NOT_IN_BASE: &[&str] = &[
    "acalcout",
    "asyn",
    "busy",
    "epid",
    "motor",
    "scalcout",
    "scaler",
    "sscan",
    "sseq",
    "swait",
    "table",
    "transform",
];

/// Fields whose definitions are newer than those of the tested EPICS base: type, field, the newer part.
const NEWER: &[(&str, &str, &str)] = &[
    ("calc", "CALC$", "room for 160 characters instead of 80"),
    ("calcout", "CALC$", "room for 160 characters instead of 80"),
    ("calcout", "OCAL$", "room for 160 characters instead of 80"),
];

/// Whether a read is skipped. Read as ENUM, a text of these C records selects the state that it names, which changes
/// the record. Of long texts C takes the leading number. Newer definitions have further device supports.
fn is_left_out(record: &str, dbf: &str, asked: u16) -> bool {
    let as_enum = asked < 35 && asked % 7 == 3;
    let changes = dbf == "STRING" && matches!(record, "bi" | "bo" | "mbbi" | "mbbo");
    let is_long = dbf == "NOACCESS" && matches!(record, "lsi" | "lso" | "printf" | "aSub");
    as_enum && (changes || is_long || dbf == "DEVICE" && asked > 20)
}

/// A field, from the definition of its record type.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// `DOUBLE`, `MENU`, ….
    pub(crate) dbf: &'static str,
    pub(crate) menu: Option<&'static str>,
    /// Whether configuration tools, and so database files, may set it.
    pub(crate) is_offered: bool,
}

impl Field {
    fn of(line: &'static str) -> Option<Self> {
        let (name, rest) = line.trim().strip_prefix("field(")?.split_once(',')?;
        let (dbf, rest) = rest.split_once(')')?;
        let menu = rest.split_once("menu(").and_then(|(_, rest)| Some(rest.split_once(')')?.0));
        Some(Self { name, dbf: dbf.trim().strip_prefix("DBF_")?, menu, is_offered: rest.contains("promptgroup(") })
    }
}

/// Texts with the definitions, in addition to C's own.
fn definitions() -> Vec<&'static str> {
    let files = std::fs::read_dir(TYPES).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|word| word == "dbd"));
    files.map(|file| &*std::fs::read_to_string(file).unwrap().leak()).collect()
}

/// Record types with their fields, common fields first.
pub(crate) fn types() -> BTreeMap<&'static str, Vec<Field>> {
    let mut all = BTreeMap::new();
    for (_, text) in definitions().into_iter().filter_map(|text| text.split_once("recordtype(")) {
        let (name, rest) = text.split_once(')').unwrap();
        if !NOT_IN_BASE.contains(&name) {
            // The entries after the last field are device supports.
            all.insert(name, COMMON.lines().chain(rest.lines()).filter_map(Field::of).collect());
        }
    }
    assert!(all.len() > 25 && all.values().all(|fields: &Vec<_>| fields.len() > 40), "{:?}", all.keys());
    all
}

/// The choices of all menus.
pub(crate) fn menus() -> BTreeMap<&'static str, Vec<&'static str>> {
    let menu = |line: &'static str| {
        let (name, choices) = line.strip_prefix("menu(")?.split_once(')')?;
        Some((name, choices.split('"').skip(1).step_by(2).collect()))
    };
    definitions().into_iter().flat_map(str::lines).filter_map(menu).collect()
}

/// Field values beyond the defaults: usual values, and values at the limits.
const USUAL: &[(&str, &str)] = &[
    ("DESC", "some words"),
    ("PINI", "YES"),
    ("PREC", "3"),
    ("EGU", "mm"),
    ("HOPR", "100"),
    ("LOPR", "-50"),
    ("DRVH", "80"),
    ("DRVL", "-40"),
    ("HIHI", "90"),
    ("HIGH", "70"),
    ("LOW", "-30"),
    ("LOLO", "-35"),
    ("HHSV", "MAJOR"),
    ("HSV", "MINOR"),
    ("LLSV", "MAJOR"),
    ("ZNAM", "off"),
    ("ONAM", "on"),
    ("ZRST", "zero"),
    ("ONST", "one"),
    ("ONVL", "4000000000"),
    ("NOBT", "4"),
    ("NELM", "5"),
    ("MALM", "8"),
    ("NSAM", "4"),
    ("SIZV", "60"),
    ("ULIM", "10"),
    ("LLIM", "-10"),
    ("CALC", "A+0.5"),
    ("OCAL", "B"),
    ("FMT", "%s"),
    ("INPA", "X:source"),
    ("INPB", "X:whole"),
    ("INPC", "5"),
    ("INPD", "X:chain.A"),
    ("INPE", "X:words"),
    ("INPF", "X:mode"),
    ("OUTA", "X:source"),
    ("OUTB", "X:whole"),
    ("DOL1", "X:source"),
    ("DOL2", "7.5"),
    ("DOL3", "X:chain.A"),
    ("DOL4", "X:whole"),
    ("DLY1", "0.25"),
    ("FTA", "LONG"),
    ("NOA", "3"),
    ("FTB", "STRING"),
];
const EDGE: &[(&str, &str)] = &[
    ("PREC", "20"),
    ("EGU", "millimetres/day"),
    ("HOPR", "3000000000"),
    ("LOPR", "-3000000000"),
    ("DRVH", "-1"),
    ("DRVL", "1"),
    ("HIHI", "3000000000"),
    ("HHSV", "MINOR"),
    ("LOLO", "-70000"),
    ("LLSV", "MINOR"),
    ("FTVL", "STRING"),
    ("NELM", "3"),
    ("TSE", "-2"),
    ("DISS", "INVALID"),
    ("SIZV", "16"),
    ("INPA", "X:waves"),
    ("INPB", "X:words.DESC"),
    ("INPC", "X:nobits.SDEF"),
    ("INPD", "{calc:{expr:\"1\",prec:4,units:\"bits\"}}"),
    ("INPE", "X:source.SCAN"),
    ("DOL1", "X:waves"),
    ("DOL2", "X:nobits.RVAL"),
];

/// Types whose VAL a file can set.
fn value_of(kind: &str) -> Option<&'static str> {
    match kind {
        "ai" | "ao" | "dfanout" | "longin" | "longout" | "int64in" | "int64out" => Some("42"),
        "bi" | "bo" | "mbbi" | "mbbo" => Some("1"),
        "stringin" | "stringout" => Some("12.5"),
        _ => None,
    }
}

/// Records of all types: with defaults, with usual values, with values at the limits.
fn database() -> String {
    let mut text = "record(ai, \"$(P)source\") { field(VAL, \"1.5\") field(PREC, \"2\") field(EGU, \"V\") field(HOPR, \"10\") \
        field(LOPR, \"-10\") field(HIHI, \"8\") field(HHSV, \"MAJOR\") }\n\
        record(longin, \"$(P)whole\") { field(VAL, \"7\") field(EGU, \"n\") field(HOPR, \"9\") field(LOW, \"2\") \
        field(LSV, \"MINOR\") }\n\
        record(calc, \"$(P)chain\") { field(INPA, \"X:source\") field(PREC, \"5\") field(EGU, \"own\") }\n\
        record(stringin, \"$(P)words\") { field(VAL, \"3\") field(DESC, \"4\") }\n\
        record(mbbi, \"$(P)mode\") { field(VAL, \"1\") field(ONST, \"5\") }\n\
        record(mbbiDirect, \"$(P)nobits\") { field(NOBT, \"4\") }\n\
        record(waveform, \"$(P)waves\") { field(FTVL, \"DOUBLE\") field(NELM, \"3\") field(PREC, \"1\") field(HOPR, \"6\") \
        field(EGU, \"A\") }\n"
        .to_owned();
    for (kind, fields) in types() {
        writeln!(text, "record({kind}, \"$(P){kind}\") {{}}").unwrap();
        for (tail, values) in [(":u", USUAL), (":e", EDGE)] {
            writeln!(text, "record({kind}, \"$(P){kind}{tail}\") {{").unwrap();
            let has = |wanted: &str| fields.iter().any(|field| field.name == wanted);
            for (name, value) in values.iter().filter(|(name, _)| has(name)) {
                // A bo's HIGH is a duration, which could end before the read. FTVL of other records is not a menu
                // choice.
                let other = match *name {
                    "HIGH" => kind == "bo",
                    "ONAM" => kind == "aSub",
                    "FTVL" => kind.starts_with("mbb"),
                    _ => false,
                };
                if !other {
                    writeln!(text, "  field({name}, {value:?})").unwrap();
                }
            }
            value_of(kind).into_iter().for_each(|value| writeln!(text, "  field(VAL, {value:?})").unwrap());
            text.push_str("}\n");
        }
    }
    text
}

/// The server's channel number, if the channel exists.
pub(crate) fn channel(wire: &mut Wire, name: &str) -> Option<u32> {
    wire.say(command::CREATE_CHAN, 0, 0, 1, ca::wire::MINOR.into(), format!("{name}\0").as_bytes());
    let (header, _) = wire.message();
    (header.command != command::CREATE_CH_FAIL).then(|| wire.message().0.p2)
}

/// The server's answers to reads of a field in all types, by type and count.
fn answers(wire: &mut Wire, sid: u32, is_text: bool, wanted: impl Fn(u16) -> bool) -> BTreeMap<u32, (Header, Vec<u8>)> {
    let types = (0..=34).chain([37, 38]).filter(|kind| wanted(*kind));
    let asked: Vec<(u16, u32)> = types.flat_map(|kind| [(kind, 0), (kind, 1)]).collect();
    wire.together(|wire| {
        for (kind, count) in &asked {
            wire.say(command::READ_NOTIFY, *kind, *count, sid, u32::from(*kind) * 2 + *count, b"");
        }
    });
    let taken = asked.iter().map(|_| {
        let (mut header, mut payload) = wire.message();
        // Compares only whether there is a stamp, not its time.
        let stamped = (14..=20).contains(&header.kind) && payload.get(4..12).is_some_and(|stamp| stamp != [0; 8]);
        crate::wire::clean(&header, &mut payload);
        if is_text {
            clear_remains(&header, &mut payload);
        }
        if header.kind == Dbr::CLASS_NAME.wire() {
            // After the name, C sends uninitialised memory.
            payload.truncate(40);
        }
        header.p1 |= u32::from(stamped) << 31;
        (std::mem::take(&mut header.p2), (header, payload))
    });
    let answers = taken.collect();
    wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 1, b"");
    wire.message();
    answers
}

/// Clears the characters after the end of a text: C sends remains of longer texts there.
fn clear_remains(header: &Header, payload: &mut [u8]) {
    let Some(dbr) = Dbr::from_wire(header.kind).filter(|_| header.count > 1) else { return };
    let size = dbr.size(2) - dbr.size(1);
    let mut ended = false;
    for character in payload.get_mut(dbr.value_offset()..).unwrap_or_default().chunks_mut(size) {
        ended |= character.iter().all(|byte| *byte == 0) || character.starts_with(b"0\0");
        if ended {
            character.fill(0);
        }
    }
}

fn shown((header, payload): &(Header, Vec<u8>)) -> String {
    let reading = Dbr::from_wire(header.kind).and_then(|dbr| decode::reading(dbr, header.count, payload).ok());
    let reading = reading.map(|reading| format!("{:?} {:?} {:?}", reading.value, reading.alarm, reading.meta));
    format!("status {:#x} count {} {}", header.p1, header.count, reading.unwrap_or_else(|| crate::wire::hex(payload)))
}

/// C's server and ours, with the same records.
pub(crate) struct Pair {
    pub(crate) servers: [Ioc; 2],
    pub(crate) wires: [Wire; 2],
    /// Number of compared reads.
    pub(crate) compared: usize,
}

/// A field to read in all types.
pub(crate) struct Read {
    pub(crate) name: String,
    kind: &'static str,
    dbf: &'static str,
}

/// All fields of a record. Texts are also read as characters.
pub(crate) fn reads(record: &str, kind: &'static str, fields: &[Field]) -> Vec<Read> {
    let mut reads = Vec::new();
    for Field { name, dbf, .. } in fields {
        let long = matches!(*dbf, "STRING" | "INLINK" | "OUTLINK" | "FWDLINK");
        for dollar in ["", "$"].into_iter().take(1 + usize::from(long)) {
            let named = format!("{name}{dollar}");
            if !NEWER.iter().any(|(of, field, _)| *of == kind && **field == named) {
                reads.push(Read { name: format!("{record}.{named}"), kind, dbf });
            }
        }
    }
    reads
}

impl Pair {
    pub(crate) fn start(database: &str) -> Self {
        let servers = [false, true].map(|ours| Ioc::serving(ours, database));
        let wires = servers.each_ref().map(|server| Wire::open(server.port));
        Self { servers, wires, compared: 0 }
    }

    /// The differences of a field, as text; empty if there are none.
    pub(crate) fn differences(&mut self, Read { name, kind, dbf }: &Read) -> String {
        let mut different = String::new();
        let is_text = name.ends_with('$');
        let wanted = |asked| !is_left_out(kind, dbf, asked);
        let [theirs, ours] = self.wires.each_mut().map(|wire| channel(wire, name));
        // Newer definitions have fields that this version of C does not have.
        let Some(theirs) = theirs else {
            ours.into_iter().for_each(|sid| drop(answers(&mut self.wires[1], sid, is_text, wanted)));
            return different;
        };
        let ours = ours.unwrap_or_else(|| panic!("C has {name}"));
        let [theirs, ours] =
            [(0, theirs), (1, ours)].map(|(at, sid)| answers(&mut self.wires[at], sid, is_text, wanted));
        self.compared += theirs.len();
        for (asked, theirs) in theirs.iter().filter(|(asked, theirs)| **theirs != ours[asked]) {
            let [theirs, ours] = [theirs, &ours[asked]].map(shown);
            let (kind, count) = (asked / 2, asked % 2);
            writeln!(different, "{name} type {kind} count {count}\n  C     {theirs}\n  tahti {ours}").unwrap();
        }
        different
    }
}

/// Fails if there are differences. `TAHTI_DIFFERENCES` names a file for the full list.
pub(crate) fn fail_on(different: &str, compared: usize) {
    if let Ok(file) = std::env::var("TAHTI_DIFFERENCES") {
        std::fs::write(file, different).unwrap();
    }
    let count = different.lines().filter(|line| line.starts_with("  C ")).count();
    let first = different.lines().take(300).collect::<Vec<_>>().join("\n");
    assert!(different.is_empty(), "{count} of {compared} answers differ, such as\n{first}");
}

#[test]
fn every_field_of_every_type_reads_the_same_in_every_type_with_its_properties() {
    let mut pair = Pair::start(&database());
    let mut different = String::new();
    for (kind, fields) in types() {
        for tail in ["", ":u", ":e"] {
            for read in reads(&format!("X:{kind}{tail}"), kind, &fields) {
                different += &pair.differences(&read);
            }
        }
    }
    fail_on(&different, pair.compared);
}
