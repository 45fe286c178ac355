//! Compatibility survey of a site's folder: databases, scripts, protocols and other files, each parsed separately.
//!
//! Nothing is executed. A macro without a value gets its own name as value. Errors on lines with macros are ignored, because
//! the site's values may be valid.

use super::load::text_of;
use super::{commands, look, modules, words};
use crate::devices::{Devices, asyn};
use db::{Db, FileError, Macros, Schema};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum depth of folders.
const DEPTH_MAX: usize = 32;
/// Maximum number of files.
const FILES_MAX: usize = 200_000;

/// Remedy for functions in C.
const COMPILE: &str =
    "compile its source: tahti ioc --headers DIR, then cc -shared -fPIC -I DIR -o NAME.so NAME.c, then dlload NAME.so";

/// Interpreters of scripts other than IOC scripts.
const OTHERS: [&str; 4] = ["sh", "python", "python3", "perl"];

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "its own words")]
pub enum Kind {
    Database,
    Substitutions,
    Script,
    Protocol,
    Request,
    Access,
    StateMachine,
}

/// Support level of a record, command or device type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Supported.
    Works,
    /// The record loads, but a driver or function in C is missing. For commands: tahti has no need for it, or a replacement.
    WithoutDriver,
    /// The record loads, but its driver is compiled C code by nature: its DTYP is not one of EPICS base, asyn, StreamDevice,
    /// synApps or tahti, or its parameter is one of a compiled asyn driver.
    CDriver,
    /// The record type, device type or command does not exist.
    Missing,
}

/// Usage of a record type, device type or command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its support level.
    pub fate: Fate,
    /// Number of records or calls.
    pub count: usize,
    /// Number of files with it.
    pub files: usize,
    /// Reason and replacement if it is not supported; may be empty.
    pub why: &'static str,
}

/// Number of files of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// All files.
    pub all: usize,
    /// Files with rejected parts.
    pub refused: usize,
}

/// Result of a survey.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Files by kind.
    pub files: BTreeMap<Kind, Files>,
    /// Number of records by support level.
    pub records: BTreeMap<Fate, usize>,
    /// Number of records by record type and support level.
    pub record_types: BTreeMap<String, BTreeMap<Fate, usize>>,
    /// Usage of each DTYP in records. A function in C counts as one.
    pub device_types: BTreeMap<String, Use>,
    /// Usage of each command in scripts.
    pub commands: BTreeMap<String, Use>,
    /// Errors, with positions.
    pub refused: Vec<FileError>,
    /// Unreadable folders and files, with the reason.
    pub unread: Vec<String>,
}

impl Kind {
    /// Kind of a file, from its name; `None` for other files.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let (_, suffix) = name.rsplit_once('.')?;
        Some(match suffix {
            "db" | "template" | "vdb" => Self::Database,
            "substitutions" | "subs" | "sub" => Self::Substitutions,
            "cmd" | "iocsh" => Self::Script,
            "proto" | "protocol" => Self::Protocol,
            "req" => Self::Request,
            "acf" => Self::Access,
            "st" | "stt" => Self::StateMachine,
            _ => return None,
        })
    }

    /// Name of this kind of file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database => "databases, templates",
            Self::Substitutions => "substitutions",
            Self::Script => "scripts",
            Self::Protocol => "protocols",
            Self::Request => "request files",
            Self::Access => "access files",
            Self::StateMachine => "state machines (SNL)",
        }
    }
}

/// Files of a site by name, to resolve includes.
struct Site {
    by_name: BTreeMap<String, Vec<PathBuf>>,
    schema: Schema,
}

impl Site {
    /// Text of an included file: next to the including file, or anywhere in the site.
    fn included(&self, from: &Path, name: &str) -> Option<String> {
        let beside = from.parent().unwrap_or_else(|| Path::new("")).join(name);
        text_of(&beside).ok().or_else(|| text_of(self.find(name)?).ok())
    }

    fn find(&self, name: &str) -> Option<&Path> {
        let name = Path::new(name).file_name()?.to_str()?;
        self.by_name.get(name)?.first().map(PathBuf::as_path)
    }
}

/// Surveys a site's folder.
///
/// # Errors
/// If the folder cannot be read.
pub fn survey(folder: &Path) -> std::io::Result<Survey> {
    let mut survey = Survey::default();
    std::fs::read_dir(folder)?;
    let mut files = Vec::new();
    walk(folder, 0, &mut files, &mut survey.unread);
    let mut db = Db::new();
    Devices::default().register(&mut db);
    let mut site = Site { by_name: BTreeMap::new(), schema: db.schema().clone() };
    for (_, path) in &files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        site.by_name.entry(name).or_default().push(path.clone());
    }
    for (kind, path) in &files {
        let shown = path.strip_prefix(folder).unwrap_or(path).display().to_string();
        let text = match text_of(path) {
            Ok(text) => text,
            Err(why) => {
                survey.unread.push(format!("{shown}: {why}"));
                continue;
            }
        };
        let before = survey.refused.len();
        survey.file(*kind, path, &shown, &text, &site);
        let count = survey.files.entry(*kind).or_default();
        count.all += 1;
        count.refused += usize::from(survey.refused.len() > before);
    }
    Ok(survey)
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<(Kind, PathBuf)>, unread: &mut Vec<String>) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return unread.push(format!("{}: {error}", folder.display())),
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Symbolic links are not followed, because they may form a loop.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth >= DEPTH_MAX {
            unread.push(format!("{}: more than {DEPTH_MAX} folders deep", path.display()));
        } else if kind.is_dir() {
            walk(&path, depth + 1, files, unread);
        } else if let Some(kind) = Kind::of(&path).filter(|_| kind.is_file()) {
            match files.len() {
                FILES_MAX => return unread.push(format!("{}: more than {FILES_MAX} files", folder.display())),
                _ => files.push((kind, path)),
            }
        }
    }
}

impl Survey {
    fn file(&mut self, kind: Kind, path: &Path, shown: &str, text: &str, site: &Site) {
        match kind {
            Kind::Database => self.database(path, shown, text, site),
            Kind::Substitutions => self.substitutions(path, shown, text, site),
            Kind::Script => self.script(shown, text),
            Kind::Protocol => {
                let bytes = base::raw::encode(text);
                let read = fieldbus::stream::File::parse(&bytes, shown);
                self.refused.extend(read.err().map(|error| {
                    let place = db::Position { line: error.line as u32, column: error.column as u32 };
                    FileError { file: error.file, place, what: error.what }
                }));
            }
            // Comments of BURT, a client whose request files have the same suffix.
            Kind::Request if text.lines().any(|line| line.starts_with('%')) => {}
            Kind::Request => {
                let mut include = |name: &str| site.included(path, name);
                let macros = placeholders(text);
                let read = db::parse_request(text, shown, &macros, &mut include);
                self.refuse(shown, text, read.complaints);
            }
            Kind::Access => {
                let read = db::Security::parse(text, shown, &placeholders(text));
                self.refuse(shown, text, read.err());
            }
            Kind::StateMachine => {
                let mut include = |_: &str, name: &str| Some((name.to_owned(), site.included(path, name)?));
                let read = snl::parse(text, shown, &mut include);
                self.refused.extend(read.err().into_iter().flat_map(|errors| errors.0).map(|error| FileError {
                    place: db::Position { line: error.line, column: 1 },
                    what: error.explained(),
                    file: error.file,
                }));
            }
        }
    }

    /// Stores the errors of a file, except those on lines with macros.
    fn refuse(&mut self, shown: &str, text: &str, errors: impl IntoIterator<Item = FileError>) {
        let lines: Vec<&str> = text.lines().collect();
        let certain = |error: &FileError| {
            let line = lines.get((error.place.line as usize).saturating_sub(1)).copied().unwrap_or_default();
            error.file == shown && !line.contains("$(") && !line.contains("${")
        };
        self.refused.extend(errors.into_iter().filter(certain));
    }

    fn database(&mut self, path: &Path, shown: &str, text: &str, site: &Site) {
        let macros = placeholders(text);
        let (records, _) = db::outline(text, shown, &macros);
        let mut seen: Vec<String> = Vec::new();
        for record in records.into_iter().filter(|record| !matches!(&*record.record_type, "*" | "#")) {
            let Some(kind) = site.schema.type_index(&record.record_type) else {
                self.count(record.record_type, Fate::Missing);
                continue;
            };
            let devices = &site.schema.types[kind].devices;
            // The value of a DTYP given by a macro depends on the site.
            let uses_macro = text.contains("$(") && macros.contains(&record.dtyp);
            let device = match record.dtyp.as_str() {
                _ if record.has_function => Some(("function in C (SNAM, INAM)".to_owned(), Fate::WithoutDriver)),
                "" => None,
                _ if uses_macro => None,
                name if devices.iter().any(|device| device.name == name) => {
                    let is_open = |info: &str| text.contains("$(") && macros.contains(info);
                    match asyn::has_driver(name, &record.link, is_open) {
                        Some(false) => Some((format!("{name} of a C driver"), Fate::CDriver)),
                        Some(true) | None => Some((name.to_owned(), Fate::Works)),
                    }
                }
                name => Some((name.to_owned(), fate_of_device(name))),
            };
            self.count(record.record_type, device.as_ref().map_or(Fate::Works, |(_, fate)| *fate));
            if let Some((name, fate)) = device {
                let known = self.device_types.entry(name.clone());
                let why = if record.has_function { COMPILE } else { "" };
                let one = known.or_insert(Use { fate, count: 0, files: 0, why });
                one.count += 1;
                // The same DTYP may be supported for another record type.
                one.fate = one.fate.min(fate);
                if !seen.contains(&name) {
                    one.files += 1;
                    seen.push(name);
                }
            }
        }
        let mut db = Db::new();
        Devices::default().register(&mut db);
        let loaded = db.load_records(text, shown, &macros, &mut |name| site.included(path, name));
        let errors = loaded.err().into_iter().flat_map(|errors| errors.0);
        // The types are already counted above. The record of an alias may be in another file.
        let is_certain = |what: &str| {
            let is_alias = what.starts_with("no record \"") && what.contains(" to give the alias ");
            !is_alias && !what.starts_with("no record type ") && !what.contains(".DTYP cannot be ")
        };
        self.refuse(shown, text, errors.filter(|error| is_certain(&error.what)));
    }

    fn count(&mut self, record_type: String, fate: Fate) {
        *self.records.entry(fate).or_default() += 1;
        *self.record_types.entry(record_type).or_default().entry(fate).or_default() += 1;
    }

    fn substitutions(&mut self, path: &Path, shown: &str, text: &str, site: &Site) {
        let instances = match db::parse_substitutions(text, shown) {
            Ok(instances) => instances,
            Err(error) => return self.refuse(shown, text, [error]),
        };
        let mut asked: Vec<String> = Vec::new();
        for one in instances {
            self.refused.extend(one.surplus);
            let is_open = one.file.contains('$');
            if is_open || asked.contains(&one.file) || site.included(path, &one.file).is_some() {
                continue;
            }
            let what = format!("the template \"{}\" is not in this folder", one.file);
            self.refused.push(FileError { file: shown.to_owned(), place: one.place, what });
            asked.push(one.file);
        }
    }

    fn script(&mut self, shown: &str, text: &str) {
        let first = text.lines().next().unwrap_or_default().trim_end();
        if first.starts_with("#!") && OTHERS.iter().any(|name| first.ends_with(name)) {
            return;
        }
        let mut seen: Vec<String> = Vec::new();
        let macros = placeholders(text);
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            // A command name given by a macro depends on the site.
            if line.is_empty() || line.starts_with(['#', '$']) {
                continue;
            }
            let words = match words::split(&macros.expand(line).0) {
                Ok(split) => split.words,
                Err(what) => {
                    let place = db::Position { line: number as u32 + 1, column: 1 };
                    self.refuse(shown, text, [FileError { file: shown.to_owned(), place, what: what.to_string() }]);
                    continue;
                }
            };
            let Some(name) = words.first() else { continue };
            let (fate, why) = fate_of(name);
            let one = self.commands.entry(name.clone()).or_insert(Use { fate, count: 0, files: 0, why });
            one.count += 1;
            if !seen.contains(name) {
                one.files += 1;
                seen.push(name.clone());
            }
        }
    }
}

/// Support level of a DTYP that tahti does not have.
fn fate_of_device(name: &str) -> Fate {
    // Interfaces with a public definition, which need no driver of a manufacturer.
    const PUBLIC: [&str; 7] =
        ["asyn*Array*", "asyn*Average", "asyn*TimeSeries", "asynOctet*", "asynInt*", "asyn ?? stringParm", "*Soft*"];
    if PUBLIC.iter().any(|pattern| base::glob(pattern, name)) { Fate::WithoutDriver } else { Fate::CDriver }
}

/// Support level of a command, and the reason.
fn fate_of(name: &str) -> (Fate, &'static str) {
    let resolved = modules::resolved(name);
    if name == "exit" || commands::all().any(|command| command.name == resolved) {
        return (Fate::Works, "");
    }
    match look::absent(name).or_else(|| modules::absent(name)) {
        Some(why) => (Fate::WithoutDriver, why),
        None => (Fate::Missing, ""),
    }
}

/// Macros with their own names as values, for each macro that a text uses without a value.
fn placeholders(text: &str) -> Macros {
    let mut macros = Macros::default();
    for name in db::undefined_macros(text) {
        macros.set(&name, &name);
    }
    macros
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A folder for this test, removed afterwards.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder = std::env::temp_dir().join(format!("site-{name}-{}", std::process::id()));
            for (file, text) in files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_record_and_command_of_a_site_is_counted_by_its_result() {
        let folder = Folder::new(
            "counts",
            &[
                (
                    "Db/a.template",
                    "record(ai, \"$(P)a\") { field(DTYP, \"asynInt32\") field(PREC, \"$(PREC)\") }\n\
                     record(ao, \"$(P)b\") { field(DTYP, \"stream\") }\nrecord(ai, \"$(P)c\") { field(DTYP, \"$(D)\") }\n\
                     record(scanparm, \"$(P)m\") { field(NPTS, \"1\") }\nrecord(sub, \"$(P)s\") { field(SNAM, \"f\") }\n\
                     record(bo, \"$(P)d\") {\nfield(ZNAMM, \"typo\")\n}\n",
                ),
                (
                    "Db/a.substitutions",
                    "file \"a.template\" { {P=X:} }\nfile \"gone.template\" { {P=X:} }\nfile \"a.template\" { pattern {P} {X:, 2} }\n",
                ),
                (
                    "iocBoot/st.cmd",
                    "#!../../bin/x/app\ndbLoadRecords(\"Db/a.template\")\nasynSetTraceMask(\"A\",0,9)\n< $(TOP)/other.cmd\n$(RUN)x(1)\nmine(1)\nmine(2)\n",
                ),
                ("notes.txt", "record(x"),
            ],
        );
        let found = survey(&folder.0).unwrap();
        let counts = [(Fate::Works, 3), (Fate::WithoutDriver, 1), (Fate::CDriver, 1), (Fate::Missing, 1)];
        assert_eq!(found.records, BTreeMap::from(counts));
        assert_eq!(found.record_types["scanparm"], BTreeMap::from([(Fate::Missing, 1)]));
        let device = |name: &str| (found.device_types[name].fate, found.device_types[name].count);
        assert_eq!(device("asynInt32 of a C driver"), (Fate::CDriver, 1));
        assert_eq!(device("stream"), (Fate::Works, 1));
        assert!(!found.device_types.contains_key("D"));
        let command = |name: &str| (found.commands[name].fate, found.commands[name].count);
        assert_eq!(command("dbLoadRecords"), (Fate::Works, 1));
        assert_eq!(command("asynSetTraceMask"), (Fate::Works, 1));
        assert_eq!(command("mine"), (Fate::Missing, 2));
        assert_eq!(found.commands.len(), 3, "{:?}", found.commands);
        let refused: Vec<String> = found.refused.iter().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 3, "{refused:?}");
        let expected = ["\"gone.template\"", "value 2 of a pattern of 1 macros", "ZNAMM"];
        assert!(refused.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{refused:?}");
        assert_eq!(found.files[&Kind::Database], Files { all: 1, refused: 1 });
        assert_eq!(found.unread, Vec::<String>::new());
    }

    #[test]
    fn records_of_asyn_work_if_their_parameter_is_one_of_a_driver_of_tahti() {
        let record = |name: &str, dtyp: &str, link: &str| {
            format!("record(ai, \"{name}\") {{ field(DTYP, \"{dtyp}\") field(INP, \"{link}\") }}\n")
        };
        let database = [
            record("a", "asynInt32", "@asyn($(PORT),$(OFFSET))$(TYPE)"),
            record("b", "asynInt32", "@asyn($(PORT) 3)INT16"),
            record("c", "asynFloat64", "@asyn(CAM1,0,1)GAIN"),
            record("d", "asynInt32", "@asynMask($(PORT) 0 12)"),
            record("e", "asynInt32Average", "@asyn(P)"),
            record("f", "CAEN_HV", "@1 2"),
        ];
        let folder = Folder::new("asyn", &[("a.db", &database.concat())]);
        let found = survey(&folder.0).unwrap();
        let counts = [(Fate::Works, 2), (Fate::WithoutDriver, 1), (Fate::CDriver, 3)];
        assert_eq!(found.records, BTreeMap::from(counts), "{:?}", found.device_types);
    }

    #[test]
    fn aliases_of_records_in_other_files_and_request_files_of_burt_are_not_refused() {
        let folder = Folder::new(
            "others",
            &[
                ("alias.db", "alias(\"X:a\", \"X:b\")\nrecord(ai, \"X:c\") { field(NONE, \"1\") }\n"),
                ("burt.req", "% settings\nX:a.VAL\n#include \"more.req\"\n"),
                ("auto.req", "X:a.VAL\n~\n"),
            ],
        );
        let refused = survey(&folder.0).unwrap().refused;
        let places: Vec<_> = refused.iter().map(|error| (error.file.as_str(), error.place.line)).collect();
        assert_eq!(places, [("alias.db", 2), ("auto.req", 2)]);
    }

    #[test]
    fn a_line_that_depends_on_unknown_macros_is_not_refused() {
        let folder = Folder::new(
            "macros",
            &[("a.db", "record(ai, \"$(P)\") {\n  field(SCAN, \"$(SCAN)\")\n  field(SCAN, \"5 hour\")\n}\n")],
        );
        let refused = survey(&folder.0).unwrap().refused;
        assert_eq!(refused.iter().map(|error| error.place.line).collect::<Vec<_>>(), [3]);
    }
}
