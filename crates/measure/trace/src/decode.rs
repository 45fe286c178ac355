//! Decoding of trace records into events, with a table of the supported tracepoints.

use crate::event::{Event, EventKind, Name, Task, Vector};
use crate::format::{Field, Format, FormatError};
use crate::page::{Layout, PageError, number};
use base::{CPUS_MAX, CpuId, CpuSet, MonoNs};
use std::collections::BTreeMap;

/// Bits of `common_flags`: hard interrupt, softirq, NMI.
const INTERRUPT: u8 = 0x08 | 0x10 | 0x40;
/// Maximum callers kept of a stack.
const CALLERS_MAX: usize = 64;

/// Where a tracepoint is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On the CPUs of the watched threads.
    Watched,
    /// On those CPUs, filtered by the watched threads.
    Threads,
    /// On every CPU, because its events affect other CPUs.
    Everywhere,
    /// Enabled only on request, or as a side effect of others.
    Apart,
}

/// A supported tracepoint.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its folder below `events`.
    pub path: &'static str,
    /// Where it is enabled.
    pub scope: Scope,
    /// Information that is missing without it; empty if another tracepoint replaces it.
    pub without: &'static str,
    fields: &'static [&'static str],
    make: fn(&Fields<'_>) -> Option<EventKind>,
}

macro_rules! rows {
    ($($path:literal, $scope:ident, $without:literal, [$($field:literal),*], $make:expr;)*) => {
        &[$(Row { path: $path, scope: Scope::$scope, without: $without, fields: &[$($field),*], make: $make }),*]
    };
}

/// All supported tracepoints.
pub const EVENTS: &[Row] = rows! {
    "sched/sched_switch", Watched, "anything at all", ["prev_pid", "prev_prio", "prev_comm", "prev_state", "next_pid", "next_prio", "next_comm"],
        |f| Some(EventKind::Switch { from: f.task([0, 1, 2])?, state: f.unsigned(3)?, to: f.task([4, 5, 6])? });
    "sched/sched_waking", Everywhere, "when a thread was woken, and by whom", ["pid", "prio", "comm", "target_cpu"],
        |f| Some(EventKind::Waking { task: f.task([0, 1, 2])?, cpu: f.cpu(3)? });
    "sched/sched_migrate_task", Everywhere, "where a thread waits that was taken to another CPU", ["pid", "dest_cpu"],
        |f| Some(EventKind::Migrate { tid: f.int(0)?, cpu: f.cpu(1)? });
    "sched/sched_process_exit", Watched, "", ["pid"], |f| Some(EventKind::Exit { tid: f.int(0)? });
    "sched/sched_pi_setprio", Everywhere, "priorities lent through locks", ["pid", "oldprio", "newprio"],
        |f| Some(EventKind::Lent { tid: f.int(0)?, from: f.int(1)?, to: f.int(2)? });
    "timer/hrtimer_setup", Watched, "", ["hrtimer", "clockid", "mode"],
        |f| Some(EventKind::TimerSetup { timer: f.unsigned(0)?, clock: f.int(1)?, relative: f.unsigned(2)? & 1 != 0 });
    "timer/hrtimer_init", Watched, "", ["hrtimer", "clockid", "mode"],
        |f| Some(EventKind::TimerSetup { timer: f.unsigned(0)?, clock: f.int(1)?, relative: f.unsigned(2)? & 1 != 0 });
    "timer/hrtimer_start", Watched, "when a thread was due", ["hrtimer", "function", "expires", "softexpires"],
        |f| Some(EventKind::TimerStart { timer: f.unsigned(0)?, function: f.unsigned(1)?, expires: f.unsigned(2)? as i64, soft: f.unsigned(3)? as i64 });
    "timer/hrtimer_cancel", Watched, "whether a thread still waited for its timer", ["hrtimer"], |f| Some(EventKind::TimerCancel { timer: f.unsigned(0)? });
    "timer/hrtimer_expire_entry", Watched, "which timer woke a thread", ["hrtimer", "function"],
        |f| Some(EventKind::TimerFire { timer: f.unsigned(0)?, function: f.unsigned(1)? });
    "timer/hrtimer_expire_exit", Watched, "how long a timer's function took", ["hrtimer"], |f| Some(EventKind::TimerFired { timer: f.unsigned(0)? });
    "irq_vectors/local_timer_entry", Watched, "when the timer's interrupt came", [], |_| Some(EventKind::VectorEntry(Vector::LocalTimer));
    "irq_vectors/local_timer_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::LocalTimer));
    "irq_vectors/reschedule_entry", Watched, "interrupts between CPUs", [], |_| Some(EventKind::VectorEntry(Vector::Reschedule));
    "irq_vectors/reschedule_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::Reschedule));
    "irq_vectors/call_function_entry", Watched, "interrupts between CPUs", [], |_| Some(EventKind::VectorEntry(Vector::CallFunction));
    "irq_vectors/call_function_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::CallFunction));
    "irq_vectors/call_function_single_entry", Watched, "interrupts between CPUs", [], |_| Some(EventKind::VectorEntry(Vector::CallFunctionSingle));
    "irq_vectors/call_function_single_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::CallFunctionSingle));
    "irq_vectors/irq_work_entry", Watched, "", [], |_| Some(EventKind::VectorEntry(Vector::IrqWork));
    "irq_vectors/irq_work_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::IrqWork));
    "irq_vectors/thermal_apic_entry", Watched, "", [], |_| Some(EventKind::VectorEntry(Vector::Thermal));
    "irq_vectors/thermal_apic_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::Thermal));
    "irq_vectors/error_apic_entry", Watched, "", [], |_| Some(EventKind::VectorEntry(Vector::Controller));
    "irq_vectors/error_apic_exit", Watched, "", [], |_| Some(EventKind::VectorExit(Vector::Controller));
    "irq/irq_handler_entry", Watched, "interrupts of devices", ["irq", "name"], |f| Some(EventKind::IrqEntry { irq: f.int(0)?, name: Name::of(f.bytes(1)?) });
    "irq/irq_handler_exit", Watched, "interrupts of devices", ["irq"], |f| Some(EventKind::IrqExit { irq: f.int(0)? });
    "irq/softirq_entry", Watched, "soft interrupts", ["vec"], |f| Some(EventKind::SoftirqEntry { vec: f.unsigned(0)? as u32 });
    "irq/softirq_exit", Watched, "soft interrupts", ["vec"], |f| Some(EventKind::SoftirqExit { vec: f.unsigned(0)? as u32 });
    "workqueue/workqueue_execute_start", Watched, "items of kernel workers", ["function"], |f| Some(EventKind::WorkStart { function: f.unsigned(0)? });
    "workqueue/workqueue_execute_end", Watched, "items of kernel workers", [], |_| Some(EventKind::WorkEnd);
    "exceptions/page_fault_user", Threads, "page faults", [], |_| Some(EventKind::PageFault { user: true });
    "exceptions/page_fault_kernel", Threads, "", [], |_| Some(EventKind::PageFault { user: false });
    "power/cpu_idle", Watched, "whether a CPU was idle", ["state"], |f| Some(EventKind::Idle { state: Some(f.unsigned(0)? as u32).filter(|&state| state != u32::MAX) });
    "nmi/nmi_handler", Watched, "interrupts that cannot be masked", ["handler", "delta_ns"],
        |f| Some(EventKind::Nmi { handler: f.unsigned(0)?, ns: f.unsigned(1)? as i64 });
    "ipi/ipi_send_cpu", Everywhere, "sender of an interrupt to this CPU", ["cpu", "callback"],
        |f| Some(EventKind::IpiSent { cpus: CpuSet::single(f.cpu(0)?), callback: f.unsigned(1)? });
    "ipi/ipi_send_cpumask", Everywhere, "sender of an interrupt to this CPU", ["cpumask", "callback"],
        |f| Some(EventKind::IpiSent { cpus: f.cpus(0)?, callback: f.unsigned(1)? });
    "csd/csd_queue_cpu", Everywhere, "", ["cpu", "func"], |f| Some(EventKind::CallQueued { cpu: f.cpu(0)?, function: f.unsigned(1)? });
    "raw_syscalls/sys_enter", Apart, "in which system call a task was", ["id"], |f| Some(EventKind::SyscallEntry { number: f.unsigned(0)? as i64 });
    "raw_syscalls/sys_exit", Apart, "", ["id"], |_| Some(EventKind::SyscallExit);
    "ftrace/kernel_stack", Apart, "", ["caller"], |f| f.callers(0).map(|callers| EventKind::Stack { callers });
};

/// Fields of a record, in the order of its row.
struct Fields<'a> {
    record: &'a [u8],
    at: &'a [Field],
}

impl Fields<'_> {
    fn unsigned(&self, index: usize) -> Option<u64> {
        number(self.record, *self.at.get(index)?)
    }

    fn int(&self, index: usize) -> Option<i32> {
        self.unsigned(index).map(|number| number as i32)
    }

    fn cpu(&self, index: usize) -> Option<CpuId> {
        self.unsigned(index).and_then(|number| CpuId::try_from(number).ok()).filter(|&cpu| usize::from(cpu) < CPUS_MAX)
    }

    fn bytes(&self, index: usize) -> Option<&[u8]> {
        let field = *self.at.get(index)?;
        if !field.elsewhere {
            return self.record.get(field.offset..field.offset + field.size);
        }
        let place = number(self.record, Field { signed: false, ..field })?;
        let (offset, length) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
        self.record.get(offset..offset + length)
    }

    fn task(&self, [tid, prio, name]: [usize; 3]) -> Option<Task> {
        Some(Task { tid: self.int(tid)?, prio: self.int(prio)?, name: Name(self.bytes(name)?.try_into().ok()?) })
    }

    fn cpus(&self, index: usize) -> Option<CpuSet> {
        let words: Vec<u64> = self
            .bytes(index)?
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
            .collect();
        CpuSet::from_words(&words).ok()
    }

    /// An array up to the end of the record. The kernel terminates a short one with all ones.
    fn callers(&self, index: usize) -> Option<Vec<u64>> {
        let all = self.record.get(self.at.get(index)?.offset..)?.chunks_exact(8).take(CALLERS_MAX);
        let callers = all.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        Some(callers.take_while(|&caller| caller != 0 && caller != u64::MAX).collect())
    }
}

/// Counters of data that did not reach the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LossCounters {
    /// Events dropped by the kernel, as far as it counted them.
    pub events: u64,
    /// Occasions on which events were dropped, counted or not.
    pub times: u64,
    /// Pages or records that could not be decoded.
    pub broken: u64,
}

/// Decoder for the events of one kernel, built from its format files.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: Layout,
    rows: BTreeMap<u16, (&'static Row, Vec<Field>)>,
    missing: Vec<&'static Row>,
    lost: LossCounters,
}

/// Reason why a kernel's descriptions of its events are not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecoderError {
    /// Invalid description of pages.
    Header(PageError),
    /// Invalid description of a tracepoint.
    Format {
        /// The tracepoint, as a path below `events`.
        path: &'static str,
        /// The error.
        why: FormatError,
    },
}

impl std::fmt::Display for DecoderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(why) => why.fmt(f),
            Self::Format { path, why } => write!(f, "events/{path}/format: {why}"),
        }
    }
}

impl std::error::Error for DecoderError {}

impl Decoder {
    /// Creates a decoder. `format` returns the text of a tracepoint's format file, or `None` if the kernel has none.
    ///
    /// # Errors
    /// If the header of pages or a format file cannot be parsed; with the tracepoint's name.
    pub fn new(header_page: &str, mut format: impl FnMut(&str) -> Option<String>) -> Result<Self, DecoderError> {
        let layout = Layout::parse(header_page).map_err(DecoderError::Header)?;
        let mut decoder = Self { layout, rows: BTreeMap::new(), missing: Vec::new(), lost: LossCounters::default() };
        for row in EVENTS {
            let named = |why| DecoderError::Format { path: row.path, why };
            let found = format(row.path).map(|text| Format::parse(&text).map_err(named)).transpose()?;
            let fields = found.as_ref().and_then(|format| row.fields.iter().map(|name| format.field(name)).collect());
            match (found, fields) {
                (Some(format), Some(fields)) => _ = decoder.rows.insert(format.id, (row, fields)),
                _ => decoder.missing.push(row),
            }
        }
        Ok(decoder)
    }

    /// Tracepoints that this kernel lacks, or has without the required fields.
    #[must_use]
    pub fn missing(&self) -> &[&'static Row] {
        &self.missing
    }

    /// Tracepoints that this kernel has.
    pub fn present(&self) -> impl Iterator<Item = &'static Row> + '_ {
        self.rows.values().map(|(row, _)| *row)
    }

    /// Losses so far.
    #[must_use]
    pub fn lost(&self) -> LossCounters {
        self.lost
    }

    /// Start time of a page, and the part of it that is used; `None` if it is not a page.
    #[must_use]
    pub fn used<'a>(&self, bytes: &'a [u8]) -> Option<(MonoNs, &'a [u8])> {
        self.layout.used(bytes)
    }

    /// Decodes a page of `cpu`'s buffer. Its events go to `each`, preceded by `None` if some were lost before it.
    pub fn page(&mut self, cpu: CpuId, bytes: &[u8], mut each: impl FnMut(MonoNs, Option<Event>)) {
        let Ok(records) = self.layout.page(bytes) else {
            self.lost.broken += 1;
            return;
        };
        if records.lost() != Some(0) {
            self.lost.times += 1;
            self.lost.events += records.lost().unwrap_or(0);
            each(MonoNs(records.begin()), None);
        }
        for record in records {
            let event = match record {
                Ok(record) => self.event(cpu, MonoNs(record.at), record.data),
                Err(PageError::Record | PageError::Layout | PageError::Short) => Err(()),
            };
            match event {
                Ok(Some(event)) => each(event.at, Some(event)),
                Ok(None) => {}
                Err(()) => self.lost.broken += 1,
            }
        }
    }

    fn event(&self, cpu: CpuId, at: MonoNs, record: &[u8]) -> Result<Option<Event>, ()> {
        let &[a, b, flags, _, p, i, d, s, ..] = record else { return Err(()) };
        // An event that was not enabled here, such as a marker of the tracer itself.
        let Some((row, fields)) = self.rows.get(&u16::from_ne_bytes([a, b])) else { return Ok(None) };
        let fields = Fields { record, at: fields };
        let what = (row.make)(&fields).ok_or(())?;
        let tid = i32::from_ne_bytes([p, i, d, s]);
        Ok(Some(Event { at, cpu, tid, interrupt: flags & INTERRUPT != 0, what }))
    }
}
