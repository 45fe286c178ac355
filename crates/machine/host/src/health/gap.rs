//! The cause of a gap: what the supervisor's thread did while it observed no row.

use base::{DurNs, MonoNs};
use std::borrow::Cow;

/// Maximum number of steps that are counted separately. Further ones count as [`OTHER`].
const STEPS_MAX: usize = 64;

/// Number of steps that a cause names.
const NAMED_MAX: usize = 3;

/// Name of the steps that are not counted separately.
const OTHER: &str = "other steps";

/// Shorter times are not named.
const NAMED_FROM: DurNs = DurNs::from_ms(10);

/// Counters of the kernel for the supervisor's thread, since the thread's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Time on a CPU.
    pub ran: DurNs,
    /// Time in which it was runnable and waited for a CPU.
    pub waited: DurNs,
    /// Time in which it waited for a disk; 0 if the kernel does not count it (`kernel.task_delayacct`).
    pub disk: DurNs,
    /// Page faults that read from a disk.
    pub major_faults: u64,
}

/// Time that the supervisor's loop spent in each of its steps since the last pass.
#[derive(Clone, Debug)]
pub struct Steps {
    step: Cow<'static, str>,
    begun: MonoNs,
    all: Vec<(Cow<'static, str>, DurNs)>,
}

impl Steps {
    /// Starts to count at `now`, in the step of that name.
    #[must_use]
    pub fn new(now: MonoNs, step: &'static str) -> Self {
        Self { step: Cow::Borrowed(step), begun: now, all: Vec::new() }
    }

    /// Begins a step, which ends the current one.
    pub fn begin(&mut self, now: MonoNs, step: impl Into<Cow<'static, str>>) {
        let span = (now - self.begun).max(DurNs::ZERO);
        let ended = std::mem::replace(&mut self.step, step.into());
        self.begun = now;
        let known = self.all.iter().position(|(name, _)| *name == ended);
        // Further steps are added to the last one.
        let at = known.or_else(|| self.all.len().checked_sub(1).filter(|at| at + 1 >= STEPS_MAX));
        match at {
            None => self.all.push((ended, span)),
            Some(at) => {
                let (name, total) = &mut self.all[at];
                *total = DurNs(total.0.saturating_add(span.0));
                if known.is_none() {
                    *name = Cow::Borrowed(OTHER);
                }
            }
        }
    }

    /// Forgets all times, after a pass at `now`. The current step continues.
    pub fn clear(&mut self, now: MonoNs) {
        self.begun = now;
        self.all.clear();
    }

    /// The steps that took most time, longest first, with the current one up to `now`.
    fn longest(&self, now: MonoNs) -> Vec<(Cow<'static, str>, DurNs)> {
        let mut ended = self.clone();
        ended.begin(now, OTHER);
        let mut all = ended.all;
        all.retain(|(_, total)| *total >= NAMED_FROM);
        all.sort_by_key(|(_, total)| std::cmp::Reverse(*total));
        all.truncate(NAMED_MAX);
        all
    }
}

/// Why there was no pass for `late` until `now`. `before` and `after` are the thread's counters at the last pass and now;
/// `None` if the kernel does not report them.
#[must_use]
pub fn cause(now: MonoNs, late: DurNs, before: Option<&Effort>, after: Option<&Effort>, steps: &Steps) -> String {
    let mut text = format!("no pass for {}", rounded(late));
    if let (Some(before), Some(after)) = (before, after) {
        let grown = |of: fn(&Effort) -> DurNs| DurNs((of(after).0 - of(before).0).max(0));
        let (ran, waited) = (grown(|it| it.ran), grown(|it| it.waited));
        text += &format!(": {} running, {} waiting for a CPU", rounded(ran), rounded(waited));
        let disk = grown(|it| it.disk);
        if disk > DurNs::ZERO {
            text += &format!(", {} waiting for a disk", rounded(disk));
        }
        match after.major_faults.saturating_sub(before.major_faults) {
            0 => {}
            1 => text += ", 1 major page fault",
            faults => text += &format!(", {faults} major page faults"),
        }
        let rest = DurNs((late.0 - ran.0 - waited.0).max(0));
        text += &format!(", {} stopped, asleep or blocked", rounded(rest));
    }
    let steps: Vec<String> =
        steps.longest(now).iter().map(|(name, total)| format!("{name} {}", rounded(*total))).collect();
    if !steps.is_empty() {
        text += &format!(" (longest steps: {})", steps.join(", "));
    }
    text
}

/// In steps of 10 ms, for display.
fn rounded(time: DurNs) -> DurNs {
    DurNs(time.0 / NAMED_FROM.0 * NAMED_FROM.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: i64) -> DurNs {
        DurNs::from_ms(count)
    }

    fn at(count: u64) -> MonoNs {
        MonoNs(count * 1_000_000)
    }

    #[test]
    fn a_gap_names_the_time_without_a_cpu_the_page_faults_and_the_longest_steps() {
        let mut steps = Steps::new(at(1000), "observing");
        steps.begin(at(1002), "waiting for events");
        steps.begin(at(1500), "starting control".to_owned());
        steps.begin(at(4800), "waiting for events");
        steps.begin(at(5290), "observing");
        let before = Effort { ran: ms(50), waited: ms(10), disk: ms(0), major_faults: 3 };
        let after = Effort { ran: ms(170), waited: ms(115), disk: ms(200), major_faults: 15 };
        assert_eq!(
            cause(at(5300), ms(4300), Some(&before), Some(&after), &steps),
            "no pass for 4.3s: 120ms running, 100ms waiting for a CPU, 200ms waiting for a disk, 12 major page faults, \
             4.07s stopped, asleep or blocked (longest steps: starting control 3.3s, waiting for events 980ms, observing 10ms)"
        );
    }

    #[test]
    fn a_kernel_without_counters_leaves_the_time_and_the_steps() {
        let steps = Steps::new(at(0), "waiting for events");
        let text = cause(at(4300), ms(4300), None, Some(&Effort::default()), &steps);
        assert_eq!(text, "no pass for 4.3s (longest steps: waiting for events 4.3s)");
    }

    #[test]
    fn a_pass_begins_a_new_count_and_the_number_of_steps_is_bounded() {
        let mut steps = Steps::new(at(0), "a");
        steps.begin(at(3000), "b");
        steps.clear(at(3000));
        for number in 0..1000 {
            steps.begin(at(3000 + number), format!("step {number}"));
        }
        assert!(steps.all.len() <= STEPS_MAX);
        let total: i64 = steps.all.iter().map(|(_, span)| span.0).sum();
        assert_eq!(DurNs(total), ms(999), "no time is lost, and none of the time before the pass is counted");
    }
}
