//! The processes of a plant, with their children and loops.

use super::target::{Threads, ids_of};
use crate::control::plant_name;
use crate::failure::Failure;
use keep::supervisor::control::{ProcessStatus, Status};
use std::collections::{BTreeMap, BTreeSet};

/// The processes of a plant that run now.
#[derive(Default)]
pub(crate) struct PlantProcesses {
    /// Each process and its descendants, with the name in the plant file.
    names: BTreeMap<i32, String>,
    /// The threads that loop pages name. A process writes its own page: this may be a thread of another process.
    pub(crate) loops: BTreeSet<i32>,
}

impl PlantProcesses {
    pub(crate) fn of(status: &Status) -> Self {
        let running: Vec<(i32, &String)> =
            status.processes.iter().filter_map(|process| Some((process.pid?, &process.name))).collect();
        let pids: Vec<i32> = running.iter().map(|(pid, _)| *pid).collect();
        let named = |(pids, (_, name)): (Vec<i32>, &(i32, &String))| -> Vec<(i32, String)> {
            pids.into_iter().map(|pid| (pid, (*name).clone())).collect()
        };
        let names = keep::families(&pids).into_iter().zip(&running).flat_map(named).collect();
        let loops = status.processes.iter().filter_map(|process| Some(process.loop_page.as_ref()?.thread)).collect();
        Self { names, loops }
    }

    /// The processes with their descendants.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.names.keys().copied().collect()
    }

    /// The name of each thread's process.
    pub(crate) fn of_threads(&self, threads: impl Iterator<Item = (i32, i32)>) -> BTreeMap<i32, String> {
        threads.filter_map(|(tid, pid)| Some((tid, self.names.get(&pid)?.clone()))).collect()
    }
}

/// The processes of a plant that have these names and run.
pub(crate) fn running<'a>(
    status: &'a Status,
    names: &'a [String],
) -> impl Iterator<Item = Result<(&'a ProcessStatus, i32), Failure>> {
    let plant = &status.name;
    names.iter().map(move |name| -> Result<(&'a ProcessStatus, i32), Failure> {
        let process = status.processes.iter().find(|process| process.name == *name).ok_or_else(|| {
            let known: Vec<&str> = status.processes.iter().map(|process| process.name.as_str()).collect();
            format!("plant {plant} has no process {name:?}; it has {}", known.join(", "))
        })?;
        let pid = process.pid.ok_or_else(|| format!("process {name:?} of plant {plant} is not running"))?;
        Ok((process, pid))
    })
}

/// Selects the threads of the loops of these processes, or all threads of those without a loop. Returns the name of the process of
/// each thread of the plant.
pub(super) fn select(
    plant: Option<&str>,
    names: &[String],
    threads: &mut Threads,
) -> Result<BTreeMap<i32, String>, Failure> {
    let status = crate::ps::status(&plant_name(plant)?)?;
    for process in running(&status, names) {
        let (process, pid) = process?;
        let family = keep::family(vec![pid]);
        let thread = process.loop_page.as_ref().map(|page| page.thread);
        match thread.filter(|thread| ids_of(&family).any(|(tid, _)| tid == *thread)) {
            Some(thread) => threads.tid.push(thread),
            None => threads.pid.extend(family),
        }
    }
    let processes = PlantProcesses::of(&status);
    Ok(processes.of_threads(ids_of(&processes.pids())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_of_a_plant_has_the_name_of_its_process() {
        let names = [(10, "loop"), (11, "loop"), (20, "burst")].map(|(pid, name)| (pid, name.to_owned())).into();
        let plant = PlantProcesses { names, loops: BTreeSet::new() };
        let named = plant.of_threads([(10, 10), (12, 11), (21, 20), (31, 30)].into_iter());
        let named: Vec<(i32, &str)> = named.iter().map(|(tid, name)| (*tid, name.as_str())).collect();
        assert_eq!(named, [(10, "loop"), (12, "loop"), (21, "burst")]);
    }
}
