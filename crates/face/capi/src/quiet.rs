//! The quiet section for C.

use crate::{answer, fill};
use base::DurNs;
use std::ffi::c_int;

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug, Default)]
pub struct tahti_quiet_report {
    pub size: u32,
    pub cpu: u32,
    pub lasted_ns: u64,
    pub looks: u64,
    pub quickest_ns: u64,
    pub gaps: u64,
    pub lost_ns: u64,
    pub longest_ns: u64,
    pub longest_at_ns: u64,
    pub interrupts: u64,
    pub put_aside: u64,
    pub page_faults: u64,
    pub unexplained: u64,
    pub steal_ticks: i64,
    pub missing: u32,
    pub reserved: u32,
}

/// See `tahti.h`.
///
/// # Safety
/// `report` begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_quiet(duration_ns: u64, threshold_ns: u64, report: *mut tahti_quiet_report) -> c_int {
    let time = |ns: u64| DurNs(i64::try_from(ns).unwrap_or(i64::MAX / 2));
    let length = |time: DurNs| time.0.max(0) as u64;
    let measure = || {
        let section = rt::Quiet::prepare()?;
        let found = section.measure(time(duration_ns), time(threshold_ns))?;
        let gaps = found.gaps.unwrap_or_default();
        let longest = gaps.longest().next().copied().unwrap_or_default();
        let value = tahti_quiet_report {
            size: 0,
            cpu: found.cpu.into(),
            lasted_ns: length(found.lasted),
            looks: gaps.looks,
            quickest_ns: length(gaps.quickest),
            gaps: gaps.count,
            lost_ns: length(gaps.lost),
            longest_ns: length(longest.length),
            longest_at_ns: length(longest.at),
            interrupts: found.interrupts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)),
            put_aside: found.usage.involuntary,
            page_faults: found.usage.minor_faults + found.usage.major_faults,
            unexplained: found.unexplained().unwrap_or_default(),
            steal_ticks: found.steal_ticks.map_or(-1, |ticks| ticks as i64),
            missing: (section.obtained().iter().filter(|item| item.missing.is_some()).count() + found.broken.len())
                as u32,
            reserved: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { fill(report, &value) }.map(|()| 0)
    };
    answer(measure())
}
