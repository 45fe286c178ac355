//! Periodic loops for C.

use crate::{Failed, answer, fill, handle, open, tahti_exports, text};
use base::{CpuId, DurNs, Policy, Priority, Quantile};
use rt::{Armed, Building, Counter, Flow, LoopSpec, Rt, SharedPage, Wait};
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::take;

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug)]
pub struct tahti_loop_spec {
    pub size: u32,
    pub priority: i32,
    pub cpu: i32,
    pub reserved: u32,
    pub name: *const c_char,
    pub period_ns: u64,
    pub spin_ns: u64,
    pub exports: *const tahti_exports,
}

/// Size of [`tahti_loop_spec`] in the first version of the interface that had loops.
const LOOP_SPEC_BYTES: usize = 40;

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug)]
pub struct tahti_pulse {
    pub size: u32,
    pub reserved: u32,
    pub number: u64,
    pub due_ns: u64,
    pub woke_ns: u64,
    pub skipped: u64,
    pub void_ns: u64,
}

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug, Default)]
pub struct tahti_loop_report {
    pub size: u32,
    pub reserved: u32,
    pub cycles: u64,
    pub skipped: u64,
    pub late_median_ns: u64,
    pub late_p99_ns: u64,
    pub late_max_ns: u64,
    pub page_faults: u64,
    pub switches: u64,
}

/// See `tahti.h`.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub type tahti_body = unsafe extern "C" fn(*mut c_void, *const tahti_pulse) -> c_int;

/// The loops of a process, as C holds them.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub struct tahti_loops {
    building: Option<Rt<Building>>,
    armed: Option<Rt<Armed>>,
    pages: Vec<SharedPage>,
    missing: Vec<CString>,
}

/// The C function that a loop calls, with its argument.
struct Body {
    call: tahti_body,
    user: *mut c_void,
}

// SAFETY: tahti.h documents that the body is called only on the loop's thread. The caller is responsible for `user`.
unsafe impl Send for Body {}

impl Body {
    fn run(&self, pulse: &rt::Pulse) -> Flow {
        let told = tahti_pulse {
            size: size_of::<tahti_pulse>() as u32,
            reserved: 0,
            number: pulse.number,
            due_ns: pulse.due.0,
            woke_ns: pulse.woke.0,
            skipped: pulse.skipped,
            void_ns: pulse.deadline.map_or(0, |deadline| (pulse.due + deadline.void_after()).0),
        };
        // SAFETY: the caller's function, called with the caller's `user` and a structure that lives for the call.
        match unsafe { (self.call)(self.user, &raw const told) } {
            0 => Flow::Continue,
            ..0 => Flow::Fault,
            _ => Flow::Stop,
        }
    }
}

/// See `tahti.h`.
#[unsafe(no_mangle)]
pub extern "C" fn tahti_loops_new() -> *mut tahti_loops {
    let building = Some(Rt::new());
    handle(Ok(tahti_loops { building, armed: None, pages: vec![], missing: vec![] }))
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is a handle; `spec` begins with its size, and its name ends with a zero; `body` may be called with `user` until
/// the loops were stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_add(
    loops: *mut tahti_loops,
    spec: *const tahti_loop_spec,
    body: Option<tahti_body>,
    user: *mut c_void,
) -> c_int {
    let add = || {
        // SAFETY: the caller's promise.
        let loops = unsafe { open(loops) }?;
        let building = loops.building.as_mut().ok_or("the loops run already; expected all to be added before")?;
        let call = body.ok_or("the body is NULL; expected a function")?;
        // SAFETY: the caller's promise.
        let spec = &unsafe { given(spec) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("the name", spec.name) }?;
        // SAFETY: NULL, or a handle that is only read.
        let exports = unsafe { spec.exports.as_ref() }.map(tahti_exports::shared);
        let told = LoopSpec { exports, ..read(name, spec)? };
        let page = match loops.pages.len() {
            // The supervisor watches one page.
            0 => SharedPage::from_env_or_own(name),
            _ => SharedPage::own(name),
        };
        let page = page?;
        let body = Body { call, user };
        building.add_loop(told, page.clone(), move |pulse| body.run(pulse));
        loops.pages.push(page);
        Ok(loops.pages.len() as c_int - 1)
    };
    answer(add())
}

/// Copies the caller's structure up to the size it declares. The remaining fields are zero.
///
/// # Safety
/// `spec` is NULL or begins with its size.
unsafe fn given(spec: *const tahti_loop_spec) -> Result<tahti_loop_spec, Failed> {
    let refused = || "the spec is NULL or too small; expected `size` to be its sizeof";
    if spec.is_null() {
        return Err(refused().into());
    }
    // SAFETY: the caller promises that the structure begins with its size.
    let size = unsafe { spec.cast::<u32>().read() } as usize;
    if size < LOOP_SPEC_BYTES {
        return Err(refused().into());
    }
    let (name, exports) = (std::ptr::null(), std::ptr::null());
    let mut known =
        tahti_loop_spec { size: 0, priority: 0, cpu: 0, reserved: 0, name, period_ns: 0, spin_ns: 0, exports };
    let bytes = size.min(size_of::<tahti_loop_spec>());
    // SAFETY: not NULL, and as large as it declares. All fields are plain numbers and pointers.
    unsafe { std::ptr::copy_nonoverlapping(spec.cast::<u8>(), (&raw mut known).cast(), bytes) };
    Ok(known)
}

/// Converts the specification of a loop.
fn read(name: &str, spec: &tahti_loop_spec) -> Result<LoopSpec, Failed> {
    const LEAST: DurNs = DurNs::from_us(10);
    let period = i64::try_from(spec.period_ns).map(DurNs).ok().filter(|period| *period >= LEAST);
    let period = period
        .ok_or_else(|| format!("loop {name:?} has a period of {} ns; expected {LEAST} or more", spec.period_ns))?;
    let class = match spec.priority {
        0 => None,
        1..=99 => Some(Policy::Fifo(Priority(spec.priority as u8))),
        other => {
            return Err(
                format!("loop {name:?} has priority {other}; expected 1 to 99, or 0 for the process's class").into()
            );
        }
    };
    let cpu = match spec.cpu {
        -1 => None,
        cpu => Some(
            CpuId::try_from(cpu).map_err(|_| format!("loop {name:?} is bound to CPU {cpu}; expected one, or -1"))?,
        ),
    };
    let wait = match spec.spin_ns {
        0 => Wait::Sleep,
        u64::MAX => Wait::Spin,
        spin => Wait::Both { spin: DurNs(i64::try_from(spin).unwrap_or(i64::MAX).min(period.0)) },
    };
    Ok(LoopSpec { class, cpu, wait, ..LoopSpec::new(name, period) })
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_start(loops: *mut tahti_loops) -> c_int {
    const LEAD: DurNs = DurNs::from_ms(20);
    let start = || {
        // SAFETY: the caller's promise.
        let loops = unsafe { open(loops) }?;
        let mut armed = loops.building.take().ok_or("the loops run already")?.arm()?;
        let said = armed.missing().map(|missing| CString::new(missing.to_string()).unwrap_or_default());
        loops.missing = said.collect();
        armed.start(LEAD);
        loops.armed = Some(armed);
        Ok(loops.missing.len() as c_int)
    };
    answer(start())
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_missing(loops: *const tahti_loops, index: u32) -> *const c_char {
    // SAFETY: the caller's promise.
    let missing = unsafe { loops.as_ref() }.and_then(|loops| loops.missing.get(index as usize));
    missing.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_over(loops: *const tahti_loops) -> c_int {
    // SAFETY: the caller's promise.
    let armed = unsafe { loops.as_ref() }.and_then(|loops| loops.armed.as_ref());
    c_int::from(armed.is_some_and(Rt::is_over))
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is a handle; `report` begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_report(
    loops: *mut tahti_loops,
    index: u32,
    report: *mut tahti_loop_report,
) -> c_int {
    let read = || {
        // SAFETY: the caller's promise.
        let loops = unsafe { open(loops) }?;
        let added = loops.pages.len();
        let page = loops.pages.get(index as usize);
        let page = page.ok_or_else(|| format!("there is no loop {index}; {added} were added"))?.read();
        let late = page.wake();
        let length = |time: DurNs| time.0.max(0) as u64;
        let within = |parts, of| match late.quantile(parts, of) {
            Quantile::At(time) => length(time),
            Quantile::Beyond(_) => u64::MAX,
            Quantile::Empty => 0,
        };
        let value = tahti_loop_report {
            size: 0,
            reserved: 0,
            cycles: page.counter(Counter::Cycles),
            skipped: page.counter(Counter::Overruns),
            late_median_ns: within(1, 2),
            late_p99_ns: within(99, 100),
            late_max_ns: late.max().map_or(0, length),
            page_faults: page.counter(Counter::MinorFaults) + page.counter(Counter::MajorFaults),
            switches: page.counter(Counter::InvoluntarySwitches),
        };
        // SAFETY: the caller's promise.
        unsafe { fill(report, &value) }.map(|()| 0)
    };
    answer(read())
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_stop(loops: *mut tahti_loops) {
    // SAFETY: the caller's promise.
    if let Some(loops) = unsafe { loops.as_mut() } {
        take(&mut loops.armed).iter_mut().for_each(Rt::stop);
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `loops` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_loops_close(loops: *mut tahti_loops) {
    if !loops.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(loops) });
    }
}
