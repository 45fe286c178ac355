//! Fault injection: each observer is run on a faulty world, and its observation is passed to the table. For each claim, each
//! fault has its expected verdict. A new claim without an entry here does not compile.

use super::*;
use crate::supervisor::pulses::Pulses;
use crate::supervisor::rundir;
use crate::supervisor::watch::Watched;
use base::{CpuSet, Lateness, ResultDeadline, Tally, Worth};
use host::health::Promise;
use host::plan::Drift;
use host::plant::{Anywhere, DeadlineRule, MissRatio, check};
use host::snapshot::{Target, Value};
use host::supervise::{End, Supervision};
use std::path::{Path, PathBuf};

const CLAIMS: [Claim; 24] = [
    Claim::Runs,
    Claim::Ready,
    Claim::Class,
    Claim::Threads,
    Claim::Cpus,
    Claim::Memory,
    Claim::Restarts,
    Claim::Heartbeat,
    Claim::Budget,
    Claim::Skipped,
    Claim::Value,
    Claim::Deadline,
    Claim::Serves,
    Claim::Stops,
    Claim::Fits,
    Claim::SafeOutput,
    Claim::Available,
    Claim::Isolated,
    Claim::Journal,
    Claim::Bounds,
    Claim::Observes,
    Claim::Files,
    Claim::Records,
    Claim::Restored,
];

/// A folder that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tahti-observers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The folder may already be gone, which is one of the faults.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The fault, the observer's observation, and the expected verdict.
type Scenario = (&'static str, Observation, &'static str);

fn unit(state: State) -> Unit {
    let text = "[plant]\nname = \"p\"\n[[process]]\nname = \"loop\"\ncommand = \"x\"\n";
    let plant = check(text, &Anywhere).plant.unwrap();
    let mut unit = Supervision::new(&plant).units()[0].clone();
    unit.state = state;
    unit
}

fn running(letter: Option<char>) -> Observation {
    runs(&unit(State::Running), false, letter, Phase::Up, "")
}

/// A process with these findings about its threads.
fn found(class: &[&str], cpus: &[&str], unshielded: bool) -> ProcessFindings {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    ProcessFindings {
        pid: 77,
        letter: 'S',
        is_dead: false,
        class: owned(class),
        has_class: true,
        cpus: owned(cpus),
        unshielded,
    }
}

/// The observation of locked memory, from a fake `/proc`.
fn locked(status: Option<&str>, shortfalls: &[&str]) -> Observation {
    let folder = Temporary::new("memory");
    status.into_iter().for_each(|text| folder.write("proc/77/status", text));
    let shortfalls: Vec<String> = shortfalls.iter().map(|one| (*one).to_owned()).collect();
    threads::memory(&RootDir::at(&folder.0), 77, &shortfalls)
}

/// Files of a control group with the declared limit and the process.
const GROUP: [(&str, &str); 3] = [("pids.max", "20"), ("pids.current", "1"), ("cgroup.procs", "77")];

/// The observation of limits, from a fake `/proc` and a fake group.
fn limited(soft: &str, hard: &str, score: &str, group: &[(&str, &str)], shortfalls: &[&str]) -> Observation {
    let folder = Temporary::new("limits");
    folder.write(
        "proc/77/limits",
        &format!("Max open files            {soft}                   {hard}                 files\n"),
    );
    folder.write("proc/77/oom_score_adj", &format!("{score}\n"));
    group.iter().for_each(|(name, text)| folder.write(&format!("group/{name}"), text));
    let text = "[plant]\nname = \"p\"\n[[process]]\nname = \"loop\"\ncommand = \"x\"\noom_score_adjust = 500\n\
        tasks_max = 20\nlimits = { files = 64 }\n";
    let plant = check(text, &Anywhere).plant.unwrap();
    let group = Group::at(vec![folder.0.join("group")]);
    let shortfalls: Vec<String> = shortfalls.iter().map(|one| (*one).to_owned()).collect();
    limits::limits(&RootDir::at(&folder.0), 77, &plant.processes[0], Some(&group), &shortfalls)
}

#[test]
fn a_frozen_control_group_is_found_in_both_versions() {
    for (file, frozen, thawed) in [
        ("cgroup.events", "populated 1\nfrozen 1\n", "populated 1\nfrozen 0\n"),
        ("freezer.state", "FROZEN\n", "THAWED\n"),
    ] {
        let folder = Temporary::new("frozen");
        let group = Group::at(vec![folder.0.clone()]);
        folder.write(file, frozen);
        assert!(limits::frozen(&group).is_some_and(|found| found.starts_with("frozen: its control group ")), "{file}");
        folder.write(file, thawed);
        assert_eq!(limits::frozen(&group), None, "{file}");
    }
}

/// The observation of a heartbeat, with the number of signs of life at each second.
fn beats(all: &[u64]) -> Observation {
    let mut memory = Memory::default();
    let second = |nth: usize| MonoNs(nth as u64 * 1_000_000_000);
    let seen = all.iter().enumerate().map(|(nth, signs)| memory.silence(second(nth), *signs, DurNs::from_ms(1500)));
    seen.last().unwrap_or(Observation::Kept)
}

/// The observation of a heartbeat within 4 s whose interval the process has set.
fn interval(interval: DurNs) -> Observation {
    let mut watched = Watched::default();
    let _ = watched.set_interval(interval);
    watched.excess(DurNs::from_secs(4)).unwrap_or(Observation::Kept)
}

fn results(late: u64, least: Option<u32>, lateness: Lateness) -> Observation {
    let tally = Tally { due: 100, late, worth: 1_000_000 * (100 - late) };
    let result = ResultDeadline { at: DurNs::from_ms(5), late: lateness };
    let rule = DeadlineRule { result, least: least.map(Worth) };
    let value = crate::supervisor::control::Value {
        deadline: Some(rule.to_string()),
        least: rule.least,
        tally,
        share: tally.share(),
    };
    judge_value(Some(&value), Some(&rule), 0, Progress::Begun)
}

/// The observation of a shield with these differences.
fn shield(drift: &[(Target, &str)], stuck: &[&str], refused: Option<&str>) -> Observation {
    let drift = drift.iter().map(|(target, label)| Drift {
        target: target.clone(),
        label: (*label).to_owned(),
        expected: Value::Cpus(CpuSet::single(0)),
        found: Value::Cpus(CpuSet::first(2)),
    });
    let unavailable = stuck.iter().map(|one| (*one).to_owned()).collect();
    isolated(Compared { drift: drift.collect(), unavailable }, refused.map(str::to_owned))
}

/// The observation of a shield journal with this content.
fn journal(text: Option<&str>) -> Observation {
    let folder = Temporary::new("journal");
    folder.write("proc/sys/kernel/random/boot_id", "a boot that never was\n");
    text.into_iter().for_each(|text| folder.write("run/shield.json", text));
    let fault = crate::shield::journal_fault(&RootDir::at(&folder.0), &RunDir::at(folder.0.join("run")));
    fault.map_or(Observation::Kept, Observation::Broken)
}

/// The observation of the run folder after `harm` was done to it.
fn files(harm: impl FnOnce(&Path)) -> Observation {
    let folder = Temporary::new("files");
    folder.write("p/lock", "");
    folder.write("p/control", "");
    folder.write("p/state.json", "");
    folder.write("p/keep/a/socket", "");
    let run = rundir::RunDir::of(&folder.0.join("p").display().to_string());
    let place = Place::of(&run);
    let compare = || place.compare(&run, ["a"].into_iter());
    assert_eq!(compare(), Observation::Kept);
    harm(&folder.0.join("p"));
    compare()
}

/// Every fault of a claim that an observer can detect. Empty for claims that are observed where the fault is reported; tests
/// with whole processes cover these.
fn ways(claim: Claim) -> Vec<Scenario> {
    let irq = || Target::Irq { key: host::snapshot::IrqKey("eth0".into()) };
    let file = || Target::File { path: "/proc/sys/vm/stat_interval".into(), form: host::snapshot::Form::Text };
    let pulses = |given_up: u64| Pulses { ran: 1000 - given_up, given_up, overran: 0 };
    let lacks = |what: &str| vec![format!("{what}: not permitted; run as root")];
    match claim {
        Claim::Runs => {
            let ended = |state| {
                let mut unit = unit(state);
                unit.history.ended = Some((MonoNs(1), Cause::Own(End::Exit(7))));
                runs(&unit, false, None, Phase::Up, " after exit 7")
            };
            vec![
                ("it sleeps", running(Some('S')), "good"),
                ("it waits for a disk", running(Some('D')), "good"),
                ("SIGSTOP", running(Some('T')), "failed"),
                ("a tracer stops it", running(Some('t')), "failed"),
                ("a zombie", running(Some('Z')), "failed"),
                ("dead", running(Some('X')), "failed"),
                ("no process", running(None), "failed"),
                ("its fault is latched", ended(State::Faulted), "failed"),
                ("it waits for its restart", ended(State::Resting { until: MonoNs(9) }), "degraded"),
                (
                    "stopped while it becomes ready",
                    runs(&unit(State::Warming { until: MonoNs(9) }), false, Some('T'), Phase::Up, ""),
                    "failed",
                ),
                ("it has done its work", runs(&unit(State::Finished), false, None, Phase::Up, ""), "good"),
                (
                    "a service ends while the plant is up",
                    runs(&unit(State::Finished), true, None, Phase::Up, ""),
                    "failed",
                ),
                (
                    "a service ends with the plant",
                    runs(&unit(State::Finished), true, None, Phase::Stopping(None), ""),
                    "good",
                ),
            ]
        }
        Claim::Ready => vec![("no sign", once(1, "no sign of readiness in time"), "failed")],
        Claim::Class => vec![
            ("as declared", found(&[], &[], false).class(&[]), "good"),
            ("chrt", found(&["thread 77 has class other, expected fifo:20"], &[], false).class(&[]), "failed"),
            ("chrt of all threads", found(&["one", "two"], &[], false).class(&[]), "failed"),
            ("refused at the start", found(&["thread 77"], &[], false).class(&lacks("no class fifo:20")), "degraded"),
        ],
        Claim::Threads => vec![
            ("each rule has a thread", ruled(&[]), "good"),
            ("a rule has no thread", ruled(&["nosuch-*"]), "degraded"),
        ],
        Claim::Cpus => vec![
            ("as declared", found(&[], &[], false).cpus(&[]), "good"),
            ("taskset", found(&[], &["thread 77 may run on CPUs 0-1, expected 1"], false).cpus(&[]), "failed"),
            ("no CPU is isolated", found(&[], &[], true).cpus(&[]), "degraded"),
            ("refused at the start", found(&[], &["thread 77"], false).cpus(&lacks("no CPUs 1")), "degraded"),
        ],
        Claim::Memory => vec![
            ("locked", locked(Some("VmLck:\t    4096 kB\n"), &[]), "good"),
            ("munlockall, then one page", locked(Some("VmLck:\t8 kB\nRssAnon:\t3200 kB\n"), &[]), "failed"),
            ("munlockall", locked(Some("VmLck:\t       0 kB\n"), &[]), "failed"),
            ("refused at the start", locked(Some("VmLck:\t       0 kB\n"), &["no memory lock: x; y"]), "degraded"),
        ],
        Claim::Restarts => {
            let mut unit = unit(State::Running);
            unit.history.restarts = 3;
            let at = |now: u64, unit: &Unit, more| restarts(MonoNs(now * 1_000_000_000), unit, more, "");
            let none = at(100, &unit, 0);
            unit.history.recent.push_back(MonoNs(95_000_000_000));
            let (within, over) = (at(100, &unit, 0), at(1000, &unit, 0));
            (unit.state, unit.history.recent) =
                (State::Faulted, (90..95).map(|at| MonoNs(at * 1_000_000_000)).collect());
            vec![
                ("none", none, "good"),
                ("one within the window", within, "degraded"),
                ("one before the window", over, "good"),
                ("more than its limit", at(100, &unit, 0), "failed"),
            ]
        }
        Claim::Heartbeat => vec![
            ("each second", beats(&[1, 2, 3]), "good"),
            ("none for two seconds", beats(&[1, 2, 2, 2, 2]), "failed"),
            ("never", beats(&[0, 0, 0]), "failed"),
            ("switched off", interval(DurNs::ZERO), "failed"),
            ("a longer interval", interval(DurNs::from_secs(5)), "degraded"),
            ("a shorter interval", interval(DurNs::from_secs(1)), "good"),
            ("none before its end", never_beat(1), "failed"),
            ("one before its end", never_beat(2), "good"),
        ],
        Claim::Budget => vec![
            ("a runaway", once(1, "it used more than its budget"), "failed"),
            ("starved twice", once(2, "another task had its CPU"), "failed"),
        ],
        Claim::Skipped => vec![
            ("none", judge_pulses(&pulses(0), false, None, Progress::Begun), "good"),
            ("without a limit", judge_pulses(&pulses(1), false, None, Progress::Begun), "degraded"),
            ("within its limit", judge_pulses(&pulses(1), false, Some(MissRatio(10_000)), Progress::Begun), "degraded"),
            (
                "more than its limit",
                judge_pulses(&pulses(500), false, Some(MissRatio(10_000)), Progress::Begun),
                "failed",
            ),
            ("no loop", judge_pulses(&Pulses::default(), false, None, Progress::Begun), "good"),
            (
                "no period at all",
                judge_pulses(&Pulses::default(), false, Some(MissRatio(10_000)), Progress::Begun),
                "failed",
            ),
        ],
        Claim::Value => vec![
            ("all in time", results(0, Some(990_000), Lateness::Firm), "good"),
            ("late", results(1, None, Lateness::Firm), "degraded"),
            ("less value than required", results(5, Some(990_000), Lateness::Firm), "failed"),
            ("late and hard", results(1, None, Lateness::Hard), "failed"),
        ],
        Claim::Deadline => vec![("missed", once(1, "a hard deadline was missed"), "failed")],
        Claim::Available => vec![
            ("all there", available(&[]), "good"),
            ("refused", available(&["no resource limit: x; y"]), "degraded"),
        ],
        Claim::Isolated => vec![
            ("as applied", shield(&[], &[], None), "good"),
            ("a setting", shield(&[(file(), "vm/stat_interval")], &[], None), "failed"),
            ("an interrupt", shield(&[(irq(), "interrupt 24 (eth0)")], &[], None), "failed"),
            (
                "an interrupt and a refusal",
                shield(&[(irq(), "interrupt 24 (eth0)")], &[], Some("interrupt 25")),
                "failed",
            ),
            ("an interrupt that cannot be moved", shield(&[], &["interrupt 25 (nvme0q1)"], None), "degraded"),
            ("refused at the start", shield(&[], &[], Some("interrupt 25 (nvme0q1)")), "degraded"),
        ],
        Claim::Journal => vec![
            ("removed", journal(None), "failed"),
            ("truncated", journal(Some("{ \"format\": ")), "failed"),
            ("empty", journal(Some("")), "failed"),
        ],
        Claim::Files => vec![
            ("the folder removed", files(|path| std::fs::remove_dir_all(path).unwrap()), "failed"),
            ("the lock removed", files(|path| std::fs::remove_file(path.join("lock")).unwrap()), "failed"),
            ("the socket removed", files(|path| std::fs::remove_file(path.join("control")).unwrap()), "failed"),
            ("the state removed", files(|path| std::fs::remove_file(path.join("state.json")).unwrap()), "failed"),
            ("all keepers removed", files(|path| std::fs::remove_dir_all(path.join("keep")).unwrap()), "failed"),
            (
                "a keeper's folder removed",
                files(|path| std::fs::remove_dir_all(path.join("keep/a")).unwrap()),
                "failed",
            ),
            (
                "the socket replaced",
                files(|path| {
                    // The old socket is kept, or the new file might get its inode.
                    std::fs::rename(path.join("control"), path.join("away")).unwrap();
                    std::fs::write(path.join("control"), "").unwrap();
                }),
                "failed",
            ),
        ],
        Claim::Records => {
            let recorded = |more, full: Option<&str>, forward: Option<&str>| {
                recorded(more, Some(full.map(str::to_owned)), forward.map(str::to_owned)).unwrap()
            };
            vec![
                ("all kept", recorded(0, None, None), "good"),
                ("lines lost", recorded(3, None, Some("no journal")), "failed"),
                ("the disk is full", recorded(0, Some("log has 0 bytes free"), Some("no journal")), "failed"),
                ("no journal for the copy", recorded(0, None, Some("no journal")), "degraded"),
            ]
        }
        Claim::Bounds => vec![
            ("as declared", limited("64", "64", "500", &GROUP, &[]), "good"),
            ("prlimit", limited("5", "64", "500", &GROUP, &[]), "failed"),
            ("prlimit of the hard limit", limited("64", "4096", "500", &GROUP, &[]), "failed"),
            ("oom_score_adj", limited("64", "64", "900", &GROUP, &[]), "failed"),
            (
                "no limit of tasks",
                limited("64", "64", "500", &[("pids.max", "max"), ("pids.current", "1"), ("cgroup.procs", "77")], &[]),
                "failed",
            ),
            (
                "moved to another group",
                limited("64", "64", "500", &[("pids.max", "20"), ("pids.current", "1"), ("cgroup.procs", "")], &[]),
                "failed",
            ),
            ("refused at the start", limited("64", "64", "500", &[], &["no tasks_max of 20: x; y"]), "degraded"),
        ],
        Claim::Stops | Claim::Fits | Claim::SafeOutput | Claim::Serves | Claim::Observes | Claim::Restored => {
            Vec::new()
        }
    }
}

/// The verdict after a kept observation followed by `seen`, or by two intervals without an observation if `seen` is `None`.
fn outcome(claim: Claim, seen: Option<Observation>) -> Outcome {
    let promise = Promise {
        subject: "loop".to_owned(),
        claim,
        words: "a promise".to_owned(),
        line: Some(7),
        file: None,
        optional: false,
        required: false,
        whole_life: matches!(claim, Claim::Skipped | Claim::Value | Claim::Threads),
        interval: INTERVAL,
    };
    let second = |nth: u64| MonoNs(nth * 1_000_000_000);
    let mut table = Table::new(second(0));
    table.promise(second(0), vec![promise]);
    table.observe(second(1), "loop", claim, Observation::Kept);
    match seen {
        Some(seen) => table.observe(second(2), "loop", claim, seen),
        None => table.judge(second(4)),
    }
    table.outcome(second(4))
}

#[test]
fn a_process_that_is_down_after_a_failure_when_the_plant_ends_does_not_run() {
    let failed = || Cause::Own(End::Exit(2));
    let resting = State::Resting { until: MonoNs(9) };
    let down = |state, cause, ready| {
        let mut one = unit(state);
        (one.history.ready, one.history.ended) = (ready, Some((MonoNs(2), cause)));
        is_down(&one)
    };
    let ready = Some(MonoNs(1));
    assert!(down(resting, failed(), ready) && down(State::Launching, Cause::NoStart("no program".to_owned()), ready));
    assert!(!down(State::Running, failed(), ready), "it runs again");
    assert!(!down(resting, Cause::Own(End::Exit(0)), ready), "it is repeated, and did its work");
    assert!(!down(State::Launching, Cause::Asked(End::Exit(0)), ready), "a user restarts it");
    assert!(!down(resting, failed(), None), "it was never ready, which is another reason");
}

#[test]
fn a_process_that_was_never_ready_is_reported_with_the_missing_sign_unless_it_ended_by_itself() {
    let reported = |cause: Option<Cause>| {
        let mut one = unit(State::Idle);
        let ended = cause.as_ref().map(ToString::to_string);
        one.history.ended = cause.map(|cause| (MonoNs(2), cause));
        never_ready(&one, Some("no line of its output with \"armed\"".to_owned()), ended)
    };
    let missing = "it was never ready: no line of its output with \"armed\"";
    assert_eq!(reported(Some(Cause::NotReady)), format!("{missing}; not ready in time"));
    assert_eq!(reported(Some(Cause::Asked(End::Exit(0)))), format!("{missing}; stopped (exit 0)"));
    assert_eq!(reported(Some(Cause::Own(End::Exit(2)))), "it was never ready: exit 2");
    assert_eq!(reported(None), missing);
}

#[test]
fn each_observer_reports_each_fault_and_each_fault_has_its_outcome() {
    let (mut tried, mut observed, mut wrong) = (0, 0, Vec::new());
    for (nth, claim) in CLAIMS.into_iter().enumerate() {
        assert!(!CLAIMS[..nth].contains(&claim), "{claim:?} is there twice");
        let ways = ways(claim);
        observed += usize::from(!ways.is_empty());
        let seen = ways.into_iter().map(|(what, seen, expected)| (what, Some(seen), expected));
        for (what, seen, expected) in seen.chain([("no observation", None, "failed")]) {
            let shown = format!("{seen:?}");
            let outcome = outcome(claim, seen);
            tried += 1;
            let is_named = expected == "good" || outcome.reasons().iter().any(|reason| !reason.found.is_empty());
            if outcome.word() != expected || !is_named {
                wrong.push(format!("{claim:?}, {what}: {shown} gave {outcome:?}, expected {expected}"));
            }
        }
    }
    println!("{} rows, {observed} with observers, {tried} ways, {} wrong", CLAIMS.len(), wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
