//! The checks, one or a few related ones in each file, and the table of all of them.
//!
//! The order here is the order of reports within one severity: permissions first, then kernel, CPUs,
//! interrupts, clocks, power, memory, devices, the boot line.

use super::check::Check;
use super::facts::Facts;
use proc::mountinfo::mounts;

table! {
    /// Every check.
    CHECKS: dyn Check = pub mod {
        permissions: Fifo RoundRobin Deadline MemoryLock Affinity;
        limits: Rtprio Memlock;
        rt_group: RtGroupSched;
        throttling: Throttling FairServer;
        preemption: PreemptRt Model;
        debugging: DebugKernel;
        hypervisor: Guest Steal Smi;
        cpus: Count;
        topology: Smt Numa;
        cgroup: CpusetVersion CpusetOwner;
        isolation: Isolation NohzFull RcuCallbacks;
        interrupts: Irqbalance Managed;
        clock: Source Cost Resolution;
        discipline: Synchronised TaiOffset;
        power: IdleStates Governor Thermal;
        watchdogs: Lockup Hardware;
        memory: HugePages SamePages NumaBalancing;
        devices: UsbPolling SerialConsole;
        boot: Myths;
        boot_odds: Contradictions;
    }
}

/// Mount point of debugfs.
const DEBUGFS: &str = "/sys/kernel/debug";

/// Why a file below debugfs is missing, with the remedy.
fn debugfs_is_missing(facts: &Facts, path: &str) -> String {
    let mounted = facts.files.text("/proc/self/mountinfo").is_ok_and(|text| mounts(text).any(|m| m.kind == "debugfs"));
    match mounted {
        true => format!("debugfs is mounted but has no readable {path}"),
        false => format!("{path} needs debugfs: mount -t debugfs none {DEBUGFS}"),
    }
}

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
