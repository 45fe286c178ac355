//! The plant's own alarms: what its supervisor says of its processes, and what of its shield is not as it was written.

use alarm::{Severity, Spec};
use host::supervise::Cause;
use keep::supervisor::control::{Client, ProcessStatus, Reply, Request};
use keep::supervisor::rundir::RunDir;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use sys::root::RootDir;

/// What a channel's name begins with that is a process of the plant: no record has a blank in its name.
pub(crate) const PREFIX: &str = "process ";
/// The channel that is the plant's shield.
pub(crate) const SHIELD: &str = "plant shield";
/// The areas of processes and of a shield that the file does not name.
const AREA: &str = "processes";
const SHIELD_AREA: &str = "shield";
/// Time between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// Questions between two looks at the shield, which read all of the machine that it has written.
const SHIELD_EVERY: u32 = 5;
/// How often the supervisor is asked at the start, when it has much to do.
const TRIES: u32 = 10;

/// What the supervisor said; nothing where it did not answer.
pub(crate) type Said = Option<Told>;

/// How the plant stands.
#[derive(Debug)]
pub(crate) struct Told {
    /// What the supervisor says of its processes.
    pub(crate) processes: Vec<ProcessStatus>,
    /// What of the shield is not as it was written, at the last look; nothing where none stands, or it may not be read.
    pub(crate) drift: Option<Vec<String>>,
}

/// Asks the supervisor of a plant again and again, from a thread: it may hang.
///
/// # Errors
/// The kernel's.
pub(crate) fn watch(plant: &str) -> io::Result<Receiver<Said>> {
    let (say, said) = sync_channel(1);
    let run = RunDir::find(plant);
    std::thread::Builder::new().name("plant".into()).spawn(move || {
        let (mut client, mut drift) = (None, None);
        for round in (0..SHIELD_EVERY).cycle() {
            if round == 0 {
                drift = shield_drift();
            }
            let now = ask(&run, &mut client).map(|processes| Told { processes, drift: drift.clone() });
            // A reader that is busy gets the next one; one that is gone needs none.
            if let Err(std::sync::mpsc::TrySendError::Disconnected(_)) = say.try_send(now) {
                return;
            }
            std::thread::sleep(EVERY);
        }
    })?;
    Ok(said)
}

/// What of the shield that stands is not as it was written.
fn shield_drift() -> Option<Vec<String>> {
    let status = keep::shield::watch::status(&RootDir::machine(), &keep::RunDir::from_env(), Duration::ZERO).ok()?;
    status.want?;
    Some(status.drift.iter().map(ToString::to_string).collect())
}

fn ask(run: &RunDir, client: &mut Option<Client>) -> Option<Vec<ProcessStatus>> {
    if client.is_none() {
        *client = Client::connect(&run.socket()).ok();
    }
    match client.as_mut()?.ask(&Request::Status) {
        Ok(Reply::Status(status)) => Some(status.processes),
        _ => {
            *client = None;
            None
        }
    }
}

/// Alarms of the processes, and of the shield if one stands, that the file does not name itself; waits for the supervisor's first
/// answer.
pub(crate) fn specs(said: &Receiver<Said>, known: &[Spec]) -> Vec<Spec> {
    let answers = std::iter::repeat_with(|| said.recv().ok()).take(TRIES as usize).map_while(|said| said);
    let Some(Told { processes, drift }) = answers.flatten().next() else { return Vec::new() };
    let names = processes.into_iter().map(|process| (format!("{PREFIX}{}", process.name), AREA));
    let names = names.chain(drift.map(|_| (SHIELD.to_owned(), SHIELD_AREA)));
    let missing = names.filter(|(name, _)| known.iter().all(|spec| spec.channel != *name));
    missing
        .map(|(channel, area)| Spec { channel, area: vec![area.to_owned()], enabled: true, ..Spec::default() })
        .collect()
}

/// A shield of which something is not as it was written does not hold what it promised.
pub(crate) fn judge_shield(drift: &[String]) -> (Severity, String) {
    match drift {
        [] => (Severity::Ok, Severity::Ok.name().to_owned()),
        [only] => (Severity::Major, only.clone()),
        [first, rest @ ..] => (Severity::Major, format!("{first}, and {} more", rest.len())),
    }
}

/// What a process was when it was looked at last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Before {
    restarts: u64,
    ended: Option<base::MonoNs>,
    evidence: Option<std::path::PathBuf>,
    misses: u64,
}

/// What has become worse since the last look: an alarm at this look, and none at the next. At the first look only what
/// still is counts.
pub(crate) fn judge(process: &ProcessStatus, before: &mut BTreeMap<String, Before>) -> (Severity, String) {
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
    } else if let Some((_, cause)) = end {
        (Severity::Major, cause.to_string())
    } else if let Some(path) = now.evidence.filter(|path| evidence.as_ref() != Some(path)) {
        (Severity::Major, format!("trouble, evidence in {}", path.display()))
    } else if now.restarts > restarts {
        let why = process.ended.as_ref().map_or_else(String::new, |(_, cause)| format!(" after {cause}"));
        (Severity::Minor, format!("restarted{why}"))
    } else if now.misses > misses {
        (Severity::Minor, format!("deadline missed {}", base::text::Counted((now.misses - misses) as usize, "time")))
    } else {
        (Severity::Ok, Severity::Ok.name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{DurNs, MonoNs};

    fn process() -> ProcessStatus {
        serde_json::from_value(serde_json::json!({
            "name": "loop", "state": "running", "pid": 7, "keeper": 6, "class": base::Policy::OTHER, "cpus": base::CpuSet::default(),
            "cpu": DurNs(0), "memory": base::Size(0), "threads": 1, "started": MonoNs(1), "starts": 1, "restarts": 0,
            "ended": null, "shortfalls": [], "evidence": null, "loop": null
        }))
        .unwrap()
    }

    #[test]
    fn a_shield_is_an_alarm_while_something_of_it_is_not_as_it_was_written() {
        assert_eq!(judge_shield(&[]), (Severity::Ok, "OK".into()));
        let lines = ["a: wrote 1, found 3".to_owned(), "b: wrote 1, found 2".to_owned()];
        assert_eq!(judge_shield(&lines[..1]), (Severity::Major, lines[0].clone()));
        assert_eq!(judge_shield(&lines), (Severity::Major, "a: wrote 1, found 3, and 1 more".into()));
    }

    #[test]
    fn a_process_is_an_alarm_while_something_becomes_worse() {
        let (mut before, mut process) = (BTreeMap::new(), process());
        let mut is = |process: &ProcessStatus| judge(process, &mut before);
        process.restarts = 3;
        assert_eq!(is(&process).0, Severity::Ok, "what was before we looked is no news");
        process.restarts = 4;
        process.ended = Some((MonoNs(5), Cause::Runaway));
        assert_eq!(is(&process), (Severity::Major, Cause::Runaway.to_string()));
        assert_eq!(is(&process).0, Severity::Ok);
        process.restarts = 5;
        assert_eq!(is(&process), (Severity::Minor, format!("restarted after {}", Cause::Runaway)));
        process.evidence = Some("/e".into());
        assert_eq!(is(&process), (Severity::Major, "trouble, evidence in /e".into()));
        process.state = "FAULT".into();
        assert_eq!([is(&process).0, is(&process).0], [Severity::Major; 2]);
    }
}
