//! Autosave commands, with the names of the EPICS module.

use super::commands::{Command, CommandResult, arg, command, needed, number, said};
use super::{Failed, Shell};
use crate::autosave::{Autosave, Restored, SaveTrigger, Settings, files};
use crate::engine::{self, Mailbox};
use db::{Db, FileError, Macros, RequestFile, Requested, parse_request};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Settings and sets created by the commands.
#[derive(Default)]
pub(super) struct State {
    settings: Settings,
    request_folders: Vec<PathBuf>,
    pass0: Vec<String>,
    pass1: Vec<String>,
    /// Sets created before the IOC runs.
    waiting: Vec<(String, Vec<String>, SaveTrigger)>,
    /// In check mode: channels of the sets.
    requested: Vec<Requested>,
    /// In check mode: errors in request files.
    complaints: Vec<FileError>,
    /// In check mode: text of the request files that would be created.
    made: HashMap<PathBuf, String>,
    /// Shared with the functions that end the IOC.
    pub(super) running: Arc<OnceLock<Autosave>>,
    /// Result of restoring at start.
    restored: Option<Restored>,
}

/// A setting of the EPICS module that has no effect in tahti.
macro_rules! idle {
    ($name:literal) => {
        command!($name, "value", "accepted; means nothing here", |_, _| Ok(None))
    };
}

pub(super) const COMMANDS: &[Command] = &[
    command!("appendToFile", "file line", "adds a line to a file", |_, args| {
        let file = needed(args, "appendToFile file line")?;
        let mut line = base::raw::encode(arg(args, 1)).into_owned();
        line.push(b'\n');
        let opened = std::fs::File::options().append(true).create(true).open(file);
        opened.and_then(|mut file| file.write_all(&line)).map_err(|error| Failed(format!("{file}: {error}")))?;
        Ok(None)
    }),
    command!("create_manual_set", "file.req [macros]", "a set that manual_save saves", |shell, args| {
        create(shell, args, arg(args, 1), SaveTrigger::Manual)
    }),
    command!(
        "create_monitor_set",
        "file.req seconds [macros]",
        "a set saved when something has changed",
        |shell, args| { create(shell, args, arg(args, 2), SaveTrigger::Monitored(seconds(args)?)) }
    ),
    command!("create_periodic_set", "file.req seconds [macros]", "a set saved periodically", |shell, args| {
        create(shell, args, arg(args, 2), SaveTrigger::Periodic(seconds(args)?))
    }),
    command!(
        "create_triggered_set",
        "file.req channel [macros]",
        "a set saved when a channel is processed",
        |shell, args| { create(shell, args, arg(args, 2), SaveTrigger::Triggered(arg(args, 1).to_owned())) }
    ),
    command!("eraseFile", "file", "makes a file empty", |_, args| {
        let file = needed(args, "eraseFile file")?;
        std::fs::write(file, "").map_err(|error| Failed(format!("{file}: {error}")))?;
        Ok(None)
    }),
    command!("fdbrestore", "file.sav", "restores a file's values now, as a client would write them", |shell, args| {
        let name = needed(args, "fdbrestore file.sav")?;
        let path = shell.saves.settings.folder.join(name);
        let files::LoadedSet { values, complaints, .. } =
            files::load(&path)?.ok_or_else(|| Failed(format!("{}: no such file", path.display())))?;
        complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
        let mut done = 0;
        for saved in values {
            let Some(value) = saved.value else { continue };
            let own = saved.name.clone();
            let result = shell.with_record(&saved.name, move |db, now| {
                let channel = db.find(&own).map_err(|error| error.to_string())?;
                db.restore_and_process(&channel, &value, now).map_err(|error| error.to_string())
            })?;
            match result {
                Ok(()) => done += 1,
                Err(error) => eprintln!("autosave: {}: {error}", saved.name),
            }
        }
        said(shell, &format!("autosave: {done} values restored"))
    }),
    command!(
        "makeAutosaveFileFromDbInfo",
        "file.req tag",
        "a request file from the info tags of records",
        |shell, args| {
            let path = needed(args, "makeAutosaveFileFromDbInfo file.req tag")?.to_owned();
            make_request(shell, &path, needed(&args[1..], "makeAutosaveFileFromDbInfo file.req tag")?)
        }
    ),
    command!("makeAutosaveFiles", "", "info_settings.req and info_positions.req from info tags", |shell, _| {
        make_request(shell, "info_settings.req", "autosaveFields")?;
        make_request(shell, "info_positions.req", "autosaveFields_pass0")
    }),
    command!("manual_save", "file.req", "saves a set now", |shell, args| {
        let name = needed(args, "manual_save file.req")?;
        Ok(shell.saver()?.save(name).map(|()| None)?)
    }),
    command!(
        "reboot_restore",
        "file.sav",
        "as set_pass1_restoreFile: values are restored only at a start",
        |shell, args| { restore_at(shell, args, 1) }
    ),
    command!("remove_data_set", "file.req", "forgets a set", |shell, args| {
        Ok(shell.saver()?.remove(needed(args, "remove_data_set file.req")?).map(|()| None)?)
    }),
    command!(
        "save_restoreSet_DatedBackupFiles",
        "0 or 1",
        "whether copies of restored files have the date in their name",
        |shell, args| {
            shell.saves.settings.dated = number(args, 0) != 0;
            Ok(None)
        }
    ),
    command!("save_restoreSet_NumSeqFiles", "number", "how many sequence files are kept", |shell, args| {
        shell.saves.settings.sequence.0 = number(args, 0).min(10) as u32;
        Ok(None)
    }),
    command!(
        "save_restoreSet_SeqPeriodInSeconds",
        "seconds",
        "how often the next sequence file is written",
        |shell, args| {
            shell.saves.settings.sequence.1 = Duration::from_secs(number(args, 0).max(10));
            Ok(None)
        }
    ),
    command!("save_restoreSet_status_prefix", "prefix", "prefix of the status records' names", |shell, args| {
        shell.saves.settings.prefix = Some(arg(args, 0).to_owned()).filter(|prefix| !prefix.is_empty());
        Ok(None)
    }),
    command!("save_restoreShow", "[level]", "the sets and their states", |shell, _| {
        let text = shell.saver()?.show()?;
        said(shell, &text)
    }),
    command!(
        "set_pass0_restoreFile",
        "file.sav [macros]",
        "restores values before records are initialised",
        |shell, args| { restore_at(shell, args, 0) }
    ),
    command!(
        "set_pass1_restoreFile",
        "file.sav [macros]",
        "restores values after records are initialised",
        |shell, args| { restore_at(shell, args, 1) }
    ),
    command!("set_requestfile_path", "folder [folder in it]", "folder of request files", |shell, args| {
        shell.saves.request_folders.push(folder(args));
        Ok(None)
    }),
    command!("set_savefile_path", "folder [folder in it]", "where .sav files are", |shell, args| {
        let folder = folder(args);
        if !folder.is_dir() {
            return Err(Failed(format!("set_savefile_path: {} is not a folder: create it first", folder.display())));
        }
        shell.saves.settings.folder = folder;
        Ok(None)
    }),
    idle!("dbrestoreShow"),
    idle!("save_restoreSet_CAReconnect"),
    idle!("save_restoreSet_CallbackTimeout"),
    idle!("save_restoreSet_Debug"),
    idle!("save_restoreSet_FilePermissions"),
    idle!("save_restoreSet_IncompleteSetsOk"),
    idle!("save_restoreSet_NFSHost"),
    idle!("save_restoreSet_NFSMntPoint"),
    idle!("save_restoreSet_RetrySeconds"),
    idle!("save_restoreSet_UseStatusPVs"),
    idle!("set_saveTask_priority"),
];

/// The folder of two arguments: the second one is in the first one, also if it begins with a slash.
fn folder(args: &[String]) -> PathBuf {
    match (arg(args, 0), arg(args, 1)) {
        ("", within) => PathBuf::from(within),
        (folder, within) => Path::new(folder).join(within.trim_start_matches('/')),
    }
}

fn seconds(args: &[String]) -> Result<Duration, Failed> {
    let text = arg(args, 1);
    match text.parse::<u64>() {
        Ok(seconds @ 1..=1_000_000) => Ok(Duration::from_secs(seconds)),
        _ => Err(Failed(format!("found \"{text}\", expected a period from 1 to 1000000 seconds"))),
    }
}

fn restore_at(shell: &mut Shell, args: &[String], pass: u8) -> CommandResult {
    let file = needed(args, "set_pass0_restoreFile file.sav")?.to_owned();
    if shell.is_running() {
        return Err("the IOC runs already: use fdbrestore".into());
    }
    (if pass == 0 { &mut shell.saves.pass0 } else { &mut shell.saves.pass1 }).push(file);
    Ok(None)
}

fn create(shell: &mut Shell, args: &[String], macros: &str, when: SaveTrigger) -> CommandResult {
    let name = needed(args, "create_…_set file.req …")?;
    let mut all = Macros::parse(macros);
    shell.add_environment(&mut all);
    let folders =
        if shell.saves.request_folders.is_empty() { vec![PathBuf::new()] } else { shell.saves.request_folders.clone() };
    let made = &shell.saves.made;
    let mut read = |name: &str| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find_map(|path| made.get(&path).cloned().or_else(|| super::load::existing(&path)))
    };
    let text =
        read(name).ok_or_else(|| Failed(format!("{name}: no readable file in the folders of set_requestfile_path")))?;
    let RequestFile { channels, complaints } = parse_request(&text, name, &all, &mut read);
    if shell.only_checks() {
        shell.saves.requested.extend(channels);
        shell.saves.complaints.extend(complaints);
        return Ok(None);
    }
    // As in the EPICS module, the valid channels are saved.
    for complaint in &complaints {
        super::complain(&format!("autosave: {complaint}"));
        shell.faults.lack(&format!("set {name}"), format!("autosave does not save all of {name}: {complaint}"));
    }
    let channels = channels.into_iter().map(|one| one.channel).collect();
    match shell.saves.running.get() {
        Some(saver) => saver.add(name, channels, when, shell.saves.settings.clone()),
        None if shell.is_running() => {
            shell.saves.waiting.push((name.to_owned(), channels, when));
            shell.start_saver()?;
        }
        None => shell.saves.waiting.push((name.to_owned(), channels, when)),
    }
    Ok(None)
}

fn make_request(shell: &mut Shell, path: &str, tag: &str) -> CommandResult {
    let wanted = tag.to_owned();
    let names = shell.with_db(move |db, _| db.tagged(&wanted))?;
    let text = names.iter().fold(String::new(), |out, name| out + name + "\n");
    let folder = shell.saves.request_folders.first().cloned().unwrap_or_default();
    let path = folder.join(path);
    if shell.only_checks() {
        shell.saves.made.insert(path, text);
        return Ok(None);
    }
    files::write_whole(&path, &text).map_err(|error| Failed(format!("{}: {error}", path.display())))?;
    Ok(None)
}

impl Shell {
    fn saver(&self) -> Result<&Autosave, Failed> {
        self.saves.running.get().ok_or_else(|| "autosave: no set was created".into())
    }

    /// Errors in the sets to be saved and in the files to be restored.
    pub(super) fn check_saves(&self, db: &Db) -> Vec<String> {
        let missing = self.saves.requested.iter().filter_map(|one| {
            let why = db.find(&one.channel).err()?;
            let (file, place) = (one.file.clone(), one.place);
            Some(FileError { file, place, what: format!("{}: {why}", one.channel) }.to_string())
        });
        let saved = self.saves.pass0.iter().chain(&self.saves.pass1).map(|name| self.saves.settings.folder.join(name));
        let complaints = self.saves.complaints.iter().map(FileError::to_string);
        // A file that does not exist yet is created by the first save.
        complaints
            .chain(missing)
            .chain(saved.filter_map(|path| files::load(&path).err()).map(|error| error.to_string()))
            .collect()
    }

    /// Restores values, or schedules them to be restored, before the records are initialised.
    pub(super) fn restore(&mut self, db: &mut Db) {
        let files: Vec<(u8, String)> = (self.saves.pass0.drain(..).map(|file| (0, file)))
            .chain(self.saves.pass1.drain(..).map(|file| (1, file)))
            .collect();
        if files.is_empty() {
            return;
        }
        let (mut count, mut failures) = (0, Vec::new());
        for (pass, name) in files {
            let path = self.saves.settings.folder.join(&name);
            let (file, values) = match files::load(&path) {
                Ok(Some(files::LoadedSet { file, values, complaints })) => {
                    for complaint in complaints {
                        eprintln!("autosave: {complaint}; {} is used instead", file.display());
                    }
                    (file, values)
                }
                Ok(None) => {
                    eprintln!("autosave: {}: no such file; nothing is restored from it", path.display());
                    failures.push(format!("{name}: no such file"));
                    continue;
                }
                Err(error) => {
                    eprintln!("autosave: {error}; nothing is restored from it");
                    self.faults.lack(&format!("restore {name}"), format!("autosave does not restore {name}: {error}"));
                    failures.push(error.to_string());
                    continue;
                }
            };
            count += values.len();
            if pass == 0 {
                for failure in db.restore_first(&values) {
                    eprintln!("autosave: {}: {failure}", file.display());
                    self.faults.lack(
                        &format!("restore {name}"),
                        format!("autosave does not restore all of {name}: {failure}"),
                    );
                    failures.push(failure);
                }
            } else {
                db.restore_at_init(values);
            }
            if let Err(error) = files::keep_copy(&file, self.saves.settings.dated, engine::wall()) {
                eprintln!("autosave: copy of {}: {error}", file.display());
            }
        }
        let text = match &failures[..] {
            [] => format!("{count} values restored"),
            failures => format!("{}: {}", failures.len(), failures.join("; ")),
        };
        self.saves.restored = Some(Restored { is_complete: failures.is_empty(), text });
    }

    /// Starts the autosave thread, if sets were created.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start_saver(&mut self) -> Result<(), Failed> {
        if self.saves.waiting.is_empty() {
            return Ok(());
        }
        let Some(mailbox) = self.mailbox() else { return Ok(()) };
        let nothing = || Restored { is_complete: true, text: "nothing to restore".to_owned() };
        let restored = self.saves.restored.take().unwrap_or_else(nothing);
        let saver = Autosave::start(mailbox, self.saves.settings.clone(), restored, self.faults.clone())?;
        for (name, channels, when) in self.saves.waiting.drain(..) {
            saver.add(&name, channels, when, self.saves.settings.clone());
        }
        // An IOC starts autosave once.
        let _ = self.saves.running.set(saver);
        Ok(())
    }

    fn mailbox(&self) -> Option<Mailbox> {
        match &self.state {
            super::IocState::Running(mailbox, ..) => Some(mailbox.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_argument_of_a_path_is_in_the_first_one_also_with_a_slash() {
        let of = |first: &str, second: &str| folder(&[first.to_owned(), second.to_owned()]);
        for (first, second) in
            [("/top", "autosave"), ("/top", "/autosave"), ("/top/", "/autosave"), ("/top/", "autosave")]
        {
            assert_eq!(of(first, second), Path::new("/top/autosave"), "{first} {second}");
        }
        assert_eq!(of("/top", ""), Path::new("/top"));
        assert_eq!(of("", "/autosave"), Path::new("/autosave"));
        assert_eq!(of("", "autosave"), Path::new("autosave"));
        assert_eq!(folder(&["/top".to_owned()]), Path::new("/top"));
    }

    #[test]
    fn a_file_is_emptied_and_gets_lines() {
        let file = std::env::temp_dir().join(format!("tahti-append-{}.req", std::process::id()));
        let mut shell = Shell::new(false, []);
        for line in ["eraseFile", "appendToFile", "appendToFile", "eraseFile", "appendToFile"] {
            shell.run_line(&format!("{line} \"{}\" \"A.VAL\"", file.display())).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "A.VAL\n");
        std::fs::remove_file(file).unwrap();
    }
}
