//! The shield on a model of the kernel that rejects and normalises values as the real one does: killed at every write,
//! with new tasks, with changes by other programs, and without space for its journal.

mod model;

use host::plan::{Profile, Want};
use keep::RunDir;
use keep::shield::journal::{Journal, JournalState};
use keep::shield::machine::RealMachine;
use keep::shield::{self, Applied, Compared, Error, Released};
use model::four::{MACHINE, NO_CGROUP, V1, V2, as_can_be_told, boot};
use model::{Dir, Machine, outlive};
use testkit::FakeKernel;

fn want(cpus: &str) -> Want {
    Want { cpus: cpus.parse().unwrap(), ..Want::default() }
}

/// The other profile, which changes more settings.
fn polling(cpus: &str) -> Want {
    Want { profile: Profile::Polling, ..want(cpus) }
}

fn apply(machine: &Machine, want: &Want, dir: &RunDir) -> Result<Applied, Error> {
    shield::apply_on(&mut RealMachine::new(machine), want, dir)
}

fn release(machine: &Machine, dir: &RunDir, force: bool) -> Result<Released, Error> {
    shield::release_on(&mut RealMachine::new(machine), dir, force)
}

/// Runs `act`, which the kernel kills after `calls` changes. Returns whether it was killed.
fn killed_after(machine: &Machine, calls: usize, act: impl FnOnce()) -> bool {
    machine.0.borrow_mut().kill_after(calls);
    let outcome = outlive(act);
    machine.0.borrow_mut().revive();
    outcome.is_err()
}

fn assert_restored(machine: &Machine, rest: &str, before: &FakeKernel, when: &str) {
    let before = format!("{:#?}", as_can_be_told(machine, rest, before));
    let after = format!("{:#?}", machine.0.borrow().state());
    let differs: Vec<_> = before.lines().zip(after.lines()).filter(|(before, after)| before != after).take(4).collect();
    assert!(before == after, "{when}: the machine differs: {differs:#?}");
}

const MACHINES: &[(&str, &str)] = &[
    ("6.12.1", V1),
    ("6.18.44-fc", V1),
    ("6.12.1", V2),
    ("7.0.2", V2),
    ("6.1.0-rt", V2),
    ("6.12.1", NO_CGROUP),
    ("5.10.0", V1),
    ("5.10.0", NO_CGROUP),
];

#[test]
fn a_shield_is_applied_verified_and_released() {
    for (&(version, rest), want) in MACHINES.iter().flat_map(|machine| [(machine, want("2")), (machine, polling("2"))])
    {
        let (machine, dir) = (boot(version, rest), Dir::new());
        let before = machine.0.borrow().state();
        let applied = apply(&machine, &want, &dir.0).unwrap();
        assert_eq!(applied.drift, [], "{version}");
        assert_eq!(applied.backend.contains("v2"), rest == V2, "{}", applied.backend);
        let refused: Vec<&str> = applied.refused.iter().map(|refused| refused.label.as_str()).collect();
        assert_eq!(refused, ["interrupt 25 (PCI-MSI 2-edge nvme0q1)"], "{version} {rest}");
        {
            let kernel = machine.0.borrow();
            for (tid, task) in kernel.tasks().filter(|(tid, _)| ![2, 8, 9].contains(tid)) {
                let shielded = rest != NO_CGROUP || tid != 102;
                assert!(!shielded || !task.mask.contains(2), "{version}: {tid} {task:?}");
            }
        }
        {
            let kernel = machine.0.borrow();
            let read = |path: &str| kernel.read(path).unwrap_or_default().trim().to_owned();
            assert_eq!(read("/sys/kernel/debug/sched/preempt"), "none voluntary (full)");
            assert_eq!(
                read("/sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00/min_freq_khz"),
                "2400000"
            );
            assert_eq!(read("/sys/fs/resctrl/schemata"), "MB:0=100;1=100\n    L3:0=fffe0;1=fffff");
            assert_eq!(read("/sys/fs/resctrl/tahti.shield/schemata"), "L3:0=0001f;1=fffff");
            assert_eq!(read("/sys/fs/resctrl/tahti.shield/cpus_list"), "2");
            let polls = want.profile == Profile::Polling;
            assert_eq!(read("/proc/sys/net/core/busy_poll"), if polls { "50" } else { "7" });
            let timers = kernel.task(8).unwrap().policy.to_string();
            assert_eq!(timers, if polls { "fifo:2" } else { "fifo:1" });
        }
        let again = apply(&machine, &want, &dir.0).unwrap();
        assert_eq!((again.rounds, again.writes), (0, 0), "{version}");
        let released = release(&machine, &dir.0, false).unwrap();
        assert!(released.is_whole(), "{version}: {released:?}");
        assert_restored(&machine, rest, &before, version);
        assert_eq!(release(&machine, &dir.0, false).unwrap(), Released::default());
    }
}

/// Step between kills: 1 on the usual kernel, with every back-end. The others differ little and use 3.
fn stride(version: &str) -> usize {
    if version == "6.12.1" { 1 } else { 3 }
}

#[test]
fn a_kill_at_any_write_of_apply_loses_nothing() {
    for (nth, &(version, rest)) in MACHINES.iter().enumerate() {
        for calls in (nth % stride(version)..).step_by(stride(version)) {
            let (machine, dir) = (boot(version, rest), Dir::new());
            let before = machine.0.borrow().state();
            let killed = killed_after(&machine, calls, || drop(apply(&machine, &polling("2"), &dir.0).unwrap()));
            if calls % 2 == 0 {
                // The next apply releases the remains and applies the shield.
                let applied = apply(&machine, &polling("2"), &dir.0).unwrap();
                assert_eq!(applied.drift, []);
                assert_eq!(applied.found.is_some(), killed, "{:?}", applied.found);
            }
            let released = release(&machine, &dir.0, false).unwrap();
            let when = format!("{version}, killed at change {calls}");
            assert!(released.is_whole(), "{when}: {released:?}\n{:#?}", machine.0.borrow().log());
            assert_restored(&machine, rest, &before, &when);
            if !killed {
                assert!(calls > 10, "only {calls} changes were tried");
                break;
            }
        }
    }
}

#[test]
fn a_kill_at_any_write_of_release_loses_nothing() {
    for (nth, &(version, rest)) in MACHINES.iter().enumerate() {
        for calls in (nth % stride(version)..).step_by(stride(version)) {
            let (machine, dir) = (boot(version, rest), Dir::new());
            let before = machine.0.borrow().state();
            apply(&machine, &polling("2"), &dir.0).unwrap();
            let killed = killed_after(&machine, calls, || drop(release(&machine, &dir.0, false).unwrap()));
            let released = release(&machine, &dir.0, false).unwrap();
            let when = format!("{version}, killed at change {calls} of the release");
            assert!(released.is_whole(), "{when}: {released:?}");
            assert_restored(&machine, rest, &before, &when);
            if !killed {
                break;
            }
        }
    }
}

#[test]
fn two_kills_in_a_row_lose_nothing() {
    for first in (0..30).step_by(5) {
        for second in (0..30).step_by(3) {
            let (machine, dir) = (boot("6.12.1", V1), Dir::new());
            let before = machine.0.borrow().state();
            killed_after(&machine, first, || drop(apply(&machine, &want("2"), &dir.0).unwrap()));
            killed_after(&machine, second, || drop(apply(&machine, &want("2"), &dir.0).unwrap()));
            let released = release(&machine, &dir.0, false).unwrap();
            let when = format!("killed at {first} and {second}");
            assert!(released.is_whole(), "{when}: {released:?}");
            assert_restored(&machine, V1, &before, &when);
        }
    }
}

#[test]
fn tasks_created_under_the_shield_are_restored_like_their_parent() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    let before = machine.0.borrow().state();
    apply(&machine, &want("2"), &dir.0).unwrap();
    for (parent, child, as_thread) in [(100, 200, false), (100, 201, true), (103, 202, false), (102, 203, true)] {
        machine.0.borrow_mut().fork(parent, child, as_thread);
    }
    assert!(release(&machine, &dir.0, false).unwrap().is_whole());
    let mut kernel = machine.0.borrow_mut();
    for (parent, child) in [(100, 200), (100, 201), (103, 202), (102, 203)] {
        let (parent, child) = (kernel.task(parent).unwrap(), kernel.task(child).unwrap());
        assert_eq!((&child.cgroup, child.mask, child.set), (&parent.cgroup, parent.mask, parent.set), "{}", child.comm);
    }
    (200..204).for_each(|tid| kernel.exit(tid));
    drop(kernel);
    assert_restored(&machine, V1, &before, "after the newcomers ended");
}

/// The journal of a shield compared with the machine.
fn compared(machine: &Machine, dir: &RunDir) -> Compared {
    let JournalState::Here(journal) = Journal::load(dir, "this-boot").unwrap() else { panic!("no journal") };
    shield::compare(&machine, &journal).unwrap()
}

/// Labels of values that differ from the written ones.
fn drifted(machine: &Machine, dir: &RunDir) -> Vec<String> {
    compared(machine, dir).drift.into_iter().map(|drift| drift.label).collect()
}

#[test]
fn an_untouched_shield_has_no_drift_on_any_machine() {
    for (&(version, rest), want) in MACHINES.iter().flat_map(|machine| [(machine, want("2")), (machine, polling("2"))])
    {
        let (machine, dir) = (boot(version, rest), Dir::new());
        apply(&machine, &want, &dir.0).unwrap();
        assert_eq!(compared(&machine, &dir.0), Compared::default(), "{version} {rest}");
        machine.0.borrow_mut().interrupts_fire();
        assert_eq!(compared(&machine, &dir.0), Compared::default(), "{version} {rest}");
    }
}

#[test]
fn an_interrupt_that_moves_to_a_shielded_cpu_is_drift_and_a_refused_one_is_not() {
    // Interrupt 26 is on no shielded CPU at first, so no step moves it.
    let row = "| 26:          1          0          0          0  PCI-MSI 3-edge      sda\n/proc/irq/24/";
    let more = "/proc/irq/26/smp_affinity_list: 0\n/proc/irq/25/smp_affinity_list";
    for &(version, rest) in MACHINES {
        let text = MACHINE.replace("RELEASE", version) + rest;
        let text = text.replacen("/proc/irq/24/", row, 1).replacen("/proc/irq/25/smp_affinity_list", more, 1);
        let (machine, dir) = (Machine::boot(&text), Dir::new());
        let applied = apply(&machine, &want("2"), &dir.0).unwrap();
        assert_eq!(applied.refused.len(), 1, "interrupt 25");
        assert_eq!(drifted(&machine, &dir.0), [] as [&str; 0], "{version}");
        // Interrupts may move freely among the other CPUs.
        let set = |number: u32, cpus: &str| {
            machine.0.borrow_mut().write(&format!("/proc/irq/{number}/smp_affinity_list"), cpus).unwrap();
        };
        set(24, "3");
        set(26, "1");
        assert_eq!(drifted(&machine, &dir.0), [] as [&str; 0], "{version}");
        set(24, "0-3");
        set(26, "2");
        let found = drifted(&machine, &dir.0);
        assert_eq!(found, ["interrupt 24 (PCI-MSI 1-edge eth0)", "interrupt 26 (PCI-MSI 3-edge sda)"], "{version}");
        set(24, "1");
        set(26, "0");
        assert_eq!(drifted(&machine, &dir.0), [] as [&str; 0], "{version}");
    }
}

#[test]
fn a_task_that_returns_to_a_shielded_cpu_is_drift_and_one_moved_into_the_shield_is_not() {
    for (version, rest, entry) in
        [("6.12.1", V1, Some("/cg/tasks")), ("5.10.0", V1, Some("/cg/tasks")), ("6.12.1", NO_CGROUP, None)]
    {
        let (machine, dir) = (boot(version, rest), Dir::new());
        let applied = apply(&machine, &want("2"), &dir.0).unwrap();
        match entry {
            Some(entry) => machine.0.borrow_mut().write(entry, "100").unwrap(),
            None => machine.0.borrow_mut().set_affinity(100, "0-3".parse().unwrap()).unwrap(),
        }
        assert_eq!(drifted(&machine, &dir.0), ["task 100 (shell)"], "{version}");
        match applied.place.entry() {
            Some(entry) => machine.0.borrow_mut().write(&entry, "100").unwrap(),
            None => machine.0.borrow_mut().set_affinity(100, "2".parse().unwrap()).unwrap(),
        }
        assert_eq!(drifted(&machine, &dir.0), [] as [&str; 0], "{version}");
    }
}

#[test]
fn new_tasks_are_moved_out_by_applying_again() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    let before = machine.0.borrow().state();
    apply(&machine, &want("2"), &dir.0).unwrap();
    // Another program starts a task in the top group, outside the shield.
    machine.0.borrow_mut().fork(1, 300, false);
    machine.0.borrow_mut().write("/cg/tasks", "300").unwrap();
    let applied = apply(&machine, &want("2"), &dir.0).unwrap();
    assert_eq!((applied.rounds, applied.writes, applied.drift), (1, 1, vec![]));
    assert!(!machine.0.borrow().task(300).unwrap().mask.contains(2));
    machine.0.borrow_mut().exit(300);
    assert!(release(&machine, &dir.0, false).unwrap().is_whole());
    assert_restored(&machine, V1, &before, "after the release");
}

#[test]
fn a_value_of_another_program_is_kept_reported_and_restored_only_by_force() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    let before = machine.0.borrow().state();
    apply(&machine, &want("2"), &dir.0).unwrap();
    machine.0.borrow_mut().write("/proc/sys/vm/stat_interval", "77").unwrap();
    let released = release(&machine, &dir.0, false).unwrap();
    assert!(!released.is_whole());
    assert_eq!(released.kept.len(), 1);
    let kept = &released.kept[0];
    assert_eq!((kept.before.text(), kept.ours.text(), kept.found.text()), (Some("3"), Some("10"), Some("77")));
    assert_eq!(machine.0.borrow().read("/proc/sys/vm/stat_interval").unwrap().trim(), "77");
    // Everything else is restored, and the rest can still be forced.
    assert!(release(&machine, &dir.0, true).unwrap().is_whole());
    assert_restored(&machine, V1, &before, "after the forced release");
}

#[test]
fn a_value_changed_under_one_shield_is_the_original_value_of_the_next() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    machine.0.borrow_mut().write("/proc/sys/vm/stat_interval", "77").unwrap();
    assert!(!release(&machine, &dir.0, false).unwrap().is_whole());
    let before = machine.0.borrow().state();
    // No shield is applied, so the next one may use any CPUs and is released normally.
    let applied = apply(&machine, &want("3"), &dir.0).unwrap();
    assert!(!applied.stood);
    assert!(applied.found.unwrap().starts_with("1 value that another program changed"));
    let released = release(&machine, &dir.0, false).unwrap();
    assert!(released.is_whole(), "{released:?}");
    assert_restored(&machine, V1, &before, "after the second shield");
    assert_eq!(machine.0.borrow().read("/proc/sys/vm/stat_interval").unwrap().trim(), "77");
}

#[test]
fn an_interrupted_shield_is_not_repaired_and_is_cleaned_up_by_the_next_apply() {
    for (during_release, calls) in [(false, 5), (true, 5)] {
        let (machine, dir) = (boot("6.12.1", V1), Dir::new());
        let before = machine.0.borrow().state();
        if during_release {
            assert!(!apply(&machine, &want("2"), &dir.0).unwrap().stood);
            assert!(apply(&machine, &want("2"), &dir.0).unwrap().stood);
            assert!(killed_after(&machine, calls, || drop(release(&machine, &dir.0, false).unwrap())));
        } else {
            assert!(killed_after(&machine, calls, || drop(apply(&machine, &want("2"), &dir.0).unwrap())));
        }
        let repaired = shield::repair_on(&mut RealMachine::new(&machine), &dir.0).unwrap();
        assert!(repaired.is_none(), "no repair is needed");
        let applied = apply(&machine, &want("3"), &dir.0).unwrap();
        assert!(!applied.stood && applied.found.unwrap().contains("interrupted"));
        assert!(release(&machine, &dir.0, false).unwrap().is_whole());
        assert_restored(&machine, V1, &before, "after both");
    }
}

#[test]
fn a_repair_after_the_release_creates_no_shield() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    machine.0.borrow_mut().write("/proc/sys/vm/stat_interval", "2").unwrap();
    let repaired = shield::repair_on(&mut RealMachine::new(&machine), &dir.0).unwrap();
    assert_eq!(repaired.map(|it| (it.stood, it.writes)), Some((true, 1)));
    release(&machine, &dir.0, false).unwrap();
    let calls = machine.0.borrow().calls();
    assert!(shield::repair_on(&mut RealMachine::new(&machine), &dir.0).unwrap().is_none());
    assert_eq!(machine.0.borrow().calls(), calls);
}

#[test]
fn a_repair_that_is_killed_leaves_the_shield_active() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    let before = machine.0.borrow().state();
    apply(&machine, &want("2"), &dir.0).unwrap();
    for (path, value) in [("/proc/sys/vm/stat_interval", "2"), ("/proc/sys/vm/swappiness", "77")] {
        machine.0.borrow_mut().write(path, value).unwrap();
    }
    assert!(killed_after(&machine, 1, || drop(apply(&machine, &want("2"), &dir.0).unwrap())));
    let applied = apply(&machine, &want("2"), &dir.0).unwrap();
    assert!(applied.stood && applied.found.is_none() && applied.drift.is_empty(), "{applied:?}");
    assert!(release(&machine, &dir.0, false).unwrap().is_whole());
    assert_restored(&machine, V1, &before, "after the release");
}

#[test]
fn a_partial_shield_is_extended_to_the_whole_and_released_completely() {
    for (version, rest) in [("6.12.1", V1), ("6.12.1", V2)] {
        let (machine, dir) = (boot(version, rest), Dir::new());
        let before = machine.0.borrow().state();
        let part = Want { parts: "interrupts,timers".parse().unwrap(), ..want("2") };
        let applied = apply(&machine, &part, &dir.0).unwrap();
        assert_eq!((applied.place, applied.drift), (shield::ShieldGroup::Affinity, vec![]));
        assert!(machine.0.borrow().task(100).unwrap().mask.contains(2), "tasks are not moved");
        let whole = apply(&machine, &want("2"), &dir.0).unwrap();
        assert!(whole.stood && whole.place != shield::ShieldGroup::Affinity && whole.drift.is_empty(), "{whole:?}");
        assert!(!machine.0.borrow().task(100).unwrap().mask.contains(2));
        let error = apply(&machine, &part, &dir.0).unwrap_err();
        assert!(matches!(error, Error::Other(..)), "{error}");
        assert!(release(&machine, &dir.0, false).unwrap().is_whole());
        assert_restored(&machine, rest, &before, "after the whole");
    }
}

#[test]
fn a_machine_has_one_shield_and_a_refusal_names_its_run_folder() {
    let (machine, one, other) = (boot("6.12.1", NO_CGROUP), Dir::new(), Dir::new());
    one.0.make().unwrap();
    let lock = one.0.path().join("machine.lock");
    let locked = || RealMachine::new(&machine).locked_by(&lock);
    shield::apply_on(&mut locked(), &want("2"), &one.0).unwrap();
    let calls = machine.0.borrow().calls();
    let said = [
        shield::apply_on(&mut locked(), &want("3"), &other.0).unwrap_err(),
        shield::release_on(&mut locked(), &other.0, true).unwrap_err(),
    ];
    for error in said.map(|error| error.to_string()) {
        assert!(error.starts_with("another shield is active on CPUs 2"), "{error}");
        assert!(error.contains(&format!("TAHTI_RUN={} tahti shield release", one.0.path().display())), "{error}");
    }
    machine.0.borrow_mut().write("/proc/sys/vm/stat_interval", "77").unwrap();
    assert_eq!(machine.0.borrow().calls(), calls + 1, "no write");
    shield::release_on(&mut locked(), &one.0, false).unwrap();
    let error = shield::apply_on(&mut locked(), &want("3"), &other.0).unwrap_err().to_string();
    assert!(error.contains("were not restored") && error.ends_with("release --force"), "{error}");
    shield::release_on(&mut locked(), &one.0, true).unwrap();
    // A claim without a journal does not count. A kill between the two leaves this state.
    std::fs::write(&lock, one.0.path().display().to_string()).unwrap();
    shield::apply_on(&mut locked(), &want("3"), &other.0).unwrap();
    assert!(shield::release_on(&mut locked(), &other.0, false).unwrap().is_whole());
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "");
}

#[test]
fn an_active_shield_is_not_replaced() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    let calls = machine.0.borrow().calls();
    let error = apply(&machine, &want("3"), &dir.0).unwrap_err();
    assert!(error.to_string().contains("a shield on CPUs 2 (profile control-loop) is active already"), "{error}");
    let polling = Want { profile: Profile::Polling, ..want("2") };
    assert!(matches!(apply(&machine, &polling, &dir.0), Err(Error::Other(..))));
    assert_eq!(machine.0.borrow().calls(), calls);
}

#[test]
fn a_shield_of_another_run_folder_is_not_changed() {
    let (machine, dir, other) = (boot("6.12.1", V1), Dir::new(), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    let calls = machine.0.borrow().calls();
    let error = apply(&machine, &want("2"), &other.0).unwrap_err();
    assert!(error.to_string().starts_with("/cg/tahti.housekeeping exists, but has no journal"), "{error}");
    assert!(error.to_string().contains(" in it: init (1) "), "{error}");
    assert_eq!(machine.0.borrow().calls(), calls);
}

#[test]
fn empty_groups_of_a_shield_without_a_journal_are_reused_and_removed() {
    for (version, kernel, dirs) in [
        (V1, "6.12.1", &["tahti.housekeeping"][..]),
        (V1, "6.12.1", &["tahti.shield"]),
        (V1, "6.12.1", &["tahti.housekeeping", "tahti.shield"]),
        (V2, "6.12.1", &["tahti.shield"]),
        (V2, "6.12.1", &["tahti.shield", "tahti.shield/rt"]),
        (V2, "6.1.1", &["tahti.shield"]),
    ] {
        let (machine, dir) = (boot(kernel, version), Dir::new());
        let before = machine.0.borrow().state();
        for name in dirs {
            machine.0.borrow_mut().make_dir(&format!("/cg/{name}")).unwrap();
        }
        let applied = apply(&machine, &want("2"), &dir.0).unwrap_or_else(|error| panic!("{dirs:?}: {error}"));
        assert!(applied.found.unwrap().contains("of an earlier shield without a journal"), "{dirs:?}");
        assert!(release(&machine, &dir.0, false).unwrap().is_whole());
        assert_restored(&machine, version, &before, &format!("{dirs:?}"));
    }
}

#[test]
fn an_isolated_partition_without_a_journal_is_treated_as_foreign() {
    let (machine, dir, other) = (boot("6.12.1", V2), Dir::new(), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    let error = apply(&machine, &want("2"), &other.0).unwrap_err();
    assert!(error.to_string().contains("(its CPUs are isolated)"), "{error}");
}

#[test]
fn without_space_for_the_journal_nothing_is_written() {
    let machine = boot("6.12.1", V1);
    let file = std::env::temp_dir().join(format!("tahti-no-dir-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    let error = apply(&machine, &want("2"), &RunDir::at(file.join("run"))).unwrap_err();
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(error, Error::NoJournal { .. }), "{error}");
    assert!(error.to_string().starts_with("nothing was changed"), "{error}");
    assert_eq!(machine.0.borrow().calls(), 0);
}

#[test]
fn a_journal_from_another_boot_is_removed_and_reported() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    // A reboot: the machine is in its initial state, but the journal is not (its directory was no tmpfs).
    let machine = boot("6.12.1", V1);
    machine.0.borrow_mut().set_file("/proc/sys/kernel/random/boot_id", "next-boot\n");
    let before = machine.0.borrow().state();
    let released = release(&machine, &dir.0, false).unwrap();
    assert!(released.other_boot && released.want.is_none());
    assert_restored(&machine, V1, &before, "after the release");
    assert_eq!(release(&machine, &dir.0, false).unwrap(), Released::default());
}

#[test]
fn a_damaged_journal_is_an_error_with_its_place_and_is_kept() {
    let (machine, dir) = (boot("6.12.1", V1), Dir::new());
    apply(&machine, &want("2"), &dir.0).unwrap();
    let path = dir.0.path().join("shield.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let calls = machine.0.borrow().calls();
    for error in [apply(&machine, &want("2"), &dir.0).unwrap_err(), release(&machine, &dir.0, true).unwrap_err()] {
        assert!(error.to_string().contains("shield.json: line 1, column"), "{error}");
    }
    assert_eq!(machine.0.borrow().calls(), calls);
    assert!(path.exists());
}
