//! Loading of databases, templates and definitions, and the search for included files.

use super::{Failed, IocState, Shell, StatusRecords, dump, look, variables};
use crate::engine::Engine;
use crate::{health, scanstats};
use db::Macros;
use std::fs;
use std::path::{Path, PathBuf};

/// Mark that some editors write at the beginning of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Maximum size of a script or database file.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Registrars of softIoc's `.dbd`, all of which are built in.
const BASE_REGISTRARS: &[&str] = &[
    "arrInitialize",
    "asSub",
    "dbndInitialize",
    "decInitialize",
    "dlloadRegistar",
    "iocshSystemCommand",
    "rsrvRegistrar",
    "syncInitialize",
    "tsInitialize",
    "utagInitialize",
];

/// Templates compiled into the program.
const BUILTIN: &[(&str, &str)] = &[
    ("exit.db", include_str!("../templates/exit.db")),
    ("iocAdminSoft.db", include_str!("../templates/iocAdminSoft.db")),
    ("scanStats.db", include_str!("../templates/scanStats.db")),
    ("save_restoreStatus.db", include_str!("../templates/save_restoreStatus.db")),
];

impl Shell {
    /// If set, a file with errors is rejected as a whole. Otherwise everything valid in it is loaded, as in C.
    ///
    /// # Errors
    /// If the IOC has ended.
    pub fn load_strictly(&mut self, strict: bool) -> Result<(), Failed> {
        self.with_db(move |db, _| db.set_strict(strict))
    }

    /// Loads a database file.
    ///
    /// # Errors
    /// If the file cannot be read or has errors. Each error has file, line and column. The rest of the file is loaded.
    pub fn load_records(&mut self, path: &str, macros: &str) -> Result<(), Failed> {
        let text = self.read_file(path)?;
        self.load_text(text, path, macros)
    }

    /// Loads a database file without starting its records.
    fn read_records(&mut self, path: &str, macros: &str) -> Result<(), Failed> {
        let text = self.read_file(path)?;
        self.read_text(text, path, macros)
    }

    /// Loads every template of a `.substitutions` file.
    ///
    /// # Errors
    /// If the file or a template cannot be read or is malformed. As in C, the other instances are loaded anyway.
    pub fn load_template(&mut self, path: &str, macros: &str) -> Result<(), Failed> {
        let text = self.read_file(path)?;
        let mut own = Macros::parse(macros);
        self.add_environment(&mut own);
        let instances = db::parse_substitutions(&text, path)?;
        let (count, mut failed) = (instances.len(), 0);
        for one in instances {
            one.surplus.iter().for_each(|surplus| eprintln!("{surplus}"));
            let all = if macros.is_empty() { one.macros } else { format!("{macros},{}", one.macros) };
            if let Err(Failed(error)) = self.read_records(&own.expand(&one.file).0, &all) {
                failed += 1;
                eprintln!("{error}\n    (instance at {path}:{}:{})", one.place.line, one.place.column);
            }
        }
        self.take_up()?;
        match failed {
            0 => Ok(()),
            _ => Err(Failed(format!("{path}: {failed} of {count} instances failed"))),
        }
    }

    /// Loads a template compiled into the program, such as `exit.db`.
    ///
    /// # Errors
    /// If the template does not exist, or its macros give invalid names.
    pub fn load_builtin(&mut self, name: &str, macros: &str) -> Result<(), Failed> {
        let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) else {
            let known = BUILTIN.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(Failed(format!("no built-in template \"{name}\", expected one of {known}")));
        };
        let given = Macros::parse(macros);
        let given = |name: &str| given.get(name).unwrap_or_default();
        let wanted = match name {
            "iocAdminSoft.db" => Some(StatusRecords::Health(given("IOC"))),
            "scanStats.db" => {
                let rate = self.known_rate(&given("SCAN"))?;
                Some(StatusRecords::Scan(format!("{}:{}", given("IOC"), given("NAME")), rate))
            }
            _ => None,
        };
        self.load_text((*text).to_owned(), name, macros)?;
        self.wanted.extend(wanted);
        self.publish()
    }

    /// Finds a periodic choice of menuScan.
    fn known_rate(&mut self, wanted: &str) -> Result<String, Failed> {
        let rates: Vec<String> = self.with_db(|db, _| db.scans().into_iter().map(|scan| scan.name).collect())?;
        if rates.iter().any(|rate| rate == wanted) {
            return Ok(wanted.to_owned());
        }
        let known = rates.join("\", \"");
        Err(Failed(format!("scanStats.db: found SCAN=\"{wanted}\", expected one of \"{known}\"")))
    }

    /// Starts the threads that update status records, once the IOC runs.
    pub(super) fn publish(&mut self) -> Result<(), Failed> {
        let IocState::Running(mailbox, ..) = &self.state else { return Ok(()) };
        let env = |name: &str| look::parameter(&self.env, name);
        for wanted in self.wanted.drain(..) {
            let mailbox = mailbox.clone();
            self.publishers.push(match wanted {
                StatusRecords::Health(prefix) => health::start(mailbox, prefix, &env)?,
                StatusRecords::Scan(prefix, rate) => scanstats::start(mailbox, prefix, rate)?,
            });
        }
        Ok(())
    }

    pub(super) fn load_text(&mut self, text: String, path: &str, macros: &str) -> Result<(), Failed> {
        let read = self.read_text(text, path, macros);
        // A file with errors may still have defined records.
        self.take_up()?;
        read
    }

    /// Starts new records in a running IOC.
    fn take_up(&mut self) -> Result<(), Failed> {
        if self.is_running() {
            self.with_engine(Engine::take_up)?;
        }
        self.print_notices().map(drop)
    }

    fn read_text(&mut self, text: String, path: &str, macros: &str) -> Result<(), Failed> {
        let mut macros = Macros::parse(macros);
        self.add_environment(&mut macros);
        let (folders, file) = (self.folders(path, ""), path.to_owned());
        self.with_db(move |db, _| {
            db.load_records(&text, &file, &macros, &mut |name| included(&folders, name)).map_err(Failed::from)
        })?
    }

    /// Adds environment variables to the macros, unless a macro of that name exists.
    pub(super) fn add_environment(&self, macros: &mut Macros) {
        for (name, value) in &self.env {
            if !macros.contains(name) {
                macros.set(name, value);
            }
        }
    }

    /// Loads a database definition: its menus and breakpoint tables. The file and its includes are searched in `folders`,
    /// separated by colons, if that is not empty.
    ///
    /// # Errors
    /// If the file cannot be read or is malformed.
    pub fn load_dbd(&mut self, path: &str, folders: &str) -> Result<(), Failed> {
        let text = self.read_file_in(path, folders)?;
        let (folders, file) = (self.folders(path, folders), path.to_owned());
        let before = self.code()?;
        self.with_db(move |db, _| {
            db.load_dbd(&text, &file, &mut |name| included(&folders, name)).map_err(Failed::from)
        })??;
        let missing: Vec<String> = self.code()?.into_iter().filter(|line| !before.contains(line)).collect();
        if !missing.is_empty() {
            eprintln!("{path} refers to C code, which tahti does not load: {}", missing.join("; "));
        }
        self.print_notices().map(drop)
    }

    /// C code declared in `.dbd` files that softIoc does not have.
    fn code(&mut self) -> Result<Vec<String>, Failed> {
        self.with_db(|db, _| {
            let schema = db.schema();
            let named = |word: &'static str, at: usize| {
                schema.declared(word).filter_map(move |names| Some((word, names.get(at)?.as_str())))
            };
            let devices = schema.declared("device").filter_map(|names| Some((names.first()?, names.get(3)?)));
            let devices = devices.map(|(of, name)| format!("device \"{name}\" of {of}"));
            let others =
                named("driver", 0).chain(named("registrar", 0)).chain(named("function", 0)).chain(named("variable", 0));
            let others = others.chain(named("link", 0)).filter(|(word, name)| match *word {
                "variable" => !variables::is_known(name),
                "link" => !dump::LINKS.contains(name),
                _ => !BASE_REGISTRARS.contains(name),
            });
            devices.chain(others.map(|(word, name)| format!("{word} {name}"))).collect()
        })
    }

    pub(super) fn read_file(&self, path: &str) -> Result<String, Failed> {
        self.read_file_in(path, "")
    }

    fn read_file_in(&self, path: &str, folders: &str) -> Result<String, Failed> {
        let found = self.find_file(path, folders);
        text_of(&found).map_err(|error| Failed(format!("{path}: {error}")))
    }

    /// Path of a file. A name without a folder is searched in `folders`, or in `EPICS_DB_INCLUDE_PATH`.
    fn find_file(&self, path: &str, folders: &str) -> PathBuf {
        let plain = PathBuf::from(path);
        if path.contains('/') || folders.is_empty() && plain.exists() {
            return plain;
        }
        let mut sought = self.search_path(folders).map(|folder| folder.join(path));
        sought.find(|found| found.exists()).unwrap_or(plain)
    }

    /// The given folders, or those of `EPICS_DB_INCLUDE_PATH`.
    fn search_path<'a>(&'a self, folders: &'a str) -> impl Iterator<Item = &'a Path> {
        let folders = match folders {
            "" => self.env.get("EPICS_DB_INCLUDE_PATH").map_or("", String::as_str),
            folders => folders,
        };
        folders.split(':').filter(|folder| !folder.is_empty()).map(Path::new)
    }

    /// Folders to search for included files: as in C, first the search path, then the folder of the including file.
    fn folders(&self, path: &str, folders: &str) -> Vec<PathBuf> {
        let beside = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
        self.search_path(folders).chain([beside, Path::new("")]).map(Path::to_owned).collect()
    }
}

/// Text of an included file.
fn included(folders: &[PathBuf], name: &str) -> Option<String> {
    folders.iter().map(|folder| folder.join(name)).find_map(|path| existing(&path))
}

/// Text of a file that may be missing. A file that exists and cannot be read is reported.
pub(super) fn existing(path: &Path) -> Option<String> {
    match text_of(path) {
        Ok(text) => Some(text),
        Err(why) => {
            if path.exists() {
                super::complain(&format!("{}: {why}", path.display()));
            }
            None
        }
    }
}

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0} bytes, at most {FILE_BYTES_MAX} are read")]
    TooLarge(u64),
    #[error(transparent)]
    Encoding(#[from] table::NotUtf8),
}

/// Text of a file, without a byte order mark. Bytes that are not valid UTF-8 are preserved ([`base::raw`]); UTF-16 and UTF-32 are
/// refused.
pub(super) fn text_of(path: &Path) -> Result<String, Unreadable> {
    let size = fs::metadata(path)?.len();
    if size > FILE_BYTES_MAX {
        return Err(Unreadable::TooLarge(size));
    }
    let mut bytes = fs::read(path)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    table::one_byte_letters(&bytes)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| base::raw::decode(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latin_1_files_are_read_and_wide_encodings_refused_with_place_and_remedy() {
        let file = std::env::temp_dir().join(format!("tahti-load-{}.db", std::process::id()));
        let read = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            text_of(&file)
        };
        assert_eq!(&*base::raw::encode(&read(b"m\xb2").unwrap()), b"m\xb2");
        assert_eq!(read(b"\xef\xbb\xbfrecord").unwrap(), "record");
        for (bytes, name) in [(&b"\xff\xfer\0"[..], "utf-16"), (b"r\0\0\0e\0\0\0", "utf-32le"), (b"\0r\0e", "utf-16be")]
        {
            let why = read(bytes).unwrap_err().to_string();
            assert!(why.starts_with("line 1, column 1: ") && why.contains(&format!("`iconv -f {name} ")), "{why}");
        }
        assert!(read(b"record(\n\0").unwrap_err().to_string().starts_with("line 2, column 1: byte 0x00"));
        assert_eq!(existing(&file), None);
        fs::remove_file(&file).unwrap();
    }
}
