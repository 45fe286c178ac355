//! The checks, one file each or a few that belong together, and the table of all of them.
//!
//! The order here is the order of reports within one severity: permissions first, then kernel, CPUs,
//! interrupts, clocks, power, memory, devices, the boot line.

use super::check::Check;

pub mod boot;
pub mod clock;
pub mod cpus;
pub mod permissions;
pub mod preemption;

/// Every check.
pub static CHECKS: &[&dyn Check] = &[
    &permissions::Fifo,
    &permissions::RoundRobin,
    &permissions::Deadline,
    &permissions::MemoryLock,
    &permissions::Affinity,
    &preemption::PreemptRt,
    &preemption::Model,
    &cpus::Count,
    &clock::Source,
    &clock::Cost,
    &clock::Resolution,
    &boot::Myths,
];

#[cfg(test)]
mod tests {
    use super::CHECKS;

    #[test]
    fn every_check_is_documented_and_named_once() {
        let mut ids: Vec<_> = CHECKS.iter().map(|check| check.about().id).collect();
        for check in CHECKS {
            let about = check.about();
            for text in [about.title, about.what, about.why, about.source] {
                assert!(!text.trim().is_empty(), "{}", about.id);
            }
            assert!(
                about.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{}",
                about.id
            );
            assert!(about.reads.iter().all(|path| path.starts_with('/')), "{}", about.id);
        }
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
