//! Random databases, reproducible by seed: a record of each type with any valid field values, links from later
//! records to earlier ones, then puts. Afterwards each field is read in all types.

use crate::fields::{Field, Pair, channel, fail_on, menus, reads, types};
use crate::wire::Wire;
use ca::wire::command;
use harness::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
    fn pick<T: Copy>(&mut self, words: &[T]) -> T {
        words[self.roll(words.len())]
    }
}

const REALS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2.5",
    "-7.25",
    "10",
    "100",
    "1000.125",
    "70000",
    "-70000",
    "3e9",
    "-3e9",
    "0.001",
    "1e300",
    "-1e-300",
    "nan",
    "inf",
    "1.23456789012",
];
const WHOLE: &[&str] =
    &["0", "1", "2", "3", "5", "7", "15", "16", "31", "-1", "-5", "100", "32767", "65535", "70000", "0x7fffffff"];
const SMALL: &[&str] = &["0", "1", "2", "3", "7"];
const TEXTS: &[&str] =
    &["", "on", "two", "7", "-3.5", "0x1f", "a text", " 12 ", "off", "MAJOR", "1e3", "fifteen letters"];
const UNITS: &[&str] = &["", "V", "mm", "millimetres/day", "%"];
const CALCS: &[&str] =
    &["A+B", "A*2-C", "A>B?C:D", "MAX(A,B,C)", "A&B|C", "(A+1)%5", "SQRT(ABS(A))", "A/B", "!A", "~A", "NINT(A/3)", "1"];
const FORMATS: &[&str] = &["%d", "%5.2f|%-4d|%s", "%s %x", "%*d %g", "%hd%%%lld", "%o %s", ""];
/// Record types that hold texts.
const OF_TEXTS: &[&str] =
    &["stringin", "stringout", "lsi", "lso", "printf", "event", "aSub", "waveform", "aai", "aao", "subArray"];
/// Link targets: fields other than the value.
const WRITTEN: &[&str] = &["", "", "", ".VAL", ".DESC", ".PROC", ".DISV", ".PREC", ".HIHI", ".UDFS"];
const DELAYS: &[&str] = &["0", "0.01", "-1"];

/// A random database.
struct Case {
    dice: Dice,
    kinds: Vec<&'static str>,
    types: BTreeMap<&'static str, Rc<[Field]>>,
    menus: BTreeMap<&'static str, Vec<&'static str>>,
    /// Whether there are channel links. C connects them in other threads, at any time around the first processing.
    over_channels: bool,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let known = known_to_c();
        let types = types().into_iter().map(|(kind, mut fields)| {
            fields.retain(|field| known.contains(&(kind.to_owned(), field.name.to_owned())));
            (kind, fields.into())
        });
        let types: BTreeMap<_, Rc<[Field]>> = types.collect();
        let mut kinds: Vec<&str> = types.keys().copied().collect();
        for last in (1..kinds.len()).rev() {
            kinds.swap(last, dice.roll(last + 1));
        }
        let over_channels = dice.roll(2) == 0;
        Self { dice, kinds, types, menus: menus(), over_channels }
    }

    /// A random field of a record. Values that C's links read from another link are excluded.
    fn field_of(&mut self, record: usize) -> &'static str {
        let read = |field: &&Field| field.dbf != "NOACCESS" && !field.dbf.ends_with("LINK");
        let fields: Vec<_> = self.types[self.kinds[record]].iter().filter(read).collect();
        fields[self.dice.roll(fields.len())].name
    }

    /// The type of a record's field.
    fn dbf(&self, record: usize, field: &str) -> Option<&'static str> {
        self.types[self.kinds[record]].iter().find(|known| known.name == field).map(|known| known.dbf)
    }

    fn input(&mut self, number: usize) -> String {
        match self.dice.roll(8) {
            // C parses array constants as JSON, which has neither "nan" nor "0x10".
            0 => self.dice.pick(&["0", "1", "-1", "2.5", "70000"]).to_owned(),
            1 => self
                .dice
                .pick(&["", "[1,2,3]", "{const:[4.5,5]}", "{calc:{expr:\"1.5\",prec:4,units:\"bits\"}}"])
                .to_owned(),
            _ if number == 0 => String::new(),
            _ => {
                let source = self.dice.roll(number);
                let field = if self.dice.roll(3) == 0 { self.field_of(source) } else { "VAL" };
                let how = if self.over_channels { [" PP", " CA", " CA"] } else { ["", " PP", " PP"] };
                let how = match (self.dice.pick(&how), self.dbf(source, field)) {
                    // C requests the name of a state at the first read. That read fails until the name has arrived.
                    (" CA", Some("ENUM" | "MENU" | "DEVICE")) if OF_TEXTS.contains(&self.kinds[number]) => " PP",
                    // C's seq reads in another thread, at an unspecified time.
                    (" PP", _) if self.kinds[number] == "seq" => "",
                    (how, _) => how,
                };
                format!("X:r{source}.{field}{how}{}", self.dice.pick(&["", " MS", " MSI", " MSS"]))
            }
        }
    }

    fn output(&mut self, number: usize) -> String {
        let later = self.kinds.len() - number - 1;
        if later == 0 || self.dice.roll(3) == 0 {
            return String::new();
        }
        let target = number + 1 + self.dice.roll(later);
        let how = if self.over_channels { [" PP", " CA", " CA"] } else { ["", " PP", " PP MS"] };
        let field = self.dice.pick(WRITTEN);
        let fields = Rc::clone(&self.types[self.kinds[target]]);
        let field = if fields.iter().any(|known| field.strip_prefix('.') == Some(known.name)) { field } else { "" };
        let how = match (self.dice.pick(&how), self.dbf(target, field.get(1..).unwrap_or("VAL"))) {
            // If a text is not a number, C writes its previous value over the channel.
            (" CA", dbf) if OF_TEXTS.contains(&self.kinds[number]) && dbf != Some("STRING") => " PP",
            (how, _) => how,
        };
        format!("X:r{target}{field}{how}")
    }

    /// A value for a field that files may set; `None` if it would make results depend on time.
    fn word(&mut self, number: usize, field: &Field) -> Option<String> {
        let kind = self.kinds[number];
        let word = match (field.name, field.dbf) {
            // C's seq writes in another thread, at an unspecified time.
            (name, "OUTLINK") if kind == "seq" && name.starts_with("LNK") => return None,
            ("SCAN" | "TPRO" | "SNAM" | "INAM" | "ONAM" | "TSEL" | "SSCN", _)
                if field.name != "ONAM" || kind == "aSub" =>
            {
                return None;
            }
            ("PINI", _) if self.over_channels => return None,
            ("PINI", _) => self.dice.pick(&["NO", "YES", "RUN", "RUNNING"]),
            ("DTYP", _) => self.dice.pick(&["Soft Channel", "Raw Soft Channel"]),
            ("HIGH", "DOUBLE") if kind == "bo" => self.dice.pick(DELAYS),
            ("ODLY" | "SDLY" | "SDEL", _) => self.dice.pick(DELAYS),
            (name, "DOUBLE") if name.starts_with("DLY") => self.dice.pick(DELAYS),
            ("AFTC" | "SMOO", _) => "0",
            ("TSE", _) => self.dice.pick(&["0", "-1", "-2", "5"]),
            ("SIZV", _) => self.dice.pick(&["0", "16", "60", "200"]),
            ("PREC", _) => self.dice.pick(&["0", "1", "3", "6", "15", "16", "20", "-1"]),
            ("EGU", _) => self.dice.pick(UNITS),
            ("CALC" | "OCAL", _) => self.dice.pick(CALCS),
            ("FMT", _) => self.dice.pick(FORMATS),
            ("NELM" | "MALM" | "NSAM" | "N" | "INDX", _) => self.dice.pick(SMALL),
            (name, "ULONG") if kind == "aSub" && name.starts_with("NO") => self.dice.pick(SMALL),
            (_, "INLINK") => return Some(self.input(number)),
            (_, "OUTLINK") => return Some(self.output(number)),
            (_, "FWDLINK") => {
                let target = self.output(number);
                return Some(target.split(['.', ' ']).next().unwrap_or_default().to_owned());
            }
            (_, "MENU") => {
                let choices = &self.menus[field.menu?];
                choices[self.dice.roll(choices.len())]
            }
            (_, "STRING") => self.dice.pick(TEXTS),
            (_, "DOUBLE" | "FLOAT") => self.dice.pick(REALS),
            (_, "DEVICE" | "NOACCESS") => return None,
            _ => self.dice.pick(WHOLE),
        };
        // Processing started by PINI may or may not be over before the next pass of PINI.
        Some(if word == "0.01" && !self.over_channels { "0" } else { word }.to_owned())
    }

    fn has_raw(&self, number: usize) -> bool {
        let with = ["ai", "ao", "bi", "bo", "mbbi", "mbbo", "mbbiDirect", "mbboDirect"];
        with.contains(&self.kinds[number])
    }

    fn definition(&mut self, number: usize) -> String {
        let kind = self.kinds[number];
        let mut text = format!("record({kind}, \"$(P)r{number}\") {{\n");
        for field in &*Rc::clone(&self.types[kind]) {
            let often = if matches!(field.dbf, "INLINK" | "OUTLINK") { 2 } else { 3 };
            if !field.is_offered || self.dice.roll(often) > 0 || field.name == "DTYP" && !self.has_raw(number) {
                continue;
            }
            if let Some(word) = self.word(number, field) {
                writeln!(text, "  field({}, {word:?})", field.name).unwrap();
            }
        }
        text.push_str("}\n");
        text
    }

    /// A field and the value to put there.
    fn put(&mut self) -> (String, String) {
        let number = self.dice.roll(self.kinds.len());
        let fields = Rc::clone(&self.types[self.kinds[number]]);
        loop {
            if self.dice.roll(2) == 0 {
                let kind = self.dice.roll(4);
                let word = self.dice.pick([REALS, WHOLE, TEXTS, &["a text that is as long as a text can be"]][kind]);
                return (format!("X:r{number}"), word.to_owned());
            }
            let field = &fields[self.dice.roll(fields.len())];
            let is_link = field.dbf.ends_with("LINK");
            if field.is_offered
                && !is_link
                && field.dbf != "DEVICE"
                && let Some(word) = self.word(number, field)
            {
                return (format!("X:r{number}.{}", field.name), word);
            }
        }
    }
}

/// The types and fields in C's definitions. Ours are newer.
fn known_to_c() -> BTreeSet<(String, String)> {
    let text = std::fs::read_to_string(harness::epics::epics().join("dbd/softIoc.dbd")).unwrap();
    let mut kind = "";
    let mut known = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("recordtype(") {
            kind = rest.split_once(')').unwrap().0;
        } else if let Some((name, _)) = line.strip_prefix("field(").and_then(|rest| rest.split_once(',')) {
            known.insert((kind.to_owned(), name.to_owned()));
        }
    }
    known
}

/// Time for C's other threads to finish the work that a put started.
const PAUSE: Duration = Duration::from_millis(40);
const PUTS: usize = 40;

fn compare(seed: u64) -> (String, usize) {
    let mut case = Case::new(seed);
    let records = case.kinds.len();
    let database: String = (0..records).map(|number| case.definition(number)).collect();
    let mut pair = Pair::start(&database);
    if case.over_channels {
        pair.servers.iter_mut().for_each(|server| {
            let connected = |said: String| said.contains(" connected") && !said.contains("not connected");
            eventually("all links are connected", || connected(server.say("dbcar").replace(", 0 not connected", "")));
        });
    }
    let (mut different, mut done) = (String::new(), String::new());
    let all = (0..records).map(|number| (format!("X:r{number}.PROC"), "1".to_owned()));
    let puts: Vec<_> = all.chain(std::iter::repeat_with(|| case.put()).take(PUTS)).collect();
    for (name, word) in puts {
        let said = pair.wires.each_mut().map(|wire| put(wire, &name, &word));
        writeln!(done, "put {name} {word:?}").unwrap();
        if said[0] != said[1] {
            writeln!(different, "said to {name} {word:?}\n  C     {:?}\n  tahti {:?}", said[0], said[1]).unwrap();
        }
        std::thread::sleep(PAUSE);
    }
    let all = case.kinds.iter().enumerate();
    // C's calcout checks its channels some time after it was processed.
    let links = |name: &str| name.len() == 4 && (name.starts_with("IN") && name.ends_with('V') || name == "OUTV");
    let left_out =
        |kind, name: &str| case.over_channels && kind == "calcout" && name.rsplit('.').next().is_some_and(links);
    let all = all.flat_map(|(number, kind)| {
        let all = reads(&format!("X:r{number}"), kind, &case.types[kind]);
        all.into_iter().filter(|read| !left_out(*kind, &read.name))
    });
    let mut found: Vec<_> =
        all.map(|read| (pair.differences(&read), read)).filter(|(text, _)| !text.is_empty()).collect();
    // Wait for pending work to end.
    for _ in 0..10 {
        if found.is_empty() {
            break;
        }
        std::thread::sleep(PAUSE);
        found.retain_mut(|(text, read)| {
            *text = pair.differences(read);
            !text.is_empty()
        });
    }
    found.iter().for_each(|(text, _)| different += text);
    if !different.is_empty() {
        different = format!("seed {seed}\n{database}{done}{different}");
    }
    (different, pair.compared)
}

/// The server's answer to a text write with completion; empty if the write succeeds.
fn put(wire: &mut Wire, name: &str, word: &str) -> Vec<String> {
    let sid = channel(wire, name).unwrap_or_else(|| panic!("no channel {name}"));
    let from = wire.seen.len();
    wire.say(command::WRITE, 0, 1, sid, 1, format!("{word}\0").as_bytes());
    wire.settle();
    wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 1, b"");
    wire.message();
    wire.seen.split_off(from)
}

/// Two cases by default. `TAHTI_FIRST` and `TAHTI_CASES` select the first case and their number.
#[test]
fn every_field_of_generated_databases_reads_the_same_in_every_type_with_its_properties() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("TAHTI_FIRST").unwrap_or(1), number("TAHTI_CASES").unwrap_or(2));
    let next = AtomicU64::new(first);
    let found = Mutex::new((String::new(), 0));
    // Four threads, because most of the time is waiting for servers.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for seed in std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < first + count))
                {
                    let (different, compared) = compare(seed);
                    let mut found = found.lock().unwrap();
                    found.0 += &different;
                    found.1 += compared;
                }
            });
        }
    });
    let (different, compared) = found.into_inner().unwrap();
    fail_on(&different, compared);
}
