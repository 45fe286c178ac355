//! The flight recorder: records continuously into a bounded window, explains delays as they happen, and writes the window around
//! an event to a file without interrupting the recording.
//!
//! Its folder contains `status.json`, the windows `*.trace`, and the datagram socket `socket` ([`crate::request`]).

use crate::request::Call;
use crate::status::{LateLine, Status, StoredWindow};
use crate::{Conditions, RecordError, Recorder, RecorderSettings, facts};
use base::{CpuSet, DurNs, MonoNs};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use sys::clock::{mono_now, thread_cpu};
use trace::stored::{self, Head, Thread};
use trace::{Decoder, Explainer, Late, Merge, ProgramEvent, Summary, Window};

/// Maximum late wake-ups and culprits in the status.
const TOLD_MAX: usize = 10;
/// Maximum events of programs kept for windows; the oldest are dropped.
const PROGRAM_EVENTS_MAX: usize = 1 << 14;
/// Maximum windows waiting for their end; further ones are dropped and counted.
const PENDING_MAX: usize = 8;

/// Settings of the flight recorder.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of windows and status.
    pub folder: PathBuf,
    /// CPUs whose events are recorded completely.
    pub cpus: CpuSet,
    /// All CPUs.
    pub online: CpuSet,
    /// Size of the kernel's buffer for each of `cpus` in KiB. It must hold the events between two polls.
    pub buffer_kb: u32,
    /// Size of the window per CPU, in bytes.
    pub window_bytes: usize,
    /// Wake-ups later than this are explained, and their window is kept.
    pub above: DurNs,
    /// Cycles longer than this are explained too, if set.
    pub cycle_above: Option<DurNs>,
    /// Length of a window before its event.
    pub before: DurNs,
    /// Length of a window after its event.
    pub after: DurNs,
    /// Minimum time between windows for delays that the recorder itself finds.
    pub every: DurNs,
    /// Maximum number of windows; the oldest is removed for the next.
    pub keep: usize,
}

/// A running flight recorder.
#[derive(Debug)]
pub struct Flight {
    options: Options,
    recorder: Recorder,
    merge: Merge,
    window: Window,
    /// Events that threads themselves reported, for windows.
    program_events: VecDeque<ProgramEvent>,
    explainer: Explainer,
    threads: BTreeMap<i32, Thread>,
    /// Name of the plant's process of each of its threads.
    processes: BTreeMap<i32, String>,
    /// Selected threads that were not found, with the remedy.
    shortfall: Option<String>,
    /// Threads that the kernel's filters contain.
    named: Vec<i32>,
    pending: Vec<Pending>,
    /// Calls to explain when their whole time has been read.
    calls: Vec<Call>,
    kept: VecDeque<StoredWindow>,
    last: VecDeque<LateLine>,
    since: MonoNs,
    /// Time of the last window for a delay found by the recorder.
    own: Option<MonoNs>,
    left_out: u64,
    trouble: Option<String>,
    /// Clock source and CPUs at the start.
    conditions: Conditions,
    burnt_before: DurNs,
}

/// A window to be kept.
#[derive(Debug)]
struct Pending {
    label: String,
    reason: String,
    at: MonoNs,
}

impl Flight {
    /// Starts recording. The folder must exist and must not be used by another recorder.
    ///
    /// # Errors
    /// If the user lacks the privilege, the kernel does not support tracing, or the folder cannot be read.
    pub fn start(options: Options) -> Result<Self, RecordError> {
        let wanted = RecorderSettings {
            cpus: options.cpus,
            online: options.online,
            buffer_kb: options.buffer_kb,
            threads: Vec::new(),
            syscalls: false,
        };
        let burnt_before = thread_cpu();
        let recorder = Recorder::start(&wanted)?;
        let kept = found(&options.folder)?;
        Ok(Self {
            explainer: Explainer::new(facts(), options.above, options.cycle_above, TOLD_MAX),
            window: Window::new(options.window_bytes),
            merge: Merge::default(),
            program_events: VecDeque::new(),
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            shortfall: None,
            named: Vec::new(),
            pending: Vec::new(),
            calls: Vec::new(),
            kept,
            last: VecDeque::new(),
            since: mono_now(),
            own: None,
            left_out: 0,
            trouble: None,
            conditions: Conditions::look(),
            burnt_before,
            recorder,
            options,
        })
    }

    /// Watches exactly these threads. `shortfall`: selected threads that were not found, with the remedy; it is part of the status and
    /// of each window.
    ///
    /// # Errors
    /// The kernel's error for the previous call.
    pub fn watch(
        &mut self,
        threads: impl IntoIterator<Item = Thread>,
        shortfall: Option<String>,
    ) -> Result<(), RecordError> {
        self.threads = threads.into_iter().map(|thread| (thread.tid, thread)).collect();
        self.shortfall = shortfall;
        self.explainer.watch_only(self.threads.values().map(|thread| (thread.tid, thread.name.as_str())));
        self.threads.values().for_each(|thread| thread.watched_by(&mut self.explainer));
        let now: Vec<i32> = self.threads.keys().copied().collect();
        // Changing the filters takes up to a second.
        if now != self.named && self.recorder.may_watch() {
            self.recorder.watch(&now, false)?;
            self.named = now;
        }
        Ok(())
    }

    /// Sets the name of the plant's process of each of its threads. Culprits contain it.
    pub fn name_processes(&mut self, processes: &BTreeMap<i32, String>) {
        if self.processes != *processes {
            self.processes.clone_from(processes);
            self.explainer.name_processes(processes.clone());
        }
    }

    /// Selected threads that were not found, with the remedy.
    #[must_use]
    pub fn shortfall(&self) -> Option<&str> {
        self.shortfall.as_deref()
    }

    /// Requests that the window around `at` be kept as `label` when it is complete.
    pub fn freeze(&mut self, label: &str, reason: &str, at: MonoNs) {
        if self.pending.len() >= PENDING_MAX {
            self.left_out += 1;
            return;
        }
        let (label, reason) = (file_name(label), reason.to_owned());
        self.pending.push(Pending { label, reason, at });
    }

    /// Requests that the status attribute the time of a call when it has been read completely. Beyond the limit of pending
    /// requests, new ones are dropped and counted.
    pub fn explain(&mut self, call: Call) {
        if self.calls.len() >= PENDING_MAX {
            self.left_out += 1;
            return;
        }
        self.calls.push(call);
    }

    /// Reads events, explains delays, and keeps windows that are complete. Call it about 50 times per second. `reported` returns the
    /// new events that threads themselves reported, in order; it is called after the kernel's events have been read.
    ///
    /// # Errors
    /// The kernel's error, or if the status cannot be written. A window that cannot be written is reported in the status instead.
    pub fn look(&mut self, reported: impl FnOnce() -> Vec<ProgramEvent>) -> Result<(), RecordError> {
        let Self { recorder, merge, window, explainer, program_events, .. } = self;
        let mut keep = |lane, cpu, begin, page: &[u8]| window.push(lane, cpu, begin, page);
        let until = recorder.poll_pages(&mut keep, |lane, item| merge.push(lane, item))?;
        for event in reported() {
            merge.push(stored::PROGRAM_LANE, (event.at, event.cpu, Some((&event).into())));
            if program_events.len() == PROGRAM_EVENTS_MAX {
                program_events.pop_front();
            }
            program_events.push_back(event);
        }
        let mut lates = Vec::new();
        merge.drain(until, |item| explainer.take(&item, |late| lates.push(late.clone())));
        explainer.name_senders(crate::thread_name);
        lates.iter().for_each(|late| self.late(late));
        for call in self.calls.extract_if(.., |call| call.to <= until).collect::<Vec<_>>() {
            self.called(&call);
        }
        let due = |pending: &mut Pending| until >= pending.at + self.options.after;
        let over: Vec<Pending> = self.pending.extract_if(.., due).collect();
        if over.is_empty() {
            return Ok(());
        }
        for pending in over {
            match self.keep(&pending) {
                Ok(kept) => self.kept.push_back(kept),
                Err(why) => self.trouble = Some(why.to_string()),
            }
            self.forget();
        }
        self.tell()
    }

    /// Adds the attribution of a call to the status. Ignores threads that are not watched.
    fn called(&mut self, call: &Call) {
        let parts = self.explainer.within(call.tid, call.from, call.to);
        let cpu = sys::sched::affinity(call.tid).ok().and_then(|cpus| cpus.lowest()).unwrap_or_default();
        let (due, ran) = (call.from, call.to);
        let (occasion, stack, program_events) = (trace::Occasion::Cycle, Vec::new(), Vec::new());
        let (tid, name) = (call.tid, call.what.clone());
        let late = Late { tid, name, occasion, cpu, due, ran, parts, faults: 0, stack, program_events };
        if !late.parts.is_empty() {
            self.last.truncate(TOLD_MAX - 1);
            self.last.push_front(LateLine::of(&late));
        }
    }

    fn late(&mut self, late: &Late) {
        if !self.explainer.is_real_time(late.tid) {
            return;
        }
        self.last.truncate(TOLD_MAX - 1);
        self.last.push_front(LateLine::of(late));
        if self.own.is_some_and(|own| late.ran.0.saturating_sub(own.0) < self.options.every.0.unsigned_abs()) {
            self.left_out += 1;
            return;
        }
        self.own = Some(late.ran);
        let worst = late.worst().map_or_else(String::new, |culprit| format!(": {culprit}"));
        let reason = format!("{} ({}) {} late{worst}", late.name, late.tid, DurNs(late.delay_ns() as i64));
        self.freeze(&format!("late-{}", self.wall_ms(late.ran)), &reason, late.ran);
    }

    /// Converts to milliseconds since 1970.
    fn wall_ms(&self, at: MonoNs) -> u64 {
        at.0.saturating_add_signed(self.explainer.facts().clocks.wall) / 1_000_000
    }

    /// Writes a window to its file.
    fn keep(&self, pending: &Pending) -> Result<StoredWindow, RecordError> {
        let options = &self.options;
        let from = MonoNs(pending.at.0.saturating_sub(options.before.0.unsigned_abs()));
        let to = pending.at + options.after;
        let (facts, formats) = (self.explainer.facts(), self.recorder.formats());
        // Decoded again for the addresses of functions in it; losses here are not counted.
        let mut decoder = Decoder::new(self.recorder.header_page(), |path| formats.get(path).cloned())?;
        let mut whats = Vec::new();
        for page in self.window.between(from, to) {
            decoder.page(page.cpu, page.bytes, |_, event| whats.extend(event.map(|event| event.what)));
        }
        let named = |address| Some((address, facts.symbols.name(address)?.to_owned()));
        let head = Head {
            kernel: std::fs::read_to_string("/proc/version").unwrap_or_default().trim().to_owned(),
            little_endian: cfg!(target_endian = "little"),
            reason: pending.reason.clone(),
            at: pending.at,
            from: from.max(self.window.begin().unwrap_or(from)),
            to,
            cpus: options.cpus,
            threads: self.threads.values().cloned().collect(),
            processes: self.processes.clone(),
            shortfall: self.shortfall.clone(),
            above: options.above,
            cycle_above: options.cycle_above,
            hypervisor: facts.hypervisor,
            idle_exit_ns: facts.idle_exit_ns.clone(),
            clocks: facts.clocks,
            header_page: self.recorder.header_page().to_owned(),
            formats: formats.clone(),
            functions: stored::addresses(whats.into_iter()).into_iter().filter_map(named).collect(),
            lost: self.recorder.lost(),
            program_events: self
                .program_events
                .iter()
                .filter(|event| (from..=to).contains(&event.at))
                .cloned()
                .collect(),
        };
        let bytes = stored::write(&head, self.window.between(from, to));
        let file = options.folder.join(format!("{}.{EXTENSION}", pending.label));
        write(&file, &bytes).map_err(|source| RecordError::File { file: file.clone(), source })?;
        let (at, reason, bytes) = (Some(pending.at), pending.reason.clone(), bytes.len() as u64);
        Ok(StoredWindow { file, reason, at, bytes })
    }

    /// Removes the oldest windows beyond the limit.
    fn forget(&mut self) {
        while self.kept.len() > self.options.keep
            && let Some(kept) = self.kept.pop_front()
        {
            // The file may have been removed already.
            let _ = std::fs::remove_file(kept.file);
        }
    }

    /// The present status.
    #[must_use]
    pub fn status(&self) -> Status {
        let now = mono_now();
        let summary = self.explainer.real_time();
        let lanes = self.options.online.count();
        Status {
            pid: std::process::id(),
            since: self.since,
            now,
            cpus: self.options.cpus,
            above: self.options.above,
            threads: self.threads.len(),
            shortfall: self.shortfall.clone(),
            events: self.recorder.events(),
            lost: self.recorder.lost(),
            burnt: DurNs(thread_cpu().0 - self.burnt_before.0),
            held_bytes: self.window.bytes() as u64,
            held_bytes_max: (self.options.window_bytes * lanes) as u64,
            wakeups: summary.delays.count(),
            late: summary.late,
            unexplained_percent: summary.share(|culprit| *culprit == trace::Culprit::Unexplained),
            culprits: ranked(summary),
            last: self.last.iter().cloned().collect(),
            kept: self.kept.iter().cloned().collect(),
            left_out: self.left_out,
            trouble: self.trouble.clone().or_else(|| self.conditions.changed(&Conditions::look()).into_iter().next()),
        }
    }

    /// Writes the status to the folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn tell(&self) -> Result<(), RecordError> {
        let file = self.options.folder.join(crate::status::FILE);
        let text = serde_json::to_vec_pretty(&self.status())?;
        write(&file, &text).map_err(|source| RecordError::File { file, source })
    }
}

/// File name extension of windows.
const EXTENSION: &str = "trace";

/// Windows left by an earlier recorder, oldest first.
fn found(folder: &Path) -> Result<VecDeque<StoredWindow>, RecordError> {
    // The reasons, if the earlier recorder has stored them in its status.
    let reasons: BTreeMap<PathBuf, String> =
        Status::read(folder).into_iter().flat_map(|status| status.kept).map(|kept| (kept.file, kept.reason)).collect();
    let entries = std::fs::read_dir(folder).map_err(|source| RecordError::File { file: folder.to_owned(), source })?;
    let mut all: Vec<(std::time::SystemTime, StoredWindow)> = Vec::new();
    for entry in entries.flatten() {
        let (file, Ok(data)) = (entry.path(), entry.metadata()) else { continue };
        if file.extension().is_some_and(|extension| extension == EXTENSION) {
            let reason = reasons.get(&file).cloned().unwrap_or_else(|| "of an earlier recorder".to_owned());
            all.push((
                data.modified().unwrap_or(std::time::UNIX_EPOCH),
                StoredWindow { file, reason, at: None, bytes: data.len() },
            ));
        }
    }
    all.sort_by_key(|(modified, _)| *modified);
    Ok(all.into_iter().map(|(_, kept)| kept).collect())
}

/// The culprits with the largest totals.
fn ranked(summary: &Summary) -> Vec<(String, trace::Tally)> {
    summary.ranked().into_iter().take(TOLD_MAX).map(|(culprit, tally)| (culprit.to_string(), tally)).collect()
}

/// Converts a label to a file name.
fn file_name(label: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = label.trim_start_matches('.').chars().take(96).map(fits).collect();
    if name.is_empty() { "window".into() } else { name }
}

/// Writes a file atomically. It names the threads of all users; access is limited by the folder and its group.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    sys::whole::replace(file, bytes, 0o640, sys::whole::Survives::Kill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_an_earlier_recorder_keep_their_reasons() {
        let folder = std::env::temp_dir().join(format!("tahti-flight-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [known, unknown] = ["miss-loop-1.trace", "late-2.trace"].map(|name| folder.join(name));
        for file in [&known, &unknown] {
            std::fs::write(file, "x").unwrap();
        }
        let kept = StoredWindow { file: known.clone(), reason: "loop skipped 57 periods".into(), at: None, bytes: 1 };
        let status = serde_json::json!({
            "pid": 1, "since_ns": 0, "now_ns": 1, "cpus": "0", "above_ns": 1, "threads": 1, "events": 0,
            "lost": { "events": 0, "times": 0, "broken": 0 }, "burnt_ns": 0, "held_bytes": 0, "held_bytes_max": 0,
            "wakeups": 0, "late": 0, "unexplained_percent": 0.0, "culprits": [], "last": [], "kept": [kept],
            "left_out": 0, "trouble": null
        });
        std::fs::write(folder.join(crate::status::FILE), status.to_string()).unwrap();
        let reasons: BTreeMap<PathBuf, String> =
            found(&folder).unwrap().into_iter().map(|kept| (kept.file, kept.reason)).collect();
        assert_eq!(reasons[&known], "loop skipped 57 periods");
        assert_eq!(reasons[&unknown], "of an earlier recorder");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_label_never_escapes_from_the_folder() {
        assert_eq!(file_name("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(file_name("late-17"), "late-17");
        assert_eq!(file_name(""), "window");
        assert_eq!(file_name(&"a".repeat(500)).len(), 96);
    }
}
