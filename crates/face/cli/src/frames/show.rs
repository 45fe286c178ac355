//! The state of a frame as text.

use super::timeline::{self, Times};
use crate::failure::Failure;
use ::report::{heads, micros};
use base::DurNs;
use bench::looprun::figures;
use ring::{ActivityCounter, FrameCounter, FrameEvent, FramePage, FrameState, Presence};
use rt::frames::{Cause, Watcher, action_word, what_word};
use sys::clock::{mono_now, sleep_until};

/// Maximum number of minors with a slack line.
const MINORS_SHOWN: usize = 16;
/// Maximum number of causes printed above the events.
const CAUSES_SHOWN: usize = 5;
/// Maximum number of events printed below the tables.
const EVENTS_SHOWN: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Frame, as PLANT/FRAME or FRAME [default: the only frame of the only plant that is up]
    frame: Option<String>,
    /// Repeat at this interval
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s")]
    watch: Option<DurNs>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let frame = args.frame.as_deref().map_or_else(super::only, |frame| Ok(super::of_plant(frame)))?;
    let watcher = Watcher::open(&frame)?;
    loop {
        let page = watcher.page();
        let mut lines = summary(&page);
        let mut cursor = page.events();
        let mut events = Vec::new();
        for _ in 0..ring::FRAME_EVENTS {
            let Some(event) = page.next_event(&mut cursor) else { break };
            events.push(event);
        }
        if !events.is_empty() {
            lines.extend(causes(&page, &events));
            lines.push("last events:".to_owned());
            let first = events.len().saturating_sub(EVENTS_SHOWN);
            lines.extend(events[first..].iter().map(|event| format!("  {}", event_line(&page, event))));
        }
        let text = lines.join("\n") + "\n";
        let Some(every) = args.watch else {
            print!("{text}");
            return Ok(());
        };
        if crate::out::screen(&text).is_err() {
            // Standard output was closed by its reader.
            return Ok(());
        }
        if !watcher.is_alive() {
            return Err(format!("frame {frame:?} has ended").into());
        }
        sleep_until(mono_now() + every);
    }
}

/// The counters and histograms of a frame.
pub(super) fn summary(page: &FramePage<'_>) -> Vec<String> {
    let border = page.border();
    let state = match page.state() {
        FrameState::Forming => "waits for its activities",
        FrameState::Running => "runs",
        FrameState::Ended => "has ended",
    };
    let mode = page.mode_name(border.mode.into()).map_or(String::new(), |mode| format!(", mode {}", mode.as_str()));
    let count = |counter| page.counter(counter);
    let mut lines = vec![
        format!(
            "frame {} {state}: pulse {}, minor {} of {}{mode}",
            page.name().as_str(),
            border.pulse,
            border.minor,
            page.shape().minors
        ),
        format!(
            "minors {}, lost {} ({:.2} %), overruns {}, underruns {}, absences {}, extensions {}, skipped {}, passed over blocked {}, parked {}",
            count(FrameCounter::Minors),
            count(FrameCounter::Lost),
            100.0 * count(FrameCounter::Lost) as f64
                / (count(FrameCounter::Minors) + count(FrameCounter::Lost)).max(1) as f64,
            count(FrameCounter::Overruns),
            count(FrameCounter::Underruns),
            count(FrameCounter::Absences),
            count(FrameCounter::Extensions),
            count(FrameCounter::Skipped),
            count(FrameCounter::Blocked),
            count(FrameCounter::Parked),
        ),
        format!(
            "trigger stopped {}, early {}, late {}; joins refused {}, callers disconnected {}; dispatcher: {} page faults, {} allocations",
            count(FrameCounter::TriggerStopped),
            count(FrameCounter::TriggerEarly),
            count(FrameCounter::TriggerLate),
            count(FrameCounter::Refused),
            count(FrameCounter::HungUp),
            count(FrameCounter::PageFaults),
            match count(FrameCounter::Allocations) {
                u64::MAX => "uncounted".to_owned(),
                counted => counted.to_string(),
            },
        ),
        format!("{:<24} {}", "[us]", heads()),
        format!("{:<24} {}", "begin of minors, late", figures(&page.late().read())),
        format!("{:<24} {}", "dispatcher at a border", figures(&page.dispatch().read())),
    ];
    lines.push(timeline::head("a minor"));
    // If there are many minors, print those with the least slack.
    let mut slacks: Vec<_> = (0..page.shape().minors).map(|minor| (minor, page.slack(minor).read())).collect();
    slacks.sort_by_key(|(_, slack)| slack.min().unwrap_or(DurNs(i64::MAX)));
    slacks.truncate(MINORS_SHOWN);
    slacks.sort_by_key(|(minor, _)| *minor);
    for (minor, slack) in slacks {
        let length = page.length(minor);
        lines.push(Times::used(length, &slack).line(&format!("minor {minor}"), Some(length)));
    }
    lines.push(timeline::head("a call"));
    for activity in 0..page.shape().activities {
        let budget = page.activity_counter(activity, ActivityCounter::Budget);
        let budget = (budget > 0).then_some(DurNs(budget as i64));
        let taken = Times::taken(&page.exec(activity).read());
        lines.push(taken.line(&format!("  {}", page.activity_name(activity).as_str()), budget));
    }
    lines.push(format!(
        "{:<16} {:>9} {:>9} {:>8} {:>9} {:>9} {:>11} {:>11}  now",
        "activity", "budget", "calls", "overruns", "underruns", "absences", "over budget", "page faults"
    ));
    for activity in 0..page.shape().activities {
        let count = |counter| page.activity_counter(activity, counter);
        let (presence, pid, tid) = page.who(activity);
        let who = match presence {
            Presence::Never => "never joined".to_owned(),
            Presence::Joined => format!("process {pid}, thread {tid}"),
            Presence::Left => "left".to_owned(),
            Presence::Died => "died".to_owned(),
            Presence::Joining => format!("process {pid}, thread {tid}: admitted, has not called yield yet"),
        };
        let marks =
            [(count(ActivityCounter::Demoted), ", demoted"), (count(ActivityCounter::Safe), ", safe values in force")];
        let marks: String = marks.into_iter().filter(|(set, _)| *set > 0).map(|(_, word)| word).collect();
        let budget = match count(ActivityCounter::Budget) {
            0 => "-".to_owned(),
            ns => DurNs(ns as i64).to_string(),
        };
        lines.push(format!(
            "{:<16} {budget:>9} {:>9} {:>8} {:>9} {:>9} {:>11} {:>11}  {who}{marks}",
            page.activity_name(activity).as_str(),
            count(ActivityCounter::Calls),
            count(ActivityCounter::Overruns),
            count(ActivityCounter::Underruns),
            count(ActivityCounter::Absences),
            count(ActivityCounter::OverBudget),
            count(ActivityCounter::PageFaults),
        ));
        if let (Some(deadline), Some(tally)) = (page.deadline(activity), page.tally(activity)) {
            let share = tally.share().map_or("nothing due".to_owned(), |share| format!("{share} of the full value"));
            lines
                .push(format!("{:<16} deadline {deadline}: {share}, {} of {} results late", "", tally.late, tally.due));
        }
    }
    lines
}

/// The most frequent faults among these events, by activity and cause, in descending order.
fn causes(page: &FramePage<'_>, events: &[FrameEvent]) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for event in events.iter().filter(|event| event.activity != u16::MAX) {
        let name = page.activity_name(event.activity.into());
        let fault = match (what_word(event.what), Cause::of(event.cause)) {
            ("absent", _) => format!("{} absent", name.as_str()),
            (what, Cause::Behind) => {
                format!("{} {what} behind {}", name.as_str(), page.activity_name(event.detail as usize).as_str())
            }
            (what, cause) => format!("{} {what}: {}", name.as_str(), cause.word()),
        };
        match counts.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, count)) => *count += 1,
            None => counts.push((fault, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told = counts.into_iter().take(CAUSES_SHOWN).map(|(fault, count)| format!("{count:>6} x {fault}"));
    let mut lines: Vec<String> = told.collect();
    if !lines.is_empty() {
        lines.insert(0, format!("why, in the last {} events:", events.len()));
    }
    lines
}

/// One event as a line of text.
pub(super) fn event_line(page: &FramePage<'_>, event: &FrameEvent) -> String {
    let at = format!("pulse {}", event.pulse);
    let name = |activity: u64| page.activity_name(activity as usize).as_str().to_owned();
    if event.activity == u16::MAX {
        let mode = |index| page.mode_name(index).map_or(String::new(), |mode| mode.as_str().to_owned());
        let detail = match what_word(event.what) {
            "minors lost" => format!(": {}", event.detail),
            "mode" => format!(" {}", mode(event.detail as usize)),
            "trigger early" | "trigger late" => format!(": after {} us", micros(event.elapsed)),
            _ => String::new(),
        };
        return format!("{at}: {}{detail}", what_word(event.what));
    }
    let activity = name(event.activity.into());
    let detail = event.detail;
    let cause = match Cause::of(event.cause) {
        Cause::Behind => format!("behind {}", name(detail)),
        cause @ Cause::Late => format!("{}, by {} us", cause.word(), micros(DurNs(detail as i64))),
        cause @ Cause::Kept => format!("{}, for {} us", cause.word(), micros(DurNs(detail as i64))),
        cause if detail > 0 => format!("{} x{detail}", cause.word()),
        cause => cause.word().to_owned(),
    };
    let why = match what_word(event.what) {
        "overrun" => {
            let (elapsed, cpu) = (micros(event.elapsed), micros(event.cpu));
            format!(" for {elapsed} us by then, {cpu} us of them on the CPU: {cause}")
        }
        "underrun" => format!(": {cause}"),
        _ => String::new(),
    };
    format!(
        "{at}, minor {}: {activity} {}{why}; {} in succession, {}",
        event.minor,
        what_word(event.what),
        event.consecutive,
        action_word(event.action)
    )
}
