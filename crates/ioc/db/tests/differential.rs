//! Runs the same database and the same puts in C's softIoc and in tahti: all fields must be equal.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`, `usr/lib` and `dbd/softIoc.dbd`; `cargo xtask test epics`
//! installs it. Each case is a `.db` in `tests/cases`. Its lines `#! put NAME VALUE`, `#! wait SECONDS` and `#! dump`
//! are its steps. Further cases are generated.

use base::{Array, DurNs, EventMask, MonoNs, Scalar, Stamp, Value};
use db::{Channel, Db, Macros, Now, QueueId, RemoteId, RemoteRequest, ScanGroup};
use std::collections::HashMap;
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A step of a case after the start.
#[derive(Clone, Debug)]
enum Step {
    Put(String, String),
    Wait(f64),
    Dump,
}

/// Fields whose values do not depend on the database (addresses, order of threads, fields that tahti does not support).
const NOT_COMPARED: &[&str] = &["TIME", "UTAG", "LCNT", "BKPT", "RPVT", "SADR"];

/// Records whose final state differs with several owners: a PP link that is written at run time does not process a source
/// of another thread, and numbers as text from there have six digits (docs/reference/database.md).
const NOT_ACROSS: &[(&str, &str)] = &[("corners.db", "s4."), ("links.db", "simvalue.")];

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#! "))
        .map(|line| {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "put" => {
                    let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                    Step::Put(name.to_owned(), value.to_owned())
                }
                "wait" => Step::Wait(rest.trim().parse().unwrap()),
                "dump" => Step::Dump,
                other => panic!("unknown step {other:?} in {line:?}"),
            }
        })
        .collect();
    steps.push(Step::Dump);
    steps
}

fn epics() -> PathBuf {
    let root = std::env::var("TAHTI_EPICS").expect("TAHTI_EPICS is not set; run `cargo xtask test epics`");
    PathBuf::from(root)
}

/// The names of all fields of all records of a case.
fn fields(db: &Db) -> Vec<String> {
    let mut names = Vec::new();
    for record in db.records() {
        let name = db.name_of(record);
        for field in db.fields(record) {
            let seen = field.kind.is_some() || ["VAL", "OVAL"].contains(&field.name.as_str());
            if seen && !NOT_COMPARED.contains(&field.name.as_str()) {
                names.push(format!("{name}.{}", field.name));
            }
        }
    }
    names
}

/// A program's output and errors; `None` if it hangs and must be killed.
fn said_by(mut child: Child) -> Option<(String, String)> {
    fn read(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, errors) = (read(child.stdout.take().unwrap()), read(child.stderr.take().unwrap()));
    let patience = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > patience {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((out.join().unwrap(), errors.join().unwrap()))
}

/// Runs a case in softIoc; returns the values of each dump by field.
fn theirs(file: &Path, steps: &[Step], names: &[String]) -> Vec<HashMap<String, String>> {
    let root = epics();
    let tables: String =
        include_str!("../src/rec/menus.dbd").lines().filter(|line| line.starts_with("breaktable")).collect();
    let tables_file = tempfolder().join(format!("{}.tables.dbd", file.file_stem().unwrap().to_string_lossy()));
    std::fs::write(&tables_file, tables).unwrap();
    let mut script =
        format!("dbLoadDatabase \"{}\"\ndbLoadRecords \"{}\"\niocInit\n", tables_file.display(), file.display());
    for step in steps {
        match step {
            Step::Put(name, value) => writeln!(script, "dbpf \"{name}\" \"{}\"", value.replace('"', "\\\"")).unwrap(),
            Step::Wait(seconds) => writeln!(script, "epicsThreadSleep {seconds}").unwrap(),
            Step::Dump => {
                writeln!(script, "echo TAHTI-DUMP").unwrap();
                for name in names {
                    writeln!(script, "dbgf \"{name}\"").unwrap();
                }
            }
        }
    }
    let folder = tempfolder();
    let script_file = folder.join(format!("{}.cmd", file.file_stem().unwrap().to_string_lossy()));
    std::fs::write(&script_file, script).unwrap();
    // Several run at the same time, each with its own two ports.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let start = || {
        let port = 20_000 + (std::process::id() + 2 * RUNS.fetch_add(1, Relaxed)) % 20_000;
        Command::new(root.join("usr/bin/softIoc"))
            .env("LD_LIBRARY_PATH", root.join("usr/lib"))
            .env("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO")
            .env("EPICS_CA_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CA_AUTO_ADDR_LIST", "NO")
            .env("EPICS_CAS_SERVER_PORT", port.to_string())
            .env("EPICS_CA_SERVER_PORT", port.to_string())
            .env("EPICS_CA_REPEATER_PORT", (port + 1).to_string())
            .arg("-D")
            .arg(root.join("dbd/softIoc.dbd"))
            .arg(&script_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cannot start softIoc")
    };
    // C's IOC sometimes deadlocks while it starts.
    let (text, errors) = (0..3).find_map(|_| said_by(start())).expect("softIoc hung three times");
    let mut dumps: Vec<HashMap<String, String>> = Vec::new();
    let mut asked: Option<String> = None;
    for line in text.lines() {
        if line == "TAHTI-DUMP" {
            dumps.push(HashMap::new());
            asked = None;
        } else if let Some(name) = line.strip_prefix("dbgf \"").and_then(|rest| rest.strip_suffix('"')) {
            asked = Some(name.to_owned());
        } else if ["dbpf ", "echo ", "epicsThreadSleep ", "epics>"].iter().any(|command| line.starts_with(command)) {
            asked = None;
        } else if let Some(value) = line.strip_prefix("DBF_") {
            if let (Some(name), Some(dump)) = (&asked, dumps.last_mut()) {
                let value = value.split_once(':').map_or("", |(_, value)| value).trim();
                let entry: &mut String = dump.entry(name.clone()).or_default();
                entry.push_str(&without_hex(value));
            }
        } else if let (Some(name), Some(dump)) = (&asked, dumps.last_mut()) {
            // Arrays and long texts take several lines.
            if let Some(entry) = dump.get_mut(name) {
                let more = without_hex(line);
                entry.push(' ');
                entry.push_str(&more);
            }
        }
    }
    assert!(!dumps.is_empty(), "softIoc gave no dump: {}", errors);
    dumps
}

/// Removes the hexadecimal forms of numbers, and joins blanks.
fn without_hex(text: &str) -> String {
    let mut words = Vec::new();
    let mut skip = false;
    for word in text.split_whitespace() {
        match word {
            "=" => skip = true,
            _ if skip => skip = false,
            word => words.push(word),
        }
    }
    words.join(" ")
}

fn tempfolder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The database of a case, with one owner, or divided among several as an IOC with scan groups does.
struct Fleet {
    /// The housekeeping shard, which is the directory, then the other shards.
    shards: Vec<Db>,
    queues: Vec<QueueId>,
    /// Links between shards: holder, number in the holder, source and its field.
    links: Vec<(usize, RemoteId, usize, Channel)>,
    /// Links that only write, by holder and number.
    writes: HashMap<(usize, RemoteId), (usize, Channel)>,
}

impl Fleet {
    fn start(mut db: Db, owners: usize, now: Now) -> Self {
        let scans = db.scans().into_iter().map(|scan| scan.name).chain(["Passive".into(), "Event".into()]).collect();
        let groups = if owners > 1 { vec![ScanGroup { scans, owners }] } else { Vec::new() };
        let mut shards = db.split(&groups).unwrap();
        for (number, shard) in shards.iter_mut().enumerate() {
            shard.share_signals();
            shard.init(now);
            db.learn(number, shard);
        }
        db.init(now);
        shards.insert(0, db);
        let queues = shards.iter_mut().map(|shard| shard.open_queue(10_000)).collect();
        Self { shards, queues, links: Vec::new(), writes: HashMap::new() }
    }

    fn find(&self, name: &str) -> Option<(usize, Channel)> {
        let channel = self.shards[0].find(name).ok()?;
        match self.shards[0].location_of(channel.record) {
            Some(location) => Some((location.shard + 1, self.shards[location.shard + 1].find(name).ok()?)),
            None => Some((0, channel)),
        }
    }

    /// Processes everything that is due, and its effects in other shards.
    fn pass(&mut self, now: Now) {
        for _ in 0..20 {
            for at in 0..self.shards.len() {
                self.shards[at].advance(now, 10_000);
                self.relay(at, now);
            }
        }
    }

    /// Passes the signals of a shard on to the others, as the IOC's network thread does.
    fn relay(&mut self, from: usize, now: Now) {
        while let Some(signal) = self.shards[from].next_signal() {
            (0..self.shards.len()).filter(|at| *at != from).for_each(|at| self.shards[at].take_signal(&signal));
        }
        while let Some(request) = self.shards[from].next_remote() {
            match request {
                RemoteRequest::Connect { id, name, monitor, .. } => {
                    let Some((source, channel)) = self.find(&name) else { continue };
                    self.writes.insert((from, id), (source, channel.clone()));
                    if !monitor {
                        self.shards[from].remote_connect(id);
                        continue;
                    }
                    let mask = EventMask::VALUE | EventMask::ALARM;
                    self.shards[source].subscribe(self.queues[source], &channel, mask, self.links.len() as u64);
                    self.links.push((from, id, source, channel.clone()));
                    let value = self.shards[source].get(&channel, usize::MAX);
                    let (alarm, stamp) =
                        (self.shards[source].alarm(channel.record), self.shards[source].stamp(channel.record).0);
                    self.shards[from].remote_update(id, value, alarm, stamp);
                }
                RemoteRequest::Put { id, value, .. } => {
                    if let Some((to, channel)) = self.writes.get(&(from, id)).cloned() {
                        let _ = self.shards[to].put(&channel, &value, now);
                    }
                }
                RemoteRequest::Get { id } => {
                    let Some((source, channel)) = self.writes.get(&(from, id)).cloned() else { continue };
                    let value = self.shards[source].get(&channel, usize::MAX);
                    let (alarm, stamp) =
                        (self.shards[source].alarm(channel.record), self.shards[source].stamp(channel.record).0);
                    self.shards[from].remote_update(id, value, alarm, stamp);
                    self.shards[from].remote_written(id, true);
                }
                RemoteRequest::Process { id } => {
                    if let Some((to, channel)) = self.writes.get(&(from, id)).cloned() {
                        self.shards[to].process_if_passive(channel.record, now);
                    }
                }
                RemoteRequest::Disconnect { .. } => {}
            }
        }
        let mut posted = Vec::new();
        self.shards[from].drain(self.queues[from], 10_000, |_, event| posted.push(event));
        for event in posted {
            let (to, id, ..) = self.links[event.token as usize];
            self.shards[to].remote_update(id, event.value, event.alarm, event.stamp);
        }
    }
}

/// Runs a case in tahti; returns the values of each dump by field.
fn ours(db: Db, owners: usize, steps: &[Step], names: &[String]) -> Vec<HashMap<String, String>> {
    let mut now = Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }, mono: MonoNs(1_000_000_000) };
    let mut fleet = Fleet::start(db, owners, now);
    let mut pass = |fleet: &mut Fleet, seconds: f64| {
        let nanos = (seconds * 1e9) as i64;
        now.mono = now.mono + DurNs(nanos);
        now.wall = now.wall.plus_nanos(nanos as u64);
        fleet.pass(now);
        now
    };
    pass(&mut fleet, 0.001);
    let mut dumps = Vec::new();
    for step in steps {
        match step {
            Step::Put(name, value) => {
                let now = pass(&mut fleet, 0.001);
                if let Some((shard, channel)) = fleet.find(name) {
                    // A refused put is part of the comparison: the field must keep its value.
                    let _ = fleet.shards[shard].put_text(&channel, value, now);
                }
                pass(&mut fleet, 0.0);
            }
            Step::Wait(seconds) => {
                for _ in 0..10 {
                    pass(&mut fleet, seconds / 10.0);
                }
            }
            Step::Dump => {
                let mut dump = HashMap::new();
                for name in names {
                    let (shard, channel) = fleet.find(name).unwrap();
                    dump.insert(name.clone(), shown(&mut fleet.shards[shard], &channel));
                }
                dumps.push(dump);
            }
        }
    }
    dumps
}

/// A field in the format of dbgf, with joined blanks.
fn shown(db: &mut Db, channel: &Channel) -> String {
    let text = |bytes: &[u8]| {
        format!(
            "\"{}\"",
            String::from_utf8_lossy(bytes).replace('\\', "\\\\").replace('"', "\\\"").replace('\'', "\\'")
        )
    };
    let info = db.info(channel);
    let words = match info.kind {
        base::FieldType::Menu | base::FieldType::Device | base::FieldType::Enum if !info.array => {
            text(db.get_text(channel).bytes())
        }
        _ => match db.get(channel, usize::MAX) {
            Value::Scalar(scalar) => one(scalar),
            Value::Array(array) if array.is_empty() => "(empty)".into(),
            Value::Array(Array::I8(bytes)) if bytes.len() > 1 => {
                let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
                text(&bytes)
            }
            Value::Array(Array::U8(bytes)) => bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" "),
            Value::Array(array) => (0..array.len()).map(|at| one(array.get(at).unwrap())).collect::<Vec<_>>().join(" "),
        },
    };
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn one(scalar: Scalar) -> String {
    match scalar {
        Scalar::String(text) => {
            format!(
                "\"{}\"",
                String::from_utf8_lossy(text.bytes()).replace('\\', "\\\\").replace('"', "\\\"").replace('\'', "\\'")
            )
        }
        Scalar::F64(value) => general(value, 12),
        Scalar::F32(value) => general(f64::from(value), 6),
        Scalar::I8(v) => v.to_string(),
        Scalar::U8(v) => v.to_string(),
        Scalar::I16(v) => v.to_string(),
        Scalar::U16(v) | Scalar::Enum(v) => v.to_string(),
        Scalar::I32(v) => v.to_string(),
        Scalar::U32(v) => v.to_string(),
        Scalar::I64(v) => v.to_string(),
        Scalar::U64(v) => v.to_string(),
    }
}

/// `%.*g`
fn general(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf".into() } else { "inf".into() };
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    if exponent < -4 || exponent >= precision as i32 {
        return format!("{}e{}{:02}", trim(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    trim(&format!("{value:.*}", (precision as i32 - 1 - exponent).max(0) as usize))
}

/// Name of a run with one owner.
const ONE: &str = "tahti";

/// Runs a case in softIoc and tahti with one owner; if `divided`, also with three owners. Returns the differences.
fn differences(file: &Path, divided: bool) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let steps = steps(&text);
    let mut db = Db::new();
    db.load_records(&text, &file.display().to_string(), &Macros::default(), &mut |_| None).unwrap();
    let names = fields(&db);
    let theirs = theirs(file, &steps, &names);
    let mut found = compare(file, &names, &theirs, &ours(db, 1, &steps, &names), ONE);
    if divided {
        let mut again = Db::new();
        again.load_records(&text, &file.display().to_string(), &Macros::default(), &mut |_| None).unwrap();
        found.extend(compare(file, &names, &theirs, &ours(again, 3, &steps, &names), "tahti with three owners"));
    }
    found
}

/// The differences between two runs of a case.
fn compare(
    file: &Path,
    names: &[String],
    theirs: &[HashMap<String, String>],
    ours: &[HashMap<String, String>],
    who: &str,
) -> Vec<String> {
    assert_eq!(theirs.len(), ours.len(), "{}: softIoc ended early", file.display());
    let mut found = Vec::new();
    for record in names.iter().filter(|name| name.ends_with(".NAME")) {
        if !theirs[0].contains_key(record) {
            found.push(format!("{}: softIoc has no {record}", file.display()));
        }
    }
    let nan = |text: &str| text.replace("-nan", "nan");
    for (dump, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
        for name in names {
            let file_name = file.file_name().unwrap().to_string_lossy();
            if who != ONE && NOT_ACROSS.iter().any(|(case, record)| file_name == *case && name.starts_with(record)) {
                continue;
            }
            // C's HASH of a text includes remains of longer texts behind its end (docs/reference/database.md).
            let record = name.split('.').next().unwrap_or_default();
            if name.ends_with(".HASH") && theirs.get(&format!("{record}.FTVL")).is_some_and(|ftvl| ftvl == "\"STRING\"")
            {
                continue;
            }
            // This version of C EPICS lacks some fields.
            let Some(wanted) = theirs.get(name).filter(|wanted| *wanted != "failed.") else { continue };
            let empty = wanted == "(empty)" && ours[name] == "\"\"";
            if nan(wanted) != nan(&ours[name]) && !empty {
                found.push(format!("{file_name} dump {dump} {name}: softIoc {wanted}, {who} {}", ours[name]));
            }
        }
    }
    found
}

#[test]
fn hand_made_databases_end_equal_in_all_fields() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let found: Vec<String> = files.iter().flat_map(|file| differences(file, true)).collect();
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

mod generate;

/// Runs generated cases, `cases` of them from the first. `TAHTI_FIRST` and `TAHTI_CASES` override both numbers.
fn generated(name: &str, database: fn(u64) -> String, cases: u64, divided: bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("TAHTI_FIRST").unwrap_or(1), number("TAHTI_CASES").unwrap_or(cases));
    let next = AtomicU64::new(first);
    let found = Mutex::new(Vec::new());
    // softIoc mostly waits, so eight threads run cases.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for seed in std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < first + count))
                {
                    let file = tempfolder().join(format!("{name}{seed}.db"));
                    std::fs::write(&file, database(seed)).unwrap();
                    found.lock().unwrap().extend(differences(&file, divided));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort();
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

#[test]
fn generated_databases_end_equal_in_all_fields() {
    generated("generated", generate::database, 30, true);
}

/// Links that are written at run time are asynchronous between owners, and so are their effects. Therefore one owner only.
#[test]
fn generated_databases_of_all_types_end_equal_in_all_fields() {
    generated("wide", generate::wide::database, 60, false);
}
