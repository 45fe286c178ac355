//! Decides which alarms are sent to which destination, and when: delays, repetitions, retries, and what is lost.
//!
//! Each destination has its own queue with [`QUEUE_MAX`] alerts, and sends one [`Batch`] at a time. An alarm is sent if it is active,
//! unacknowledged and not hidden for the destination's delay, again after each repetition, and once more when it has ended.

use crate::wire::Row;
use crate::{Destination, Guide, Now, Severity, State, Wall, is_meant};
use base::text::Counted;
use base::{DurNs, MonoNs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of alerts that wait for a destination. Above it, the least severe of the oldest is lost.
pub const QUEUE_MAX: usize = 1000;
/// Maximum number of alerts in a batch.
pub const ALERTS_MAX: usize = 100;
/// Number of tries after which a batch is lost: about an hour.
pub const TRIES_MAX: u32 = 20;
/// Minimum time between two batches, so that alarms of the same time are sent together.
pub const GAP: DurNs = DurNs::from_secs(10);
/// Time before the second try. It doubles up to the maximum; half of it is added or subtracted at random.
const RETRY: DurNs = DurNs::from_secs(1);
const RETRY_MAX: DurNs = DurNs::from_secs(300);
/// Maximum wait that a destination may request.
const AFTER_MAX: DurNs = DurNs::from_secs(3600);

/// An alarm that a destination receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Path of the alarm.
    pub path: String,
    /// Its channel.
    pub channel: String,
    /// Its description.
    pub description: String,
    /// Instructions.
    pub guidance: Vec<Guide>,
    /// The state when it was last active.
    pub state: State,
    /// Time since which it is active.
    pub since: Wall,
    /// When and why it ended.
    pub ended: Option<(Wall, String)>,
}

impl Alert {
    /// Order of importance: a more important alert is lost later.
    fn rank(&self) -> (bool, Severity) {
        (self.ended.is_none(), self.state.alarm.severity)
    }
}

/// Alerts that are sent together.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Identifies the batch; the same for each try.
    pub id: i64,
    /// The alerts, oldest first.
    pub alerts: Vec<Alert>,
    /// Number of failed tries.
    pub tries: u32,
}

/// Result of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The destination has accepted it. The text names receivers that were refused.
    Delivered(Option<String>),
    /// It failed, and may succeed later; not before the given time has passed.
    Failed(String, Option<DurNs>),
    /// The destination refuses it for good.
    Refused(String),
}

/// Figures of a destination since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Alerts that were delivered.
    pub delivered: u64,
    /// Alerts that were not delivered and are not tried again.
    pub lost: u64,
    /// Failed tries.
    pub failed: u64,
}

/// An alarm that is not over.
#[derive(Clone, Debug)]
struct Ongoing {
    alert: Alert,
    is_active: bool,
    /// The last severity that was queued.
    sent: Option<Severity>,
    /// Time of its next alert.
    due: Option<MonoNs>,
}

#[derive(Debug)]
struct Receiver {
    to: Destination,
    known: BTreeMap<String, Ongoing>,
    dues: BTreeSet<(MonoNs, String)>,
    queue: VecDeque<Alert>,
    batch: Option<Batch>,
    is_sending: bool,
    /// Time of the next try.
    next: MonoNs,
    counts: Counts,
    /// Why the last try failed, and when the failures began.
    fault: Option<(String, MonoNs)>,
    /// Whether the present overflow of the queue was logged.
    is_full: bool,
}

/// The notifications of all destinations.
#[derive(Debug)]
pub struct Notifier {
    receivers: Vec<Receiver>,
    lines: Vec<String>,
}

impl Notifier {
    /// Notifications without alarms.
    #[must_use]
    pub fn new(destinations: &[Destination], now: Now) -> Self {
        let receiver = |to: &Destination| Receiver {
            to: to.clone(),
            known: BTreeMap::new(),
            dues: BTreeSet::new(),
            queue: VecDeque::new(),
            batch: None,
            is_sending: false,
            next: now.mono,
            counts: Counts::default(),
            fault: None,
            is_full: false,
        };
        Self { receivers: destinations.iter().map(receiver).collect(), lines: Vec::new() }
    }

    /// Handles the state of an alarm: after each change, and after the start.
    pub fn observe(&mut self, row: &Row, is_annunciating: bool, now: Now) {
        for receiver in &mut self.receivers {
            let paths = &receiver.to.paths;
            if is_annunciating && (paths.is_empty() || paths.iter().any(|path| is_meant(path, &row.path))) {
                receiver.observe(row, now, &mut self.lines);
            }
        }
    }

    /// Queues the alerts that are due. Returns batches to send, each with the number of its destination; the result of each must be
    /// reported by [`sent`](Self::sent).
    pub fn tick(&mut self, now: Now) -> Vec<(usize, Batch)> {
        let lines = &mut self.lines;
        let all = self.receivers.iter_mut().enumerate();
        all.filter_map(|(index, receiver)| {
            receiver.queue_due(now, lines);
            receiver.next(now).map(|batch| (index, batch))
        })
        .collect()
    }

    /// Handles the result of a try.
    pub fn sent(&mut self, receiver: usize, result: Delivery, now: Now) {
        if let Some(receiver) = self.receivers.get_mut(receiver) {
            receiver.sent(result, now, &mut self.lines);
        }
    }

    /// Lines for the log, oldest first.
    pub fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// The destinations whose last try failed; empty if there is none.
    #[must_use]
    pub fn faults(&self, now: Now) -> String {
        let faults = self.receivers.iter().filter_map(|receiver| {
            let (why, since) = receiver.fault.as_ref()?;
            let (name, lost, waiting) = (&receiver.to.name, receiver.counts.lost, receiver.waiting());
            let seconds = (now.mono - *since).0 / 1_000_000_000;
            Some(format!("notification {name} fails for {seconds} s, {waiting} alerts waiting, {lost} lost: {why}"))
        });
        faults.collect::<Vec<_>>().join("; ")
    }

    /// Figures of the destinations, with their names.
    pub fn counts(&self) -> impl Iterator<Item = (&str, Counts)> {
        self.receivers.iter().map(|receiver| (receiver.to.name.as_str(), receiver.counts))
    }

    /// Counts the alerts that are lost at the end of the process, and returns the lines for the log.
    pub fn end(&mut self) -> Vec<String> {
        for receiver in &mut self.receivers {
            let waiting = receiver.waiting();
            if waiting > 0 {
                let name = &receiver.to.name;
                self.lines.push(format!(
                    "notification {name}: {} not delivered before the end; active alarms are sent after the next start",
                    Counted(waiting, "alert")
                ));
            }
        }
        self.lines()
    }
}

impl Receiver {
    fn waiting(&self) -> usize {
        self.queue.len() + self.batch.as_ref().map_or(0, |batch| batch.alerts.len())
    }

    fn observe(&mut self, row: &Row, now: Now, lines: &mut Vec<String>) {
        let severity = row.state.alarm.severity;
        if row.state.hidden().is_some() || severity.level() < self.to.severity.level() {
            return self.over(row, now, lines);
        }
        let Some(known) = self.known.get_mut(&row.path) else {
            if severity.is_active() {
                let alert = Alert {
                    path: row.path.clone(),
                    channel: row.channel.clone(),
                    description: row.description.clone(),
                    guidance: row.guidance.clone(),
                    state: row.state.clone(),
                    since: now.wall,
                    ended: None,
                };
                self.known.insert(row.path.clone(), Ongoing { alert, is_active: true, sent: None, due: None });
                self.schedule(&row.path, Some(now.mono + self.to.delay));
            }
            return;
        };
        let was_active = std::mem::replace(&mut known.is_active, severity.is_active());
        let (sent, due) = (known.sent, known.due);
        match (severity.is_active(), sent) {
            // An operator has it before its delay has passed.
            (false, None) => {
                self.schedule(&row.path, None);
                self.known.remove(&row.path);
            }
            (false, Some(_)) => self.schedule(&row.path, None),
            (true, _) => {
                known.alert.state = row.state.clone();
                let is_worse = sent.is_none_or(|sent| severity.level() > sent.level());
                if is_worse || !was_active {
                    let next = now.mono + self.to.delay;
                    self.schedule(&row.path, Some(due.map_or(next, |due| due.min(next))));
                }
            }
        }
    }

    /// Handles an alarm that has ended or is hidden.
    fn over(&mut self, row: &Row, now: Now, lines: &mut Vec<String>) {
        self.schedule(&row.path, None);
        let Some(known) = self.known.remove(&row.path) else { return };
        if known.sent.is_some() {
            let severity = row.state.alarm.severity;
            let why = row.state.hidden().map_or_else(|| severity.name().to_owned(), str::to_owned);
            self.push(Alert { ended: Some((now.wall, why)), ..known.alert }, lines);
        }
    }

    fn schedule(&mut self, path: &str, due: Option<MonoNs>) {
        let Some(known) = self.known.get_mut(path) else { return };
        if let Some(before) = std::mem::replace(&mut known.due, due) {
            self.dues.remove(&(before, path.to_owned()));
        }
        self.dues.extend(due.map(|due| (due, path.to_owned())));
    }

    fn queue_due(&mut self, now: Now, lines: &mut Vec<String>) {
        while let Some((due, path)) = self.dues.first().cloned().filter(|(due, _)| *due <= now.mono) {
            let repeat = self.to.repeat;
            let Some(known) = self.known.get_mut(&path) else {
                self.dues.remove(&(due, path));
                continue;
            };
            known.sent = Some(known.alert.state.alarm.severity);
            let alert = known.alert.clone();
            self.schedule(&path, (repeat > DurNs(0)).then(|| now.mono + repeat));
            self.push(alert, lines);
        }
    }

    /// Queues an alert. It replaces an alert about the same activity of the alarm that was not sent yet.
    fn push(&mut self, alert: Alert, lines: &mut Vec<String>) {
        let same = self.queue.iter_mut().rev().find(|queued| queued.path == alert.path && queued.ended.is_none());
        if let Some(same) = same {
            *same = alert;
            return;
        }
        self.queue.push_back(alert);
        if self.queue.len() <= QUEUE_MAX {
            return;
        }
        // The first of the least important ones.
        let least = self.queue.iter().enumerate().min_by_key(|(_, alert)| alert.rank()).map(|(index, _)| index);
        least.map(|index| self.queue.remove(index));
        self.counts.lost += 1;
        if !std::mem::replace(&mut self.is_full, true) {
            let name = &self.to.name;
            lines
                .push(format!("notification {name}: {QUEUE_MAX} alerts wait; the least severe of the oldest are lost"));
        }
    }

    fn next(&mut self, now: Now) -> Option<Batch> {
        if self.is_sending || now.mono < self.next {
            return None;
        }
        if self.batch.is_none() && !self.queue.is_empty() {
            let alerts = self.queue.drain(..self.queue.len().min(ALERTS_MAX)).collect();
            self.batch = Some(Batch { id: now.wall.0, alerts, tries: 0 });
        }
        self.is_sending = self.batch.is_some();
        self.batch.clone()
    }

    fn sent(&mut self, result: Delivery, now: Now, lines: &mut Vec<String>) {
        self.is_sending = false;
        let Some(mut batch) = self.batch.take() else { return };
        let name = &self.to.name;
        let alerts = batch.alerts.len();
        self.next = now.mono + GAP;
        let since = self.fault.as_ref().map_or(now.mono, |(_, since)| *since);
        match result {
            Delivery::Delivered(refused) => {
                self.counts.delivered += alerts as u64;
                if self.fault.is_some() && refused.is_none() {
                    let Counts { lost, .. } = self.counts;
                    lines.push(format!("notification {name}: delivers again; {lost} alerts lost since the start"));
                }
                if let Some(why) = &refused {
                    lines.push(format!("notification {name}: delivered, but not to all: {why}"));
                }
                self.is_full = false;
                self.fault = refused.map(|why| (why, since));
            }
            Delivery::Failed(why, after) if batch.tries + 1 < TRIES_MAX => {
                self.counts.failed += 1;
                if self.fault.is_none() {
                    lines.push(format!("notification {name}: {why}; tried again"));
                }
                batch.tries += 1;
                let wait = backoff(batch.tries, batch.id);
                self.next = now.mono + after.map_or(wait, |after| after.min(AFTER_MAX).max(wait));
                self.batch = Some(batch);
                self.fault = Some((why, since));
            }
            Delivery::Failed(why, _) | Delivery::Refused(why) => {
                self.counts.failed += 1;
                self.counts.lost += alerts as u64;
                let (alerts, at) = (Counted(alerts, "alert"), batch.tries + 1);
                lines.push(format!("notification {name}: {alerts} lost at try {at}: {why}"));
                self.fault = Some((why, since));
            }
        }
    }
}

/// Time before the next try.
fn backoff(tries: u32, id: i64) -> DurNs {
    let whole = RETRY.0.saturating_mul(1 << tries.saturating_sub(1).min(30)).min(RETRY_MAX.0);
    // SplitMix64: any spread will do, so that destinations of many plants are not tried at the same time.
    let mut mixed = (id as u64).wrapping_add(u64::from(tries).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let share = ((mixed ^ (mixed >> 31)) % 1001) as i64;
    DurNs(whole / 2 + whole / 1000 * share)
}

#[cfg(test)]
mod tests;
