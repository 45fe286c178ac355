//! Suggests CPUs to shield: those with the fewest events that cannot be moved away.
//!
//! A shield moves everything that can be moved, so only the rest counts: interrupts that the kernel manages itself, by
//! their frequency, other work on the same core, and timekeeping and firmware, which some CPU must serve.

use crate::plan::WordError;
use crate::snapshot::Snapshot;
use base::text::Counted;
use base::{CpuId, CpuSet, ParseCpuSetError};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Cost of the first CPU, in events per second. Timekeeping, firmware and old devices prefer this CPU.
const FIRST_CPU: u64 = 1;

/// Requested CPUs: a list or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// These CPUs.
    Cpus(CpuSet),
    /// This many CPUs, chosen by [`suggest()`].
    Auto(usize),
}

/// Why a choice of CPUs cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// Not a number of CPUs.
    #[error(transparent)]
    Count(WordError),
    /// Not a list of CPUs.
    #[error("{found:?}: {error}; or auto:N for the N best CPUs")]
    Cpus {
        /// The text found.
        found: String,
        /// The parse error.
        error: ParseCpuSetError,
    },
}

/// More CPUs are requested than a shield can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} of CPUs {online}: expected 1 to {}, at least one must remain for all other tasks", .online.count().saturating_sub(1))]
pub struct TooMany {
    /// Number of requested CPUs.
    pub count: usize,
    /// The CPUs that are online.
    pub online: Box<CpuSet>,
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text.trim().strip_prefix("auto:") {
            Some(count) => match count.parse() {
                Ok(count) if count > 0 => Ok(Self::Auto(count)),
                _ => Err(ChoiceError::Count(WordError::of(text, "auto:N, such as auto:2"))),
            },
            None => match text.parse() {
                Ok(cpus) => Ok(Self::Cpus(cpus)),
                Err(error) => Err(ChoiceError::Cpus { found: text.to_owned(), error }),
            },
        }
    }
}

/// A reason against a CPU, which remains whatever CPUs are shielded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// An interrupt that cannot be moved.
    Interrupt {
        /// Its number and device.
        name: String,
        /// Number of occurrences on this CPU since boot.
        count: u64,
    },
    /// The first CPU.
    First,
    /// It shares its core with other CPUs.
    Sibling {
        /// The other CPUs of the core.
        cpus: CpuSet,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt { name, count } => {
                write!(f, "interrupt {name} cannot be moved, {} since boot", Counted(*count as usize, "time"))
            }
            Self::First => f.write_str("the first CPU: timekeeping and firmware prefer it"),
            Self::Sibling { cpus } => write!(f, "shares its core with {cpus}: shield both, or leave that one idle"),
        }
    }
}

/// A CPU with the reasons against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rated {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether the boot line isolated it, which means that it is intended for a shield.
    pub isolated: bool,
    /// Events per 1000 s that cannot be moved away, on average since boot.
    pub per_1000_s: u64,
    /// The sources of these events, and further information.
    pub reasons: Vec<Reason>,
}

impl Rated {
    /// Sort key; the lowest is the best.
    fn cost(&self) -> (bool, u64, CpuId) {
        (!self.isolated, self.per_1000_s, self.cpu)
    }
}

/// Every online CPU, the best first.
#[must_use]
pub fn rank(snapshot: &Snapshot) -> Vec<Rated> {
    let cpus = &snapshot.cpus;
    let rate = |cpu: CpuId| {
        let (mut reasons, mut count) = (Vec::new(), 0u64);
        for (key, irq) in &snapshot.irqs {
            if let Some(&times) = irq.stuck.get(&cpu) {
                count = count.saturating_add(times);
                reasons.push(Reason::Interrupt { name: format!("{} ({key})", irq.number), count: times });
            }
        }
        let mut per_1000_s = count.saturating_mul(1000) / snapshot.uptime_s.max(1);
        if cpus.online.lowest() == Some(cpu) {
            per_1000_s = per_1000_s.saturating_add(FIRST_CPU * 1000);
            reasons.push(Reason::First);
        }
        let siblings = cpus.siblings_of(&CpuSet::single(cpu)).and(&cpus.online);
        if !siblings.is_empty() {
            reasons.push(Reason::Sibling { cpus: siblings });
        }
        Rated { cpu, isolated: cpus.isolated.contains(cpu), per_1000_s, reasons }
    };
    let mut rated: Vec<Rated> = cpus.online.iter().map(rate).collect();
    rated.sort_by_key(Rated::cost);
    rated
}

/// The best `count` CPUs: whole cores, and on one NUMA node if a node has enough CPUs.
///
/// # Errors
/// `count` is 0, or no CPU would remain for all other tasks.
pub fn suggest(snapshot: &Snapshot, count: usize) -> Result<CpuSet, TooMany> {
    let online = snapshot.cpus.online;
    if count == 0 || count >= online.count() {
        return Err(TooMany { count, online: Box::new(online) });
    }
    let rated = rank(snapshot);
    let nodes = snapshot.cpus.nodes.values().map(|node| node.and(&online)).filter(|node| node.count() >= count);
    let chosen = nodes.map(|node| best(snapshot, &rated, &node, count)).min_by_key(|(cost, _)| *cost);
    Ok(chosen.unwrap_or_else(|| best(snapshot, &rated, &online, count)).1)
}

/// The best `count` CPUs of `among`, core by core, with their cost.
fn best(snapshot: &Snapshot, rated: &[Rated], among: &CpuSet, count: usize) -> ((usize, u64), CpuSet) {
    let mut chosen = CpuSet::EMPTY;
    for one in rated.iter().filter(|one| among.contains(one.cpu)) {
        // Take the rest of the core as well, because work on it would slow the shield down.
        let core = CpuSet::single(one.cpu).or(&snapshot.cpus.siblings_of(&CpuSet::single(one.cpu))).and(among);
        let fits = chosen.or(&core).count() <= count;
        let take = if fits { core } else { CpuSet::single(one.cpu) };
        if chosen.or(&take).count() <= count {
            chosen = chosen.or(&take);
        }
    }
    (cost(rated, &chosen), chosen)
}

/// Cost of a choice: the number of CPUs that are not isolated at boot, then the events.
fn cost(rated: &[Rated], cpus: &CpuSet) -> (usize, u64) {
    let of = rated.iter().filter(|one| cpus.contains(one.cpu));
    of.fold((0, 0), |(plain, events), one| (plain + usize::from(!one.isolated), events.saturating_add(one.per_1000_s)))
}

/// CPUs that are much better than `wanted`, with the interrupts that cannot be moved away from `wanted`. `None` unless
/// `wanted` has more than twice their events and such interrupts.
#[must_use]
pub fn better(snapshot: &Snapshot, wanted: &CpuSet) -> Option<(CpuSet, Vec<Reason>)> {
    let suggested = suggest(snapshot, wanted.count()).ok()?;
    let rated = rank(snapshot);
    let (now, then) = (cost(&rated, wanted), cost(&rated, &suggested));
    if suggested == *wanted || now.1 <= then.1.saturating_mul(2) {
        return None;
    }
    let of = rated.into_iter().filter(|one| wanted.contains(one.cpu)).flat_map(|one| one.reasons);
    let stuck: Vec<Reason> = of.filter(|reason| matches!(reason, Reason::Interrupt { .. })).collect();
    (!stuck.is_empty()).then_some((suggested, stuck))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Irq, IrqKey};

    fn machine(online: &str) -> Snapshot {
        let mut snapshot = Snapshot { uptime_s: 100, ..Snapshot::default() };
        snapshot.cpus.online = online.parse().unwrap();
        snapshot
    }

    fn stuck(snapshot: &mut Snapshot, number: u32, cpu: CpuId, count: u64) {
        let irq = Irq { number, stuck: [(cpu, count)].into(), ..Irq::default() };
        snapshot.irqs.insert(IrqKey(format!("virtio{number}-req.0")), irq);
    }

    fn suggested(snapshot: &Snapshot, count: usize) -> String {
        suggest(snapshot, count).unwrap().to_string()
    }

    #[test]
    fn a_cpu_with_a_busy_immovable_interrupt_is_suggested_last() {
        let mut snapshot = machine("0-3");
        assert_eq!((suggested(&snapshot, 1), suggested(&snapshot, 3)), ("1".into(), "1-3".into()));
        stuck(&mut snapshot, 36, 1, 55_563);
        stuck(&mut snapshot, 37, 2, 7);
        assert_eq!([1, 2, 3].map(|count| suggested(&snapshot, count)), ["3", "2-3", "0,2-3"]);
        let ranked = rank(&snapshot);
        assert_eq!(ranked.iter().map(|one| one.cpu).collect::<Vec<_>>(), [3, 2, 0, 1]);
        assert_eq!(ranked[3].per_1000_s, 555_630);
        let (instead, why) = better(&snapshot, &"1".parse().unwrap()).unwrap();
        assert_eq!(instead.to_string(), "3");
        assert_eq!(why[0].to_string(), "interrupt 36 (virtio36-req.0) cannot be moved, 55563 times since boot");
        for fine in ["3", "2-3", "0", "0,2-3"] {
            assert_eq!(better(&snapshot, &fine.parse().unwrap()), None, "{fine}");
        }
    }

    #[test]
    fn of_two_cpus_the_first_is_suggested_if_the_other_has_the_disk() {
        let mut snapshot = machine("0-1");
        assert_eq!(suggested(&snapshot, 1), "1");
        stuck(&mut snapshot, 36, 1, 55_563);
        assert_eq!(suggested(&snapshot, 1), "0");
    }

    #[test]
    fn whole_cores_of_one_node_are_suggested_and_those_isolated_at_boot_first() {
        let mut snapshot = machine("0-7");
        snapshot.cpus.siblings = ["0,4", "1,5", "2,6", "3,7"].map(|list| list.parse().unwrap()).into();
        snapshot.cpus.nodes = [(0, "0-1,4-5".parse().unwrap()), (1, "2-3,6-7".parse().unwrap())].into();
        assert_eq!([1, 2, 4, 5].map(|count| suggested(&snapshot, count)), ["1", "1,5", "2-3,6-7", "1-3,5-6"]);
        stuck(&mut snapshot, 9, 6, 1_000_000);
        assert_eq!([2, 4].map(|count| suggested(&snapshot, count)), ["1,5", "0-1,4-5"]);
        snapshot.cpus.isolated = "2,6".parse().unwrap();
        assert_eq!(suggested(&snapshot, 2), "2,6");
    }

    #[test]
    fn one_cpu_stays_for_all_other_tasks() {
        for count in [0, 4, 5] {
            let error = suggest(&machine("0-3"), count).unwrap_err();
            assert!(error.to_string().contains("expected 1 to 3"), "{error}");
        }
        assert!(suggest(&machine("0"), 1).is_err());
    }

    #[test]
    fn cpus_are_named_or_counted() {
        assert_eq!("auto:2".parse(), Ok(Choice::Auto(2)));
        assert_eq!("2-3".parse(), Ok(Choice::Cpus("2-3".parse().unwrap())));
        for wrong in ["auto:0", "auto:", "auto", "auto:x", "3-"] {
            assert!(wrong.parse::<Choice>().unwrap_err().to_string().contains("auto:"), "{wrong}");
        }
    }
}
