//! Quiet sections on a kernel that was booted for them.

use base::{CpuSet, DurNs, Policy, Priority};
use rt::{Quiet, QuietReport};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// A section on `cpu`, at a real-time priority.
fn on<T: Send>(cpu: u16, work: impl FnOnce(Quiet) -> T + Send) -> T {
    testkit::guest::required();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_affinity(0, &CpuSet::single(cpu)).unwrap();
            let policy = Policy::Fifo(Priority(50));
            set_scheduling(0, Scheduling { policy, reset_on_fork: true }).unwrap();
            work(Quiet::prepare().unwrap())
        });
        thread.join().unwrap()
    })
}

fn missing(section: &Quiet) -> String {
    let missing = section.obtained().iter().filter(|item| item.missing.is_some());
    missing.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn measured(section: &Quiet) -> QuietReport {
    section.measure(DurNs::from_ms(800), DurNs::from_us(100)).unwrap()
}

fn ticks(report: &QuietReport) -> u64 {
    report.interrupts.iter().find(|(what, _)| what.contains("Local timer")).map_or(0, |(_, count)| *count)
}

#[test]
fn the_tick_stops_on_cpus_booted_with_nohz_full_and_is_counted_on_others() {
    let there = on(3, |section| {
        assert!(!missing(&section).contains("the tick stops"), "{}", missing(&section));
        measured(&section)
    });
    let elsewhere = on(1, |section| {
        assert!(missing(&section).contains("CPU 1 is not in nohz_full="), "{}", missing(&section));
        measured(&section)
    });
    // A running tick makes 250 interrupts a second. A stopped one may still come occasionally.
    assert!(ticks(&there) * 4 < ticks(&elsewhere), "{there:?}, and elsewhere {elsewhere:?}");
    assert_eq!((there.broken, elsewhere.broken), (vec![], vec![]), "each recorded condition held");
}

#[test]
fn armed_timers_are_named_to_root() {
    let said = on(1, |section| missing(&section));
    assert!(said.contains("no timer is armed (") && said.contains("tick_"), "{said}");
}

#[test]
fn a_tick_that_continues_on_a_nohz_full_cpu_is_reported() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    testkit::guest::required();
    // The kernel checks limits of CPU time in its tick.
    setrlimit(Resource::Cpu, Rlimit { current: Some(1000), maximum: None }).unwrap();
    let report = on(3, |section| {
        assert!(!missing(&section).contains("the tick stops"), "{}", missing(&section));
        measured(&section)
    });
    let broken = report.broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(broken.contains("the tick stops while one task runs") && broken.contains("local timer"), "{report:?}");
}
