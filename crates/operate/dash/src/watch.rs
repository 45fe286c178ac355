//! Watching threads, each with its own interval, active only while a client is subscribed.

mod alarms;
mod archive;
mod frames;
mod plant;
mod shield;

pub use frames::Frames;

use crate::alarms::Alarms;
use crate::hub::{Hub, Topic};
use base::{DurNs, MonoNs};
use host::plant::Plant;
use keep::supervisor::control::{Client, Reply, Request, Status};
use keep::supervisor::rundir::RunDir;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use sys::clock::{mono_now, sleep_until};

/// Interval of checks for subscribers.
const IDLE: DurNs = DurNs::from_ms(200);

/// Starts the threads, which end with the process.
///
/// # Errors
/// If a thread cannot be started.
pub(crate) fn start(plant: &str, archive: Option<PathBuf>, hub: &Arc<Hub>) -> io::Result<()> {
    let mut processes = plant::Processes::new(plant);
    begin("watch-plant", Topic::Plant, hub, move || processes.look())?;
    let name = plant.to_owned();
    begin("watch-hists", Topic::Histograms, hub, move || histograms(&name))?;
    let folder = RunDir::find(plant).path().join("recorder");
    begin("watch-late", Topic::Late, hub, move || late(&folder))?;
    begin("watch-shield", Topic::Shield, hub, shield::look)?;
    let mut frames = Frames::new(plant);
    begin("watch-frames", Topic::Frames, hub, move || frames.look())?;
    let mut alarms = Alarms::new(plant);
    begin("watch-alarms", Topic::Alarms, hub, move || alarms::look(&mut alarms))?;
    begin("watch-archive", Topic::Archive, hub, move || archive::status(archive.as_deref()))
}

/// Starts a thread that polls repeatedly.
fn begin(name: &str, topic: Topic, hub: &Arc<Hub>, mut look: impl FnMut() -> Value + Send + 'static) -> io::Result<()> {
    let hub = hub.clone();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut next = mono_now();
        loop {
            if hub.is_watched(topic) {
                hub.publish(topic, json!({ "topic": topic, "data": look() }).to_string(), mono_now());
                next = (next + topic.every()).max(mono_now());
            } else {
                next = mono_now() + IDLE;
            }
            sleep_until(next);
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
fn ask(plant: &str, request: &Request) -> Result<Reply, String> {
    let mut client = Client::connect(&RunDir::find(plant).socket()).map_err(|error| error.to_string())?;
    client.ask(request).map_err(|error| error.to_string())
}

/// Status of the plant.
fn status(plant: &str) -> Result<Status, String> {
    match ask(plant, &Request::Status)? {
        Reply::Status(status) => Ok(*status),
        Reply::Refused(why) => Err(why),
        other => Err(format!("{other:?} is no status")),
    }
}

fn histograms(plant: &str) -> Value {
    match ask(plant, &Request::Histograms) {
        Ok(Reply::Histograms(all)) => json!(all),
        // The plant topic reports the error already.
        _ => json!([]),
    }
}

/// The flight recorder's status, with its age.
fn late(folder: &std::path::Path) -> Value {
    match recorder::status::Status::read(folder) {
        Some(status) => json!({
            "now_ns": mono_now(), "above_ns": status.above.0, "wakeups": status.wakeups, "late": status.late,
            "unexplained_percent": status.unexplained_percent, "last": status.last, "stale_ns": age(status.now),
        }),
        None => json!({ "error": "this plant has no flight recorder: [recorder] in its file makes one" }),
    }
}

fn age(then: MonoNs) -> i64 {
    (mono_now() - then).0
}
