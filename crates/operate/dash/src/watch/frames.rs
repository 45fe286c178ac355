//! Frames of the plant: minor frames, activities and last events.

use super::PlantFile;
use base::{DurNs, Histogram, Quantile};
use frame::{Activity, Spec};
use ring::{ActivityCounter, FrameCounter, FrameEvent, FramePage, FrameState, Presence};
use rt::frames::{Cause, Watcher, action_word, what_word};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Number of events displayed, newest first.
const EVENTS_SHOWN: usize = 12;

/// Frames of a plant. Keeps a connection to each.
#[derive(Debug)]
pub struct Frames {
    plant: String,
    file: PlantFile,
    /// The frames in the file, including those that do not run.
    specs: Vec<Spec>,
    watchers: BTreeMap<String, Watcher>,
}

impl Frames {
    /// For the plant of this name. Does not connect yet.
    #[must_use]
    pub fn new(plant: &str) -> Self {
        Self { plant: plant.to_owned(), file: PlantFile::new(plant), specs: Vec::new(), watchers: BTreeMap::new() }
    }

    /// List of frames for the page: `name` and `error`, or `state`, `counts`, `minors` (times in ns), `activities`, `events`.
    pub fn look(&mut self) -> Value {
        if let Some((_, plant)) = self.file.changed() {
            self.specs = plant.frames.into_iter().map(|frame| frame.spec).collect();
        }
        let specs = &self.specs;
        self.watchers.retain(|name, watcher| specs.iter().any(|spec| spec.name == *name) && watcher.is_alive());
        let each = specs.iter().map(|spec| {
            let name = &spec.name;
            if !self.watchers.contains_key(name) {
                match Watcher::open(&format!("{}/{name}", self.plant)) {
                    Ok(watcher) => drop(self.watchers.insert(name.clone(), watcher)),
                    Err(why) => return json!({ "name": name, "error": why.to_string() }),
                }
            }
            self.watchers.get(name).map_or(Value::Null, |watcher| frame(spec, &watcher.page()))
        });
        each.collect()
    }
}

fn ns(quantile: Quantile) -> Option<i64> {
    match quantile {
        Quantile::At(time) => Some(time.0),
        Quantile::Beyond(_) | Quantile::Empty => None,
    }
}

/// The activities queued in a minor frame in mode `mode`, in order.
fn queue(spec: &Spec, mode: usize, minor: usize) -> Vec<usize> {
    let is_in = |activity: &Activity| {
        spec.modes.get(mode).is_none_or(|mode| mode.activities.contains(&activity.name))
            && activity.queue.iter().any(|(queued, _)| usize::from(*queued) == minor)
    };
    let (last, first): (Vec<usize>, Vec<usize>) = (0..spec.activities.len())
        .filter(|at| is_in(&spec.activities[*at]))
        .partition(|at| spec.activities[*at].is_background());
    [first, last].concat()
}

fn frame(spec: &Spec, page: &FramePage<'_>) -> Value {
    let border = page.border();
    let count = |counter| page.counter(counter);
    let queue = |at| queue(spec, border.mode.into(), at);
    let minors = (0..page.shape().minors).map(|at| minor(page.length(at), &page.slack(at).read(), queue(at)));
    let activities = (0..page.shape().activities).map(|at| activity(page, at));
    let mut cursor = page.events();
    let events = (0..ring::FRAME_EVENTS).map_while(|_| page.next_event(&mut cursor));
    let events: Vec<FrameEvent> = events.collect();
    json!({
        "name": spec.name,
        "state": match page.state() {
            FrameState::Forming => "waits for its activities",
            FrameState::Running => "runs",
            FrameState::Ended => "has ended",
        },
        "pulse": border.pulse, "minor": border.minor,
        "mode": page.mode_name(border.mode.into()).map(|mode| mode.as_str().to_owned()),
        "counts": {
            "minors": count(FrameCounter::Minors), "lost": count(FrameCounter::Lost), "overruns": count(FrameCounter::Overruns),
            "underruns": count(FrameCounter::Underruns), "absences": count(FrameCounter::Absences),
        },
        "minors": minors.collect::<Value>(),
        "activities": activities.collect::<Value>(),
        "events": events.iter().rev().take(EVENTS_SHOWN).map(|event| words(page, event)).collect::<Vec<_>>(),
    })
}

/// Time used in a minor frame (its length minus the slack), and its queue.
fn minor(length: DurNs, slack: &Histogram, queue: Vec<usize>) -> Value {
    // If the slack exceeds the histogram, almost nothing was used.
    let used = |left: DurNs| length.0.saturating_sub(left.0).max(0);
    let of = |among| match slack.quantile(1, among) {
        Quantile::At(left) | Quantile::Beyond(left) => Some(used(left)),
        Quantile::Empty => None,
    };
    json!({ "length_ns": length.0, "p50": of(2), "p99": of(100), "max": slack.min().map(used), "queue": queue })
}

fn activity(page: &FramePage<'_>, at: usize) -> Value {
    let count = |counter| page.activity_counter(at, counter);
    let exec = page.exec(at).read();
    let (presence, pid, tid) = page.who(at);
    let who = match presence {
        Presence::Never => "never joined".to_owned(),
        Presence::Joining => format!("process {pid} joins"),
        Presence::Joined => format!("process {pid}, thread {tid}"),
        Presence::Left => "left".to_owned(),
        Presence::Died => "died".to_owned(),
    };
    json!({
        "name": page.activity_name(at).as_str(), "budget_ns": count(ActivityCounter::Budget),
        "p50": ns(exec.quantile(1, 2)), "p99": ns(exec.quantile(99, 100)), "max": exec.max().map(|time| time.0),
        "calls": count(ActivityCounter::Calls), "overruns": count(ActivityCounter::Overruns),
        "underruns": count(ActivityCounter::Underruns), "absences": count(ActivityCounter::Absences), "who": who,
    })
}

fn words(page: &FramePage<'_>, event: &FrameEvent) -> String {
    let what = what_word(event.what);
    if event.activity == u16::MAX {
        return format!("pulse {}: {what}", event.pulse);
    }
    let name = page.activity_name(event.activity.into());
    let cause = match Cause::of(event.cause) {
        Cause::Behind => format!("behind {}", page.activity_name(event.detail as usize).as_str()),
        cause => cause.word().to_owned(),
    };
    let (action, times) = (action_word(event.action), event.consecutive);
    format!(
        "pulse {}, minor {}: {} {what}, {cause}; {times} in succession, {action}",
        event.pulse,
        event.minor,
        name.as_str()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use frame::{Discipline, Mode};

    #[test]
    fn a_minor_queues_the_activities_of_its_mode_with_the_background_last() {
        let ms = DurNs::from_ms;
        let mut log = Activity::new("log", None, 0..2);
        log.queue.iter_mut().for_each(|(_, discipline)| *discipline = Discipline::BACKGROUND);
        let activities =
            vec![log, Activity::new("control", Some(ms(1)), 0..2), Activity::new("once", Some(ms(1)), 1..2)];
        let mut spec = Spec::new("fast", vec![ms(5); 2], activities);
        assert_eq!([queue(&spec, 0, 0), queue(&spec, 0, 1)], [vec![1, 0], vec![1, 2, 0]]);
        let modes = [("idle", vec!["log"]), ("beam", vec!["control", "log"])];
        let mode = |(name, activities): (&str, Vec<&str>)| Mode {
            name: name.to_owned(),
            activities: activities.into_iter().map(str::to_owned).collect(),
        };
        spec.modes = modes.into_iter().map(mode).collect();
        assert_eq!([queue(&spec, 0, 1), queue(&spec, 1, 1)], [vec![0], vec![1, 0]]);
    }
}
