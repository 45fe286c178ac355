//! The end of a child: its exit record and its remaining descendants.
//!
//! The keeper is the reaper of all descendants of its child, so a daemonised descendant stays under its control. If the
//! child ended by itself, the descendants are killed at once, because they would keep its devices and its CPU. If the child
//! was asked to end, they get SIGTERM and [`LEFT_WITHIN`] to end: the end of a wrapper must not cut short the orderly stop
//! of the program it wraps. The end is reported once no descendant remains.

use super::protocol::{EXITS_NAME, End, Event, ExitRecord, Used, line};
use super::running::{kill_left_behind, left_behind, signal_left_behind};
use super::serve::{Keeper, unix_ms};
use crate::supervisor::logs::Level;
use base::DurNs;
use rustix::event::Timespec;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use sys::child::ChildExit;
use sys::signal::{SIGCONT, SIGTERM};

/// Time for descendants to end after a child that was asked to end.
pub(crate) const LEFT_WITHIN: DurNs = DurNs::from_secs(2);
/// Size in bytes at which the file of exit records is renamed to `.1` and a new one started.
const EXITS_BYTES_MAX: u64 = 64 << 10;
/// Maximum reads per stream at the end: all that a terminal or pipe can hold, but not what other processes keep writing.
const LAST_CHUNKS: usize = 64;

impl Keeper {
    /// Handles the end of a child or an orphan. Only the child's end is reported.
    pub(super) fn reaped(&mut self, ended: ChildExit) {
        if let Some(held) = self.held.take_if(|held| held.child().pid == ended.pid) {
            held.was_reaped();
            return self.launch_failed(format!("it was ended before it ran: {}", End::of(ended.status)));
        }
        // Its last output may not be in the log yet.
        if self.child.as_ref().is_some_and(|child| child.id.pid == ended.pid && child.ended.is_none()) {
            self.output(LAST_CHUNKS);
        }
        if self.child.as_ref().is_some_and(|child| child.id.pid == ended.pid) {
            self.child_ended(End::of(ended.status), Used::of(&ended));
        }
    }

    /// Detects the end of a main process, which another process may have reaped.
    pub(super) fn look_for_main(&mut self) -> sys::Result<()> {
        if self.child.as_ref().is_some_and(|child| child.main().is_some() && child.has_ended()) {
            // If the keeper is its parent, the status is available.
            self.reap()?;
            self.child_ended(End::Unseen, Used::default());
        }
        Ok(())
    }

    fn child_ended(&mut self, end: End, used: Used) {
        let Some(child) = self.child.as_mut().filter(|child| child.ended.is_none()) else { return };
        let mut record = ExitRecord {
            child: child.id,
            end,
            started: child.since,
            ended: sys::clock::mono_now(),
            ended_unix_s: unix_ms() / 1000,
            used,
            left_behind: 0,
            last_line: None,
            log_bytes_lost: 0,
        };
        let mut until = record.ended;
        if child.asked {
            // A process that is already gone needs no signal.
            record.left_behind = signal_left_behind(SIGTERM) as u32;
            // A stopped process runs its signal handler only after SIGCONT.
            signal_left_behind(SIGCONT);
            until = until + LEFT_WITHIN;
        }
        child.ended = Some((record, until));
    }

    /// Maximum time that the keeper may sleep.
    pub(super) fn wait_at_most(&self) -> Option<Timespec> {
        let ended = self.child.as_ref().and_then(|child| child.ended.as_ref());
        let until = ended.map(|(_, until)| *until).into_iter().chain(self.silence.due()).min()?;
        let left = (until - sys::clock::mono_now()).max(DurNs::ZERO);
        Some(Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 })
    }

    /// Completes and reports the exit record, once the child has ended and its descendants are gone or their time is over.
    pub(super) fn wind_up(&mut self) {
        let Some((mut record, until)) = self.child.as_ref().and_then(|child| child.ended.clone()) else { return };
        if sys::clock::mono_now() < until && !left_behind().is_empty() {
            return;
        }
        let killed = kill_left_behind(self.group.as_ref()) as u32;
        record.left_behind = record.left_behind.max(killed);
        // Final output of the descendants.
        self.output(LAST_CHUNKS);
        let child = self.child.take();
        let is_failure = record.end != End::Exit(0) && child.as_ref().is_some_and(|child| !child.asked);
        record.last_line = child.and_then(|child| child.last_line());
        record.log_bytes_lost = self.log.lost();
        self.keep_record(&record);
        let name = self.spec.launch.name.clone();
        let level = if is_failure { Level::Error } else { Level::Info };
        self.say_as(level, &format!("{name} (PID {}) ended: {}", record.child.pid, record.end));
        if record.left_behind > 0 {
            self.say(&format!("{} processes that it left behind were ended, {killed} by SIGKILL", record.left_behind));
        }
        self.last_exit = Some(record.clone());
        self.tell(&Event::Exited(record));
        self.over |= self.leaving;
    }

    fn keep_record(&mut self, record: &ExitRecord) {
        let path = self.spec.dir.join(EXITS_NAME);
        if std::fs::metadata(&path).is_ok_and(|data| data.len() > EXITS_BYTES_MAX) {
            // If the rename fails, the file keeps growing; no record is lost.
            let _ = std::fs::rename(&path, path.with_extension("jsonl.1"));
        }
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(&line(record))) {
            self.say(&format!("the exit record could not be written to {}: {error}", path.display()));
        }
    }
}
