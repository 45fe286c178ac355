//! The keeper's check of the supervisor, which stores the time of each pass in its lock file. A silent supervisor is reported
//! in the log of the process, because nothing observes the process meanwhile. The keeper never restarts a supervisor: it may
//! be stopped on purpose, and `tahti up` continues the plant of one that has ended.

use crate::supervisor::rundir::Holder;
use crate::supervisor::short;
use base::{DurNs, MonoNs};
use host::health::INTERVAL;
use std::path::PathBuf;

/// Interval of the checks.
const EVERY: DurNs = DurNs::from_secs(5);
/// A supervisor without a pass for longer than this is silent.
const LATE: DurNs = DurNs(INTERVAL.0 * 2);

/// The check of one supervisor.
#[derive(Debug)]
pub(super) struct Silence {
    /// The supervisor's lock file; `None` without a supervisor.
    lock: Option<PathBuf>,
    due: MonoNs,
    /// The last pass before the silence that has been reported.
    since: Option<MonoNs>,
}

impl Silence {
    pub(super) fn new(lock: Option<PathBuf>, now: MonoNs) -> Self {
        Self { lock, due: now + EVERY, since: None }
    }

    /// Time of the next check.
    pub(super) fn due(&self) -> Option<MonoNs> {
        self.lock.as_ref().map(|_| self.due)
    }

    /// Checks the supervisor, if that is due. Returns a message if its silence begins or ends.
    pub(super) fn check(&mut self, now: MonoNs) -> Option<String> {
        let lock = self.lock.as_ref().filter(|_| now >= self.due)?;
        let holder = Holder::read(lock);
        self.due = now + EVERY;
        self.judge(now, holder?, sys::process::state)
    }

    /// `letter` returns the state letter of a process; `None` if there is none.
    fn judge(&mut self, now: MonoNs, by: Holder, letter: impl Fn(i32) -> Option<char>) -> Option<String> {
        let (pid, pass) = (by.pid, by.last_pass?);
        if now - pass <= LATE {
            let since = self.since.take()?;
            return Some(format!("the supervisor (process {pid}) observes again, after {}", short(pass - since)));
        }
        if self.since.is_some() {
            return None;
        }
        self.since = Some(pass);
        let why = match letter(pid) {
            None | Some('Z' | 'X') => "it has ended (`tahti up` continues the plant)".to_owned(),
            Some('T') => format!("it is stopped (`kill -CONT {pid}` continues it)"),
            Some('t') => "it is stopped by a debugger or tracer".to_owned(),
            Some(_) => "its loop hangs or gets no CPU".to_owned(),
        };
        let silence = short(now - pass);
        Some(format!(
            "the supervisor (process {pid}) has observed nothing for {silence}: {why}; this process continues"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(count: u64) -> MonoNs {
        MonoNs(count * 1_000_000_000)
    }

    fn judge(silence: &mut Silence, now: u64, pass: u64, letter: Option<char>) -> Option<String> {
        silence.judge(second(now), Holder { pid: 7, last_pass: Some(second(pass)) }, |_| letter)
    }

    #[test]
    fn a_silent_supervisor_is_reported_once_with_its_state_and_once_more_when_it_observes_again() {
        let mut silence = Silence::new(None, second(0));
        assert_eq!(judge(&mut silence, 12, 10, Some('S')), None, "two intervals are allowed");
        let found = judge(&mut silence, 14, 10, Some('T')).unwrap();
        assert_eq!(
            found,
            "the supervisor (process 7) has observed nothing for 4.0 s: it is stopped (`kill -CONT 7` continues it); \
             this process continues"
        );
        assert_eq!(judge(&mut silence, 19, 10, Some('T')), None);
        let found = judge(&mut silence, 24, 23, Some('S')).unwrap();
        assert_eq!(found, "the supervisor (process 7) observes again, after 13.0 s");
        assert_eq!(judge(&mut silence, 25, 24, Some('S')), None);
        let ended = judge(&mut silence, 40, 24, None).unwrap();
        assert!(ended.contains("it has ended (`tahti up` continues the plant)"), "{ended}");
    }

    #[test]
    fn checks_have_an_interval_and_a_keeper_without_a_supervisor_makes_none() {
        let mut silence = Silence::new(Some(PathBuf::from("/nowhere")), second(0));
        assert_eq!((silence.check(second(1)), silence.due()), (None, Some(second(5))));
        assert_eq!((silence.check(second(5)), silence.due()), (None, Some(second(10))), "there is no such file");
        assert_eq!(Silence::new(None, second(0)).due(), None);
    }
}
