//! A real trace: 37 ms of one CPU of a two-CPU guest, Linux 6.18, during a build; `cyclictest` ran on it at 1 kHz.

use base::{DurNs, MonoNs};
use std::collections::BTreeMap;
use trace::{Clocks, Culprit, Decoder, EventKind, Explainer, Facts, Late, Merge, Occasion, Symbols};

const HEADER: &str = include_str!("linux-6.18/header_page");
const FORMATS: &str = include_str!("linux-6.18/formats");
const SYMBOLS: &str = include_str!("linux-6.18/kallsyms");
const PAGES: &[u8] = include_bytes!("linux-6.18/cpu1.raw");
/// The thread of `cyclictest` that waits for its timer.
const TID: i32 = 15986;

fn decoder() -> Decoder {
    let format = |path: &str| {
        let section = FORMATS.split("# ").find(|section| section.starts_with(&format!("{path}\n")))?;
        Some(section.to_owned())
    };
    Decoder::new(HEADER, format).unwrap()
}

fn explained() -> (Explainer, Vec<Late>) {
    let mut decoder = decoder();
    let facts =
        Facts { hypervisor: true, idle_exit_ns: vec![], clocks: Clocks::default(), symbols: Symbols::parse(SYMBOLS) };
    let mut explainer = Explainer::new(facts, DurNs(0), None, 100);
    explainer.watch(TID, "cyclictest");
    let mut merge = Merge::default();
    for page in PAGES.chunks(4096) {
        decoder.page(1, page, |at, event| merge.push(0, (at, 1, event)));
    }
    let mut all = Vec::new();
    merge.drain(MonoNs(u64::MAX), |item| explainer.take(&item, |late| all.push(late.clone())));
    (explainer, all)
}

#[test]
fn every_record_is_understood_in_order() {
    let mut decoder = decoder();
    let missing: Vec<_> = decoder.missing().iter().map(|row| row.path).collect();
    assert_eq!(
        missing,
        [
            "timer/hrtimer_init",
            "irq_vectors/thermal_apic_entry",
            "irq_vectors/thermal_apic_exit",
            "irq_vectors/error_apic_entry",
            "irq_vectors/error_apic_exit",
            // Only this recording has this event. It is not part of the kernel.
            "csd/csd_queue_cpu"
        ]
    );
    let (mut last, mut count, mut kinds) = (MonoNs(0), 0, BTreeMap::new());
    for page in PAGES.chunks(4096) {
        decoder.page(1, page, |at, event| {
            assert!(at >= last, "{at:?} after {last:?}");
            let event = event.unwrap();
            let kind = format!("{:?}", event.what).split([' ', '(']).next().unwrap().to_owned();
            (last, count) = (at, count + 1);
            *kinds.entry(kind).or_insert(0) += 1;
        });
    }
    // As reported by `per_cpu/cpu1/stats`.
    assert_eq!((count, decoder.lost()), (508, trace::LossCounters::default()));
    assert_eq!(kinds["VectorEntry"], kinds["VectorExit"], "{kinds:?}");
    assert_eq!(kinds["TimerFire"], kinds["TimerFired"], "{kinds:?}");
}

#[test]
fn each_wake_up_of_the_thread_is_explained_to_the_nanosecond() {
    let (explainer, all) = explained();
    // 36 ms at 1 kHz.
    assert!((34..=37).contains(&all.len()), "{}", all.len());
    assert_eq!(explainer.real_time().delays.count(), all.len() as u64);
    for late in &all {
        assert_eq!((late.tid, late.name.as_str(), late.occasion), (TID, "cyclictest", Occasion::Timer));
        assert_eq!(late.parts.iter().map(|part| part.ns).sum::<u64>(), late.delay_ns(), "{late:?}");
        assert!(late.parts.iter().any(|part| part.culprit == Culprit::Timer), "{late:?}");
        assert!(late.stack.iter().any(|function| function == "asm_sysvec_apic_timer_interrupt"), "{late:?}");
    }
    // Due every millisecond, independent of previous wake-ups.
    let dues: Vec<u64> = all.windows(2).map(|pair| pair[1].due.0 - pair[0].due.0).collect();
    assert!(dues.iter().all(|step| step % 1_000_000 == 0), "{dues:?}");
    assert!(explainer.real_time().share(|culprit| *culprit == Culprit::Unexplained) < 1.0);
}

#[test]
fn no_damage_to_a_page_panics_or_breaks_the_sum() {
    let (mut decoder, mut merge) = (decoder(), Merge::default());
    let mut explainer = Explainer::new(Facts::default(), DurNs(0), Some(DurNs(0)), 10);
    explainer.watch(TID, "cyclictest");
    for (index, page) in PAGES.chunks(4096).enumerate() {
        for step in [7, 61, 509] {
            let mut page = page.to_vec();
            page.iter_mut().skip(16 + index).step_by(step).for_each(|byte| *byte = byte.wrapping_mul(31) ^ 0x5a);
            decoder.page(1, &page, |at, event| merge.push(0, (at, 1, event)));
            // An invalid time.
            page[..8].fill(0xff - step as u8);
            decoder.page(1, &page, |at, event| merge.push(2, (at, 1, event)));
            decoder.page(1, &page[..page.len() / step], |at, event| merge.push(1, (at, 1, event)));
        }
    }
    let sum = |late: &Late| assert_eq!(late.parts.iter().map(|part| part.ns).sum::<u64>(), late.delay_ns());
    merge.drain(MonoNs(u64::MAX), |item| explainer.take(&item, sum));
}

#[test]
fn events_missing_in_the_kernel_are_reported() {
    let decoder = Decoder::new(HEADER, |_| None).unwrap();
    assert_eq!(decoder.missing().len(), trace::EVENTS.len());
    let wrong = Decoder::new(HEADER, |_| Some("ID: x".into())).unwrap_err();
    assert_eq!(wrong.to_string(), "events/sched/sched_switch/format: no line `ID: NUMBER`");
    assert!(Decoder::new("nothing", |_| None).is_err());
}

#[test]
fn a_wake_up_by_the_timer_has_its_cpu() {
    let mut decoder = decoder();
    let mut wakings = 0;
    for page in PAGES.chunks(4096) {
        decoder.page(1, page, |_, event| {
            if let Some(EventKind::Waking { task, cpu }) = event.map(|event| event.what)
                && task.tid == TID
            {
                assert_eq!((cpu, task.prio, task.name.to_string().as_str()), (1, 19, "cyclictest"));
                wakings += 1;
            }
        });
    }
    assert!(wakings > 30, "{wakings}");
}
