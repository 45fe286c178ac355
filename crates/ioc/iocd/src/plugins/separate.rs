//! A plug-in in a separate process: its faults do not end the IOC.
//!
//! One thread of the IOC starts the process, forwards the ends of calls that end later, and starts it again after a fault. Calls
//! come from the threads that own records, one at a time. A call that fails ends the process. Until it runs again, calls fail at
//! once.

use super::wire::{Arguments, Reader, Reply, Request, receive, send};
use crate::faults::Faults;
use base::{Severity, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use sys::plugin;

/// Maximum time for loading the plug-in.
const START_MAX: Duration = Duration::from_secs(10);
/// Minimum time between two starts.
const START_EVERY: Duration = Duration::from_secs(1);
/// Time until the next try after a start that failed.
const RETRY: Duration = Duration::from_secs(10);
/// Number of ends of the process within [`ENDS_WITHIN`] that is a fault of the IOC, as for a process of a plant.
const ENDS_MAX: usize = 5;
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Maximum length of the list of functions.
const HELLO_MAX: usize = 1 << 20;
/// Time until an end of a call is offered again to an IOC that does not accept it yet.
const OFFER_EVERY: Duration = Duration::from_millis(1);

/// A function's name, and whether it is for aSub records.
pub(super) type Named = (String, bool);

/// A plug-in in a separate process.
pub(super) struct Separate {
    file: PathBuf,
    functions: Vec<Named>,
    limit: Duration,
    link: Mutex<Link>,
    faults: Faults,
}

/// The last ends of a process.
#[derive(Debug, Default)]
struct Ends(VecDeque<Instant>);

impl Ends {
    /// Adds an end. Returns the number within [`ENDS_WITHIN`].
    fn add(&mut self, now: Instant) -> usize {
        self.0.push_back(now);
        self.0.retain(|end| now.duration_since(*end) < ENDS_WITHIN);
        self.0.len()
    }
}

/// The connection to the process.
#[derive(Default)]
struct Link {
    /// For calls; `None` while the process does not run.
    calls: Option<UnixStream>,
    child: Option<Child>,
    /// Number of starts.
    generation: u64,
    /// The cause of its end.
    fault: Option<String>,
    /// Calls of functions in INAM, and the maximum lengths of the replies. They are repeated after a start.
    initial: Vec<(Vec<u8>, usize)>,
    /// Calls that end later, by record.
    later: HashMap<String, Later>,
}

/// A call that ends later.
#[derive(Clone, Copy)]
struct Later {
    generation: u64,
    token: [u64; 2],
}

/// A process that has loaded the plug-in.
struct Started {
    child: Child,
    calls: UnixStream,
    ends: UnixStream,
    functions: Vec<Named>,
}

/// The reason why a plug-in does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPlugin {
    #[error(transparent)]
    Thread(io::Error),
    #[error("{}: the thread of the plug-in has ended", .0.display())]
    Ended(PathBuf),
    #[error("cannot start the plug-in's process: {0}")]
    Process(io::Error),
    #[error("{}: its process ended while it loaded the plug-in ({status})", file.display())]
    Lost { file: PathBuf, status: String },
    /// The error of its process.
    #[error("{0}")]
    Refused(String),
    #[error("found other functions than before, expected the same file: start the IOC again")]
    Changed,
    #[error("a function in INAM failed: {0}")]
    Initial(io::Error),
}

impl Separate {
    /// Starts the process of a plug-in. `done` receives the ends of calls that end later; it returns whether it accepted the
    /// token. `faults` gets the ends of the process.
    ///
    /// # Errors
    /// If the process cannot be started, or does not load the plug-in.
    pub(super) fn start(
        file: &Path,
        limit: Duration,
        done: impl Fn([u64; 2]) -> bool + Send + 'static,
        faults: Faults,
    ) -> Result<(Arc<Self>, Vec<Named>), NoPlugin> {
        let (report, started) = mpsc::sync_channel(1);
        let path = file.to_owned();
        let supervise = move || match start(&path) {
            Err(why) => drop(report.send(Err(why))),
            Ok(mut first) => {
                let functions = std::mem::take(&mut first.functions);
                let link = Mutex::default();
                let plugin = Arc::new(Self { file: path, functions: functions.clone(), limit, link, faults });
                let ends = plugin.connect(first);
                let _ = report.send(Ok((plugin.clone(), functions)));
                plugin.supervise(ends, &done);
            }
        };
        // The process ends with the thread that started it.
        thread::Builder::new().name("plugin".into()).spawn(supervise).map_err(NoPlugin::Thread)?;
        started.recv().unwrap_or_else(|_| Err(NoPlugin::Ended(file.to_owned())))
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function. `None`: it failed, with the alarm of `call`.
    pub(super) fn call(
        &self,
        number: u32,
        initial: bool,
        call: &mut plugin::Call<'_>,
        arguments: Arguments,
    ) -> Option<(i32, Arguments)> {
        let answered = self.answer(number, initial, call, arguments);
        let Some(reply) = answered else {
            call.alarm = (Status::Soft as u16, Severity::Invalid as u16);
            return None;
        };
        (call.later, call.alarm, call.fields) = (reply.later, reply.alarm, reply.fields);
        Some((reply.result, reply.arguments))
    }

    fn answer(&self, number: u32, initial: bool, call: &plugin::Call<'_>, arguments: Arguments) -> Option<Reply> {
        let max = arguments.bytes_max();
        let request = Request {
            function: number,
            resumed: call.resumed,
            token: call.token,
            record: call.record.to_owned(),
            description: call.description.to_owned(),
            fields: call.fields,
            arguments,
        };
        let message = request.encode();
        let mut link = self.link();
        let generation = link.generation;
        let begun = link.later.remove(call.record);
        if call.resumed && begun.is_none_or(|begun| begun.generation != generation) {
            // The process that began this call has ended.
            return None;
        }
        let Some(calls) = link.calls.as_mut() else {
            if initial {
                // The next start calls it.
                link.initial.push((message, max));
            }
            return None;
        };
        let result = exchange(calls, &message, max);
        match result {
            Ok(reply) => {
                if reply.later && !initial {
                    link.later.insert(request.record, Later { generation, token: call.token });
                }
                if initial {
                    link.initial.push((message, max));
                }
                Some(reply)
            }
            Err(error) => {
                let what = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("did not return within {:?}", self.limit)
                    }
                    io::ErrorKind::InvalidData => "damaged the memory of its process".to_owned(),
                    _ => "ended its process".to_owned(),
                };
                let name = self.functions.get(number as usize).map_or("", |(name, _)| name);
                link.end(Some(format!("{}: function \"{name}\" {what}", call.record)));
                None
            }
        }
    }

    /// Stores a process that has started. Returns its socket for ends of calls.
    fn connect(&self, started: Started) -> UnixStream {
        let Started { child, calls, ends, .. } = started;
        let _ = calls.set_read_timeout(Some(self.limit));
        let _ = calls.set_write_timeout(Some(self.limit));
        let mut link = self.link();
        link.generation += 1;
        (link.calls, link.child, link.fault) = (Some(calls), Some(child), None);
        ends
    }

    /// Forwards ends of calls, and starts the process again after a fault.
    fn supervise(&self, mut ends: UnixStream, done: &dyn Fn([u64; 2]) -> bool) {
        let mut history = Ends::default();
        let part = format!("plug-in {}", self.file.display());
        loop {
            let start = Instant::now();
            let mut words = [[0; 8]; 2];
            loop {
                if !waits(&ends, ENDS_WITHIN) || start.elapsed() > ENDS_WITHIN {
                    self.faults.set(&part, None);
                }
                if ends.read_exact(words.as_flattened_mut()).is_err() {
                    break;
                }
                offer(done, words.map(u64::from_ne_bytes));
            }
            let what = self.report_end();
            self.faults.lack(&part, format!("the process of {part} ended and was started again: {what}"));
            let count = history.add(Instant::now());
            if count >= ENDS_MAX {
                self.faults
                    .set(&part, Some(format!("{part}: its process ended {count} times within a minute: {what}")));
            }
            // Calls that would have ended later end now, with an alarm.
            let lost: Vec<Later> = self.link().later.values().copied().collect();
            lost.iter().for_each(|later| offer(done, later.token));
            thread::sleep(START_EVERY.saturating_sub(start.elapsed()));
            ends = self.start_again();
        }
    }

    /// Reaps the process and prints what ended it. Returns that.
    fn report_end(&self) -> String {
        let mut link = self.link();
        link.end(None);
        let status = link.child.take().and_then(|mut child| child.wait().ok());
        let status = status.map_or_else(String::new, |status: ExitStatus| format!(" ({status})"));
        let what = link.fault.take().unwrap_or_else(|| "its process has ended".to_owned());
        let file = self.file.display();
        eprintln!(
            "tahti: plug-in {file}: {what}{status}. Its process starts again; until then its records have an INVALID alarm"
        );
        what + &status
    }

    /// Starts the process and repeats the calls of functions in INAM, until both succeed.
    fn start_again(&self) -> UnixStream {
        let mut last = String::new();
        loop {
            let result = start(&self.file).and_then(|mut started| {
                if started.functions != self.functions {
                    end(&mut started.child);
                    return Err(NoPlugin::Changed);
                }
                self.repeat_initial(&mut started.calls).inspect_err(|_| end(&mut started.child))?;
                Ok(started)
            });
            match result {
                Ok(started) => return self.connect(started),
                Err(why) => {
                    let why = why.to_string();
                    if why != last {
                        eprintln!("tahti: plug-in {}: {why}; next try in {RETRY:?}", self.file.display());
                        last = why;
                    }
                }
            }
            thread::sleep(RETRY);
        }
    }

    fn repeat_initial(&self, calls: &mut UnixStream) -> Result<(), NoPlugin> {
        let _ = calls.set_read_timeout(Some(self.limit));
        let initial = self.link().initial.clone();
        for (message, max) in &initial {
            exchange(calls, message, *max).map_err(NoPlugin::Initial)?;
        }
        Ok(())
    }
}

impl Link {
    /// Ends the process. Keeps the first reason.
    fn end(&mut self, why: Option<String>) {
        self.calls = None;
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
        self.fault = self.fault.take().or(why);
    }
}

/// Waits until a socket is readable. Returns whether it is.
fn waits(socket: &UnixStream, within: Duration) -> bool {
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: 0 };
    !matches!(poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&within)), Ok(0))
}

fn offer(done: &dyn Fn([u64; 2]) -> bool, token: [u64; 2]) {
    while !done(token) {
        thread::sleep(OFFER_EVERY);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn exchange(calls: &mut UnixStream, message: &[u8], max: usize) -> io::Result<Reply> {
    send(calls, message)?;
    Reply::decode(&receive(calls, max)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Starts a process that loads the plug-in.
fn start(file: &Path) -> Result<Started, NoPlugin> {
    let run = || -> io::Result<(Child, UnixStream, UnixStream)> {
        let (calls, their_calls) = UnixStream::pair()?;
        let (ends, their_ends) = UnixStream::pair()?;
        // A signal of the terminal, such as Ctrl-C, is for the IOC.
        let child = Command::new("/proc/self/exe")
            .arg0("tahti")
            .args(["ioc", super::RUN_OPTION])
            .arg(file)
            .stdin(Stdio::from(OwnedFd::from(their_calls)))
            .stdout(Stdio::from(OwnedFd::from(their_ends)))
            .process_group(0)
            .spawn()?;
        calls.set_read_timeout(Some(START_MAX))?;
        Ok((child, calls, ends))
    };
    let (mut child, mut calls, ends) = run().map_err(NoPlugin::Process)?;
    let hello = receive(&mut calls, HELLO_MAX).ok().and_then(|message| functions_of(&message));
    match hello {
        Some(Ok(functions)) => Ok(Started { child, calls, ends, functions }),
        Some(Err(why)) => {
            end(&mut child);
            Err(why)
        }
        None => {
            let _ = child.kill();
            let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(NoPlugin::Lost { file: file.to_owned(), status })
        }
    }
}

/// The functions in the first message of a process, or the reason why it does not load the plug-in.
fn functions_of(message: &[u8]) -> Option<Result<Vec<Named>, NoPlugin>> {
    let mut from = Reader(message);
    let fault = from.text().ok()?;
    if !fault.is_empty() {
        return Some(Err(NoPlugin::Refused(fault)));
    }
    let count = from.u32().ok()?;
    (0..count).map(|_| Some((from.text().ok()?, from.u32().ok()? != 0))).collect::<Option<_>>().map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_process_are_counted_within_a_minute() {
        let (mut ends, start) = (Ends::default(), Instant::now());
        let counts = [0, 1, 59, 60, 61, 200].map(|second| ends.add(start + Duration::from_secs(second)));
        assert_eq!(counts, [1, 2, 3, 3, 3, 1]);
    }
}
