//! Runs one loop in this process and prints its figures, for demos and measurements.

use crate::Failed;
use base::{CpuId, DurNs, Histogram, Quantile, Size};
use report::{Latency, heads, line, micros};
use ring::{Counter, LoopPage};
use rt::{Building, EventLoop, Flow, LoopSpec, Pulse, Rt, SharedPage, Wait, Watch};
use std::ops::ControlFlow;
use std::str::FromStr;
use sys::clock::{mono_now, sleep_until};
use sys::signal::{SignalFd, end_signals};

/// Interval at which the calling thread checks whether the loop should end.
const LOOK: DurNs = DurNs::from_ms(50);
/// Time from the call to the first pulse, to wake the loop's thread.
const LEAD: DurNs = DurNs::from_ms(10);

/// The waiting mode of a loop, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitArg(pub Wait);

impl FromStr for WaitArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SPIN: DurNs = DurNs::from_us(100);
        Ok(Self(match text.split_once(':') {
            None if text == "sleep" => Wait::Sleep,
            None if text == "spin" => Wait::Spin,
            None if text == "both" => Wait::Both { spin: SPIN },
            Some(("both", window)) => match window.parse() {
                Ok(spin) if spin > DurNs::ZERO && spin < DurNs::from_secs(1) => Wait::Both { spin },
                _ => return Err("expected a time below 1s after \"both:\", such as both:100us"),
            },
            _ => return Err("expected sleep, spin, both or both:TIME"),
        }))
    }
}

/// The word for a waiting mode in reports.
pub fn wait_word(wait: Wait) -> String {
    match wait {
        Wait::Sleep => "sleep".into(),
        Wait::Spin => "spin".into(),
        Wait::Both { spin } => format!("both:{spin}"),
    }
}

/// Figures that were unavailable in a run.
pub struct Finished {
    /// Why preempting tasks are not named, if they are not.
    pub unnamed_because: Option<String>,
    /// Why steal was not measured, if it was not.
    pub no_steal_because: Option<String>,
}

/// Runs the loop until `limit` has passed, a termination signal arrives, or it ends. Calls `tick` about twenty times a
/// second on the calling thread, and `armed_now` once before the first pulse.
///
/// # Errors
/// The loop cannot be armed, or signals cannot be received.
pub fn run(
    spec: LoopSpec,
    page: &SharedPage,
    limit: Option<DurNs>,
    body: impl FnMut(&Pulse) -> Flow + Send + 'static,
    armed_now: impl FnOnce(&Rt<rt::Armed>),
    mut tick: impl FnMut(&LoopPage<'_>),
) -> Result<Finished, Failed> {
    let (cpu, mut rt) = (spec.cpu, Rt::new());
    rt.add_loop(spec, page.clone(), body);
    attend(rt, cpu, page, limit, armed_now, |page| {
        tick(page);
        ControlFlow::Continue(())
    })
}

/// The same for a loop on events; `tick` may end it.
///
/// # Errors
/// As [`run`]; that of `tick`.
pub fn run_events(
    spec: LoopSpec,
    page: &SharedPage,
    limit: Option<DurNs>,
    events: impl EventLoop + 'static,
    armed_now: impl FnOnce(&Rt<rt::Armed>),
    tick: impl FnMut(&LoopPage<'_>) -> ControlFlow<Failed>,
) -> Result<Finished, Failed> {
    let (cpu, mut rt) = (spec.cpu, Rt::new());
    rt.add_events(spec, page.clone(), events);
    attend(rt, cpu, page, limit, armed_now, tick)
}

fn attend(
    mut rt: Rt<Building>,
    cpu: Option<CpuId>,
    page: &SharedPage,
    limit: Option<DurNs>,
    armed_now: impl FnOnce(&Rt<rt::Armed>),
    mut tick: impl FnMut(&LoopPage<'_>) -> ControlFlow<Failed>,
) -> Result<Finished, Failed> {
    let signals = SignalFd::new(&end_signals())?;
    rt.heap(Size(1 << 20));
    let mut armed = rt.arm()?;
    let tid = armed.tids().next().unwrap_or_default();
    // A loop may be bound to one CPU by the supervisor without requesting it.
    let bound = sys::sched::affinity(tid).ok().filter(|cpus| cpus.count() == 1).and_then(|cpus| cpus.lowest());
    let watch = Watch::begin(page.clone(), tid, cpu.or(bound));
    armed_now(&armed);
    armed.start(LEAD);
    let (begun, mut ended) = (mono_now(), Ok(()));
    while !armed.is_over() {
        sleep_until(rt::between_pulses(mono_now() + LOOK, page.read().identity()));
        if let ControlFlow::Break(failed) = tick(&page.read()) {
            ended = Err(failed);
            break;
        }
        if limit.is_some_and(|limit| mono_now() - begun >= limit) {
            break;
        }
        if signals.read()?.is_some() {
            break;
        }
    }
    armed.stop();
    let report = watch.report().clone();
    watch.end();
    ended?;
    Ok(Finished { unnamed_because: report.unnamed_because, no_steal_because: report.no_steal_because })
}

/// A percentile as text; one beyond the histogram is printed as a bound.
pub fn shown(quantile: Quantile) -> String {
    match quantile {
        Quantile::At(time) => micros(time),
        Quantile::Beyond(time) => format!(">{}", micros(time)),
        Quantile::Empty => "-".into(),
    }
}

/// One line of figures in microseconds.
#[must_use]
pub fn figures(hist: &Histogram) -> String {
    line(&Latency::from(hist))
}

/// The figures of a loop's page at the end, in lines.
pub fn verdict(page: &LoopPage<'_>, finished: &Finished) -> Vec<String> {
    let count = |counter| page.counter(counter);
    let mut lines = vec![
        format!("{:<12} {}", "[us]", heads()),
        format!("{:<12} {}", "wake-up", figures(&page.wake())),
        format!("{:<12} {}", "compute", figures(&page.compute())),
    ];
    let apart = count(Counter::SetApart);
    if apart > 0 {
        let share = apart as f64 * 100.0 / count(Counter::Watched).max(1) as f64;
        lines.push(format!("{:<12} {}", "w/o steal", figures(&page.calm())));
        lines.push(format!("{apart} cycles ({share:.2} %) excluded: the hypervisor took the CPU near them"));
    }
    lines.push(format!(
        "cycles {}, overruns {}, late {}; after arming: allocations {}, page faults {} + {}",
        count(Counter::Cycles),
        count(Counter::Overruns),
        count(Counter::Late),
        count(Counter::Allocations) + count(Counter::Frees),
        count(Counter::MinorFaults),
        count(Counter::MajorFaults),
    ));
    if let (Some(deadline), Some(tally)) = (page.deadline(), page.tally()) {
        let share = tally.share().map_or("nothing due".into(), |share| format!("{share} of the full value"));
        lines.push(format!("deadline {deadline}: {} of {} results late, {share}", tally.late, tally.due));
    }
    lines.push(preemptions(page, finished.unnamed_because.as_deref()));
    lines.extend(finished.no_steal_because.iter().map(|why| format!("steal not measured: {why}")));
    lines
}

/// Involuntary switches and the preempting tasks.
pub fn preemptions(page: &LoopPage<'_>, unnamed_because: Option<&str>) -> String {
    let total = page.counter(Counter::InvoluntarySwitches);
    let mut tasks: Vec<String> = page.culprits().map(|task| format!("{} x{}", task.name(), task.count)).collect();
    let named: u64 = page.culprits().map(|task| task.count).sum();
    if let Some(why) = unnamed_because {
        tasks.push(format!("names unknown ({why})"));
    } else if total > named {
        tasks.push(format!("unknown x{}", total - named));
    }
    match tasks.is_empty() || total == 0 {
        true => format!("involuntary switches {total}"),
        false => format!("involuntary switches {total}: {}", tasks.join(", ")),
    }
}
