//! Watching threads, each with its own interval. They always poll, for the history and the metrics.

mod alarms;
mod archive;
mod frames;
mod plant;
mod plants;
mod shield;

pub use frames::Frames;

use crate::alarms::Alarms;
use crate::hub::{Hub, News, Topic};
use crate::messages::Console;
use crate::metrics::Source;
use crate::refused::Refused;
use base::{DurNs, MonoNs};
use host::plant::Plant;
use keep::supervisor::control::{Client, Reply, Request, Status};
use keep::supervisor::rundir::RunDir;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use sys::clock::{mono_now, sleep_until, wall_ns};
use sys::rounds::Rounds;

/// Interval of checks for subscribers.
const IDLE: DurNs = DurNs::from_ms(500);

/// A thread that finishes no round of its loop for longer than this hangs. A round has at most two requests to the
/// supervisor, which wait 5 s each.
const HANGS_AFTER: DurNs = DurNs::from_secs(15);

/// Starts the threads, which end with the process.
///
/// # Errors
/// If a thread cannot be started.
pub(crate) fn start(plant: &str, archive: Option<PathBuf>, messages: &str, hub: &Arc<Hub>) -> io::Result<()> {
    let begin = |name: &str, topic, look: Look| begin(name, topic, hub, look);
    let mut processes = plant::Processes::new(plant);
    begin("watch-plant", Topic::Plant, Box::new(move |is_watched| processes.look(is_watched)))?;
    let name = plant.to_owned();
    begin("watch-hists", Topic::Histograms, Box::new(move |_| histograms(&name)))?;
    let folder = RunDir::find(plant).path().join("recorder");
    begin("watch-late", Topic::Late, Box::new(move |_| late(&folder)))?;
    begin("watch-shield", Topic::Shield, Box::new(|_| shield::look()))?;
    let mut frames = Frames::new(plant);
    begin("watch-frames", Topic::Frames, Box::new(move |_| of_frames(frames.look())))?;
    let mut alarms = Alarms::new(plant);
    begin("watch-alarms", Topic::Alarms, Box::new(move |_| alarms::look(&mut alarms)))?;
    begin("watch-archive", Topic::Archive, Box::new(move |_| archive::status(archive.as_deref())))?;
    let mut console = Console::new(messages.to_owned());
    begin("watch-messages", Topic::MessageServer, Box::new(move |_| message_server(&mut console)))?;
    let mut plants = plants::Plants::default();
    begin("watch-plants", Topic::Plants, Box::new(move |_| plants.look()))
}

/// Reads the data of a topic. The argument is whether a client is subscribed.
type Look = Box<dyn FnMut(bool) -> News + Send>;

/// Starts a thread that polls repeatedly.
fn begin(name: &str, topic: Topic, hub: &Arc<Hub>, mut look: Look) -> io::Result<()> {
    let (hub, rounds) = (hub.clone(), Rounds::watch(name, HANGS_AFTER));
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut next = mono_now();
        loop {
            rounds.count();
            let is_watched = hub.is_watched(topic);
            let news = look(is_watched);
            hub.publish(topic, news, mono_now(), (wall_ns() / 1_000_000_000).cast_signed());
            next = (next + if is_watched { topic.every() } else { topic.every_alone() }).max(mono_now());
            while mono_now() < next {
                // A new subscriber does not wait.
                if !is_watched && hub.is_watched(topic) {
                    next = mono_now();
                }
                sleep_until(next.min(mono_now() + IDLE));
                rounds.count();
            }
        }
    });
    started.map(drop)
}

/// A plant's file, read again when it or a file that it includes changes.
#[derive(Debug)]
pub(crate) struct PlantFile {
    plant: String,
    /// The files that were read, each with its time of change.
    read: Vec<(PathBuf, SystemTime)>,
}

impl PlantFile {
    pub(crate) fn new(plant: &str) -> Self {
        Self { plant: plant.to_owned(), read: Vec::new() }
    }

    /// The file and its contents, if changed; `None` if it is unknown or invalid.
    pub(crate) fn changed(&mut self) -> Option<(PathBuf, Plant)> {
        let Status { file, profiles, .. } = status(&self.plant).ok()?;
        let is_same = |(file, read): &(PathBuf, SystemTime)| changed_at(file).is_some_and(|changed| changed == *read);
        if self.read.first().is_some_and(|(first, _)| *first == file) && self.read.iter().all(is_same) {
            return None;
        }
        // Before the contents: a change meanwhile is seen the next time.
        let of_main = changed_at(&file)?;
        let joined = keep::supervisor::joined(&file).ok()?;
        let included =
            joined.names().skip(1).filter_map(|name| Some((PathBuf::from(name), changed_at(name.as_ref())?)));
        let read: Vec<_> = std::iter::once((file.clone(), of_main)).chain(included).collect();
        // An invalid file may be half written within one time stamp of the file system: read it again.
        let (plant, _) = keep::supervisor::checked(&file, joined, &profiles).ok()?;
        self.read = read;
        Some((file, plant))
    }
}

fn changed_at(file: &std::path::Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|about| about.modified()).ok()
}

/// Sends a request to the supervisor.
fn ask(plant: &str, request: &Request) -> io::Result<Reply> {
    Client::connect(&RunDir::find(plant).socket())?.ask(request)
}

/// Status of the plant.
fn status(plant: &str) -> Result<Status, Refused> {
    match ask(plant, &Request::Status).map_err(Refused::Supervisor)? {
        Reply::Status(status) => Ok(*status),
        Reply::Refused(why) => Err(Refused::BySupervisor(why)),
        other => Err(Refused::NoStatus(format!("{other:?}"))),
    }
}

fn histograms(plant: &str) -> News {
    match ask(plant, &Request::Histograms) {
        Ok(Reply::Histograms(all)) => News { page: json!(all), source: Some(Source::Loops(all)) },
        // The plant topic reports the error already.
        _ => News { page: json!([]), source: None },
    }
}

fn of_frames(page: Value) -> News {
    News { source: Some(Source::Frames(page.clone())), page }
}

/// Counters of the message server.
fn message_server(console: &mut Console) -> News {
    match console.counters() {
        Ok(counters) => News { page: json!({ "counters": counters }), source: Some(Source::Messages(counters)) },
        Err(error) => News { page: json!({ "error": error.to_string() }), source: None },
    }
}

/// The flight recorder's status, with its age.
fn late(folder: &std::path::Path) -> News {
    match recorder::status::Status::read(folder) {
        Some(status) => {
            let page = json!({
                "now_ns": mono_now(), "above_ns": status.above.0, "wakeups": status.wakeups, "late": status.late,
                "unexplained_percent": status.unexplained_percent, "last": status.last, "stale_ns": age(status.now),
                "windows": status.kept, "shortfall": status.shortfall,
            });
            News { page, source: Some(Source::Late(Box::new(status))) }
        }
        None => {
            let page = json!({ "error": "this plant has no flight recorder: [recorder] in its file makes one" });
            News { page, source: None }
        }
    }
}

fn age(then: MonoNs) -> i64 {
    (mono_now() - then).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    #[test]
    fn a_reader_that_hangs_is_named_until_it_reads_again() {
        let hub = Arc::new(Hub::default());
        let (read, go): (_, Receiver<()>) = channel();
        let look = move |_| {
            // The test waits for the end of this read.
            let _ = go.recv();
            News::default()
        };
        begin("watch-test", Topic::Plant, &hub, Box::new(look)).unwrap();
        // The clock of the checks is injected: half a second between two of them.
        let mut now = mono_now();
        let mut check = move || {
            now = now + DurNs::from_ms(500);
            sys::rounds::hanging(now).filter(|found| found.contains("watch-test"))
        };
        assert!((0..100).find_map(|_| check()).is_some());
        drop(read);
        while check().is_some() {
            std::thread::yield_now();
        }
    }
}
