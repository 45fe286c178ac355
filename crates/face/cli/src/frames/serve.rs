//! The process of a frame. `tahti up` starts it with the frame's configuration in its environment.

use super::show;
use super::supervisor::counts;
use crate::failure::Failure;
use base::{DurNs, MonoNs};
use host::plant::FRAME;
use recorder::request::{Call, Request};
use ring::{Cursor, FramePage, Presence};
use rt::frames::{Report, Runner, what_word};
use std::path::PathBuf;
use sys::clock::mono_now;
use sys::notify::Supervisor;
use sys::signal::SignalFd;

/// A machine that shuts down ends activities and their frame at the same moment, and the ends are reported in any
/// order. An activity's end is therefore reported only after this delay, so that an end that belongs to the frame's
/// shutdown is not logged as a fault.
const SAME_MOMENT: DurNs = DurNs::from_ms(200);
/// Minimum interval between two windows requested from the recorder.
const ASK_AGAIN: DurNs = DurNs::from_secs(10);
/// Maximum time that an ending frame waits for its activities. Afterwards the plant sends signals to their processes.
const FAREWELL: DurNs = DurNs::from_secs(2);
/// Interval of the counts sent to the supervisor.
const TELL_EVERY: DurNs = DurNs::from_secs(1);

pub(super) fn run() -> Result<(), Failure> {
    let text = std::env::var(FRAME)
        .map_err(|_| format!("{FRAME} is not set; `tahti up` runs frames, from a plant file with [[frame]]"))?;
    let config: frame::Config = serde_json::from_str(&text).map_err(|error| format!("{FRAME}: {error}"))?;
    let name = config.spec.name.clone();
    let mut unjoined = Unjoined::new(&config);
    // Not SIGHUP, which the death of its keeper sends: after an end in order the activities would end as finished, and would not
    // be there for the restarted frame.
    let signals = SignalFd::new(&[sys::signal::SIGINT, sys::signal::SIGTERM])?;
    let mut runner = Runner::new(config)?;
    println!("frame {name} waits for its activities");
    let mut cursor = runner.page().events();
    let mut flight = Flight::of_plant();
    let (mut supervisor, mut told) = (Supervisor::from_env(), mono_now());
    let mut over = None;
    let mut gone: Vec<(MonoNs, String)> = Vec::new();
    while !runner.is_over() {
        runner.turn(|report| match report {
            Report::Running { missing } => {
                match missing.as_slice() {
                    [] => println!("frame {name} runs"),
                    missing => println!("frame {name} runs, without {}", missing.join(", ")),
                }
                unjoined.activities = missing;
            }
            Report::Joined(activity, process) => println!("{activity} joined: process {process}"),
            Report::Gone(activity, true) => println!("{activity} left"),
            Report::Gone(activity, false) => gone.push((mono_now(), activity)),
            Report::Refused(why) => println!("refused: {why}"),
            Report::Missing(missing) => println!("{missing}"),
            Report::Over(why) => over = Some(why),
        });
        let now = mono_now();
        unjoined.update(&runner.page());
        supervisor.works(now, unjoined.fault().as_deref());
        for (_, activity) in gone.extract_if(.., |(at, _)| now - *at >= SAME_MOMENT) {
            println!("{activity} is gone: its thread ended without leaving, or its process was killed");
        }
        flight.faulted(write_events(&runner.page(), &mut cursor), &name);
        if now - told >= TELL_EVERY {
            told = now;
            supervisor.send(counts(&runner.page()));
        }
        if signals.read()?.is_some() {
            break;
        }
    }
    runner.finish(FAREWELL);
    write_events(&runner.page(), &mut cursor);
    gone.iter().for_each(|(_, activity)| println!("{activity} ended with the frame"));
    supervisor.send(counts(&runner.page()));
    show::summary(&runner.page()).iter().for_each(|line| println!("{line}"));
    match over {
        Some(why) => Err(format!("frame {name} ends: {why}").into()),
        None => Ok(()),
    }
}

/// Activities that had not joined when the frame began, and have not joined since. An activity that joined once and
/// ended is not listed: the rows of its process report the end.
struct Unjoined {
    frame: String,
    within: DurNs,
    activities: Vec<String>,
}

impl Unjoined {
    fn new(config: &frame::Config) -> Self {
        Self { frame: config.spec.name.clone(), within: config.join_within, activities: Vec::new() }
    }

    /// Removes the activities that have joined.
    fn update(&mut self, page: &FramePage<'_>) {
        let waits = |activity: usize| matches!(page.who(activity).0, Presence::Never | Presence::Joining);
        let is_missing =
            |name: &String| (0..page.shape().activities).any(|at| page.activity_name(at).as_str() == name && waits(at));
        self.activities.retain(is_missing);
    }

    fn fault(&self) -> Option<String> {
        let (frame, within) = (&self.frame, self.within);
        let who = match self.activities.as_slice() {
            [] => return None,
            [one] => format!("activity {one} has"),
            more => format!("activities {} have", more.join(", ")),
        };
        Some(format!("{who} not joined within {within}; expected a program that joins frame {frame:?} by this name"))
    }
}

/// The plant's flight recorder, if it has one.
struct Flight {
    folder: Option<PathBuf>,
    asked: Option<MonoNs>,
}

impl Flight {
    fn of_plant() -> Self {
        Self {
            folder: std::env::var(rt::frames::PLANT).ok().map(|plant| crate::trace::folder(Some(&plant))),
            asked: None,
        }
    }

    /// Asks the recorder to keep the window around a fault. Of the faults within [`ASK_AGAIN`], only the first is kept.
    fn faulted(&mut self, fault: Option<Fault>, frame: &str) {
        let (Some(Fault { line: fault, call }), Some(folder), now) = (fault, &self.folder, mono_now()) else { return };
        let label = format!("frame-{frame}-{}", sys::clock::wall_ns() / 1_000_000);
        if self.asked.is_none_or(|asked| now - asked >= ASK_AGAIN) {
            let request = Request::Freeze { label: label.clone(), reason: format!("frame {frame}: {fault}") };
            // Fails in plants without a recorder, which is most of them.
            if request.send(folder).is_ok() {
                println!("for the cause: tahti explain --file {}", folder.join(label + ".trace").display());
            }
            // The recorder's status then names the culprits of this call. It uses the kernel's events instead of
            // counters.
            if let Some(call) = call {
                let what = format!("{frame}/{}", call.what);
                let _ = Request::Explain(Call { what, ..call }).send(folder);
            }
            self.asked = Some(now);
        }
    }
}

/// The log line of a fault, and the call that took too long, if there was one.
struct Fault {
    line: String,
    call: Option<Call>,
}

/// Prints the events since the last call. Returns the first fault among them.
fn write_events(page: &FramePage<'_>, cursor: &mut Cursor) -> Option<Fault> {
    let (lost, mut fault) = (cursor.lost(), None);
    // Later events stay in the page for the next call.
    for event in (0..ring::FRAME_EVENTS).map_while(|_| page.next_event(cursor)) {
        let line = show::event_line(page, &event);
        println!("{line}");
        if fault.is_none() && matches!(what_word(event.what), "overrun" | "underrun" | "minors lost") {
            fault = Some(Fault { line, call: call(page, &event) });
        }
    }
    if cursor.lost() > lost {
        println!("… {} more events than could be written", cursor.lost() - lost);
    }
    fault
}

/// The call that overran; `None` for other faults.
fn call(page: &FramePage<'_>, event: &ring::FrameEvent) -> Option<Call> {
    let (_, _, tid) = page.who(event.activity.into());
    let overran = what_word(event.what) == "overrun" && event.elapsed > DurNs::ZERO;
    let from = MonoNs(event.at.0.saturating_sub(event.elapsed.0.unsigned_abs()));
    let what = format!("{} overrun", page.activity_name(event.activity.into()).as_str());
    overran.then_some(Call { tid: tid as i32, from, to: event.at, what })
}
