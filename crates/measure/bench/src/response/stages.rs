//! Stages of a response, as REACT divides it, by the recorder's events.

use crate::explained::Steps;
use base::{Histogram, MonoNs};
use report::{Latency, Row};

/// From another CPU's event: its system call wakes the thread, as a device's handler would.
pub(super) const OF_EVENT: &[&str] =
    &["event until the thread is woken", "woken until it has the CPU", "has the CPU until it is in user space"];

/// From a timer's expiry. The loop's own latency adds the way to user space.
pub(super) const OF_TIMER: &[&str] =
    &["expiry until the handler is entered", "handler entered until the thread is woken", "woken until it has the CPU"];

/// From a device's interrupt.
pub(super) const OF_DEVICE: &[&str] = &[
    "register written until the handler is entered",
    "handler entered until the thread is woken",
    "woken until it has the CPU",
    "has the CPU until it is in user space",
];

/// An event: when it was read, and how long after it was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) read: MonoNs,
    pub(super) late_ns: u64,
}

/// The time of each stage.
pub(super) struct Stages {
    names: &'static [&'static str],
    times: Vec<Histogram>,
}

impl Stages {
    pub(super) fn new(names: &'static [&'static str]) -> Self {
        Self { names, times: names.iter().map(|_| Histogram::new()).collect() }
    }

    /// Adds each event whose wake-up was recorded.
    pub(super) fn divide(&mut self, events: &[Event], steps: &[Steps]) {
        let mut steps = steps.iter().peekable();
        for event in events {
            let sent = MonoNs(event.read.0.saturating_sub(event.late_ns));
            while steps.next_if(|step| step.woken < sent).is_some() {}
            // The event was lost if the next one belongs to a later event.
            let Some(step) = steps.next_if(|step| step.ran <= event.read) else { continue };
            match step.entered {
                Some(entered) => self.add(&[sent, entered, step.woken, step.ran, event.read]),
                None => self.add(&[sent, step.woken, step.ran, event.read]),
            }
        }
    }

    /// Adds each wake-up by a timer whose interrupt was recorded.
    pub(super) fn divide_timer(&mut self, steps: &[Steps]) {
        for step in steps {
            if let Some(entered) = step.entered {
                self.add(&[step.due, entered, step.woken, step.ran]);
            }
        }
    }

    /// Adds the moments between which the stages are, if they are those of these stages and in order.
    fn add(&mut self, moments: &[MonoNs]) {
        if moments.len() == self.names.len() + 1 && moments.is_sorted() {
            for (time, pair) in self.times.iter_mut().zip(moments.windows(2)) {
                time.record(pair[1] - pair[0]);
            }
        }
    }

    /// A row for each stage of a condition; none if nothing was recorded.
    pub(super) fn rows(&self, condition: &str) -> Vec<Row> {
        let recorded = self.names.iter().zip(&self.times).filter(|(_, time)| time.count() > 0);
        recorded.map(|(name, time)| Row::reference(format!("{condition}: {name}"), Latency::from(time))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(due: u64, entered: Option<u64>, woken: u64, ran: u64) -> Steps {
        Steps { due: MonoNs(due), entered: entered.map(MonoNs), woken: MonoNs(woken), ran: MonoNs(ran) }
    }

    fn ends(stages: &Stages) -> Vec<[i64; 2]> {
        stages.times.iter().map(|time| [time.min(), time.max()].map(|end| end.unwrap().0)).collect()
    }

    #[test]
    fn the_stages_of_an_event_add_up_to_its_response_and_lost_wake_ups_are_skipped() {
        let event = |read, late_ns| Event { read: MonoNs(read), late_ns };
        let woken = |due, ran| steps(due, None, due, ran);
        let mut stages = Stages::new(OF_EVENT);
        // The wake-up of the second event was not recorded; the first recorded one is from before the events.
        let events = [event(1_100, 100), event(2_100, 100), event(3_200, 200)];
        stages.divide(&events, &[woken(10, 20), woken(1_010, 1_040), woken(3_020, 3_120)]);
        assert_eq!(ends(&stages), [[10, 20], [30, 100], [60, 80]]);
        assert!(stages.times.iter().all(|stage| stage.count() == 2));
    }

    #[test]
    fn an_interrupt_has_its_handler_as_a_stage_and_one_without_a_recorded_handler_is_skipped() {
        let mut device = Stages::new(OF_DEVICE);
        let events = [1_000, 2_000].map(|read| Event { read: MonoNs(read), late_ns: 100 });
        device.divide(&events, &[steps(930, Some(910), 930, 960), steps(1_930, None, 1_930, 1_960)]);
        assert_eq!(ends(&device), [[10; 2], [20; 2], [30; 2], [40; 2]]);
        let mut timer = Stages::new(OF_TIMER);
        // The second handler is that of an earlier interrupt.
        timer.divide_timer(&[steps(100, Some(105), 120, 150), steps(200, Some(180), 220, 250)]);
        assert_eq!(ends(&timer), [[5; 2], [15; 2], [30; 2]]);
    }
}
