//! The plant's figures for Prometheus, at `/metrics`.
//!
//! They are those of the last poll of each source: a request costs the plant nothing. `tahti_source_age_seconds` has their age.
//! Labels are names of the plant file, CPUs and words of tahti, never channels, users or addresses.

mod text;

use crate::hub::{Hub, Topic};
use alarm::Severity;
use alarm::wire::List;
use keep::supervisor::control::{LoopHistogram, ProcessStatus, RowState, Status};
use serde_json::Value;
use std::sync::Arc;
pub(crate) use text::Format;
use text::{Kind, Page, seconds};
use web::Now;

/// Typed data of a source.
#[derive(Debug)]
pub(crate) enum Source {
    Plant(Box<Status>),
    Loops(Vec<LoopHistogram>),
    Late(Box<recorder::status::Status>),
    Shield(Box<keep::shield::watch::Status>),
    /// As for the page.
    Frames(Value),
    Alarms(List),
    Archive(Box<collect::status::Status>),
    /// Counters of the message server by name.
    Messages(Vec<(String, u64)>),
}

/// All words of a verdict.
const VERDICTS: [&str; 4] = ["good", "degraded", "failed", "unknown"];

/// The metrics of the newest data.
pub(crate) fn page(hub: &Hub, plant: &str, format: Format, now: Now) -> String {
    let mut page = Page::new(format);
    page.family("build", Kind::Info, "Version of the dashboard, and name of the plant.");
    page.sample(&[("version", env!("CARGO_PKG_VERSION")), ("plant", plant)], 1.0);
    let sources: Vec<(Topic, Arc<Source>)> =
        Topic::ALL.into_iter().filter_map(|topic| Some((topic, hub.source(topic)?))).collect();
    page.family("source_age_seconds", Kind::Gauge, "Age of the data of a source of these metrics.");
    for (topic, at) in Topic::ALL.into_iter().filter_map(|topic| Some((topic, hub.published(topic)?))) {
        page.sample(&[("source", topic.word())], seconds(now.mono - at));
    }
    if !sources.iter().any(|(topic, _)| *topic == Topic::Plant) {
        verdict(&mut page, "unknown");
    }
    for (_, source) in &sources {
        match &**source {
            Source::Plant(status) => of_plant(&mut page, status, now),
            Source::Loops(loops) => of_loops(&mut page, loops),
            Source::Late(status) => of_recorder(&mut page, status, now),
            Source::Shield(status) => of_shield(&mut page, status),
            Source::Frames(frames) => of_frames(&mut page, frames),
            Source::Alarms(list) => of_alarms(&mut page, list, now),
            Source::Archive(status) => of_archive(&mut page, status),
            Source::Messages(counters) => of_messages(&mut page, counters),
        }
    }
    page.end()
}

fn verdict(page: &mut Page, word: &str) {
    page.family("plant_verdict", Kind::StateSet, "Verdict on the plant since its start.");
    page.states(&VERDICTS, word);
}

fn of_plant(page: &mut Page, status: &Status, now: Now) {
    verdict(page, status.outcome.word());
    page.family("start_time_seconds", Kind::Gauge, "Start of the plant, in seconds since 1970.");
    page.sample(&[], now.wall_ns as f64 / 1e9 - seconds(now.mono - status.since));
    page.family("promises", Kind::Gauge, "Promises of the plant file by their present state.");
    for word in ["kept", "within", "unavailable", "broken"] {
        let is = |state: RowState| match state {
            RowState::Kept | RowState::Pending => word == "kept",
            RowState::Within => word == "within",
            RowState::Absent => word == "unavailable",
            RowState::Broken | RowState::NotObserved => word == "broken",
            RowState::NotDue => false,
        };
        page.sample(&[("state", word)], status.health.iter().filter(|row| is(row.state)).count() as f64);
    }
    let mut each = |name: &str, kind, help: &str, value: &dyn Fn(&ProcessStatus) -> Option<f64>| {
        page.family(name, kind, help);
        for one in &status.processes {
            if let Some(value) = value(one) {
                page.sample(&[("process", &one.name)], value);
            }
        }
    };
    each("process_up", Kind::Gauge, "Whether the process runs.", &|one| Some(f64::from(u8::from(one.pid.is_some()))));
    each("process_faulted", Kind::Gauge, "Whether the process has a latched fault.", &|one| {
        Some(f64::from(u8::from(one.state == "FAULT")))
    });
    each("process_starts", Kind::Counter, "Starts of the process.", &|one| Some(one.starts as f64));
    each("process_restarts", Kind::Counter, "Automatic restarts of the process.", &|one| Some(one.restarts as f64));
    let runs = |one: &ProcessStatus, value: f64| one.pid.map(|_| value);
    each("process_cpu_seconds", Kind::Counter, "CPU time of the process and its descendants.", &|one| {
        runs(one, seconds(one.family_cpu()))
    });
    let memory = "Resident memory of the process and its descendants.";
    each("process_resident_memory_bytes", Kind::Gauge, memory, &|one| runs(one, one.family_memory().0 as f64));
    let threads = "Threads of the process and its descendants.";
    each("process_threads", Kind::Gauge, threads, &|one| runs(one, f64::from(one.family_threads())));
    let mut of_loops = |name: &str, kind, help: &str, value: &dyn Fn(&ProcessStatus) -> Option<f64>| {
        page.family(name, kind, help);
        for one in &status.processes {
            if let Some(value) = value(one) {
                page.sample(&[("loop", &one.name)], value);
            }
        }
    };
    let page_of = |one: &ProcessStatus| one.loop_page.clone();
    of_loops("loop_cycles", Kind::Counter, "Cycles of the loop since its start.", &|one| {
        Some(page_of(one)?.cycles as f64)
    });
    of_loops("loop_period_seconds", Kind::Gauge, "Period of the loop.", &|one| Some(seconds(page_of(one)?.period)));
    let skipped = "Periods that the loop skipped because it was late.";
    of_loops("loop_periods_skipped", Kind::Counter, skipped, &|one| Some(page_of(one)?.misses as f64));
    of_loops(
        "loop_wakeup_latency_max_seconds",
        Kind::Gauge,
        "Longest wake-up latency since the start of the loop.",
        &|one| page_of(one)?.wake.max.map(seconds),
    );
    of_loops("loop_results", Kind::Counter, "Results that were due.", &|one| {
        Some(one.value.as_ref()?.tally.due as f64)
    });
    of_loops("loop_results_late", Kind::Counter, "Results after their deadline.", &|one| {
        Some(one.value.as_ref()?.tally.late as f64)
    });
}

fn of_loops(page: &mut Page, loops: &[LoopHistogram]) {
    page.family("loop_wakeup_latency_seconds", Kind::Histogram, "Wake-up latency since the start of the loop.");
    for one in loops {
        let buckets: Vec<(i64, u64)> = one.buckets.iter().map(|(_, upper, count)| (*upper, *count)).collect();
        page.histogram(&[("loop", &one.name)], &buckets, one.beyond, one.sum);
    }
}

fn of_recorder(page: &mut Page, status: &recorder::status::Status, now: Now) {
    page.family("recorder_threads", Kind::Gauge, "Threads that the flight recorder watches.");
    page.sample(&[], status.threads as f64);
    page.family("recorder_wakeups", Kind::Counter, "Wake-ups of the threads that the flight recorder watches.");
    page.sample(&[], status.wakeups as f64);
    page.family(
        "recorder_late_wakeups",
        Kind::Counter,
        "Wake-ups later than the threshold; the example is the last one.",
    );
    match status.last.first() {
        None => page.sample(&[], status.late as f64),
        Some(last) => {
            let at = now.wall_ns as f64 / 1e9 - seconds(now.mono - last.at);
            let culprit: String = last.culprit.chars().take(100).collect();
            page.sample_with(&[], status.late as f64, (&[("culprit", &culprit)], seconds(last.delay), at));
        }
    }
    page.family("recorder_unexplained_ratio", Kind::Gauge, "Unexplained share of the total delay.");
    page.sample(&[], status.unexplained_percent / 100.0);
}

fn of_shield(page: &mut Page, status: &keep::shield::watch::Status) {
    page.family("shield_active", Kind::Gauge, "Whether a shield is active.");
    page.sample(&[], f64::from(u8::from(status.want.is_some())));
    page.family("shield_drifts", Kind::Gauge, "Settings of the shield that another program changed.");
    page.sample(&[], status.drift.len() as f64);
    page.family("cpu_shielded", Kind::Gauge, "Whether the CPU is shielded.");
    for one in &status.cpus {
        page.sample(&[("cpu", &one.cpu.to_string())], f64::from(u8::from(one.shielded)));
    }
    let help = "What reached the CPU within the last counting window of 1 s; tasks and kernel threads are those that may run there.";
    page.family("cpu_intrusions", Kind::Gauge, help);
    for one in &status.cpus {
        let kinds = [
            ("task", one.tasks as u64),
            ("kernel_thread", one.kernel_threads as u64),
            ("interrupt", one.interrupts),
            ("tick", one.ticks),
            ("softirq", one.softirqs),
            ("ipi", one.ipis),
        ];
        for (kind, count) in kinds {
            page.sample(&[("cpu", &one.cpu.to_string()), ("kind", kind)], count as f64);
        }
    }
}

fn of_frames(page: &mut Page, frames: &Value) {
    let frames: Vec<(&str, &Value)> =
        frames.as_array().into_iter().flatten().filter_map(|one| Some((one["name"].as_str()?, one))).collect();
    for (name, count, help) in [
        ("frame_minors", "minors", "Minor frames that ran."),
        ("frame_minors_lost", "lost", "Minor frames that were lost."),
        ("frame_absences", "absences", "Calls that an absent activity missed."),
    ] {
        page.family(name, Kind::Counter, help);
        for (frame, one) in &frames {
            if let Some(count) = one["counts"][count].as_f64() {
                page.sample(&[("frame", frame)], count);
            }
        }
    }
    for (name, kind, key, scale, help) in [
        ("frame_calls", Kind::Counter, "calls", 1.0, "Calls of the activity."),
        ("frame_overruns", Kind::Counter, "overruns", 1.0, "Calls that exceeded their budget or minor frame."),
        ("frame_underruns", Kind::Counter, "underruns", 1.0, "Calls that were not made in time."),
        ("frame_budget_seconds", Kind::Gauge, "budget_ns", 1e9, "Budget of the activity."),
        ("frame_execution_max_seconds", Kind::Gauge, "max", 1e9, "Longest call of the activity."),
    ] {
        page.family(name, kind, help);
        for (frame, one) in &frames {
            for activity in one["activities"].as_array().into_iter().flatten() {
                // A budget of 0 is none.
                let value = activity[key].as_f64().filter(|value| key != "budget_ns" || *value > 0.0);
                if let (Some(label), Some(value)) = (activity["name"].as_str(), value) {
                    page.sample(&[("frame", frame), ("activity", label)], value / scale);
                }
            }
        }
    }
}

fn of_alarms(page: &mut Page, list: &List, now: Now) {
    page.family("alarms", Kind::Gauge, "Alarms that are not normal, by severity and state.");
    for (level, severity) in ["minor", "major", "invalid", "undefined"].into_iter().enumerate() {
        for state in ["active", "acknowledged", "hidden"] {
            let is = |severity: Severity, hidden: bool| match state {
                "hidden" => hidden,
                "active" => !hidden && severity.is_active(),
                _ => !hidden && !severity.is_active(),
            };
            let count = list.rows.iter().filter(|row| {
                let severity = row.state.alarm.severity;
                usize::from(severity.level()) == level + 1 && is(severity, row.state.hidden().is_some())
            });
            page.sample(&[("severity", severity), ("state", state)], count.count() as f64);
        }
    }
    page.family("alarms_configured", Kind::Gauge, "Alarms of the plant, including normal ones.");
    page.sample(&[], list.alarms as f64);
    page.family("alarms_disconnected", Kind::Gauge, "Alarms whose channel is not connected.");
    page.sample(&[], list.disconnected as f64);
    let active = list.rows.iter().filter(|row| row.state.hidden().is_none() && row.state.alarm.severity.is_active());
    let oldest = active.map(|row| row.state.alarm.time.0).min().unwrap_or(now.wall_ns);
    page.family("alarm_oldest_unacknowledged_seconds", Kind::Gauge, "Age of the oldest active alarm; 0 without one.");
    page.sample(&[], (now.wall_ns - oldest).max(0) as f64 / 1e9);
}

fn of_archive(page: &mut Page, status: &collect::status::Status) {
    page.family("archive_channels", Kind::Gauge, "Channels of the archive.");
    let disconnected = status.signals.channels.saturating_sub(status.signals.connected);
    page.sample(&[("state", "connected")], status.signals.connected as f64);
    page.sample(&[("state", "disconnected")], disconnected as f64);
    page.family("archive_samples", Kind::Counter, "Samples accepted since the start.");
    page.sample(&[], status.samples.taken as f64);
    page.family("archive_samples_dropped", Kind::Counter, "Samples that are not in the archive, by reason.");
    for (reason, count) in [
        ("disk", status.samples.lost_on_disk),
        ("overflow", status.samples.lost_by_overflow),
        ("too_long", status.samples.refused),
    ] {
        page.sample(&[("reason", reason)], count as f64);
    }
    if let Some(age) = status.last_sync {
        page.family("archive_durable_age_seconds", Kind::Gauge, "Time since samples were last synced to the disk.");
        page.sample(&[], age as f64 / 1e9);
    }
    page.family("archive_size_bytes", Kind::Gauge, "Size of the archive's files.");
    page.sample(&[], status.disk.bytes as f64);
    page.family("archive_free_bytes", Kind::Gauge, "Free space on the disk of the archive.");
    page.sample(&[], status.disk.free as f64);
}

fn of_messages(page: &mut Page, counters: &[(String, u64)]) {
    page.family("messages", Kind::Counter, "Messages of the message server, by what happened to them.");
    for outcome in ["requests", "forwarded", "replied", "answered", "strays", "orphaned"] {
        if let Some((_, count)) = counters.iter().find(|(name, _)| name == outcome) {
            page.sample(&[("outcome", outcome)], *count as f64);
        }
    }
}
