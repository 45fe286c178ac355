//! Synthetic traces with known culprits: each culprit is named, with the time that it took.

use base::{CpuId, CpuSet, DurNs, MonoNs};
use proptest::prelude::*;
use trace::{Clocks, Culprit, Event, EventKind, Explainer, Facts, Late, Name, Occasion, Symbols, Task, Vector};

const CPU: CpuId = 1;
const PERIOD: u64 = 1_000_000;
const LOOP: Task = task(100, 19, b"loop");
const OTHER: Task = task(200, 120, b"builder");
const HOG: Task = task(300, 0, b"hog");
const IDLE: Task = task(0, 120, b"swapper/1");
/// Addresses of functions.
const WAKEUP: u64 = 0x1000;
const TICK: u64 = 0x2000;
const FLUSH: u64 = 0x3000;
const WORK: u64 = 0x4000;
const SYMBOLS: &str = "1000 t hrtimer_wakeup\n2000 t tick_nohz_handler\n3000 t do_flush_tlb_all\n4000 t wb_workfn\n\
    5000 t _raw_spin_unlock_irqrestore\n6000 t long_masked\n7000 t asm_sysvec_apic_timer_interrupt\n8000 t end\n";

const fn task(tid: i32, prio: i32, text: &[u8]) -> Task {
    let mut name = [0; 16];
    let mut at = 0;
    while at < text.len() {
        name[at] = text[at];
        at += 1;
    }
    Task { tid, prio, name: Name(name) }
}

/// Cause of a late wake-up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    IdleHost,
    LateUnderTask,
    LateInUserMode,
    Masked,
    Interrupt,
    Softirq,
    Kernel,
    WorkItem,
    Preempted,
    Throttled,
    Ipi,
    Callback,
    /// The host stops the CPU during the timer's interrupt.
    StoppedInHandler,
    Own,
    Stopped,
}

const CAUSES: [Cause; 15] = [
    Cause::IdleHost,
    Cause::LateUnderTask,
    Cause::LateInUserMode,
    Cause::Masked,
    Cause::Interrupt,
    Cause::Softirq,
    Cause::Kernel,
    Cause::WorkItem,
    Cause::Preempted,
    Cause::Throttled,
    Cause::Ipi,
    Cause::Callback,
    Cause::StoppedInHandler,
    Cause::Own,
    Cause::Stopped,
];

impl Cause {
    /// The expected culprit for `ns` of this cause. If a handler takes longer than usual ones, the host may have stopped it.
    fn culprit(self, ns: u64) -> Culprit {
        let culprit = self.short();
        let longest = match self {
            Self::StoppedInHandler => 100_000,
            Self::Interrupt | Self::Ipi | Self::Callback => 1_000_000,
            _ => u64::MAX,
        };
        if ns > longest { Culprit::HostOrHandler { handler: culprit.to_string() } } else { culprit }
    }

    fn short(self) -> Culprit {
        let (builder, hog) = (|| "builder".to_owned(), || "hog".to_owned());
        match self {
            Self::IdleHost => Culprit::Host { evidence: "the CPU was idle" },
            Self::LateUnderTask => Culprit::HostOrMasked { under: builder() },
            Self::LateInUserMode => Culprit::Host { evidence: "its interrupt found a program in user mode" },
            Self::Masked => Culprit::Masked { function: "long_masked".into(), task: builder() },
            Self::Interrupt => Culprit::Interrupt { irq: 36, name: "virtio1-req.0".into() },
            Self::Softirq => Culprit::Softirq { name: "NET_RX".into() },
            Self::Kernel => Culprit::Kernel { task: builder(), doing: String::new() },
            Self::WorkItem => Culprit::Kernel { task: builder(), doing: "work item wb_workfn".into() },
            Self::Preempted => Culprit::Preempted { task: hog(), class: "real-time 99".into() },
            Self::Throttled => Culprit::Throttled { task: builder() },
            Self::Ipi => {
                Culprit::Vector { vector: "function call", from: Some("hog on CPU 0 for do_flush_tlb_all".into()) }
            }
            Self::Callback => Culprit::TimerCallback { function: "tick_nohz_handler".into() },
            Self::StoppedInHandler => Culprit::Timer,
            Self::Own => Culprit::Own { faulting: false },
            Self::Stopped => Culprit::Stopped,
        }
    }
}

/// Writes a trace in the kernel's form.
struct Script {
    at: u64,
    now: Task,
    due: u64,
    items: Vec<(MonoNs, CpuId, Option<Event>)>,
}

impl Script {
    fn says(&mut self, after: u64, what: EventKind) {
        let interrupt = matches!(
            what,
            EventKind::VectorEntry(_)
                | EventKind::VectorExit(_)
                | EventKind::TimerFire { .. }
                | EventKind::TimerFired { .. }
                | EventKind::Waking { .. }
        );
        self.at += after;
        let event = Event { at: MonoNs(self.at), cpu: CPU, tid: self.now.tid, interrupt, what };
        self.items.push((event.at, CPU, Some(event)));
    }

    fn switch(&mut self, after: u64, state: u64, to: Task) {
        let from = self.now;
        self.says(after, EventKind::Switch { from, state, to });
        self.now = to;
    }

    /// The loop sets its timer to the next due time.
    fn arms(&mut self) {
        self.due += PERIOD;
        let (timer, due) = (0xabc, self.due as i64);
        self.says(1_000, EventKind::TimerSetup { timer, clock: 1, relative: false });
        self.says(500, EventKind::TimerStart { timer, function: WAKEUP, expires: due, soft: due });
    }

    /// The loop sleeps until its next due time; `next` runs on the CPU.
    fn sleeps(&mut self, next: Task) {
        self.arms();
        self.switch(1_000, 1, next);
        if next == IDLE {
            self.says(300, EventKind::Idle { state: Some(0) });
        }
    }

    /// The timer's interrupt comes at `at` and wakes the loop. A callback of `callback` ns runs in it first, if not 0.
    fn fires(&mut self, at: u64, callback: u64, stack: &[u64]) {
        self.at = self.at.max(at);
        if self.now == IDLE {
            self.says(0, EventKind::Idle { state: None });
        }
        self.says(0, EventKind::VectorEntry(Vector::LocalTimer));
        if callback > 0 {
            self.says(300, EventKind::TimerFire { timer: 0xddd, function: TICK });
            self.says(callback, EventKind::TimerFired { timer: 0xddd });
        }
        self.says(400, EventKind::TimerFire { timer: 0xabc, function: WAKEUP });
        self.says(300, EventKind::Waking { task: LOOP, cpu: CPU });
        if !stack.is_empty() {
            self.says(0, EventKind::Stack { callers: stack.to_vec() });
        }
        self.says(500, EventKind::TimerFired { timer: 0xabc });
        self.says(500, EventKind::VectorExit(Vector::LocalTimer));
    }

    /// One cycle whose wake-up is `ns` late because of `cause`.
    fn cycle(&mut self, cause: Cause, ns: u64) {
        let entry = [0x1000, 0x7000];
        match cause {
            Cause::Own => {
                // It is due again while it runs: the timer fires before it sleeps.
                self.at = self.due + PERIOD + ns;
                self.arms();
                self.fires(0, 0, &[]);
                return;
            }
            Cause::Stopped => return self.stopped(ns),
            Cause::IdleHost => {
                self.sleeps(IDLE);
                self.fires(self.due + ns, 0, &[]);
            }
            Cause::Interrupt => {
                self.sleeps(OTHER);
                self.at = self.due - 1_000;
                self.says(0, EventKind::IrqEntry { irq: 36, name: Name::of(b"virtio1-req.0") });
                self.says(ns + 1_000, EventKind::IrqExit { irq: 36 });
                self.fires(0, 0, &[]);
            }
            Cause::LateUnderTask | Cause::LateInUserMode | Cause::Masked => {
                self.sleeps(OTHER);
                let masked = [0x1000, 0x7000, 0x5000, 0x6010];
                let stack: &[u64] = match cause {
                    Cause::LateInUserMode => &entry,
                    Cause::Masked => &masked,
                    _ => &[],
                };
                self.fires(self.due + ns, 0, stack);
            }
            Cause::Callback => {
                self.sleeps(OTHER);
                self.fires(self.due + 1_500, ns, &[]);
            }
            Cause::StoppedInHandler => {
                self.sleeps(OTHER);
                self.at = self.due + 1_500;
                self.says(0, EventKind::VectorEntry(Vector::LocalTimer));
                self.says(ns, EventKind::TimerFire { timer: 0xabc, function: WAKEUP });
                self.says(300, EventKind::Waking { task: LOOP, cpu: CPU });
                self.says(500, EventKind::TimerFired { timer: 0xabc });
                self.says(500, EventKind::VectorExit(Vector::LocalTimer));
            }
            _ => {
                self.sleeps(OTHER);
                self.fires(self.due + 1_500, 0, &[]);
                self.after_waking(cause, ns);
            }
        }
        self.switch(1_500, 0, LOOP);
        self.at += 20_000;
    }

    /// Events that delay the loop after its wake-up.
    fn after_waking(&mut self, cause: Cause, ns: u64) {
        match cause {
            Cause::Kernel => self.at += ns,
            Cause::WorkItem => {
                self.says(500, EventKind::WorkStart { function: WORK });
                self.says(ns, EventKind::WorkEnd);
            }
            Cause::Softirq => {
                self.says(300, EventKind::SoftirqEntry { vec: 3 });
                self.says(ns, EventKind::SoftirqExit { vec: 3 });
            }
            Cause::Preempted => {
                self.switch(500, 0, HOG);
                self.switch(ns, 1, OTHER);
            }
            Cause::Throttled => {
                self.switch(150_000, 0, task(400, 120, b"clerk"));
                self.switch(1_000, 1, OTHER);
                self.at += ns + 150_000;
            }
            Cause::Ipi => {
                let queued = EventKind::CallQueued { cpu: CPU, function: FLUSH };
                // The interrupt's own event names only the kernel's dispatcher.
                let sent = EventKind::IpiSent { cpus: CpuSet::single(CPU), callback: WORK };
                let hogs = EventKind::Switch { from: IDLE, state: 0, to: HOG };
                for what in [hogs, queued, sent] {
                    let event = Event { at: MonoNs(self.at), cpu: 0, tid: HOG.tid, interrupt: false, what };
                    self.items.push((MonoNs(self.at), 0, Some(event)));
                }
                self.says(800, EventKind::VectorEntry(Vector::CallFunction));
                self.says(ns, EventKind::VectorExit(Vector::CallFunction));
            }
            _ => unreachable!("{cause:?}"),
        }
    }

    /// The host stops the CPU while the loop sleeps, beyond its due time.
    fn stopped(&mut self, ns: u64) {
        self.sleeps(OTHER);
        let due = self.due as i64;
        self.says(5_000, EventKind::TimerCancel { timer: 0xabc });
        self.says(0, EventKind::Waking { task: LOOP, cpu: CPU });
        self.switch(1_000, 0, LOOP);
        self.switch(1_000, 4, OTHER);
        self.at = self.due + ns;
        self.says(0, EventKind::Waking { task: LOOP, cpu: CPU });
        self.switch(1_000, 0, LOOP);
        self.says(500, EventKind::TimerStart { timer: 0xabc, function: WAKEUP, expires: due, soft: due });
        self.fires(0, 0, &[]);
        self.at += 20_000;
    }
}

#[test]
fn a_sender_of_interrupts_without_a_switch_is_named_from_the_second_round_on() {
    let facts =
        Facts { hypervisor: true, idle_exit_ns: vec![2_000], symbols: Symbols::parse(SYMBOLS), ..Facts::default() };
    let mut explainer = Explainer::new(facts, DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    let mut senders = Vec::new();
    for round in 0..2 {
        script.cycle(Cause::Ipi, 200_000);
        script.due += (script.at + 100_000).saturating_sub(script.due) / PERIOD * PERIOD;
        for item in script.items.drain(..) {
            // The sender's CPU records no switch.
            if item.1 == CPU || !matches!(item.2.as_ref().map(|event| &event.what), Some(EventKind::Switch { .. })) {
                explainer.take(&item, |late| senders.push((round, late.worst().unwrap().to_string())));
            }
        }
        explainer.name_senders(|tid| (tid == HOG.tid).then(|| "maker".to_owned()));
    }
    let from = |round: usize, name: &str| senders.iter().any(|(at, culprit)| *at == round && culprit.contains(name));
    assert!(from(0, &format!("thread {}", HOG.tid)) && from(1, "from maker on CPU 0"), "{senders:?}");
}

/// The late wake-ups of a trace with these cycles.
fn told(cycles: &[(Cause, u64)]) -> Vec<Late> {
    let clocks = Clocks::default();
    let symbols = Symbols::parse(SYMBOLS);
    let facts = Facts { hypervisor: true, idle_exit_ns: vec![2_000], clocks, symbols };
    let mut explainer = Explainer::new(facts, DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    for &(cause, ns) in cycles {
        script.cycle(cause, ns);
        // The next cycle must be due in the future, but not at once.
        script.due += (script.at + 100_000).saturating_sub(script.due) / PERIOD * PERIOD;
    }
    let mut all = Vec::new();
    for item in &script.items {
        explainer.take(item, |late| all.push(late.clone()));
    }
    assert_eq!(explainer.real_time().late, all.len() as u64);
    all
}

#[test]
fn every_culprit_is_named_first_with_the_time_it_took() {
    for cause in CAUSES {
        let all = told(&[(cause, 300_000)]);
        assert_eq!(all.len(), 1, "{cause:?}: {all:?}");
        let late = &all[0];
        assert_eq!(late.worst(), Some(&cause.culprit(300_000)), "{late:?}");
        assert_eq!(late.occasion, Occasion::Timer);
        let (_, ns) = late.by_culprit()[0];
        assert!((295_000..=306_000).contains(&ns) || cause == Cause::Throttled, "{cause:?} {ns} {late:?}");
    }
}

#[test]
fn without_a_hypervisor_a_long_handler_is_blamed_itself() {
    for (hypervisor, ns, expected) in [
        (true, 3_800_000, Culprit::HostOrHandler { handler: "timer interrupt".into() }),
        (false, 3_800_000, Culprit::Timer),
    ] {
        let mut explainer = Explainer::new(Facts { hypervisor, ..Facts::default() }, DurNs::from_us(70), None, 10);
        explainer.watch(LOOP.tid, "loop");
        let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
        script.switch(0, 0, LOOP);
        script.cycle(Cause::StoppedInHandler, ns);
        let mut all = Vec::new();
        script.items.iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
        let [late] = &all[..] else { panic!("{all:?}") };
        assert_eq!(late.worst(), Some(&expected));
        assert_eq!(late.worst().map(Culprit::may_be_host), Some(hypervisor));
        assert!(!late.worst().is_some_and(Culprit::is_host), "it is no evidence");
    }
}

#[test]
fn an_interrupt_during_a_running_thread_does_not_extend_its_wake_up() {
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    script.sleeps(IDLE);
    script.fires(script.due, 0, &[]);
    // No switch from idle is recorded. The loop computes, a tick interrupts it, and it sleeps 4 ms later.
    script.now = LOOP;
    script.says(20_000, EventKind::VectorEntry(Vector::LocalTimer));
    script.says(2_000, EventKind::VectorExit(Vector::LocalTimer));
    script.at += 4_000_000;
    script.sleeps(OTHER);
    let mut all = Vec::new();
    script.items.iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
    assert_eq!(all, []);
    assert_eq!(explainer.real_time().delays.count(), 1);
}

#[test]
fn delays_among_lost_events_are_not_reported() {
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    script.sleeps(OTHER);
    script.fires(script.due, 0, &[]);
    // 0.5 s of events are lost between the wake-up and a switch of another wake-up.
    script.at += 500_000_000;
    script.items.push((MonoNs(script.at), CPU, None));
    script.switch(1_000, 0, LOOP);
    script.due += 500 * PERIOD;
    script.cycle(Cause::Kernel, 300_000);
    let mut all = Vec::new();
    script.items.iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
    let [late] = &all[..] else { panic!("{all:?}") };
    assert_eq!(late.worst(), Some(&Cause::Kernel.short()), "{late:?}");
}

#[test]
fn a_first_timer_in_the_distant_past_does_not_make_a_thread_late() {
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 33_000_000_000_000, now: OTHER, due: 33_000_010_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    let sleep = EventKind::TimerStart { timer: 0xabc, function: WAKEUP, expires: 0, soft: 0 };
    script.says(1_000, sleep);
    script.fires(0, 0, &[]);
    // From here on, a due time in the past counts as late.
    script.cycle(Cause::Own, 300_000);
    let mut all = Vec::new();
    script.items.iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
    let [late] = &all[..] else { panic!("{all:?}") };
    assert_eq!(late.worst(), Some(&Culprit::Own { faulting: false }));
    assert!(late.delay_ns() < 400_000, "{late:?}");
}

#[test]
fn a_thread_woken_on_an_idle_cpu_is_known_to_run_without_a_switch_event() {
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    script.sleeps(IDLE);
    script.fires(script.due, 0, &[]);
    // No switch is recorded. An interrupt comes while it runs.
    script.now = LOOP;
    let begun = script.at + 100_000;
    script.says(100_000, EventKind::VectorEntry(Vector::LocalTimer));
    script.says(2_000, EventKind::VectorExit(Vector::LocalTimer));
    script.at += 500_000;
    script.items.iter().for_each(|item| explainer.take(item, |_| {}));
    let parts = explainer.within(LOOP.tid, MonoNs(begun), MonoNs(script.at));
    let ns = |culprit: &Culprit| parts.iter().filter(|part| part.culprit == *culprit).map(|part| part.ns).sum::<u64>();
    assert_eq!((ns(&Culprit::Timer), ns(&Culprit::Own { faulting: false })), (2_000, 500_000), "{parts:?}");
}

/// The events of `script`, with the loop in a time-sharing class.
fn time_sharing(script: &Script) -> Vec<(MonoNs, CpuId, Option<Event>)> {
    let ordinary = |task: &Task| if task.tid == LOOP.tid { Task { prio: 120, ..*task } } else { *task };
    let changed = |event: &Event| {
        let what = match &event.what {
            EventKind::Switch { from, state, to } => {
                EventKind::Switch { from: ordinary(from), state: *state, to: ordinary(to) }
            }
            EventKind::Waking { task, cpu } => EventKind::Waking { task: ordinary(task), cpu: *cpu },
            other => other.clone(),
        };
        Event { what, ..event.clone() }
    };
    script.items.iter().map(|(at, cpu, event)| (*at, *cpu, event.as_ref().map(changed))).collect()
}

#[test]
fn a_time_sharing_thread_counts_as_real_time_only_if_it_is_selected() {
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    script.cycle(Cause::Kernel, 300_000);
    for is_selected in [false, true] {
        let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
        explainer.watch(LOOP.tid, "loop");
        explainer.count_in_every_class(LOOP.tid, is_selected);
        let mut all = Vec::new();
        time_sharing(&script).iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
        let [late] = &all[..] else { panic!("{all:?}") };
        assert_eq!(late.worst(), Some(&Culprit::SameClass { task: "builder".into() }));
        assert_eq!(explainer.is_real_time(LOOP.tid), is_selected);
        assert_eq!(explainer.real_time().late, u64::from(is_selected));
        assert_eq!(explainer.ordinary().late, u64::from(!is_selected));
    }
}

#[test]
fn a_culprit_of_the_plant_has_the_name_of_its_process_and_the_id_of_its_thread() {
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
    explainer.watch(LOOP.tid, "loop");
    explainer.name_processes([(HOG.tid, "burst".to_owned())].into());
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    script.cycle(Cause::Preempted, 300_000);
    script.due += PERIOD;
    script.cycle(Cause::Kernel, 300_000);
    let mut culprits = Vec::new();
    script.items.iter().for_each(|item| {
        explainer.take(item, |late| culprits.push(late.worst().unwrap().to_string()));
    });
    assert_eq!(culprits, ["preempted by burst (hog 300) (real-time 99)", "non-preemptible kernel code of builder"]);
}

#[test]
fn a_task_woken_on_a_cpu_that_leaves_its_idle_state_is_known_to_run() {
    let explained = |first: Task| {
        let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), None, 10);
        explainer.watch(LOOP.tid, "loop");
        let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
        script.switch(0, 0, LOOP);
        script.sleeps(IDLE);
        script.says(0, EventKind::Waking { task: HOG, cpu: CPU });
        // The timer's interrupt comes while the CPU leaves its idle state. The kernel records no switch from idle.
        script.fires(script.due, 0, &[]);
        script.now = first;
        script.says(
            2_500_000,
            EventKind::TimerStart { timer: 0xdef, function: WAKEUP, expires: 9_000_000, soft: 9_000_000 },
        );
        if first != LOOP {
            script.switch(10_000, 1, LOOP);
        }
        let mut all = Vec::new();
        script.items.iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
        all
    };
    // A loop that computes without any event is not late.
    assert_eq!(explained(LOOP), []);
    let [late] = &explained(HOG)[..] else { panic!("one late wake-up") };
    assert!(matches!(late.worst(), Some(Culprit::Preempted { task, .. }) if task == "hog"), "{late:?}");
    assert!(late.by_culprit()[0].1 >= 2_500_000, "{late:?}");
}

#[test]
fn a_long_cycle_is_explained_by_the_events_within_it() {
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(70), Some(DurNs::from_us(200)), 10);
    explainer.watch(LOOP.tid, "loop");
    let mut script = Script { at: 1_000_000, now: OTHER, due: 2_000_000, items: Vec::new() };
    script.switch(0, 0, LOOP);
    script.sleeps(OTHER);
    script.fires(script.due, 0, &[]);
    script.switch(1_000, 0, LOOP);
    // It waits for a lock of the builder, and has two page faults.
    script.switch(50_000, 1, OTHER);
    script.says(400_000, EventKind::Waking { task: LOOP, cpu: CPU });
    script.switch(1_000, 0, LOOP);
    script.says(100, EventKind::PageFault { user: true });
    script.says(100, EventKind::PageFault { user: true });
    script.sleeps(OTHER);
    let mut all = Vec::new();
    script.items.iter().for_each(|item| explainer.take(item, |late| all.push(late.clone())));
    let [cycle] = &all[..] else { panic!("{all:?}") };
    assert_eq!((cycle.occasion, cycle.faults), (Occasion::Cycle, 2));
    assert_eq!(cycle.worst(), Some(&Culprit::Blocked { waker: "builder".into() }));
    assert_eq!(cycle.by_culprit()[0].1, 400_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn culprits_are_named_in_any_order_and_the_parts_add_up(
        cycles in prop::collection::vec((prop::sample::select(&CAUSES[..]), 100_000u64..3_000_000), 1..30),
    ) {
        let all = told(&cycles);
        prop_assert_eq!(all.len(), cycles.len());
        for (late, (cause, ns)) in all.iter().zip(&cycles) {
            prop_assert_eq!(late.parts.iter().map(|part| part.ns).sum::<u64>(), late.delay_ns());
            let mut at = late.due;
            for part in &late.parts {
                prop_assert_eq!(part.from, at);
                at = MonoNs(at.0 + part.ns);
            }
            prop_assert_eq!(late.worst(), Some(&cause.culprit(*ns)), "{:?}", late);
            prop_assert!(late.by_culprit()[0].1 + 5_000 >= *ns, "{:?}", late);
        }
    }
}
