//! Checks power management: idle states, frequency, temperature.

use super::isolation::in_question;
use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};
use base::{CpuId, CpuSet};
use std::collections::BTreeMap;

const STATE_LATENCY: &str = "/sys/devices/system/cpu/cpu#/cpuidle/state#/latency";
const STATE_NAME: &str = "/sys/devices/system/cpu/cpu#/cpuidle/state#/name";
const STATE_DISABLE: &str = "/sys/devices/system/cpu/cpu#/cpuidle/state#/disable";
const RESUME_LATENCY: &str = "/sys/devices/system/cpu/cpu#/power/pm_qos_resume_latency_us";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu#/cpufreq/scaling_governor";
const DRIVER: &str = "/sys/devices/system/cpu/cpu#/cpufreq/scaling_driver";
const PREFERENCE: &str = "/sys/devices/system/cpu/cpu#/cpufreq/energy_performance_preference";
const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const THROTTLED: &str = "/sys/devices/system/cpu/cpu#/thermal_throttle/core_throttle_count";

/// Time that an idle CPU needs to wake up.
pub struct IdleStates;

impl Check for IdleStates {
    fn about(&self) -> &'static About {
        &About {
            id: "c-states",
            title: "idle states",
            what: "The enabled idle states (C-states) with their exit latencies, and the limit per CPU in pm_qos_resume_latency_us. If CPUs are \
                   isolated, only theirs.",
            why: "A CPU that sleeps between two cycles needs the exit latency of its idle state to wake, up to some hundred microseconds, and its \
                  caches are then empty.",
            source: "Documentation/admin-guide/pm/cpuidle.rst",
            reads: &[STATE_LATENCY, STATE_NAME, STATE_DISABLE, RESUME_LATENCY],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        if facts.boot_line()?.value("idle") == Some("poll") {
            return Ok(Finding::fine("idle CPUs poll (idle=poll on the boot line)"));
        }
        let states = facts.files.some(STATE_LATENCY)?;
        if states.is_empty() {
            return Ok(Finding::fine("no cpuidle driver: idle CPUs only halt"));
        }
        let of = |pattern: &str, cpu: u32, state: u32| {
            facts.files.each(pattern).find(|found| found.numbers == [cpu, state]).map(|found| found.text)
        };
        let limits: BTreeMap<u32, &str> =
            facts.files.each(RESUME_LATENCY).map(|found| (found.numbers[0], found.text)).collect();
        let in_question = in_question(facts)?;
        let mut worst: Option<(i64, u32, u32)> = None;
        for found in &states {
            let (cpu, state) = (found.numbers[0], found.numbers[1]);
            if !CpuId::try_from(cpu).is_ok_and(|cpu| in_question.contains(cpu)) {
                continue;
            }
            let latency_us = facts.files.number(found.path)?;
            let limit_us = match limits.get(&cpu).copied() {
                Some("n/a") => Some(0),
                None | Some("0") => None,
                Some(text) => text.parse::<i64>().ok(),
            };
            let enabled =
                of(STATE_DISABLE, cpu, state) != Some("1") && limit_us.is_none_or(|limit| latency_us <= limit);
            if enabled && worst.is_none_or(|(known_us, ..)| latency_us > known_us) {
                worst = Some((latency_us, cpu, state));
            }
        }
        let Some((latency_us, cpu, state)) = worst else { return Ok(Finding::fine("all are disabled")) };
        let name = of(STATE_NAME, cpu, state).unwrap_or("a state");
        let evidence = format!("deepest enabled state {name} of CPU {cpu}: exit latency {latency_us} us");
        let uses = match latency_us {
            ..=10 => return Ok(Finding::fine(evidence)),
            11..=30 => &[Use::Loop10kHz][..],
            _ => &Use::LOOPS,
        };
        Ok(Finding::note(evidence)
            .reserve(uses)
            .remedy(RemedyKind::Shield, "disable deep idle states of the loop's CPU while it runs"))
    }
}

/// Whether CPUs run at full frequency at once.
pub struct Governor;

impl Check for Governor {
    fn about(&self) -> &'static About {
        &About {
            id: "governor",
            title: "frequency governor",
            what: "The cpufreq governor of each CPU (if CPUs are isolated, only of these), with driver, energy preference and turbo.",
            why: "A loop computes briefly and sleeps. A governor that follows the load keeps its CPU slow, and the same computation takes several \
                  times as long as under load.",
            source: "Documentation/admin-guide/pm/cpufreq.rst; OPEN-NEXT use case: up to 200 times, power management one cause",
            reads: &[GOVERNOR, DRIVER, PREFERENCE, NO_TURBO],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let (files, in_question) = (&facts.files, in_question(facts)?);
        let mut by_governor: BTreeMap<&str, CpuSet> = BTreeMap::new();
        for found in files.some(GOVERNOR)? {
            let cpu = CpuId::try_from(found.numbers[0]).ok();
            if let Some(cpu) = cpu.filter(|cpu| in_question.contains(*cpu)) {
                by_governor.entry(found.text).or_default().insert(cpu);
            }
        }
        if by_governor.is_empty() {
            return Ok(Finding::fine("this kernel does not control the frequency"));
        }
        let list =
            by_governor.iter().map(|(name, cpus)| format!("{name} on {}", named(cpus))).collect::<Vec<_>>().join(", ");
        let first = |pattern: &str| files.each(pattern).next().map(|found| found.text);
        let mut evidence = list;
        if let Some(driver) = first(DRIVER) {
            evidence += &format!(" (driver {driver}");
            if let Some(preference) = first(PREFERENCE) {
                evidence += &format!(", energy preference {preference}");
            }
            if files.optional_number(NO_TURBO).ok().flatten() == Some(0) {
                evidence += ", turbo on";
            }
            evidence += ")";
        }
        if by_governor.keys().all(|name| *name == "performance") {
            return Ok(Finding::fine(evidence));
        }
        Ok(Finding::note(evidence)
            .reserve(&Use::LOOPS)
            .remedy(RemedyKind::Shield, "set the governor of the isolated CPUs to performance"))
    }
}

/// Whether a CPU was slowed down because of its temperature.
pub struct Thermal;

impl Check for Thermal {
    fn about(&self) -> &'static About {
        &About {
            id: "thermal",
            title: "thermal throttling",
            what: "Number of times that heat slowed each core down since boot.",
            why: "The hardware lowers the clock of a core that is too hot. Priority has no effect on that.",
            source: "Documentation/arch/x86: thermal_throttle; Intel SDM volume 3, thermal monitoring",
            reads: &[THROTTLED],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let counts = facts.files.some(THROTTLED)?;
        if counts.is_empty() {
            return Err(Unknown("this machine does not count it (no thermal_throttle)".into()));
        }
        let mut throttled = Vec::new();
        for found in &counts {
            let count = facts.files.number(found.path)?;
            if count > 0 {
                throttled.push(format!("CPU {}: {count} times", found.numbers[0]));
            }
        }
        if throttled.is_empty() {
            return Ok(Finding::fine("never since boot"));
        }
        let shown = throttled.len().min(4);
        let more =
            if throttled.len() > shown { format!(" and {} more CPUs", throttled.len() - shown) } else { String::new() };
        Ok(Finding::note(format!("{}{more}", throttled[..shown].join(", ")))
            .reserve(&Use::LOOPS)
            .remedy(RemedyKind::Machine, "improve the cooling, or limit the frequency to a value that it can sustain"))
    }
}
