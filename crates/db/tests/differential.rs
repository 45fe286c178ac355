//! The same database and the same puts in C's softIoc and here: all fields must be equal.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`, `usr/lib` and `dbd/softIoc.dbd`; `cargo xtask test epics`
//! sets it up. Each case is a `.db` in `tests/cases` whose lines `#! put NAME VALUE`, `#! wait SECONDS` and `#! dump`
//! are its steps; further cases are generated.

use base::{Array, DurNs, MonoNs, Scalar, Stamp, Value};
use db::{Db, Macros, Now};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a case does after the start.
#[derive(Clone, Debug)]
enum Step {
    Put(String, String),
    Wait(f64),
    Dump,
}

/// Fields whose values say nothing about the database (addresses, order of threads, what tahti leaves out).
const NOT_COMPARED: &[&str] = &["TIME", "UTAG", "LCNT", "BKPT", "RPVT", "SADR"];

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

/// All names of fields of all records of a case.
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

/// Runs a case in softIoc; what each dump said, by field.
fn theirs(file: &Path, steps: &[Step], names: &[String]) -> Vec<HashMap<String, String>> {
    let root = epics();
    let tables: String =
        include_str!("../src/dbd/base.dbd").lines().filter(|line| line.starts_with("breaktable")).collect();
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
    let port = 20_000 + std::process::id() % 20_000;
    let output = Command::new(root.join("usr/bin/softIoc"))
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
        .stderr(Stdio::piped())
        .output()
        .expect("cannot start softIoc");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut dumps: Vec<HashMap<String, String>> = Vec::new();
    let mut asked: Option<String> = None;
    for line in text.lines() {
        if line == "TAHTI-DUMP" {
            dumps.push(HashMap::new());
            asked = None;
        } else if let Some(name) = line.strip_prefix("dbgf \"").and_then(|rest| rest.strip_suffix('"')) {
            asked = Some(name.to_owned());
        } else if line.starts_with("dbpf ") {
            asked = None;
        } else if let Some(value) = line.strip_prefix("DBF_") {
            if let (Some(name), Some(dump)) = (&asked, dumps.last_mut()) {
                let value = value.split_once(':').map_or("", |(_, value)| value).trim();
                let entry: &mut String = dump.entry(name.clone()).or_default();
                entry.push_str(&without_hex(value));
            }
        } else if let (Some(name), Some(dump)) = (&asked, dumps.last_mut()) {
            // Arrays and long texts go on over several lines.
            if line.starts_with(' ') && dump.contains_key(name) {
                let more = without_hex(line);
                let entry = dump.get_mut(name).unwrap();
                entry.push(' ');
                entry.push_str(&more);
            }
        }
    }
    assert!(!dumps.is_empty(), "softIoc gave no dump: {}", String::from_utf8_lossy(&output.stderr));
    dumps
}

/// Numbers without their hexadecimal twins, blanks joined.
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

/// Runs a case here; what each dump says, by field.
fn ours(db: &mut Db, steps: &[Step], names: &[String]) -> Vec<HashMap<String, String>> {
    let mut now = Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }, mono: MonoNs(1_000_000_000) };
    db.init(now);
    let mut pass = |db: &mut Db, seconds: f64| {
        let nanos = (seconds * 1e9) as i64;
        now.mono = now.mono + DurNs(nanos);
        now.wall = now.wall.plus_nanos(nanos as u64);
        db.advance(now, 10_000);
        now
    };
    pass(db, 0.001);
    let mut dumps = Vec::new();
    for step in steps {
        match step {
            Step::Put(name, value) => {
                let now = pass(db, 0.001);
                if let Ok(channel) = db.find(name) {
                    // Refused puts are part of the comparison: the field must stay as it was.
                    let _ = db.put_text(&channel, value, now);
                }
                pass(db, 0.0);
            }
            Step::Wait(seconds) => {
                for _ in 0..10 {
                    pass(db, seconds / 10.0);
                }
            }
            Step::Dump => {
                let mut dump = HashMap::new();
                for name in names {
                    let channel = db.find(name).unwrap();
                    dump.insert(name.clone(), shown(db, &channel));
                }
                dumps.push(dump);
            }
        }
    }
    dumps
}

/// A field as dbgf prints it, blanks joined.
fn shown(db: &mut Db, channel: &db::Channel) -> String {
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
            Value::Array(Array::I8(bytes)) => {
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

/// Runs a case on both sides; the differences.
fn differences(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let steps = steps(&text);
    let mut db = Db::new();
    db.load_records(&text, &file.display().to_string(), &Macros::default(), &mut |_| None).unwrap();
    let names = fields(&db);
    let theirs = theirs(file, &steps, &names);
    let ours = ours(&mut db, &steps, &names);
    assert_eq!(theirs.len(), ours.len(), "{}: softIoc ended early", file.display());
    let mut found = Vec::new();
    for record in names.iter().filter(|name| name.ends_with(".NAME")) {
        if !theirs[0].contains_key(record) {
            found.push(format!("{}: softIoc has no {record}", file.display()));
        }
    }
    let nan = |text: &str| text.replace("-nan", "nan");
    for (dump, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        for name in &names {
            // Fields that this version of C EPICS lacks are not there.
            let Some(wanted) = theirs.get(name).filter(|wanted| *wanted != "failed.") else { continue };
            let empty = wanted == "(empty)" && ours[name] == "\"\"";
            if nan(wanted) != nan(&ours[name]) && !empty {
                found.push(format!(
                    "{} dump {dump} {name}: softIoc {wanted}, tahti {}",
                    file.file_name().unwrap().to_string_lossy(),
                    ours[name]
                ));
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
    let found: Vec<String> = files.iter().flat_map(|file| differences(file)).collect();
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

mod generate;

#[test]
fn generated_databases_end_equal_in_all_fields() {
    let count = std::env::var("TAHTI_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(30);
    let first: u64 = std::env::var("TAHTI_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(1);
    let mut found = Vec::new();
    for seed in first..first + count {
        let file = tempfolder().join(format!("generated{seed}.db"));
        std::fs::write(&file, generate::database(seed)).unwrap();
        found.extend(differences(&file));
    }
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}
