//! Autosave: stores selected field values in files, so that the IOC continues with them after a restart.
//!
//! A separate thread reads the fields through the engine's mailbox, a bounded number at a time. It compares them with the
//! last values and writes the files. Scans never wait for it.

pub mod files;

use crate::engine::{self, Mailbox};
use crate::faults::Faults;
use base::{Scalar, Stamp};
use db::{Saved, SavedValue};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::rounds::{ROUND, Rounds};

/// Name of the thread.
const NAME: &str = "ioc-autosave";
/// Number of fields read at a time. In between, clients and housekeeping scans are served.
const READ_MAX: usize = 100;
/// Maximum number of waiting requests.
const ASKS_MAX: usize = 64;
/// Period at which channels that trigger a save are checked.
const TRIGGER_PERIOD: Duration = Duration::from_millis(200);
/// Period of the heartbeat.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);

/// When a set is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveTrigger {
    /// When a value has changed, at most once per period.
    Monitored(Duration),
    /// Once per period.
    Periodic(Duration),
    /// When this channel is processed and its value is not 0.
    Triggered(String),
    /// On request only.
    Manual,
}

impl SaveTrigger {
    const fn word(&self) -> &'static str {
        match self {
            Self::Monitored(_) => "monitored",
            Self::Periodic(_) => "periodic",
            Self::Triggered(_) => "triggered",
            Self::Manual => "manual",
        }
    }

    /// Code of the mode in the record `SR_n_State`.
    const fn number(&self) -> u32 {
        match self {
            Self::Periodic(_) => 1,
            Self::Triggered(_) => 2,
            Self::Monitored(_) => 12,
            Self::Manual => 0,
        }
    }
}

/// Settings of the files.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Folder of the `.sav` files.
    pub folder: PathBuf,
    /// Number of sequence files (`.sav0`, …), and the period between two of them.
    pub sequence: (u32, Duration),
    /// Whether the copy of a restored file has the date in its name.
    pub dated: bool,
    /// Prefix of the status records, if there are any.
    pub prefix: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { folder: PathBuf::from("."), sequence: (3, Duration::from_secs(60)), dated: true, prefix: None }
    }
}

/// Channels saved together in one file.
struct Set {
    /// Name of the request file.
    name: String,
    file: PathBuf,
    when: SaveTrigger,
    channels: Vec<String>,
    last: Vec<Saved>,
    due: Option<Instant>,
    sequence_due: Instant,
    sequence: u32,
    trigger: Option<Stamp>,
    written: u64,
    /// The last failure; `None` after a success.
    trouble: Option<String>,
    saved_at: Option<Stamp>,
}

/// Error of an autosave request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// No set has this name.
    #[error("there is no set \"{name}\"")]
    NoSet {
        /// The given name.
        name: String,
    },
    /// The file cannot be written. The next save tries again.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The IOC has ended, so its values are unavailable.
    #[error("the IOC has ended")]
    NoIoc,
    /// The autosave thread has ended.
    #[error("autosave has ended")]
    Ended,
}

enum SaverRequest {
    Add { name: String, channels: Vec<String>, when: SaveTrigger, settings: Settings },
    Remove { name: String, reply: SyncSender<Result<(), SaveError>> },
    Save { name: String, reply: SyncSender<Result<(), SaveError>> },
    Show { reply: SyncSender<String> },
    Stop,
}

/// Result of restoring values at the start.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Each value was restored.
    pub is_complete: bool,
    /// The number of values, or the failures.
    pub text: String,
}

/// The autosave thread. Clones are handles to the same thread.
#[derive(Clone)]
pub struct Autosave {
    sender: SyncSender<SaverRequest>,
    /// `None` after the thread has ended.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Autosave {
    /// Starts the thread. `restored` is the result of restoring at start, for the status records. Files that cannot be written
    /// are a fault of the IOC.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(mailbox: Mailbox, settings: Settings, restored: Restored, faults: Faults) -> std::io::Result<Self> {
        let (sender, requests) = sync_channel(ASKS_MAX);
        let rounds = Rounds::watch(NAME, crate::SLOW_HANGS_AFTER);
        let saver = Saver { mailbox, settings, sets: Vec::new(), beat: Instant::now(), odd: false, rounds, faults };
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(move || saver.run(&requests, &restored))?;
        Ok(Self { sender, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Adds a set and saves it for the first time.
    pub fn add(&self, name: &str, channels: Vec<String>, when: SaveTrigger, settings: Settings) {
        // A thread that has ended has reported the reason.
        let _ = self.sender.send(SaverRequest::Add { name: name.to_owned(), channels, when, settings });
    }

    /// Saves a set now and waits until it is on disk.
    ///
    /// # Errors
    /// If the set does not exist or its file cannot be written.
    pub fn save(&self, name: &str) -> Result<(), SaveError> {
        self.ask(|reply| SaverRequest::Save { name: name.to_owned(), reply })?
    }

    /// Removes a set.
    ///
    /// # Errors
    /// If the set does not exist.
    pub fn remove(&self, name: &str) -> Result<(), SaveError> {
        self.ask(|reply| SaverRequest::Remove { name: name.to_owned(), reply })?
    }

    /// Report on all sets and their state.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn show(&self) -> Result<String, SaveError> {
        self.ask(|reply| SaverRequest::Show { reply })
    }

    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> SaverRequest) -> Result<T, SaveError> {
        let (reply, answer) = sync_channel(1);
        let sent = self.sender.send(request(reply));
        sent.ok().and_then(|()| answer.recv().ok()).ok_or(SaveError::Ended)
    }

    /// Saves changed sets a last time and ends the thread. Returns when that is done, for every caller.
    pub fn stop(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else { return };
        // A thread that has ended has reported the reason.
        let _ = self.sender.send(SaverRequest::Stop);
        if thread.join().is_err() {
            eprintln!("autosave: its thread panicked; the last values may be lost");
        }
    }
}

struct Saver {
    mailbox: Mailbox,
    settings: Settings,
    sets: Vec<Set>,
    beat: Instant,
    odd: bool,
    rounds: Rounds,
    faults: Faults,
}

impl Saver {
    fn run(mut self, requests: &Receiver<SaverRequest>, restored: &Restored) {
        let status = if restored.is_complete { "Ok" } else { "Failure" };
        self.tell(&[
            ("rebootStatus", status),
            ("rebootStatusStr", &restored.text),
            ("rebootTime", &engine::wall().to_string()),
        ]);
        loop {
            self.rounds.count();
            let wait = self.next_due().saturating_duration_since(Instant::now()).min(ROUND);
            match requests.recv_timeout(wait) {
                Ok(SaverRequest::Add { name, channels, when, settings }) => self.add(name, channels, when, settings),
                Ok(SaverRequest::Remove { name, reply }) => {
                    let before = self.sets.len();
                    self.sets.retain(|set| set.name != name);
                    self.note_fault();
                    let gone = self.sets.len() < before;
                    let _ = reply.send(if gone { Ok(()) } else { Err(SaveError::NoSet { name }) });
                }
                Ok(SaverRequest::Save { name, reply }) => {
                    let found = self.sets.iter().position(|set| set.name == name);
                    let result = found.map_or(Err(SaveError::NoSet { name }), |at| self.save(at, true));
                    let _ = reply.send(result);
                }
                Ok(SaverRequest::Show { reply }) => drop(reply.send(self.show())),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(SaverRequest::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    for at in 0..self.sets.len() {
                        if self.sets[at].when != SaveTrigger::Manual {
                            let _ = self.save(at, false);
                        }
                    }
                    if let Some(trouble) = self.trouble() {
                        self.faults
                            .lack("autosave at the end", format!("autosave did not save the last values: {trouble}"));
                    }
                    return;
                }
            }
            self.run_due();
        }
    }

    fn next_due(&self) -> Instant {
        let sets = self.sets.iter().filter_map(|set| set.due);
        let beat = self.settings.prefix.is_some().then_some(self.beat);
        sets.chain(beat).min().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    fn add(&mut self, name: String, channels: Vec<String>, when: SaveTrigger, settings: Settings) {
        self.settings = settings;
        if let Some(text) = missing(&self.read(&channels).unwrap_or_default()) {
            eprintln!("autosave: {name}: {text}");
            self.faults.lack(&format!("set {name}"), format!("autosave does not save all of {name}: {text}"));
        }
        let file = self.settings.folder.join(format!("{}.sav", name.strip_suffix(".req").unwrap_or(&name)));
        self.sets.retain(|set| set.name != name);
        let now = Instant::now();
        self.sets.push(Set {
            name,
            file,
            when,
            channels,
            last: Vec::new(),
            due: Some(now),
            sequence_due: now + self.settings.sequence.1,
            sequence: 0,
            trigger: None,
            written: 0,
            trouble: None,
            saved_at: None,
        });
        let at = self.sets.len() - 1;
        if matches!(self.sets[at].when, SaveTrigger::Manual) {
            self.sets[at].due = None;
        }
        self.tell_set(at);
    }

    fn run_due(&mut self) {
        let now = Instant::now();
        for at in 0..self.sets.len() {
            let set = &mut self.sets[at];
            if set.due.is_none_or(|due| due > now) {
                continue;
            }
            let (period, always) = match &set.when {
                SaveTrigger::Monitored(period) => (*period, false),
                SaveTrigger::Periodic(period) => (*period, true),
                SaveTrigger::Triggered(channel) => {
                    let (channel, seen) = (channel.clone(), set.trigger);
                    let stamp = self.triggered(&channel);
                    let set = &mut self.sets[at];
                    set.due = Some(now + TRIGGER_PERIOD);
                    set.trigger = stamp.or(seen).or(Some(Stamp::default()));
                    // The first reading only stores the channel's current stamp.
                    if seen.is_some() && stamp.is_some() && stamp != seen {
                        let _ = self.save(at, true);
                    }
                    continue;
                }
                SaveTrigger::Manual => continue,
            };
            // A failure is displayed, and the save is tried again in the next period.
            let _ = self.save(at, always);
            self.sets[at].due = Some(now + period);
        }
        if self.settings.prefix.is_some() && self.beat <= now {
            self.beat = now + HEARTBEAT_PERIOD;
            self.odd = !self.odd;
            let (status, text) = self.trouble().map_or(("Ok", "Ok"), |trouble| ("Failure", trouble));
            self.tell(&[("heartbeat", if self.odd { "1" } else { "0" }), ("status", status), ("statusStr", text)]);
        }
    }

    /// Time stamp of a channel, if its value is not 0.
    fn triggered(&self, channel: &str) -> Option<Stamp> {
        let name = channel.to_owned();
        let (reply, answer) = sync_channel(1);
        self.mailbox.ask(move |engine| {
            let own = name.clone();
            engine.call(
                &name,
                Box::new(move |db, _| {
                    let stamp = db.find(&own).ok().and_then(|channel| {
                        let on = db.get(&channel, 1).get(0).and_then(Scalar::to_f64).is_some_and(|value| value != 0.0);
                        on.then(|| db.stamp(channel.record).0)
                    });
                    let _ = reply.try_send(stamp);
                }),
            );
        })?;
        answer.recv().ok().flatten()
    }

    /// Saves a set if `always` is set or a value has changed.
    fn save(&mut self, at: usize, always: bool) -> Result<(), SaveError> {
        let names = self.sets[at].channels.clone();
        let values = self.read(&names).ok_or(SaveError::NoIoc)?;
        let set = &mut self.sets[at];
        if !always && set.trouble.is_none() && set.last == values {
            return Ok(());
        }
        let now = engine::wall();
        let mut result = files::save(&set.file, &values, now);
        let (count, period) = self.settings.sequence;
        if result.is_ok() && count > 0 && set.sequence_due <= Instant::now() {
            set.sequence_due = Instant::now() + period;
            result = std::fs::read_to_string(&set.file)
                .and_then(|text| files::write_whole(&files::with_suffix(&set.file, &set.sequence.to_string()), &text));
            set.sequence = (set.sequence + 1) % count;
        }
        let shown = set.file.display();
        match &result {
            Ok(()) => {
                set.last = values;
                set.written += 1;
                set.trouble = None;
                set.saved_at = Some(now);
            }
            Err(error) => {
                let text = format!("{shown}: {error}");
                if set.trouble.is_none() {
                    eprintln!("autosave: {text}; tried again at the next save");
                }
                set.trouble = Some(text);
            }
        }
        let result = result.map_err(|source| SaveError::File { file: set.file.clone(), source });
        self.tell_set(at);
        self.note_fault();
        result
    }

    /// The failure of a set.
    fn trouble(&self) -> Option<&str> {
        self.sets.iter().find_map(|set| set.trouble.as_deref())
    }

    fn note_fault(&self) {
        self.faults.set("autosave", self.trouble().map(|trouble| format!("autosave cannot write {trouble}")));
    }

    /// Reads the values of channels. Each is read by the owner of its record.
    fn read(&self, names: &[String]) -> Option<Vec<Saved>> {
        let mut all = Vec::with_capacity(names.len());
        for chunk in names.chunks(READ_MAX) {
            let wanted = chunk.to_vec();
            let (reply, answers) = channel();
            self.mailbox.ask(move |engine| {
                for (index, name) in wanted.into_iter().enumerate() {
                    let (reply, own) = (reply.clone(), name.clone());
                    engine.call(
                        &name,
                        Box::new(move |db, _| {
                            let value = db.find(&own).ok().map(|channel| db.saved(&channel));
                            let _ = reply.send((index, value));
                        }),
                    );
                }
            })?;
            let mut values: Vec<Option<SavedValue>> = vec![None; chunk.len()];
            // Ends when all owners have answered.
            for (index, value) in answers {
                values[index] = value;
            }
            all.extend(chunk.iter().cloned().zip(values).map(|(name, value)| Saved { name, value }));
        }
        Some(all)
    }

    fn show(&self) -> String {
        let mut out = format!("autosave: {} sets, files in {}\n", self.sets.len(), self.settings.folder.display());
        for set in &self.sets {
            // Before the first save, the channels have not been read yet.
            let looked = if set.last.is_empty() { self.read(&set.channels).unwrap_or_default() } else { Vec::new() };
            let missing = set.last.iter().chain(&looked).filter(|saved| saved.value.is_none()).count();
            out.push_str(&format!(
                "  {}: {}, {} channels, {missing} not found, saved {} times to {}, last {}{}\n",
                set.name,
                set.when.word(),
                set.channels.len(),
                set.written,
                set.file.display(),
                set.saved_at.map_or("never".to_owned(), |stamp| stamp.to_string()),
                set.trouble.as_ref().map_or(String::new(), |text| format!("; FAILS: {text}")),
            ));
        }
        out
    }

    fn tell_set(&self, at: usize) {
        let set = &self.sets[at];
        let missing = set.last.iter().filter(|saved| saved.value.is_none()).count();
        let (status, text) = match &set.trouble {
            Some(text) => ("Failure", text.clone()),
            None if missing > 0 => ("Warning", format!("{missing} of {} channels not found", set.channels.len())),
            None => ("Ok", "Ok".to_owned()),
        };
        let time = set.saved_at.map_or(String::new(), |stamp| stamp.to_string());
        let field = |word: &str| format!("{at}_{word}");
        self.tell(&[
            (&field("Name"), &set.name),
            (&field("State"), &set.when.number().to_string()),
            (&field("Status"), status),
            (&field("StatusStr"), &text),
            (&field("Time"), &time),
            ("recentlyStr", &format!("{}: {text}", set.name)),
        ]);
    }

    /// Writes to the status records that exist.
    fn tell(&self, fields: &[(&str, &str)]) {
        let Some(prefix) = &self.settings.prefix else { return };
        self.mailbox
            .put_texts(fields.iter().map(|(word, text)| (format!("{prefix}SR_{word}"), (*text).to_owned())).collect());
    }
}

/// The channels of a set that do not exist, for users; `None` if all exist.
fn missing(values: &[Saved]) -> Option<String> {
    const NAMES_MAX: usize = 3;
    let names: Vec<&str> =
        values.iter().filter(|saved| saved.value.is_none()).map(|saved| saved.name.as_str()).collect();
    let more = if names.len() > NAMES_MAX { ", …" } else { "" };
    let listed = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    let (count, all) = (names.len(), values.len());
    (count > 0).then(|| format!("{count} of {all} channels do not exist: {listed}{more}"))
}
