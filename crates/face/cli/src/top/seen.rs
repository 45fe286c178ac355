//! Samples the plant in a separate thread. A source that does not answer delays neither keys nor screen.

use super::{is_down, recorded, share, times_of};
use crate::failure::Failure;
use crate::ps::{Before, percent};
use alarm::Severity;
use alarm::wire::List;
use base::{CpuId, DurNs, MonoNs};
use dash::{Alarms, AlarmsError, Frames};
use keep::supervisor::Thread;
use keep::supervisor::control::{LoopHistogram, Reply, Request, Status as Plant};
use keep::supervisor::logs::{Line, Reader};
use keep::supervisor::rundir::RunDir;
use proc::stat::CpuTimes;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use sys::clock::mono_now;

/// One sample of a plant.
#[derive(Debug)]
pub(super) struct PlantSample {
    pub(super) plant: Plant,
    /// CPU usage in percent of one CPU. Processes are stored under their pid, threads under the negated thread id.
    pub(super) percents: BTreeMap<i32, f64>,
    /// The threads of each process, by pid.
    pub(super) threads: BTreeMap<i32, Vec<Thread>>,
    pub(super) histograms: Vec<LoopHistogram>,
    /// `None` if no flight recorder runs.
    pub(super) late: Option<recorder::status::Status>,
    /// The alarms, or why they are unknown.
    pub(super) alarms: Result<AlarmsSample, AlarmsError>,
    /// In the format of [`Frames::look`].
    pub(super) frames: Value,
    /// Use of each CPU since the previous sample in percent.
    pub(super) cpus: Vec<(CpuId, f64)>,
    /// Log lines since the previous sample.
    pub(super) log: Vec<Line>,
    /// CPU usage of this process in percent of one CPU.
    pub(super) own: f64,
}

/// The alarms of a plant that are not hidden.
#[derive(Debug, Default)]
pub(super) struct AlarmsSample {
    /// The most severe first, then the oldest; at most [`ALARMS_MAX`].
    pub(super) rows: Vec<ActiveAlarm>,
    /// Number of acknowledged alarms.
    pub(super) acknowledged: usize,
}

/// An alarm that is active or acknowledged.
#[derive(Debug)]
pub(super) struct ActiveAlarm {
    pub(super) path: String,
    pub(super) severity: Severity,
    pub(super) message: String,
    /// Time since its stamp.
    pub(super) age: DurNs,
}

/// Maximum alarms of a sample.
const ALARMS_MAX: usize = 100;

/// A sample, or why there is none.
pub(super) type Look = Result<Box<PlantSample>, NoLook>;

/// Why a plant could not be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoLook {
    /// The plant is not up.
    Down,
    /// The supervisor does not answer, for this reason.
    Silent(String),
}

/// The sampling thread.
#[derive(Debug)]
pub(super) struct Looker {
    pub(super) looks: Receiver<Look>,
    /// Receives one byte for each sample.
    pub(super) bell: UnixStream,
    /// The other end of `bell`.
    rings: UnixStream,
    /// Pauses (true) or continues (false) the sampling.
    pub(super) pauses: Sender<bool>,
}

impl Looker {
    pub(super) fn start(plant: &str, every: Duration) -> std::io::Result<Self> {
        let (send, looks) = channel();
        let (pauses, paused) = channel();
        let (mut rings, bell) = UnixStream::pair()?;
        let ring = rings.try_clone()?;
        let mut looking = Looking::new(plant);
        let body = move || {
            let mut pause = false;
            loop {
                if !pause && (send.send(looking.look()).is_err() || rings.write_all(b"!").is_err()) {
                    return;
                }
                match paused.recv_timeout(every) {
                    Ok(now) => pause = now,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        std::thread::Builder::new().name("top-looks".to_owned()).spawn(body)?;
        Ok(Self { looks, bell, rings: ring, pauses })
    }

    /// A socket that wakes the screen when a byte is written to it.
    pub(super) fn ring(&self) -> std::io::Result<UnixStream> {
        self.rings.try_clone()
    }
}

/// State that is kept between samples.
struct Looking {
    name: String,
    before: Option<Before>,
    alarms: Alarms,
    frames: Frames,
    cpus: Vec<(Option<CpuId>, CpuTimes)>,
    logs: Reader,
    own: (MonoNs, i64),
}

impl Looking {
    fn new(plant: &str) -> Self {
        let (alarms, frames) = (Alarms::new(plant), Frames::new(plant));
        let logs = Reader::new(&RunDir::find(plant));
        let (before, cpus, own) = (None, Vec::new(), (mono_now(), own_time()));
        Self { name: plant.to_owned(), before, alarms, frames, cpus, logs, own }
    }

    fn look(&mut self) -> Look {
        self.observe().map_err(|why| if is_down(&self.name) { NoLook::Down } else { NoLook::Silent(why.to_string()) })
    }

    fn observe(&mut self) -> Result<Box<PlantSample>, Failure> {
        let plant = crate::ps::status(&self.name)?;
        let histograms = match crate::control::ask(&self.name, &Request::Histograms)? {
            Reply::Histograms(all) => all,
            other => return Err(format!("{other:?} are no histograms").into()),
        };
        let before = self.before.as_ref();
        let pids = plant.processes.iter().filter_map(|one| one.pid);
        let threads: BTreeMap<i32, Vec<Thread>> = pids.map(|pid| (pid, keep::supervisor::threads(pid))).collect();
        let mut percents: BTreeMap<i32, f64> =
            plant.processes.iter().filter_map(|one| Some((one.pid?, percent(one, plant.now, before)))).collect();
        let mut times = times_of(&plant);
        for thread in threads.values().flatten() {
            if before.is_some_and(|(_, times)| times.contains_key(&-thread.tid)) {
                percents.insert(-thread.tid, share(&plant, thread.tid, thread.cpu, before));
            }
            times.insert(-thread.tid, thread.cpu);
        }
        self.before = Some((plant.now, times));
        let late = recorded(&self.name);
        let alarms = self
            .alarms
            .list()
            .map(|list| AlarmsSample::of(list, i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX)));
        let cpus = self.cpus();
        // Without logs, the pane says so.
        let log = self.logs.fresh().unwrap_or_default();
        let frames = self.frames.look();
        let (now, used) = (mono_now(), own_time());
        let own = 100.0 * (used - self.own.1) as f64 / (now - self.own.0).0.max(1) as f64;
        self.own = (now, used);
        Ok(Box::new(PlantSample { plant, percents, threads, histograms, late, alarms, frames, cpus, log, own }))
    }

    /// Use of each CPU since the previous sample.
    fn cpus(&mut self) -> Vec<(CpuId, f64)> {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let now = proc::stat::cpu_times(&text).unwrap_or_default();
        let before = std::mem::replace(&mut self.cpus, now);
        let idle = |times: &CpuTimes| times.idle + times.iowait;
        let one = |(cpu, times): &(Option<CpuId>, CpuTimes)| {
            let earlier = before.iter().find(|(other, _)| other == cpu)?.1;
            let all = times.total().checked_sub(earlier.total()).filter(|all| *all > 0)?;
            let rest = idle(times).saturating_sub(idle(&earlier));
            Some(((*cpu)?, 100.0 * all.saturating_sub(rest) as f64 / all as f64))
        };
        self.cpus.iter().filter_map(one).collect()
    }
}

/// CPU time of this process in ns.
fn own_time() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

impl AlarmsSample {
    /// `now` in nanoseconds since 1970.
    fn of(mut list: List, now: i64) -> Self {
        list.sort();
        let shown =
            || list.rows.iter().filter(|row| row.state.hidden().is_none() && row.state.alarm.severity != Severity::Ok);
        let one = |row: &alarm::wire::Row| ActiveAlarm {
            path: row.path.clone(),
            severity: row.state.alarm.severity,
            message: row.state.alarm.message.clone(),
            age: DurNs(now.saturating_sub(row.state.alarm.time.0).max(0)),
        };
        let acknowledged = shown().filter(|row| !row.state.alarm.severity.is_active()).count();
        Self { rows: shown().take(ALARMS_MAX).map(one).collect(), acknowledged }
    }
}
