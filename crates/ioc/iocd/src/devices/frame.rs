//! "tahti Frame": counters and times of a frame, `@PLANT/FRAME WHAT every=1s`.
//!
//! WHAT is one of:
//!
//! - `state`, `mode`, `pulse`, `minor`
//! - a counter: `minors lost overruns underruns absences extensions skipped blocked parked refused`
//! - `late.STAT` or `dispatch.STAT`
//! - `slack.N.STAT` of minor frame N
//! - `ACTIVITY.` and one of `calls overruns underruns absences over_budget demoted safe` or `exec.STAT`
//!
//! STAT is `p50`, `p99`, `max` or `mean`, in microseconds. With SCAN `I/O Intr`, the record is processed once per `every`.
//! The alarm is COMM INVALID while the frame does not run. It is READ INVALID if the figure is unknown: nothing was measured
//! yet, or the percentile is beyond the range of the histogram.

use super::{DeviceSupport, Interrupt, Options, Ports, RecordDevice, Reply, Served};
use base::{DurNs, Histogram, Quantile, Scalar, Status, Str40, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use ring::{ActivityCounter, FrameCounter, FramePage, FrameState};
use rt::frames::Watcher;

/// The device support.
pub(super) struct Frame;

impl DeviceSupport for Frame {
    fn name(&self) -> &'static str {
        "tahti Frame"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["ai", "bi", "mbbi", "longin", "int64in", "stringin"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, AttachError> {
        let mut options = Options::parse(place.address);
        let frame = options.needed("PLANT/FRAME")?.to_owned();
        let what = Quantity::parse(options.needed(EXPECTED)?)?;
        let every = options.time("every", DurNs::from_secs(1))?;
        options.finish()?;
        let watch = Watch { frame, what, every, watcher: None, interrupt: None };
        Ok(Served { device: Some(Box::new(watch)), interrupts: true, ..Served::default() })
    }
}

const EXPECTED: &str = "state, mode, pulse, minor, a counter such as overruns, late.p99, dispatch.p99, slack.0.p50, \
                        or an activity's such as control.calls, control.exec.p99";

const COUNTERS: [(&str, FrameCounter); 11] = [
    ("minors", FrameCounter::Minors),
    ("lost", FrameCounter::Lost),
    ("overruns", FrameCounter::Overruns),
    ("underruns", FrameCounter::Underruns),
    ("absences", FrameCounter::Absences),
    ("extensions", FrameCounter::Extensions),
    ("skipped", FrameCounter::Skipped),
    ("blocked", FrameCounter::Blocked),
    ("parked", FrameCounter::Parked),
    ("refused", FrameCounter::Refused),
    ("hung_up", FrameCounter::HungUp),
];

const OF_ACTIVITY: [(&str, ActivityCounter); 7] = [
    ("calls", ActivityCounter::Calls),
    ("overruns", ActivityCounter::Overruns),
    ("underruns", ActivityCounter::Underruns),
    ("absences", ActivityCounter::Absences),
    ("over_budget", ActivityCounter::OverBudget),
    ("demoted", ActivityCounter::Demoted),
    ("safe", ActivityCounter::Safe),
];

/// A statistic of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stat {
    P50,
    P99,
    Max,
    Mean,
}

impl Stat {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "p50" => Self::P50,
            "p99" => Self::P99,
            "max" => Self::Max,
            "mean" => Self::Mean,
            _ => return None,
        })
    }

    /// The statistic in microseconds; `None` if it is unknown.
    fn of(self, histogram: &Histogram) -> Option<f64> {
        let quantile = |num, den| match histogram.quantile(num, den) {
            Quantile::At(time) => Some(time),
            Quantile::Beyond(_) | Quantile::Empty => None,
        };
        let time = match self {
            Self::P50 => quantile(50, 100),
            Self::P99 => quantile(99, 100),
            Self::Max => histogram.max(),
            Self::Mean => histogram.mean(),
        };
        time.map(|time| time.0 as f64 / 1e3)
    }
}

/// The quantity to read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Quantity {
    State,
    Mode,
    Pulse,
    Minor,
    Counter(usize),
    Late(Stat),
    Dispatch(Stat),
    Slack(usize, Stat),
    Activity(String, usize),
    Exec(String, Stat),
}

impl Quantity {
    fn parse(word: &str) -> Result<Self, AttachError> {
        let counter = |word: &str| COUNTERS.iter().position(|(name, _)| *name == word);
        let bad = || AttachError::Unexpected { found: format!("\"{word}\""), expected: EXPECTED.to_owned() };
        let stat = |word: &str| Stat::parse(word).ok_or_else(bad);
        let parts: Vec<&str> = word.split('.').collect();
        Ok(match parts[..] {
            ["state"] => Self::State,
            ["mode"] => Self::Mode,
            ["pulse"] => Self::Pulse,
            ["minor"] => Self::Minor,
            [word] => Self::Counter(counter(word).ok_or_else(bad)?),
            ["late", word] => Self::Late(stat(word)?),
            ["dispatch", word] => Self::Dispatch(stat(word)?),
            ["slack", minor, word] => Self::Slack(minor.parse().map_err(|_| bad())?, stat(word)?),
            [activity, "exec", word] => Self::Exec(activity.to_owned(), stat(word)?),
            [activity, word] => {
                let counter = OF_ACTIVITY.iter().position(|(name, _)| *name == word).ok_or_else(bad)?;
                Self::Activity(activity.to_owned(), counter)
            }
            _ => return Err(bad()),
        })
    }

    fn read(&self, page: &FramePage<'_>) -> Option<Scalar> {
        let whole = |value: u64| Some(Scalar::I64(value as i64));
        let activity =
            |name: &str| (0..page.shape().activities).find(|index| page.activity_name(*index).as_str() == name);
        match self {
            Self::State => Some(Scalar::Enum(match page.state() {
                FrameState::Forming => 0,
                FrameState::Running => 1,
                FrameState::Ended => 2,
            })),
            Self::Mode => {
                let name = page.mode_name(page.border().mode.into());
                Some(Scalar::String(name.map_or(Str40::EMPTY, |name| Str40::from(name.as_str()))))
            }
            Self::Pulse => whole(page.border().pulse),
            Self::Minor => whole(page.border().minor.into()),
            Self::Counter(counter) => whole(page.counter(COUNTERS[*counter].1)),
            Self::Late(stat) => stat.of(&page.late().read()).map(Scalar::F64),
            Self::Dispatch(stat) => stat.of(&page.dispatch().read()).map(Scalar::F64),
            Self::Slack(minor, _) if *minor >= page.shape().minors => None,
            Self::Slack(minor, stat) => stat.of(&page.slack(*minor).read()).map(Scalar::F64),
            Self::Activity(name, counter) => whole(page.activity_counter(activity(name)?, OF_ACTIVITY[*counter].1)),
            Self::Exec(name, stat) => stat.of(&page.exec(activity(name)?).read()).map(Scalar::F64),
        }
    }
}

/// The device of one record.
struct Watch {
    frame: String,
    what: Quantity,
    every: DurNs,
    watcher: Option<Watcher>,
    interrupt: Option<Interrupt>,
}

impl Watch {
    fn fed(&mut self, now: Now) -> DeviceSample {
        if self.watcher.as_ref().is_none_or(|watcher| !watcher.is_alive()) {
            self.watcher = Watcher::open(&self.frame).ok();
        }
        let Some(watcher) = &self.watcher else { return DeviceSample::failed(Status::Comm) };
        let page = watcher.page();
        match self.what.read(&page) {
            Some(value) => {
                DeviceSample { tag: page.border().pulse, ..DeviceSample::good(Value::Scalar(value), now.wall) }
            }
            None => DeviceSample::failed(Status::Read),
        }
    }
}

impl RecordDevice for Watch {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
    }

    fn request(&mut self, now: Now, _: Option<Output>, reply: Reply) {
        reply.send(self.fed(now));
    }

    fn period(&self) -> Option<DurNs> {
        Some(self.every)
    }

    fn poll(&mut self, now: Now) {
        let fed = self.fed(now);
        if let Some(interrupt) = &self.interrupt {
            // If there is no room, the value is refused and counted. The next period tries again.
            interrupt.feed_or_refuse(fed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_documented_names() {
        assert_eq!(Quantity::parse("late.p99"), Ok(Quantity::Late(Stat::P99)));
        assert_eq!(Quantity::parse("slack.2.mean"), Ok(Quantity::Slack(2, Stat::Mean)));
        assert_eq!(Quantity::parse("control.exec.max"), Ok(Quantity::Exec("control".into(), Stat::Max)));
        assert_eq!(Quantity::parse("control.over_budget"), Ok(Quantity::Activity("control".into(), 4)));
        assert_eq!(Quantity::parse("overruns"), Ok(Quantity::Counter(2)));
        for bad in ["overun", "late", "late.p98", "slack.p50", "control.x", "a.b.c.d"] {
            assert!(Quantity::parse(bad).unwrap_err().to_string().contains("expected state"), "{bad}");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        assert_eq!(Stat::P99.of(&Histogram::new()), None);
        let mut histogram = Histogram::new();
        histogram.record(DurNs::from_us(10));
        assert_eq!(Stat::Max.of(&histogram), Some(10.0));
    }
}
