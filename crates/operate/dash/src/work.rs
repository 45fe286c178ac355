//! Operations that may block: actions on processes and alarms, messages, the archive. Each kind has its own thread, so that a
//! blocked one does not delay the others. Each change is logged with the client that requested it.

use crate::Options;
use crate::alarms::Alarms;
use crate::logs::Logs;
use crate::messages::Console;
use crate::protocol::Act;
use crate::shares::{Party, Queue, queue};
use crate::signals::{Callback, Outcome, Signals};
use base::{DurNs, Visible};
use keep::supervisor::control::{Client, Reply, Request};
use keep::supervisor::logs::Reader;
use keep::supervisor::rundir::RunDir;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Archive, Bins, Folder, Span};
use sys::rounds::{ROUND, Rounds};

/// Maximum queued jobs per thread, of all clients together.
const WAITING_MAX: usize = 32;
/// A thread that finishes no round of its loop for longer than this hangs. Reading a large archive may take a minute.
const HANGS_AFTER: DurNs = DurNs::from_secs(120);
/// Maximum names found by a search.
const FOUND_MAX: usize = 200;
/// Maximum gaps returned with a signal's history, the newest.
const GAPS_MAX: usize = 200;

/// Figures of the alarm system are computed at most this often, for all clients together.
const FIGURES_EVERY: Duration = Duration::from_secs(30);

/// A job.
pub(crate) enum Job {
    /// Act on a process, for `who`.
    Process { who: String, what: Act, name: String },
    /// Act on alarms, for `who`; `user` is the name for their journal.
    Alarm { who: String, user: String, act: alarm::Act },
    /// Compute the figures of the alarm system.
    AlarmFigures,
    /// Send a message; `who` is set if it writes.
    Message { who: Option<String>, line: String },
    /// Settings; `who` is set if it changes something. `user` is the author.
    Settings { who: Option<String>, user: String, act: crate::settings::Act },
    /// Search for objects.
    Objects { pattern: String },
    /// Read an envelope from the archive.
    History { name: String, span: Span, points: u16 },
    /// Read log lines.
    Logs { filter: crate::logs::Filter },
    /// Search for signals.
    Search { pattern: String },
}

/// The worker threads.
pub(crate) struct Worker {
    acts: Queue<(Job, Callback)>,
    alarms: Queue<(Job, Callback)>,
    figures: Queue<(Job, Callback)>,
    messages: Queue<(Job, Callback)>,
    commands: Queue<(Job, Callback)>,
    objects: Queue<(Job, Callback)>,
    archive: Queue<(Job, Callback)>,
    settings: Queue<(Job, Callback)>,
    logs: Queue<(Job, Callback)>,
}

impl Worker {
    /// Starts the threads, which end with the process.
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
        let figures = begin("dash-figures", figures(&options.plant))?;
        // A read that blocks, for example on a hanging manager, must not delay commands and completion.
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
        let mut lines = Logs::new(Reader::new(&RunDir::find(&options.plant)));
        let logs = begin("dash-logs", move |job| match job {
            Job::Logs { filter } => lines.look(&filter).map_err(String::from),
            _ => Err("no work for this thread".to_owned()),
        })?;
        Ok(Self { acts, alarms, figures, messages, commands, objects, archive, settings, logs })
    }

    /// Queues a job for `party`; the outcome goes to `done`. An error means that the job was not started.
    pub(crate) fn give(&self, party: Party, job: Job, done: Callback) -> Result<(), String> {
        let queue = match job {
            Job::Process { .. } => &self.acts,
            Job::Alarm { .. } => &self.alarms,
            Job::AlarmFigures => &self.figures,
            Job::Message { who: None, .. } => &self.messages,
            Job::Message { who: Some(_), .. } => &self.commands,
            Job::Objects { .. } => &self.objects,
            Job::History { .. } | Job::Search { .. } => &self.archive,
            Job::Settings { .. } => &self.settings,
            Job::Logs { .. } => &self.logs,
        };
        Ok(queue.push(party, (job, done))?)
    }
}

/// Answers requests for the figures of the alarm system. On a separate thread, because reading a large journal must not delay an acknowledgement.
fn figures(plant: &str) -> impl FnMut(Job) -> Outcome + Send + use<> {
    let mut alarms = Alarms::new(plant);
    let mut newest: Option<(Instant, Value)> = None;
    move |job| match (job, &newest) {
        (Job::AlarmFigures, Some((at, figures))) if at.elapsed() < FIGURES_EVERY => Ok(figures.clone()),
        (Job::AlarmFigures, _) => {
            let figures = json!(alarms.figures().map_err(|why| why.to_string())?);
            newest = Some((Instant::now(), figures.clone()));
            Ok(figures)
        }
        _ => Err("no work for this thread".to_owned()),
    }
}

fn begin(name: &str, mut work: impl FnMut(Job) -> Outcome + Send + 'static) -> io::Result<Queue<(Job, Callback)>> {
    let (queue, jobs) = queue::<(Job, Callback)>(WAITING_MAX);
    let rounds = Rounds::watch(name, HANGS_AFTER);
    let started = std::thread::Builder::new().name(name.to_owned());
    started.spawn(move || {
        loop {
            rounds.count();
            if let Some((job, done)) = jobs.next_within(ROUND) {
                done(work(job));
            }
        }
    })?;
    Ok(queue)
}

/// Executes a change, and logs the client, the request and the outcome.
pub(crate) fn audited(who: &str, what: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let outcome = work();
    audit(who, what, outcome.as_ref().err());
    outcome
}

/// Writes a line to the log.
pub(crate) fn audit(who: &str, what: &str, failed: Option<&String>) {
    let came = failed.map_or_else(|| "done".to_owned(), |why| format!("failed: {why}"));
    let line = format!("audit: {who}: {what}: {came}");
    // Client text must not be able to imitate log lines.
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
    // The archive has names without protocol.
    let name = name.strip_prefix(pva::SCHEME).unwrap_or(name);
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
