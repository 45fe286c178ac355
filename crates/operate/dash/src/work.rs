//! What may wait for somebody: acting on processes and alarms, messages, the archive. Each on a thread of its own, so that one that waits does not
//! hold up the others. Whatever changes something is told to the log with who asked for it.

use crate::Options;
use crate::alarms::Alarms;
use crate::messages::Console;
use crate::protocol::Act;
use crate::shares::{Party, Queue, queue};
use crate::signals::{Done, Outcome, Signals};
use base::Visible;
use keep::supervisor::control::{Client, Reply, Request};
use keep::supervisor::rundir::RunDir;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use store::{Archive, Bins, Folder, Span};

/// Jobs that wait for each thread, of all clients together.
const WAITING_MAX: usize = 32;
/// Names that a search finds at most.
const FOUND_MAX: usize = 200;
/// Gaps that are told with the past of a signal at most, the newest.
const GAPS_MAX: usize = 200;

/// What is to be done.
pub(crate) enum Job {
    /// Acts on a process, for `who`.
    Process { who: String, what: Act, name: String },
    /// Acts on alarms, for `who`, whom their journal calls `user`.
    Alarm { who: String, user: String, act: alarm::Act },
    /// Sends a message; `who` where it writes.
    Message { who: Option<String>, line: String },
    /// Settings; `who` where it changes something, in the name of `user`.
    Settings { who: Option<String>, user: String, act: crate::settings::Act },
    /// Names of objects.
    Objects { pattern: String },
    /// An envelope from the archive.
    History { name: String, span: Span, points: u16 },
    /// Names of signals.
    Search { pattern: String },
}

/// The threads.
pub(crate) struct Worker {
    acts: Queue<(Job, Done)>,
    alarms: Queue<(Job, Done)>,
    messages: Queue<(Job, Done)>,
    commands: Queue<(Job, Done)>,
    objects: Queue<(Job, Done)>,
    archive: Queue<(Job, Done)>,
    settings: Queue<(Job, Done)>,
}

impl Worker {
    /// Starts them; they end with the process.
    pub(crate) fn start(options: &Options, signals: Signals) -> io::Result<Self> {
        let plant = options.plant.clone();
        let acts = begin("dash-acts", move |job| match job {
            Job::Process { who, what, name } => {
                audited(&who, &format!("{} process {name}", word(what)), || act(&plant, what, name))
            }
            _ => Err("no work for this thread".to_owned()),
        })?;
        let mut alarms = Alarms::new(&options.plant);
        let alarms = begin("dash-alarms", move |job| match job {
            Job::Alarm { who, user, act } => audited(&who, &format!("alarms {}", json!(act)), || {
                Ok(json!({ "changed": alarms.act(&act, &user).map_err(|why| why.to_string())? }))
            }),
            _ => Err("no work for this thread".to_owned()),
        })?;
        // What reads and waits long, as a manager that hangs, holds up neither commands nor completion.
        let consoles = ["dash-messages", "dash-commands", "dash-objects"].map(|name| {
            let mut console = Console::new(options.messages.clone());
            begin(name, move |job| match job {
                Job::Message { who, line } => console.send(who.as_deref(), &line),
                Job::Objects { pattern } => console.known(&pattern),
                _ => Err("no work for this thread".to_owned()),
            })
        });
        let [messages, commands, objects] = consoles;
        let (messages, commands, objects) = (messages?, commands?, objects?);
        let folder = options.archive.clone();
        let archive = begin("dash-archive", move |job| match job {
            Job::History { name, span, points } => history(folder.as_deref(), &name, span, points),
            Job::Search { pattern } => search(folder.as_deref(), &signals, &pattern),
            _ => Err("no work for this thread".to_owned()),
        })?;
        let folder = options.settings.clone();
        let settings = begin("dash-settings", move |job| match job {
            Job::Settings { who, user, act } => {
                let work = || crate::settings::act(folder.as_deref(), &user, &act);
                who.map_or_else(work, |who| audited(&who, &act.words(), work))
            }
            _ => Err("no work for this thread".to_owned()),
        })?;
        Ok(Self { acts, alarms, messages, commands, objects, archive, settings })
    }

    /// Has it done for `party`; the outcome goes to `done`. An error says why it is not even begun.
    pub(crate) fn give(&self, party: Party, job: Job, done: Done) -> Result<(), String> {
        let queue = match job {
            Job::Process { .. } => &self.acts,
            Job::Alarm { .. } => &self.alarms,
            Job::Message { who: None, .. } => &self.messages,
            Job::Message { who: Some(_), .. } => &self.commands,
            Job::Objects { .. } => &self.objects,
            Job::History { .. } | Job::Search { .. } => &self.archive,
            Job::Settings { .. } => &self.settings,
        };
        queue.push(party, (job, done))
    }
}

fn begin(name: &str, mut work: impl FnMut(Job) -> Outcome + Send + 'static) -> io::Result<Queue<(Job, Done)>> {
    let (queue, jobs) = queue::<(Job, Done)>(WAITING_MAX);
    let started = std::thread::Builder::new().name(name.to_owned());
    started.spawn(move || {
        loop {
            let (job, done) = jobs.next();
            done(work(job));
        }
    })?;
    Ok(queue)
}

/// Does what changes something, and tells the log who asked, for what, and what came of it.
pub(crate) fn audited(who: &str, what: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let outcome = work();
    audit(who, what, outcome.as_ref().err());
    outcome
}

/// One line for the log.
pub(crate) fn audit(who: &str, what: &str, failed: Option<&String>) {
    let came = failed.map_or_else(|| "done".to_owned(), |why| format!("failed: {why}"));
    let line = format!("audit: {who}: {what}: {came}");
    // Text of others must not look like lines of its own.
    println!("{}", Visible { text: &line, colours: false });
}

const fn word(what: Act) -> &'static str {
    match what {
        Act::Start => "start",
        Act::Stop => "stop",
        Act::Restart => "restart",
    }
}

fn act(plant: &str, what: Act, name: String) -> Outcome {
    let request = match what {
        Act::Start => Request::Start { names: vec![name] },
        Act::Stop => Request::Stop { names: vec![name] },
        Act::Restart => Request::Restart { name },
    };
    let lost = |error: io::Error| format!("the supervisor does not answer: {error}");
    let mut client = Client::connect(&RunDir::find(plant).socket()).map_err(lost)?;
    match client.ask(&request).map_err(lost)? {
        Reply::Refused(why) => Err(why),
        _ => Ok(json!({})),
    }
}

const NO_ARCHIVE: &str =
    "this dashboard has no archive; [archive] of the plant makes one, or `archive` of [dashboard] names its folder";

fn history(folder: Option<&Path>, name: &str, span: Span, points: u16) -> Outcome {
    let archive = open(folder.ok_or(NO_ARCHIVE)?, name)?;
    let bins = archive.bins(name, Bins::count(span.from, span.to, points.clamp(1, 4000).into()));
    let bins = bins.map_err(|error| error.to_string())?;
    let gaps = archive.gaps(name, span);
    let seconds = |at: i64| at as f64 / 1e9;
    let points = bins.iter().map(|bin| (seconds(bin.at), bin.summary)).filter(|(_, summary)| summary.count > 0);
    let points = points.map(|(at, one)| json!([at, one.min, one.max, one.mean, one.count]));
    let newest = gaps[gaps.len().saturating_sub(GAPS_MAX)..].iter();
    let gaps = newest.map(|gap| json!([seconds(gap.at), gap.cause.to_string(), gap.lost]));
    Ok(json!({ "points": points.collect::<Value>(), "gaps": gaps.collect::<Value>() }))
}

fn open(folder: &Path, name: &str) -> Result<Archive<Folder>, String> {
    Archive::open_for(Folder::new(folder), |other| other == name)
        .map_err(|error| format!("{}: {error}", folder.display()))
}

fn search(folder: Option<&Path>, signals: &Signals, pattern: &str) -> Outcome {
    let mut found = signals.names(pattern);
    if let Some(folder) = folder {
        let archive = Archive::open_for(Folder::new(folder), |_| false);
        found.extend(archive.map_err(|error| format!("{}: {error}", folder.display()))?.matching(pattern));
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(FOUND_MAX);
    Ok(json!({ "found": found }))
}
