//! Alarms of the plant itself: states of processes and partitions from its supervisor, and drift of its shield.

use alarm::{Moment, Severity, Spec, Update, Wall};
use base::DurNs;
use host::supervise::Cause;
use keep::supervisor::control::{Client, ProcessStatus, Reply, Request, RowStatus, Stands};
use keep::supervisor::rundir::RunDir;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use sys::root::RootDir;
use sys::rounds::Rounds;

/// Prefixes of the channels of processes and partitions. Record names contain no blanks.
const PROCESS: &str = "process ";
const PARTITION: &str = "partition ";
/// Channel of the plant's shield.
const SHIELD: &str = "plant shield";
/// Interval between queries.
const EVERY: Duration = Duration::from_secs(1);
/// Number of queries between two checks of the shield, which read all settings it has written.
const SHIELD_EVERY: u32 = 5;
/// A thread that finishes no round of its loop for longer than this hangs. A query may take 10 s.
const HANGS_AFTER: DurNs = DurNs::from_secs(15);
/// Maximum number of queries at startup, when the supervisor may be busy.
const TRIES: u32 = 10;

/// The supervisor's answer; `None` if there was none.
pub(crate) type Answer = Option<PlantState>;

/// State of the plant.
#[derive(Debug)]
pub(crate) struct PlantState {
    processes: BTreeMap<String, ProcessStatus>,
    partitions: BTreeMap<String, Stands>,
    /// The first broken promise about each subject.
    broken: BTreeMap<String, String>,
    /// Drift of the shield at the last check; `None` if there is no shield, or it may not be read.
    drift: Option<Vec<String>>,
}

/// A part of a plant with an automatic alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Process(String),
    Partition(String),
    Shield,
}

impl Part {
    /// Parses a channel name; `None` for channels of servers.
    pub(crate) fn of(channel: &str) -> Option<Self> {
        let process = channel.strip_prefix(PROCESS).map(|name| Self::Process(name.to_owned()));
        let partition = || channel.strip_prefix(PARTITION).map(|name| Self::Partition(name.to_owned()));
        process.or_else(partition).or_else(|| (channel == SHIELD).then_some(Self::Shield))
    }

    fn channel(&self) -> String {
        match self {
            Self::Process(name) => format!("{PROCESS}{name}"),
            Self::Partition(name) => format!("{PARTITION}{name}"),
            Self::Shield => SHIELD.to_owned(),
        }
    }

    /// Its area in the alarm tree.
    fn area(&self) -> &'static str {
        match self {
            Self::Process(_) => "processes",
            Self::Partition(_) => "partitions",
            Self::Shield => "shield",
        }
    }

    /// Its state; `None` if the plant did not report it.
    pub(crate) fn judge(&self, told: &PlantState, before: &mut BTreeMap<String, Before>, at: Wall) -> Option<Update> {
        let ((severity, message), value, number) = match self {
            Self::Process(name) => {
                let process = told.processes.get(name)?;
                let broken = told.broken.get(name).map(String::as_str);
                (judge_process(process, broken, before), process.state.clone(), process.restarts as f64)
            }
            Self::Partition(name) => differing(&told.partitions.get(name)?.drift),
            Self::Shield => differing(told.drift.as_ref()?),
        };
        Some(Update { moment: Moment { severity, message, value, time: at }, number: Some(number) })
    }
}

/// Queries a plant's supervisor repeatedly, in a separate thread because the supervisor may hang.
///
/// # Errors
/// The kernel's error.
pub(crate) fn watch(plant: &str) -> io::Result<Receiver<Answer>> {
    let (say, said) = sync_channel(1);
    let run = RunDir::find(plant);
    let rounds = Rounds::watch("plant", HANGS_AFTER);
    std::thread::Builder::new().name("plant".into()).spawn(move || {
        let (mut client, mut drift) = (None, None);
        for round in (0..SHIELD_EVERY).cycle() {
            rounds.count();
            if round == 0 {
                drift = shield_drift();
            }
            let now = ask(&run, &mut client).map(|told| PlantState { drift: drift.clone(), ..told });
            // If the receiver is busy, it gets the next answer.
            if let Err(std::sync::mpsc::TrySendError::Disconnected(_)) = say.try_send(now) {
                return;
            }
            std::thread::sleep(EVERY);
        }
    })?;
    Ok(said)
}

/// Drift of the active shield.
fn shield_drift() -> Option<Vec<String>> {
    let status = keep::shield::watch::status(&RootDir::machine(), &keep::RunDir::from_env(), Duration::ZERO).ok()?;
    status.want?;
    Some(status.drift.iter().map(ToString::to_string).collect())
}

/// The first broken promise about each subject.
fn broken(rows: &[RowStatus]) -> BTreeMap<String, String> {
    let wrong = rows.iter().rev().filter(|row| row.state.is_wrong());
    wrong.map(|row| (row.subject.clone(), format!("{}: {}", row.promise, row.evidence))).collect()
}

fn ask(run: &RunDir, client: &mut Option<Client>) -> Answer {
    if client.is_none() {
        *client = Client::connect(&run.socket()).ok();
    }
    match client.as_mut()?.ask(&Request::Status) {
        Ok(Reply::Status(status)) => Some(PlantState {
            processes: status.processes.into_iter().map(|process| (process.name.clone(), process)).collect(),
            partitions: status.partitions.into_iter().map(|stands| (stands.name.clone(), stands)).collect(),
            broken: broken(&status.health),
            drift: None,
        }),
        _ => {
            *client = None;
            None
        }
    }
}

/// Alarms of processes, partitions and the shield, if active, that the file does not define. Waits for the supervisor's first
/// answer.
pub(crate) fn specs(said: &Receiver<Answer>, known: &[Spec]) -> Vec<Spec> {
    let answers = std::iter::repeat_with(|| said.recv().ok()).take(TRIES as usize).map_while(|said| said);
    answers.flatten().next().map_or(Vec::new(), |told| missing(&told, known))
}

fn missing(told: &PlantState, known: &[Spec]) -> Vec<Spec> {
    let processes = told.processes.keys().cloned().map(Part::Process);
    let partitions = told.partitions.keys().cloned().map(Part::Partition);
    let parts = processes.chain(partitions).chain(told.drift.as_ref().map(|_| Part::Shield));
    parts
        .map(|part| Spec {
            channel: part.channel(),
            area: vec![part.area().to_owned()],
            enabled: true,
            ..Spec::default()
        })
        .filter(|own| known.iter().all(|spec| spec.channel != own.channel))
        .collect()
}

/// Drift means that a promise is broken.
fn differing(drift: &[String]) -> ((Severity, String), String, f64) {
    let judged = match drift {
        [] => (Severity::Ok, Severity::Ok.name().to_owned()),
        [only] => (Severity::Major, only.clone()),
        [first, rest @ ..] => (Severity::Major, format!("{first}, and {} more", rest.len())),
    };
    (judged, base::text::Counted(drift.len(), "difference").to_string(), drift.len() as f64)
}

/// State of a process at the last check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Before {
    restarts: u64,
    ended: Option<base::MonoNs>,
    evidence: Option<std::path::PathBuf>,
    misses: u64,
}

/// Reports what has become worse since the last check: an alarm at this check, cleared at the next. At the first check, only
/// conditions that persist count.
fn judge_process(
    process: &ProcessStatus,
    broken: Option<&str>,
    before: &mut BTreeMap<String, Before>,
) -> (Severity, String) {
    let now = Before {
        restarts: process.restarts,
        ended: process.ended.as_ref().map(|(at, _)| *at),
        evidence: process.evidence.clone(),
        misses: process.loop_page.as_ref().map_or(0, |page| page.misses),
    };
    let Before { restarts, ended, evidence, misses } =
        before.insert(process.name.clone(), now.clone()).unwrap_or_else(|| now.clone());
    let bad = |cause: &Cause| {
        matches!(
            cause,
            Cause::Runaway | Cause::Hang | Cause::Starved | Cause::DeadlineMissed | Cause::NoStart(_) | Cause::NotReady
        )
    };
    let end = process.ended.as_ref().filter(|(at, cause)| ended != Some(*at) && bad(cause));
    if process.state == "FAULT" {
        (Severity::Major, "FAULT".to_owned())
    } else if let Some(trouble) = &process.trouble {
        (Severity::Major, trouble.clone())
    } else if let Some(broken) = broken {
        (Severity::Major, broken.to_owned())
    } else if let Some((_, cause)) = end {
        (Severity::Major, cause.to_string())
    } else if let Some(path) = now.evidence.filter(|path| evidence.as_ref() != Some(path)) {
        (Severity::Major, format!("fault, evidence in {}", path.display()))
    } else if now.restarts > restarts {
        let why = process.ended.as_ref().map_or_else(String::new, |(_, cause)| format!(" after {cause}"));
        (Severity::Minor, format!("restarted{why}"))
    } else if now.misses > misses {
        (Severity::Minor, format!("skips periods: {} at its start", now.misses - misses))
    } else {
        (Severity::Ok, Severity::Ok.name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::MonoNs;

    fn process() -> ProcessStatus {
        serde_json::from_value(serde_json::json!({
            "name": "loop", "state": "running", "pid": 7, "keeper": 6, "class": base::Policy::OTHER, "cpus": base::CpuSet::default(),
            "cpu": DurNs(0), "memory": base::Size(0), "threads": 1, "started": MonoNs(1), "starts": 1, "restarts": 0,
            "ended": null, "shortfalls": [], "evidence": null, "loop": null
        }))
        .unwrap()
    }

    /// A plant with a process, a partition and a shield, with these differences.
    fn told(partition: &[&str], shield: Option<&[&str]>) -> PlantState {
        let partition = serde_json::json!({
            "name": "hmi", "cpu": null, "memory": null, "tasks": null, "io": [], "drift": partition
        });
        PlantState {
            processes: [("loop".to_owned(), process())].into(),
            partitions: [("hmi".to_owned(), serde_json::from_value(partition).unwrap())].into(),
            broken: BTreeMap::new(),
            drift: shield.map(|lines| lines.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_shield_and_a_partition_are_alarms_while_a_setting_differs() {
        let is = |part: Part, told: &PlantState| {
            let update = part.judge(told, &mut BTreeMap::new(), Wall(1))?;
            Some((update.moment.severity, update.moment.message, update.moment.value, update.number))
        };
        let partition = || Part::Partition("hmi".into());
        let well = Some((Severity::Ok, "OK".to_owned(), "0 differences".to_owned(), Some(0.0)));
        let one = Some((Severity::Major, "a: wrote 1, found 3".to_owned(), "1 difference".to_owned(), Some(1.0)));
        let two =
            (Severity::Major, "a: wrote 1, found 3, and 1 more".to_owned(), "2 differences".to_owned(), Some(2.0));
        let lines = ["a: wrote 1, found 3", "b: wrote 1, found 2"];
        let both = [told(&[], Some(&lines[..1])), told(&lines, Some(&[]))];
        assert_eq!([is(partition(), &both[0]), is(Part::Shield, &both[0])], [well.clone(), one]);
        assert_eq!([is(partition(), &both[1]), is(Part::Shield, &both[1])], [Some(two), well]);
        let gone = Part::Partition("gone".into());
        assert_eq!([is(gone, &both[0]), is(Part::Shield, &told(&[], None))], [None, None]);
    }

    #[test]
    fn parts_of_the_plant_are_added_as_alarms_unless_the_file_has_them() {
        let paths = |told: &PlantState, known: &[Spec]| -> Vec<String> {
            missing(told, known).iter().map(|spec| format!("{}/{}", spec.area[0], spec.channel)).collect()
        };
        let all = ["processes/process loop", "partitions/partition hmi", "shield/plant shield"];
        assert_eq!(paths(&told(&[], Some(&[])), &[]), all);
        assert_eq!(paths(&told(&[], None), &[]), all[..2]);
        let named = Spec { channel: "partition hmi".into(), ..Spec::default() };
        assert_eq!(paths(&told(&[], None), &[named]), all[..1]);
        for spec in missing(&told(&[], Some(&[])), &[]) {
            assert_eq!(Part::of(&spec.channel).map(|part| part.channel()), Some(spec.channel));
        }
        assert_eq!([Part::of("RF:TEMP"), Part::of("plant shields")], [None, None]);
    }

    #[test]
    fn a_process_is_an_alarm_while_its_state_becomes_worse() {
        let (mut before, mut process) = (BTreeMap::new(), process());
        let mut is = |process: &ProcessStatus| judge_process(process, None, &mut before);
        process.restarts = 3;
        assert_eq!(is(&process).0, Severity::Ok, "restarts before the first look are no event");
        process.restarts = 4;
        process.ended = Some((MonoNs(5), Cause::Runaway));
        assert_eq!(is(&process), (Severity::Major, Cause::Runaway.to_string()));
        assert_eq!(is(&process).0, Severity::Ok);
        process.restarts = 5;
        assert_eq!(is(&process), (Severity::Minor, format!("restarted after {}", Cause::Runaway)));
        process.evidence = Some("/e".into());
        assert_eq!(is(&process), (Severity::Major, "fault, evidence in /e".into()));
        process.trouble = Some("failed to append: no space".into());
        let lasts = (Severity::Major, "failed to append: no space".to_owned());
        assert_eq!([is(&process), is(&process)], [lasts.clone(), lasts]);
        process.trouble = None;
        assert_eq!(is(&process).0, Severity::Ok);
        process.state = "FAULT".into();
        assert_eq!([is(&process).0, is(&process).0], [Severity::Major; 2]);
    }
}
