//! Per-CPU history of tasks, interrupts and softirqs over the recorded window.

use crate::event::{Event, EventKind, Name, Task, Vector};
use base::{CpuId, MonoNs};
use std::collections::VecDeque;

/// Maximum segments kept per CPU: about 1 s at 10,000 interrupts per second.
const SEGMENTS_MAX: usize = 1 << 15;
/// Maximum nesting of interrupts.
const NESTED_MAX: usize = 16;

/// Sender of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sender {
    pub(crate) task: Task,
    pub(crate) cpu: CpuId,
    pub(crate) callback: u64,
}

/// Context running on top of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Context {
    Vector(Vector, Option<Sender>),
    Irq(i32),
    Softirq(u32),
    /// Callback of a timer.
    Callback(u64),
    Nmi(u64),
}

/// Activity of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Doing {
    /// Whether the activity is known; false before the first event and after lost ones.
    pub(crate) known: bool,
    /// The current task; thread 0: idle.
    pub(crate) task: Task,
    /// Start of the task's turn.
    pub(crate) since: MonoNs,
    /// The innermost context running on top of it.
    pub(crate) top: Option<Context>,
    /// Idle state, if idle.
    pub(crate) idle: Option<u32>,
    /// Work item that a kernel worker is processing.
    pub(crate) work: Option<u64>,
    /// System call that the task is in.
    pub(crate) syscall: Option<i64>,
}

/// History of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    segments: VecDeque<(MonoNs, Doing)>,
    stack: Vec<(MonoNs, Context)>,
    now: Doing,
    /// Time it last left idle.
    pub(crate) woke_at: MonoNs,
    /// Time of its last event.
    pub(crate) heard_at: MonoNs,
}

impl Default for Timeline {
    fn default() -> Self {
        let now = Doing {
            known: false,
            task: Task::default(),
            since: MonoNs(0),
            top: None,
            idle: None,
            work: None,
            syscall: None,
        };
        Self { segments: VecDeque::new(), stack: Vec::new(), now, woke_at: MonoNs(0), heard_at: MonoNs(0) }
    }
}

impl Timeline {
    /// Start of the outermost interrupt in progress.
    pub(crate) fn interrupted_at(&self) -> Option<MonoNs> {
        self.stack.iter().find(|(_, context)| !matches!(context, Context::Softirq(_))).map(|(at, _)| *at)
    }

    /// Start of this task's turn, if it is the current task.
    pub(crate) fn runs_since(&self, tid: i32) -> Option<MonoNs> {
        (self.now.known && self.now.task.tid == tid).then_some(self.now.since)
    }

    /// Last event of the idle task, if the CPU has left its idle state. The next active task has had the CPU since then, because
    /// the kernel does not record that switch.
    pub(crate) fn left_idle_at(&self) -> Option<MonoNs> {
        (self.now.known && self.now.task.tid == 0 && self.now.idle.is_none()).then_some(self.heard_at)
    }

    /// Events were lost after the last one: the activity since then is unknown.
    pub(crate) fn lose(&mut self) {
        self.stack.clear();
        self.now.known = false;
        self.mark(self.heard_at);
    }

    /// Takes the next event. `task` returns details of the current task; `sender` is the sender of the interrupt.
    pub(crate) fn take(&mut self, event: &Event, task: impl Fn(i32) -> Doing, sender: Option<Sender>) {
        let at = event.at;
        if self.now.task.tid != event.tid || !self.now.known {
            // The switch was not recorded: out of idle, or lost.
            let since = self.left_idle_at().unwrap_or(at);
            self.now = Doing { known: true, since, ..task(event.tid) };
            self.mark(since);
        }
        self.heard_at = at;
        let push = |stack: &mut Vec<_>, context| {
            if stack.len() < NESTED_MAX {
                stack.push((at, context));
            }
        };
        match &event.what {
            EventKind::Switch { to, .. } => {
                self.stack.clear();
                self.now = Doing { known: true, since: at, task: *to, ..task(to.tid) };
            }
            EventKind::Idle { state } => {
                self.now.idle = *state;
                if state.is_none() {
                    self.woke_at = at;
                }
            }
            EventKind::VectorEntry(vector) => push(&mut self.stack, Context::Vector(*vector, sender)),
            EventKind::VectorExit(vector) => {
                self.pop(|context| matches!(context, Context::Vector(of, _) if of == vector))
            }
            EventKind::IrqEntry { irq, .. } => push(&mut self.stack, Context::Irq(*irq)),
            EventKind::IrqExit { irq } => self.pop(|context| *context == Context::Irq(*irq)),
            EventKind::SoftirqEntry { vec } => push(&mut self.stack, Context::Softirq(*vec)),
            EventKind::SoftirqExit { vec } => self.pop(|context| *context == Context::Softirq(*vec)),
            EventKind::TimerFire { function, .. } => push(&mut self.stack, Context::Callback(*function)),
            EventKind::TimerFired { .. } => self.pop(|context| matches!(context, Context::Callback(_))),
            EventKind::WorkStart { function } => self.now.work = Some(*function),
            EventKind::WorkEnd => self.now.work = None,
            EventKind::SyscallEntry { number } => self.now.syscall = Some(*number),
            EventKind::SyscallExit => self.now.syscall = None,
            EventKind::Nmi { handler, ns } => {
                let from = MonoNs(at.0.saturating_sub((*ns).max(0) as u64));
                if self.segments.back().is_none_or(|(last, _)| *last <= from) {
                    let doing = Doing { top: Some(Context::Nmi(*handler)), ..self.now };
                    self.segments.push_back((from, doing));
                }
            }
            _ => {}
        }
        self.now.top = self.stack.last().map(|(_, context)| *context);
        self.mark(at);
    }

    /// Ends the innermost context that matches, and all contexts within it.
    fn pop(&mut self, is: impl Fn(&Context) -> bool) {
        if let Some(at) = self.stack.iter().rposition(|(_, context)| is(context)) {
            self.stack.truncate(at);
        }
    }

    fn mark(&mut self, at: MonoNs) {
        if self.segments.back().is_some_and(|(_, doing)| *doing == self.now) {
            return;
        }
        if self.segments.len() >= SEGMENTS_MAX {
            self.segments.pop_front();
        }
        self.segments.push_back((at, self.now));
    }

    /// The activity in an interval, as contiguous pieces; `None` where unknown.
    pub(crate) fn between(&self, from: MonoNs, to: MonoNs, mut each: impl FnMut(Option<&Doing>, MonoNs, MonoNs)) {
        let first = self.segments.partition_point(|(at, _)| *at <= from);
        let mut at = from;
        let mut doing = first.checked_sub(1).and_then(|index| self.segments.get(index)).map(|(_, doing)| doing);
        for (begin, next) in self.segments.range(first..) {
            if *begin >= to {
                break;
            }
            if at < *begin {
                each(doing.filter(|doing| doing.known), at, *begin);
                at = *begin;
            }
            doing = Some(next);
        }
        if at < to {
            each(doing.filter(|doing| doing.known), at, to);
        }
    }
}

/// Name of a softirq.
pub(crate) fn softirq_name(vec: u32) -> String {
    const NAMES: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    NAMES.get(vec as usize).map_or_else(|| vec.to_string(), |name| (*name).to_owned())
}

/// Name of a kernel worker without the part that differs within its pool.
pub(crate) fn kind_of_task(name: Name) -> String {
    let name = name.to_string();
    match name.split_once('/') {
        Some((head @ ("kworker" | "ksoftirqd" | "migration" | "cpuhp" | "rcuc" | "ktimers"), _)) => head.to_owned(),
        _ => name,
    }
}
