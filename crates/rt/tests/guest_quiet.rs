//! Quiet sections where the kernel was booted for them.

use base::{CpuSet, DurNs, Policy, Priority};
use rt::Quiet;
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

fn ticks(section: &Quiet, duration: DurNs) -> u64 {
    let report = section.measure(duration, DurNs::from_us(100)).unwrap();
    println!("{report:?}");
    report.interrupts.iter().find(|(what, _)| what.contains("Local timer")).map_or(0, |(_, count)| *count)
}

#[test]
fn the_tick_stops_where_it_was_booted_so_and_is_counted_elsewhere() {
    let duration = DurNs::from_ms(800);
    let there = on(3, |section| {
        assert!(!missing(&section).contains("the tick stops"), "{}", missing(&section));
        ticks(&section, duration)
    });
    let elsewhere = on(1, |section| {
        assert!(missing(&section).contains("CPU 1 is not in nohz_full="), "{}", missing(&section));
        ticks(&section, duration)
    });
    // 250 a second where it goes on; the kernel may look in once in a while where it stopped.
    assert!(there * 4 < elsewhere, "{there} ticks in the quiet section, {elsewhere} elsewhere");
}

#[test]
fn armed_timers_are_named_to_root() {
    let said = on(1, |section| missing(&section));
    assert!(said.contains("no timer is armed (") && said.contains("tick_"), "{said}");
}
