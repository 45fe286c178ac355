//! Hyper-threading: two threads on one core, compared with two cores.

use super::Args;
use super::team::{Crew, Kind, SHORT, crew, words};
use crate::{Failed, Progress};
use base::{CpuId, CpuSet};
use report::{Figure, Good, Row, Table};
use sys::clock::mono_now;
use sys::root::RootDir;

/// Steps of a job, each dependent on the previous one.
const STEPS: u64 = 200_000;

/// Two of the CPUs that share a core, and two that do not, each with the same first CPU if possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pairs {
    one_core: [CpuId; 2],
    two_cores: Option<[CpuId; 2]>,
}

/// `siblings` returns all CPUs of a CPU's core.
fn pairs(cpus: &[CpuId], siblings: impl Fn(CpuId) -> CpuSet) -> Option<Pairs> {
    let others = |cpu: CpuId| cpus.iter().copied().filter(move |other| *other != cpu);
    let shares = |cpu: CpuId| others(cpu).find(|other| siblings(cpu).contains(*other));
    let (first, second) = cpus.iter().find_map(|cpu| Some((*cpu, shares(*cpu)?)))?;
    let apart = others(first).find(|other| !siblings(first).contains(*other));
    Some(Pairs { one_core: [first, second], two_cores: apart.map(|other| [first, other]) })
}

/// The kernel's list of the CPUs of a core; this CPU alone if there is none.
fn of_machine(cpu: CpuId) -> CpuSet {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let listed = RootDir::machine().read(&path).ok().and_then(|text| text.trim().parse().ok());
    listed.unwrap_or(CpuSet::single(cpu))
}

/// The table, or the reason why there is none.
pub(super) fn measure(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<Result<Table, String>, Failed> {
    let Some(pairs) = pairs(cpus, of_machine) else {
        return Ok(Err("hyper-threading: not measured, no two of these CPUs share a core (--cpus)".into()));
    };
    let words = words();
    let team = |cpus: &[CpuId]| crew(cpus, args.class, &words, (SHORT, true));
    let mut alone = team(&pairs.one_core[..1])?;
    let mut one_core = team(&pairs.one_core)?;
    let mut two_cores = pairs.two_cores.map(|pair| team(&pair)).transpose()?;
    let kinds = [("dependent steps", Kind::Steps(STEPS)), ("16 KiB local to each CPU", Kind::Local)];
    let mut rates = kinds.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "hyper-threading: one core and two, alternating");
        for ((_, kind), rates) in kinds.iter().zip(&mut rates) {
            let single = once(&mut alone, *kind)?;
            for (team, rates) in [Some(&mut one_core), two_cores.as_mut()].into_iter().zip(rates) {
                // The work of each thread is constant.
                rates.extend(team.map(|team| Ok::<_, Failed>(2.0 * single / once(team, *kind)?)).transpose()?);
            }
        }
    }
    let title = "two threads on one core (hyper-threading), and on two cores: work done, divided by that of one thread";
    let mut table = Table::new(title).columns("one core", "two cores");
    for ((name, _), [one, two]) in kinds.iter().zip(rates) {
        table = table.row(Row::samples(*name, "times", one).good(Good::High).against(Figure::median(two)));
    }
    table.notes.push(format!("CPUs {} and {} share a core", pairs.one_core[0], pairs.one_core[1]));
    Ok(Ok(table))
}

/// Nanoseconds of a job in which each thread has the same work, with workers awake.
fn once(team: &mut Crew, kind: Kind) -> Result<f64, Failed> {
    let threads = team.size() as u64;
    team.shared_mut()?.kind = Kind::Empty;
    team.run()?;
    team.shared_mut()?.kind = match kind {
        Kind::Steps(steps) => Kind::Steps(steps * threads),
        other => other,
    };
    let begun = mono_now();
    team.run()?;
    Ok((mono_now() - begun).0.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pairs_of_cpus_share_a_core_and_do_not() {
        // As Linux numbers two cores with two threads each: 0 and 2, 1 and 3.
        let siblings = |cpu: CpuId| CpuSet::single(cpu % 2).or(&CpuSet::single(cpu % 2 + 2));
        let found = pairs(&[0, 1, 2, 3], siblings).unwrap();
        assert_eq!(found, Pairs { one_core: [0, 2], two_cores: Some([0, 1]) });
        assert_eq!(pairs(&[1, 2, 3], siblings), Some(Pairs { one_core: [1, 3], two_cores: Some([1, 2]) }));
        assert_eq!(pairs(&[1, 3], siblings), Some(Pairs { one_core: [1, 3], two_cores: None }));
        assert_eq!(pairs(&[0, 1], siblings), None);
        assert_eq!(pairs(&[0, 1], CpuSet::single), None);
    }
}
