//! Specification of a frame by the user.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base::{CpuId, DurNs, Priority, ResultDeadline};
use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// A frame scheduler, with one time base and one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Time base of the minor frames.
    pub base: TimeBase,
    /// Length of each minor frame. With an external time base, the expected length.
    pub minors: Vec<DurNs>,
    /// Activities, in the order in which they run within a minor.
    pub activities: Vec<Activity>,
    /// Modes with their activities. The frame begins in the first one. If empty, all activities always run.
    pub modes: Vec<Mode>,
    /// Time of each minor that is reserved and not available to activities.
    pub reserve: DurNs,
}

/// Time base: the source that begins a minor frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeBase {
    /// An absolute timer with the lengths of the minors.
    Timer,
    /// Triggers by a program (`tahti_frame_trigger`, `tahti frames trigger`).
    Software,
    /// A word in the frame's page that another program increments, polled with this period.
    Counter(DurNs),
    /// Datagrams that arrive at this UDP port of the loopback address.
    Udp(u16),
    /// A file that becomes readable for each minor: a UIO device, a FIFO.
    Device(String),
    /// A file descriptor that a program hands to the running frame: an `eventfd`, a `timerfd`, a VFIO interrupt. The first
    /// minor begins with its first tick.
    Eventfd,
    /// Pulses of a PPS source: `/dev/pps0`.
    Pps(String),
    /// Edges of a GPIO line.
    Gpio {
        /// Path of the chip, such as `/dev/gpiochip0`.
        chip: String,
        /// Number of the line.
        line: u32,
        /// Use falling edges instead of rising ones.
        falling: bool,
    },
    /// Minor frames of another frame scheduler of the plant: a synchronised group.
    Frame(String),
}

/// An activity: a thread that joins the frame under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Its name.
    pub name: String,
    /// Processor time that a call may take. Background activities need none.
    pub budget: Option<DurNs>,
    /// Minors in which it is queued, with its discipline there.
    pub queue: Vec<(u16, Discipline)>,
    /// Recovery after a fault.
    pub recovery: Recovery,
    /// Number of consecutive faults that are tolerated. `None` means 1 for recoveries that give time, otherwise 0.
    pub tolerate: Option<u32>,
    /// Result deadline of a call, counted from the due time of its minor.
    #[serde(default)]
    pub deadline: Option<ResultDeadline>,
}

/// Discipline of an activity in a minor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discipline {
    /// The activity need not begin.
    pub underrunnable: bool,
    /// The activity need not yield. It continues in the next minor in which it is queued.
    pub overrunnable: bool,
    /// A begin or yield in this minor also counts for the next minor in which the activity is queued.
    pub continuable: bool,
    /// The activity runs when all others have yielded. It is not judged.
    pub background: bool,
}

/// Recovery after an overrun or underrun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// Only count the fault.
    #[default]
    None,
    /// Extend the minor by its own length. Everything after it is later by that.
    Inject,
    /// Extend the minor by this time. Everything after it is later by that.
    Stretch(DurNs),
    /// Extend the minor by this time at the expense of the next. The phase is kept.
    Steal(DurNs),
    /// Skip the activity once.
    Skip,
    /// Put its safe values in force until it has no fault.
    SafeValue,
    /// Run it in the background from then on.
    Demote,
    /// Kill its process. The supervisor starts it again.
    Restart,
}

/// A set of activities that run together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    /// Its name.
    pub name: String,
    /// The activities that run in it.
    pub activities: Vec<String>,
}

/// A frame, and the settings of its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The frame.
    pub spec: Spec,
    /// The CPU of all its threads. With `None` they may run on any CPU, without a guaranteed order.
    pub cpu: Option<CpuId>,
    /// Priority of the dispatcher. The other threads have lower priorities.
    pub priority: Priority,
    /// Maximum time for all activities to join. After it the frame begins without the missing ones.
    pub join_within: DurNs,
    /// Frames that follow this frame's minors. It does not begin without them.
    pub followers: Vec<String>,
}

/// Minimum priority of a frame. Activities, caretaker, parked calls and background activities have lower ones.
pub const PRIORITY_MIN: Priority = Priority(5);

impl Spec {
    /// A frame on an absolute timer, without modes and reserve.
    #[must_use]
    pub fn new(name: &str, minors: Vec<DurNs>, activities: Vec<Activity>) -> Self {
        let (base, modes, reserve) = (TimeBase::Timer, Vec::new(), DurNs::ZERO);
        Self { name: name.to_owned(), base, minors, activities, modes, reserve }
    }

    /// Length of the major frame.
    #[must_use]
    pub fn major(&self) -> DurNs {
        DurNs(self.minors.iter().fold(0, |sum: i64, minor| sum.saturating_add(minor.0)))
    }
}

impl Activity {
    /// A real-time activity in a range of minors, without recovery.
    #[must_use]
    pub fn new(name: &str, budget: Option<DurNs>, minors: Range<u16>) -> Self {
        let queue = minors.map(|minor| (minor, Discipline::REAL_TIME)).collect();
        Self { name: name.to_owned(), budget, queue, recovery: Recovery::None, tolerate: None, deadline: None }
    }

    /// Whether it is a background activity.
    #[must_use]
    pub fn is_background(&self) -> bool {
        self.queue.iter().any(|(_, discipline)| discipline.background)
    }
}

impl Discipline {
    /// The activity must begin and yield in its minor.
    pub const REAL_TIME: Self =
        Self { underrunnable: false, overrunnable: false, continuable: false, background: false };
    /// The activity runs when all others have yielded.
    pub const BACKGROUND: Self = Self { background: true, ..Self::REAL_TIME };

    /// Whether the activity must yield within the minor if it begins there. `carried` means that the previous minor in which
    /// it is queued is continuable, so that progress there counts here.
    pub(crate) fn must_yield(self, carried: bool) -> bool {
        !(self.background || self.overrunnable || self.continuable && carried)
    }
}

impl Recovery {
    /// Whether it gives the minor more time.
    #[must_use]
    pub fn gives_time(self) -> bool {
        matches!(self, Self::Inject | Self::Stretch(_) | Self::Steal(_))
    }
}

impl FromStr for Discipline {
    type Err = &'static str;

    /// Parses `real-time`, `background`, or `underrunnable`, `overrunnable`, `continuable` joined by `+`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "expected real-time, background, or some of underrunnable, overrunnable, continuable joined by +";
        let mut read = Self::default();
        let mut known = Vec::new();
        for word in text.split('+').map(str::trim) {
            match word {
                "real-time" => {}
                "underrunnable" => read.underrunnable = true,
                "overrunnable" => read.overrunnable = true,
                "continuable" => read.continuable = true,
                "background" => read.background = true,
                _ => return Err(EXPECTED),
            }
            if known.contains(&word) {
                return Err("expected each word once");
            }
            known.push(word);
        }
        match known.len() {
            2.. if known.contains(&"background") => Err("expected background alone: it excludes the others"),
            2.. if known.contains(&"real-time") => Err("expected real-time alone: the others take something off it"),
            _ => Ok(read),
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.background {
            return f.write_str("background");
        }
        let rows = [
            (self.underrunnable, "underrunnable"),
            (self.overrunnable, "overrunnable"),
            (self.continuable, "continuable"),
        ];
        let mut first = true;
        for (_, word) in rows.into_iter().filter(|(set, _)| *set) {
            write!(f, "{}{word}", if first { "" } else { "+" })?;
            first = false;
        }
        if first { f.write_str("real-time") } else { Ok(()) }
    }
}

/// A word in a frame's specification is invalid. Contains the expected words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseWordError(String);

impl ParseWordError {
    fn new(expected: impl Into<String>) -> Self {
        Self(expected.into())
    }
}

impl fmt::Display for ParseWordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl core::error::Error for ParseWordError {}

impl FromStr for Recovery {
    type Err = ParseWordError;

    /// Parses `none`, `inject`, `stretch:100us`, `steal:100us`, `skip`, `safe-value`, `demote`, `restart`.
    fn from_str(text: &str) -> Result<Self, ParseWordError> {
        const EXPECTED: &str = "none, inject, stretch:TIME, steal:TIME, skip, safe-value, demote or restart";
        let time = |time: &str| match time.trim().parse::<DurNs>() {
            Ok(time) if time > DurNs::ZERO => Ok(time),
            Ok(_) => Err(ParseWordError::new("a time above 0")),
            Err(why) => Err(ParseWordError::new(format!("{EXPECTED}: {why}"))),
        };
        match text.trim().split_once(':') {
            Some(("stretch", by)) => time(by).map(Self::Stretch),
            Some(("steal", by)) => time(by).map(Self::Steal),
            Some(_) => Err(ParseWordError::new(EXPECTED)),
            None => match text.trim() {
                "none" => Ok(Self::None),
                "inject" => Ok(Self::Inject),
                "skip" => Ok(Self::Skip),
                "safe-value" => Ok(Self::SafeValue),
                "demote" => Ok(Self::Demote),
                "restart" => Ok(Self::Restart),
                _ => Err(ParseWordError::new(EXPECTED)),
            },
        }
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Inject => f.write_str("inject"),
            Self::Stretch(by) => write!(f, "stretch:{by}"),
            Self::Steal(by) => write!(f, "steal:{by}"),
            Self::Skip => f.write_str("skip"),
            Self::SafeValue => f.write_str("safe-value"),
            Self::Demote => f.write_str("demote"),
            Self::Restart => f.write_str("restart"),
        }
    }
}

impl FromStr for TimeBase {
    type Err = ParseWordError;

    /// Parses `timer`, `software`, `counter:50us`, `udp:7000`, `device:/dev/uio0`, `eventfd`, `pps:/dev/pps0`,
    /// `gpio:/dev/gpiochip0:17`, `gpio:/dev/gpiochip0:17:falling`, `frame:NAME`.
    fn from_str(text: &str) -> Result<Self, ParseWordError> {
        const EXPECTED: &str = "timer, software, counter:TIME, udp:PORT, device:PATH, eventfd, pps:PATH, \
                                gpio:PATH:LINE or frame:NAME";
        match text.trim().split_once(':') {
            None if text.trim() == "timer" => Ok(Self::Timer),
            None if text.trim() == "software" => Ok(Self::Software),
            None if text.trim() == "eventfd" => Ok(Self::Eventfd),
            Some(("counter", every)) => match every.trim().parse::<DurNs>() {
                Ok(every) if (DurNs::from_us(10)..=DurNs::from_secs(1)).contains(&every) => Ok(Self::Counter(every)),
                _ => Err(ParseWordError::new("a time from 10us to 1s after counter:")),
            },
            Some(("udp", port)) => match port.trim().parse() {
                Ok(port) if port > 0 => Ok(Self::Udp(port)),
                _ => Err(ParseWordError::new("a port from 1 to 65535 after udp:")),
            },
            Some(("device", path)) if path.starts_with('/') => Ok(Self::Device(path.to_owned())),
            Some(("pps", path)) if path.starts_with('/') => Ok(Self::Pps(path.to_owned())),
            Some(("gpio", rest)) => gpio(rest).ok_or_else(|| {
                ParseWordError::new("gpio:/dev/gpiochipN:LINE, with :falling if its falling edges count")
            }),
            Some(("frame", name)) if !name.is_empty() => Ok(Self::Frame(name.to_owned())),
            _ => Err(ParseWordError::new(EXPECTED)),
        }
    }
}

impl fmt::Display for TimeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timer => f.write_str("timer"),
            Self::Software => f.write_str("software"),
            Self::Counter(every) => write!(f, "counter:{every}"),
            Self::Udp(port) => write!(f, "udp:{port}"),
            Self::Device(path) => write!(f, "device:{path}"),
            Self::Eventfd => f.write_str("eventfd"),
            Self::Pps(path) => write!(f, "pps:{path}"),
            Self::Gpio { chip, line, falling } => {
                write!(f, "gpio:{chip}:{line}{}", if *falling { ":falling" } else { "" })
            }
            Self::Frame(name) => write!(f, "frame:{name}"),
        }
    }
}

/// Parses the text after `gpio:`.
fn gpio(text: &str) -> Option<TimeBase> {
    let (text, falling) = text.strip_suffix(":falling").map_or((text, false), |rest| (rest, true));
    let (chip, line) = text.rsplit_once(':')?;
    chip.starts_with('/').then_some(())?;
    Some(TimeBase::Gpio { chip: chip.to_owned(), line: line.parse().ok()?, falling })
}

/// Parses a list of minors: `all`, or numbers and ranges such as `0,5` or `0-3`.
///
/// # Errors
/// The text is invalid, or the frame does not have one of the minors. The error contains the expected form.
pub fn minors_of(text: &str, minors: usize) -> Result<Vec<u16>, ParseWordError> {
    let last = minors.saturating_sub(1).min(usize::from(u16::MAX)) as u16;
    if text.trim() == "all" {
        return Ok((0..=last).collect());
    }
    let expected = || ParseWordError::new(format!("`all`, or minors from 0 to {last} such as \"0,5\" or \"0-{last}\""));
    let mut read = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        match (from.trim().parse::<u16>(), to.trim().parse::<u16>()) {
            (Ok(from), Ok(to)) if from <= to && to <= last => read.extend(from..=to),
            _ => return Err(expected()),
        }
    }
    read.sort_unstable();
    let before = read.len();
    read.dedup();
    if read.len() < before { Err(ParseWordError::new("each minor once")) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn words_survive_a_round_trip() {
        for text in ["real-time", "underrunnable+overrunnable+continuable", "overrunnable", "background"] {
            assert_eq!(text.parse::<Discipline>().unwrap().to_string(), text);
        }
        for text in ["none", "inject", "stretch:100us", "steal:1ms", "skip", "safe-value", "demote", "restart"] {
            assert_eq!(text.parse::<Recovery>().unwrap().to_string(), text);
        }
        let bases = ["timer", "software", "counter:50us", "udp:7000", "device:/dev/uio0", "eventfd", "frame:fast"];
        let edges = ["pps:/dev/pps0", "gpio:/dev/gpiochip0:17", "gpio:/dev/gpiochip1:3:falling"];
        for text in bases.into_iter().chain(edges) {
            assert_eq!(text.parse::<TimeBase>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_disciplines_recoveries_and_time_bases_are_refused() {
        assert!("background+overrunnable".parse::<Discipline>().unwrap_err().contains("alone"));
        assert!("continuable+real-time".parse::<Discipline>().unwrap_err().contains("alone"));
        assert!("underrunnable+underrunnable".parse::<Discipline>().unwrap_err().contains("once"));
        assert!("soft".parse::<Discipline>().unwrap_err().contains("real-time"));
        for text in ["", "stretch", "steal:0s", "inject:1ms", "skip "] {
            assert_eq!(text.parse::<Recovery>().is_ok(), text == "skip ", "{text:?}");
        }
        let edges =
            ["pps:pps0", "gpio:/dev/gpiochip0", "gpio:/dev/gpiochip0:x", "gpio:chip:1", "gpio:/dev/gpiochip0:1:up"];
        for text in ["udp:0", "counter:1us", "device:uio0", "frame:", "clock"].into_iter().chain(edges) {
            assert!(text.parse::<TimeBase>().is_err(), "{text}");
        }
    }

    #[test]
    fn minors_are_named_by_numbers_and_ranges() {
        assert_eq!(minors_of("all", 3).unwrap(), [0, 1, 2]);
        assert_eq!(minors_of("4, 0-1", 5).unwrap(), [0, 1, 4]);
        for text in ["", "3", "2-1", "x", "0,0-1", "-1"] {
            assert!(minors_of(text, 3).is_err(), "{text:?}");
        }
    }
}
