//! The reference page explains every culprit.

use trace::Culprit;

const PAGE: &str = include_str!("../../../../docs/reference/measuring.md");

/// The words of the table's row for a culprit. A new culprit needs a row.
fn row(culprit: &Culprit) -> &'static str {
    match culprit {
        Culprit::Host { .. } => "host (the CPU was idle)",
        Culprit::HostOrMasked { .. } => "host or masked interrupts, under T",
        Culprit::HostOrHandler { .. } => "host or X",
        Culprit::Masked { .. } => "interrupts masked in F by T",
        Culprit::Hardware => "hardware or firmware (idle CPU woke late)",
        Culprit::IdleExit => "idle exit",
        Culprit::TimerSlack => "timer slack",
        Culprit::Timer => "timer interrupt",
        Culprit::TimerCallback { .. } => "timer F",
        Culprit::Interrupt { .. } => "interrupt N (X)",
        Culprit::Vector { from: Some(_), .. } => "X interrupt from T",
        Culprit::Vector { from: None, .. } => "X interrupt",
        Culprit::Softirq { .. } => "softirq X",
        Culprit::Nmi { .. } => "NMI F",
        Culprit::Preempted { .. } => "preempted by T (C)",
        Culprit::SameClass { .. } => "T ran first (time sharing)",
        Culprit::Lent { .. } => "T, with a priority lent through a lock",
        Culprit::Kernel { .. } => "non-preemptible kernel code of T",
        Culprit::Throttled { .. } => "throttled: the scheduler ran T",
        Culprit::Blocked { .. } => "waited for T",
        Culprit::Stopped => "stopped by a signal",
        Culprit::Own { .. } => "own code",
        Culprit::Unexplained => "unexplained",
    }
}

#[test]
fn every_culprit_has_a_row_in_the_reference() {
    let [t, f, x] = ["T", "F", "X"].map(str::to_owned);
    let all = [
        Culprit::Host { evidence: "the CPU was idle" },
        Culprit::HostOrMasked { under: t.clone() },
        Culprit::HostOrHandler { handler: x.clone() },
        Culprit::Masked { function: f.clone(), task: t.clone() },
        Culprit::Hardware,
        Culprit::IdleExit,
        Culprit::TimerSlack,
        Culprit::Timer,
        Culprit::TimerCallback { function: f.clone() },
        Culprit::Vector { vector: "X", from: Some(t.clone()) },
        Culprit::Vector { vector: "X", from: None },
        Culprit::Softirq { name: x.clone() },
        Culprit::Nmi { handler: f },
        Culprit::Preempted { task: t.clone(), class: "C".into() },
        Culprit::SameClass { task: t.clone() },
        Culprit::Lent { task: t.clone() },
        Culprit::Kernel { task: t.clone(), doing: String::new() },
        Culprit::Throttled { task: t.clone() },
        Culprit::Blocked { waker: t },
        Culprit::Stopped,
        Culprit::Own { faulting: false },
        Culprit::Unexplained,
    ];
    let interrupt = Culprit::Interrupt { irq: 36, name: x };
    assert_eq!(interrupt.to_string().replace("36", "N"), row(&interrupt));
    for culprit in all.iter().inspect(|culprit| assert_eq!(culprit.to_string(), row(culprit))).chain([&interrupt]) {
        assert!(PAGE.contains(&format!("\n| {} |", row(culprit))), "{culprit}: no row in docs/reference/measuring.md");
    }
}
