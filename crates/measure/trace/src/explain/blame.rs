//! Rules that attribute an interval to causes.

use super::watched::{State, Watched};
use super::{Explainer, TIME_SHARING};
use crate::culprit::{Culprit, DelayPart};
use crate::event::{Name, Task, Vector};
use crate::timeline::{Context, Doing, kind_of_task, softirq_name};
use base::{CpuId, MonoNs};

/// Normal delivery time of a timer's interrupt, in nanoseconds; not attributed to another culprit.
const DELIVERY_NS: u64 = 10_000;
/// Time to wake an idle CPU in addition to the idle state's latency, in nanoseconds.
const IDLE_EXIT_NS: u64 = 50_000;
/// A less urgent thread that starts more than this many nanoseconds after the wake-up cannot be the result of a race in the
/// scheduler.
const RACE_NS: u64 = 100_000;
/// Normal maximum of the kernel's own handlers of timer and reschedule interrupts, in nanoseconds; they usually take some
/// microseconds.
const HANDLER_NS: u64 = 100_000;
/// Normal maximum, in nanoseconds, of handlers that run code of drivers or on behalf of other CPUs.
const FOREIGN_HANDLER_NS: u64 = 1_000_000;
/// At least one page fault per this many nanoseconds of run time counts as faulting pages in.
const OWN_NS_PER_FAULT: u64 = 20_000;

/// Consecutive parts; equal neighbours are merged.
#[derive(Default)]
struct DelayParts(Vec<DelayPart>);

impl DelayParts {
    fn add(&mut self, culprit: Culprit, from: MonoNs, to: MonoNs) {
        let ns = to.0 - from.0;
        match self.0.last_mut() {
            Some(last) if last.culprit == culprit => last.ns += ns,
            _ if ns > 0 => self.0.push(DelayPart { from, ns, culprit }),
            _ => {}
        }
    }
}

impl Explainer {
    /// Parts of a delay of `watched`, contiguous from `due` to `ran`.
    pub(super) fn parts(&self, watched: &Watched, due: MonoNs, ran: MonoNs) -> Vec<DelayPart> {
        let mut parts = DelayParts::default();
        watched.between(due, ran, |state, from, to| match state {
            State::Running(cpu) => self.running(&mut parts, watched, cpu, from, to),
            State::Ready { cpu, since } => self.ready(&mut parts, watched, cpu, since, from, to),
            State::TimerLate { cpu, latest } => {
                let free = latest.clamp(from, to);
                parts.add(Culprit::TimerSlack, from, free);
                self.timer_late(&mut parts, watched, cpu, free, to);
            }
            State::TimerFires(cpu) => self.each(cpu, from, to, |doing, from, to| {
                let handler = doing.and_then(|doing| self.on_top(doing, to.0 - from.0));
                parts.add(handler.unwrap_or_else(|| self.handler(Culprit::Timer, HANDLER_NS, to.0 - from.0)), from, to);
            }),
            State::Blocked { waker } => parts.add(Culprit::Blocked { waker: self.task_name(waker) }, from, to),
            State::Stopped => parts.add(Culprit::Stopped, from, to),
            State::Asleep | State::Unknown => parts.add(Culprit::Unexplained, from, to),
        });
        parts.0
    }

    fn each(&self, cpu: CpuId, from: MonoNs, to: MonoNs, mut each: impl FnMut(Option<&Doing>, MonoNs, MonoNs)) {
        match self.cpus.get(&cpu) {
            Some(timeline) => timeline.between(from, to, each),
            None if from < to => each(None, from, to),
            None => {}
        }
    }

    /// The thread itself has the CPU.
    fn running(&self, parts: &mut DelayParts, watched: &Watched, cpu: CpuId, from: MonoNs, to: MonoNs) {
        let faulting = u64::from(watched.faults_between(from, to)) * OWN_NS_PER_FAULT >= to.0 - from.0;
        self.each(cpu, from, to, |doing, from, to| {
            let on_top = |doing| self.on_top(doing, to.0 - from.0).unwrap_or(Culprit::Own { faulting });
            parts.add(doing.map_or(Culprit::Unexplained, on_top), from, to);
        });
    }

    /// The timer is due, but its interrupt has not arrived.
    fn timer_late(&self, parts: &mut DelayParts, watched: &Watched, cpu: CpuId, from: MonoNs, to: MonoNs) {
        if to.0 - from.0 <= DELIVERY_NS {
            parts.add(Culprit::Timer, from, to);
            return;
        }
        self.each(cpu, from, to, |doing, from, to| {
            let Some(doing) = doing else { return parts.add(Culprit::Unexplained, from, to) };
            match doing.top {
                None if doing.task.tid == 0 => self.idle(parts, doing, from, to),
                None => parts.add(self.host_or_masked(watched, doing), from, to),
                Some(Context::Softirq(vec)) => {
                    let under = format!("softirq {}", softirq_name(vec));
                    parts.add(Culprit::HostOrMasked { under }, from, to);
                }
                Some(_) => {
                    parts.add(self.on_top(doing, to.0 - from.0).unwrap_or(Culprit::Unexplained), from, to);
                }
            }
        });
    }

    /// Distinguishes the two by the kernel stack at the interrupt.
    fn host_or_masked(&self, watched: &Watched, doing: &Doing) -> Culprit {
        let task = self.named(doing.task);
        let names: Vec<&str> = watched.stack.iter().filter_map(|&caller| self.facts.symbols.name(caller)).collect();
        let entry = names.iter().rposition(|name| name.starts_with("asm_"));
        match entry.map(|entry| &names[entry + 1..]) {
            // User code cannot mask interrupts.
            Some([]) if self.facts.hypervisor => {
                Culprit::Host { evidence: "its interrupt found a program in user mode" }
            }
            Some([]) => Culprit::Hardware,
            Some([innermost, outer @ ..]) if unmasks(innermost) => {
                let function = outer.iter().find(|name| !unmasks(name)).unwrap_or(innermost);
                Culprit::Masked { function: (*function).to_owned(), task }
            }
            _ => Culprit::HostOrMasked { under: task },
        }
    }

    /// The CPU was idle although it was needed.
    fn idle(&self, parts: &mut DelayParts, doing: &Doing, from: MonoNs, to: MonoNs) {
        let state = doing.idle.and_then(|state| self.facts.idle_exit_ns.get(state as usize));
        let exit = MonoNs(from.0.saturating_add(state.copied().unwrap_or(0) + IDLE_EXIT_NS));
        let late = to > exit;
        match (late, self.facts.hypervisor) {
            (false, _) => parts.add(Culprit::IdleExit, from, to),
            (true, true) => parts.add(Culprit::Host { evidence: "the CPU was idle" }, from, to),
            (true, false) => parts.add(Culprit::Hardware, from, to),
        }
    }

    /// The thread was woken but does not run.
    fn ready(&self, parts: &mut DelayParts, watched: &Watched, cpu: CpuId, since: MonoNs, from: MonoNs, to: MonoNs) {
        self.each(cpu, from, to, |doing, from, to| {
            let Some(doing) = doing else { return parts.add(Culprit::Unexplained, from, to) };
            if let Some(culprit) = self.on_top(doing, to.0 - from.0) {
                return parts.add(culprit, from, to);
            }
            if doing.task.tid == 0 {
                return self.idle(parts, doing, from, to);
            }
            let (task, prio) = (self.named(doing.task), doing.task.prio);
            let lent = self.tasks.get(&doing.task.tid).is_some_and(|known| known.lent);
            let culprit = if doing.task.tid == watched.tid {
                Culprit::Timer
            } else if lent && prio < TIME_SHARING {
                Culprit::Lent { task }
            } else if watched.prio >= TIME_SHARING && prio >= TIME_SHARING {
                Culprit::SameClass { task }
            } else if prio <= watched.prio {
                Culprit::Preempted { task, class: class(prio) }
            } else if doing.since.0.saturating_sub(since.0) >= RACE_NS {
                Culprit::Throttled { task }
            } else {
                Culprit::Kernel { task, doing: self.inside(doing) }
            };
            parts.add(culprit, from, to);
        });
    }

    /// The activity of a task in the kernel, as far as known.
    fn inside(&self, doing: &Doing) -> String {
        match (doing.work, doing.syscall) {
            (Some(work), _) => format!("work item {}", self.facts.symbols.show(work)),
            (None, Some(number)) => format!("system call {number}"),
            (None, None) => String::new(),
        }
    }

    /// The culprit running on top of a task for `ns` nanoseconds, if any.
    fn on_top(&self, doing: &Doing, ns: u64) -> Option<Culprit> {
        let symbols = &self.facts.symbols;
        let (culprit, takes) = match doing.top? {
            Context::Vector(Vector::LocalTimer, _) => (Culprit::Timer, HANDLER_NS),
            Context::Vector(vector, sender) => {
                let from = sender.map(|sender| {
                    let called = symbols.name(sender.callback).map_or_else(String::new, |name| format!(" for {name}"));
                    format!("{} on CPU {}{called}", self.shown(sender.task), sender.cpu)
                });
                let calls = matches!(vector, Vector::CallFunction | Vector::CallFunctionSingle | Vector::IrqWork);
                let takes = if calls { FOREIGN_HANDLER_NS } else { HANDLER_NS };
                (Culprit::Vector { vector: vector.name(), from }, takes)
            }
            Context::Irq(irq) => {
                let name = self.irqs.get(&irq).map_or_else(|| "unnamed".into(), Name::to_string);
                (Culprit::Interrupt { irq, name }, FOREIGN_HANDLER_NS)
            }
            // Softirqs can be interrupted: those interrupts would show a stopped CPU.
            Context::Softirq(vec) => return Some(Culprit::Softirq { name: softirq_name(vec) }),
            Context::Callback(function) => match symbols.name(function) {
                Some("hrtimer_wakeup") => (Culprit::Timer, HANDLER_NS),
                _ => (Culprit::TimerCallback { function: symbols.show(function) }, FOREIGN_HANDLER_NS),
            },
            // The kernel measures the duration itself.
            Context::Nmi(handler) => return Some(Culprit::Nmi { handler: symbols.show(handler) }),
        };
        Some(self.handler(culprit, takes, ns))
    }

    /// A handler ran for `ns` nanoseconds without events; normally it takes up to `takes`. Interrupts are masked in it, so a host
    /// that stopped the CPU cannot be distinguished from a long handler.
    fn handler(&self, culprit: Culprit, takes: u64, ns: u64) -> Culprit {
        match ns > takes && self.facts.hypervisor {
            true => Culprit::HostOrHandler { handler: culprit.to_string() },
            false => culprit,
        }
    }

    fn task_name(&self, tid: i32) -> String {
        self.tasks.get(&tid).map_or_else(|| self.shown(Task { tid, ..Task::default() }), |known| self.shown(known.task))
    }

    fn shown(&self, task: Task) -> String {
        match task {
            Task { tid: 0, .. } => "an interrupt".into(),
            Task { name, tid, .. } if name == Name::default() => format!("thread {tid}"),
            task => self.named(task),
        }
    }

    /// The name of a task. Of a thread of the plant: the process, and name and id of the thread.
    fn named(&self, task: Task) -> String {
        match self.processes.get(&task.tid) {
            Some(process) => format!("{process} ({} {})", task.name, task.tid),
            None => kind_of_task(task.name),
        }
    }
}

/// Whether a kernel function enables interrupts again.
fn unmasks(function: &str) -> bool {
    ["unlock_irq", "irq_enable", "irq_restore", "finish_task_switch", "handle_softirqs"]
        .iter()
        .any(|name| function.contains(name))
}

/// A kernel priority in words.
pub(crate) fn class(prio: i32) -> String {
    match prio {
        ..0 => "deadline".into(),
        0..TIME_SHARING => format!("real-time {}", TIME_SHARING - 1 - prio),
        _ => "time sharing".into(),
    }
}
