//! Checks the boot line for parameters that conflict. Each rule is one function of [`RULES`].

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};
use base::CpuSet;
use proc::boot_line::{BootLine, Isolcpus};
use proc::version::Version;

/// Parameters that conflict, or that need something this machine does not have.
pub struct Contradictions;

impl Check for Contradictions {
    fn about(&self) -> &'static About {
        &About {
            id: "boot-contradictions",
            title: "boot parameters at odds",
            what: "Compares isolcpus=, nohz_full=, rcu_nocbs=, irqaffinity=, idle= and similar parameters with each other, with the existing CPUs \
                   and with the kernel's configuration.",
            why: "Parameters copied from guides often contradict each other. The kernel ignores what it cannot apply without a message, and the \
                  isolation is then incomplete.",
            source: "SEAPATH #865 (irqaffinity= with all CPUs together with isolcpus=); kernel/sched/isolation.c",
            reads: &["/proc/cmdline", "/sys/devices/system/cpu/smt/active", "/sys/devices/system/cpu/possible"],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let seen = BootFacts::new(facts)?;
        let odds: Vec<Odds> = RULES.iter().filter_map(|rule| rule(&seen)).collect();
        let Some((first, rest)) = odds.split_first() else { return Ok(Finding::fine("none")) };
        let mut finding = Finding::note(first.what.clone());
        for odds in rest {
            finding = finding.and(odds.what.clone());
        }
        for odds in &odds {
            finding = finding.reserve(odds.reserve);
        }
        let steps: Vec<_> = odds.iter().map(|odds| odds.remedy.as_str()).collect();
        Ok(finding.remedy(RemedyKind::Boot, steps.join("; ")))
    }
}

/// Input of the rules.
struct BootFacts {
    line: BootLine,
    isolcpus: Option<Isolcpus>,
    /// The CPUs of `isolcpus=`; empty without the parameter.
    isolated: CpuSet,
    nohz_full: CpuSet,
    possible: CpuSet,
    kernel: Version,
    smt: bool,
    /// Whether the kernel is built with `NO_HZ_FULL`; `None` if its configuration cannot be read.
    can_nohz_full: Option<bool>,
}

impl BootFacts {
    fn new(facts: &Facts) -> Result<Self, Unknown> {
        let line = facts.boot_line()?;
        let online = facts.online()?;
        let possible = facts.files.cpus("/sys/devices/system/cpu/possible").unwrap_or_default().or(&online);
        let last = possible.iter().last().unwrap_or(0);
        let isolcpus = line.isolcpus(last);
        Ok(Self {
            isolated: isolcpus.as_ref().and_then(|isolcpus| isolcpus.cpus).unwrap_or_default(),
            isolcpus,
            nohz_full: line.cpus("nohz_full", last).flatten().unwrap_or_default(),
            possible,
            kernel: facts.kernel()?,
            smt: facts.files.optional_number("/sys/devices/system/cpu/smt/active").ok().flatten() == Some(1),
            can_nohz_full: facts.config().ok().map(|config| config.is_set("NO_HZ_FULL")),
            line,
        })
    }

    fn last(&self) -> base::CpuId {
        self.possible.iter().last().unwrap_or(0)
    }
}

/// A conflict between two parameters.
struct Odds {
    what: String,
    remedy: String,
    reserve: &'static [Use],
}

impl Odds {
    fn new(reserve: &'static [Use], what: String, remedy: impl Into<String>) -> Option<Self> {
        Some(Self { what, remedy: remedy.into(), reserve })
    }
}

const DISTURBED: &[Use] = &[Use::Loop10kHz, Use::Polling];

const RULES: &[fn(&BootFacts) -> Option<Odds>] = &[
    no_housekeeping,
    unreadable_list,
    missing_cpus,
    interrupts_on_isolated_cpus,
    nohz_full_not_isolated,
    nohz_full_differs,
    nohz_full_not_built,
    nohz_full_without_nohz,
    callbacks_on_isolated_cpus,
    isolcpus_without_domain,
    polling_beside_idle_states,
    polling_beside_siblings,
    clock_at_odds,
    watchdogs_at_odds,
    given_twice,
];

fn no_housekeeping(seen: &BootFacts) -> Option<Odds> {
    let (name, cpus) = [("isolcpus", seen.isolated), ("nohz_full", seen.nohz_full)]
        .into_iter()
        .find(|(_, cpus)| !cpus.is_empty() && seen.possible.is_subset(cpus))?;
    Odds::new(
        &Use::ALL,
        format!("{name}= names every CPU ({cpus}): the kernel keeps only the boot CPU for all other work"),
        format!("name in {name}= only the CPUs that the real-time work needs"),
    )
}

/// Parameters that take a list of CPUs.
const LISTS: &[&str] = &["nohz_full", "rcu_nocbs", "irqaffinity"];

fn unreadable_list(seen: &BootFacts) -> Option<Odds> {
    let isolcpus = seen.isolcpus.as_ref().filter(|isolcpus| isolcpus.cpus.is_none()).map(|_| "isolcpus");
    let name = isolcpus.or_else(|| {
        // nohz_full and rcu_nocbs may have no list. They then only prepare settings that can be changed later.
        let unreadable =
            |name: &&&str| seen.line.cpus(name, seen.last()) == Some(None) && seen.line.value(name) != Some("");
        LISTS.iter().find(unreadable).copied()
    })?;
    let text = &seen.line.last(name)?.text;
    Odds::new(DISTURBED, format!("{text} is not a valid CPU list: the kernel ignores it"), format!("correct {text}"))
}

fn missing_cpus(seen: &BootFacts) -> Option<Odds> {
    let named = [("isolcpus", seen.isolated), ("nohz_full", seen.nohz_full)];
    let (name, cpus) = named.into_iter().find(|(_, cpus)| !cpus.is_subset(&seen.possible))?;
    Odds::new(
        DISTURBED,
        format!("{name}= names CPUs {}, but the machine has {}", cpus.minus(&seen.possible), seen.possible),
        format!("name only CPUs {} in {name}=", seen.possible),
    )
}

fn interrupts_on_isolated_cpus(seen: &BootFacts) -> Option<Odds> {
    let affinity = seen.line.cpus("irqaffinity", seen.last()).flatten()?;
    let shared = affinity.and(&seen.isolated.or(&seen.nohz_full));
    if shared.is_empty() {
        return None;
    }
    Odds::new(
        DISTURBED,
        format!("irqaffinity={affinity} sends interrupts to {}, which isolcpus= or nohz_full= isolate", named(&shared)),
        format!("write irqaffinity={}", affinity.minus(&shared)),
    )
}

fn nohz_full_not_isolated(seen: &BootFacts) -> Option<Odds> {
    let open = seen.nohz_full.minus(&seen.isolated);
    if open.is_empty() || !seen.isolated.is_empty() {
        return None;
    }
    Odds::new(
        &[Use::Polling],
        format!("nohz_full={} without isolation: with a second task on such a CPU the tick returns", seen.nohz_full),
        format!("also isolate {}, with tahti shield apply or isolcpus=domain,{open}", named(&open)),
    )
}

fn nohz_full_differs(seen: &BootFacts) -> Option<Odds> {
    if seen.nohz_full.is_empty() || seen.isolated.is_empty() || seen.nohz_full == seen.isolated {
        return None;
    }
    let (nohz_full, isolated) = (seen.nohz_full, seen.isolated);
    // Until 5.18 all kinds of isolation shared one mask. The kernel dropped a second list if it differed.
    if seen.kernel < Version::new(5, 18) {
        return Odds::new(
            DISTURBED,
            format!(
                "nohz_full={nohz_full} differs from isolcpus= ({isolated}): Linux {} drops the second of them",
                seen.kernel
            ),
            "name the same CPUs in both",
        );
    }
    let open = nohz_full.minus(&isolated);
    if open.is_empty() {
        return None;
    }
    Odds::new(
        &[Use::Polling],
        format!("nohz_full={nohz_full} covers {}, which isolcpus= does not isolate", named(&open)),
        format!("remove {} from nohz_full=, or add it to isolcpus=", named(&open)),
    )
}

fn nohz_full_not_built(seen: &BootFacts) -> Option<Odds> {
    let parameter = seen.line.last("nohz_full")?;
    if seen.can_nohz_full != Some(false) {
        return None;
    }
    Odds::new(
        &[Use::Polling],
        format!("{} has no effect: the kernel is built without CONFIG_NO_HZ_FULL", parameter.text),
        format!("boot a kernel that has it, or remove {}", parameter.text),
    )
}

fn nohz_full_without_nohz(seen: &BootFacts) -> Option<Odds> {
    if seen.nohz_full.is_empty() || seen.line.value("nohz") != Some("off") {
        return None;
    }
    Odds::new(&[Use::Polling], "nohz=off together with nohz_full=: the tick stays".into(), "remove nohz=off")
}

fn callbacks_on_isolated_cpus(seen: &BootFacts) -> Option<Odds> {
    let offloaded = seen.line.cpus("rcu_nocbs", seen.last()).flatten()?.or(&seen.nohz_full);
    let left = seen.isolated.minus(&offloaded);
    if left.is_empty() {
        return None;
    }
    Odds::new(
        &[Use::Polling],
        format!("rcu_nocbs= does not contain the isolated {}", named(&left)),
        format!("write rcu_nocbs={}", offloaded.or(&left)),
    )
}

fn isolcpus_without_domain(seen: &BootFacts) -> Option<Odds> {
    let isolcpus = seen.isolcpus.as_ref().filter(|isolcpus| !isolcpus.domain)?;
    let cpus = isolcpus.cpus?;
    Odds::new(
        &[],
        format!("isolcpus= without the flag domain does not keep tasks off {}; only a shield does", named(&cpus)),
        "keep it and use tahti shield apply, or add the flag domain",
    )
}

fn polling_beside_idle_states(seen: &BootFacts) -> Option<Odds> {
    if seen.line.value("idle") != Some("poll") {
        return None;
    }
    let other = ["intel_idle.max_cstate", "processor.max_cstate", "cpuidle.governor", "cpuidle_haltpoll.force"];
    let other = other.iter().find_map(|name| seen.line.last(name))?;
    Odds::new(
        &[],
        format!("idle=poll together with {}: polling CPUs use no idle state, so the second has no effect", other.text),
        format!("remove {}", other.text),
    )
}

fn polling_beside_siblings(seen: &BootFacts) -> Option<Odds> {
    if seen.line.value("idle") != Some("poll") || !seen.smt {
        return None;
    }
    Odds::new(
        DISTURBED,
        "idle=poll with SMT on: an idle sibling polls, and uses half of the core".into(),
        "add nosmt, or remove idle=poll",
    )
}

fn clock_at_odds(seen: &BootFacts) -> Option<Odds> {
    let tsc = seen.line.value("clocksource") == Some("tsc") || seen.line.value("tsc") == Some("reliable");
    let against = seen.line.last("notsc").or_else(|| seen.line.last("tsc").filter(|it| it.text == "tsc=unstable"))?;
    if !tsc {
        return None;
    }
    Odds::new(
        &[Use::Loop10kHz],
        format!("{} together with a parameter that requires the TSC", against.text),
        format!("remove {}", against.text),
    )
}

fn watchdogs_at_odds(seen: &BootFacts) -> Option<Odds> {
    let on = ["nmi_watchdog", "softlockup_panic", "hardlockup_panic"].iter().find_map(|name| {
        seen.line.last(name).filter(|parameter| parameter.value.as_deref().is_some_and(|value| value != "0"))
    })?;
    let off = seen.line.last("nowatchdog").or_else(|| seen.line.last("nosoftlockup"))?;
    Odds::new(
        &[],
        format!("{} together with {}: the detector is off", on.text, off.text),
        format!("remove {} or {}", on.text, off.text),
    )
}

fn given_twice(seen: &BootFacts) -> Option<Odds> {
    const ONCE: &[&str] =
        &["isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "idle", "preempt", "clocksource", "tsc", "mitigations"];
    let differs = |name: &&&str| {
        let last = seen.line.last(name);
        seen.line
            .all()
            .iter()
            .any(|parameter| parameter.name == **name && Some(&parameter.value) != last.map(|last| &last.value))
    };
    let name = ONCE.iter().find(differs)?;
    Odds::new(&[], format!("{name}= is given more than once, with different values"), format!("keep one {name}="))
}
