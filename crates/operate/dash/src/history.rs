//! The last 15 minutes of every figure that the page draws, one value a second.
//!
//! A figure has a name: `cpu`, `missed`, `p99`, `intrusions`, `alarms`, `archive`, `process/NAME/cpu`, `process/NAME/memory`,
//! `process/NAME/missed`, `process/NAME/p99`, `cpu/NUMBER/intrusions`, `cpu/NUMBER/KIND`, `frame/NAME/late`. Loops also have a heat map
//! of their wake-up latency. The late wake-ups of the same time are kept with their causes.
//!
//! Memory: a figure takes 3.6 kB, a heat map 61 kB and the histograms of the last minute, a late wake-up about 1 kB. At most
//! [`FIGURES_MAX`] figures, [`LOOPS_MAX`] heat maps and [`LATE_MAX`] late wake-ups are kept: 7.2 MB, 3.9 MB and 1 MB.

use crate::hub::Topic;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Length of the history in seconds.
const KEPT: usize = 900;
/// Maximum number of figures.
const FIGURES_MAX: usize = 2000;
/// Maximum number of CPUs with a figure for each kind of disturbance.
const CPUS_MAX: usize = 64;
/// Maximum number of heat maps.
const LOOPS_MAX: usize = 64;
/// Maximum number of late wake-ups; newer ones replace the oldest.
const LATE_MAX: usize = 1000;
/// Rows of a heat map: six per decade from 1 µs to 100 ms, and one at each end for the values beyond.
const ROWS: usize = 32;
const ROWS_PER_DECADE: f64 = 6.0;
const LOW_NS: f64 = 1000.0;
/// Wake-ups that were counted over several seconds are spread over at most this many.
const SPREAD_MAX: i64 = 3;
/// Seconds of the short-term percentiles.
const MINUTE: i64 = 60;

/// Buckets of a histogram: lower edge, upper edge in nanoseconds, count.
type Buckets = Vec<(i64, i64, u64)>;

/// The row of a latency. Row 0 has everything below 1 µs.
fn row_of(ns: f64) -> usize {
    let row = 1.0 + (ROWS_PER_DECADE * (ns / LOW_NS).log10() + 1e-9).floor();
    row.clamp(0.0, (ROWS - 1) as f64) as usize
}

/// The slot of a second. Seconds before 1970 do not occur.
fn slot(second: i64) -> usize {
    second.rem_euclid(KEPT as i64) as usize
}

/// A figure, one value a second; NaN where there is none.
struct Series {
    values: Box<[f32]>,
    second: i64,
}

impl Series {
    fn new(second: i64) -> Self {
        Self { values: vec![f32::NAN; KEPT].into(), second: second - 1 }
    }

    fn put(&mut self, second: i64, value: f64) {
        if second < self.second {
            // The clock was set back, which makes the stored times wrong.
            *self = Self::new(second);
        }
        for empty in (self.second + 1).max(second - KEPT as i64 + 1)..second {
            self.values[slot(empty)] = f32::NAN;
        }
        self.second = second;
        self.values[slot(second)] = value as f32;
    }

    /// The values up to `self.second`, oldest first, from the first known one.
    fn past(&self) -> Value {
        let all = (0..KEPT as i64).rev().map(|back| self.values[slot(self.second - back)]);
        let values: Vec<Value> = all.skip_while(|value| value.is_nan()).map(short).collect();
        json!({ "second": self.second, "values": values })
    }
}

/// A value with at most three digits behind the point; `null` if it is unknown.
fn short(value: f32) -> Value {
    let rounded = (f64::from(value) * 1000.0).round() / 1000.0;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 { json!(rounded as i64) } else { json!(rounded) }
}

/// Wake-ups of a loop.
struct Wakeups {
    /// `KEPT` columns of `ROWS` counts.
    cells: Box<[u16]>,
    worst: Box<[f32]>,
    first: i64,
    second: i64,
    /// The histograms of the last minute, oldest first.
    minute: VecDeque<(i64, Buckets)>,
}

impl Wakeups {
    fn new(second: i64) -> Self {
        let (cells, worst) = (vec![0; KEPT * ROWS].into(), vec![0.0; KEPT].into());
        Self { cells, worst, first: second, second, minute: VecDeque::new() }
    }

    /// Takes the histogram since the start of the loop. Returns the column for the page, and the 99th percentile.
    fn put(&mut self, second: i64, buckets: Buckets) -> Option<(Value, Option<i64>)> {
        if second < self.second {
            *self = Self::new(second);
        }
        let before = self.minute.back().map(|(at, _)| *at);
        self.minute.push_back((second, buckets));
        while self.minute.front().is_some_and(|(at, _)| *at < second - MINUTE) || self.minute.len() > 64 {
            self.minute.pop_front();
        }
        for empty in (self.second + 1).max(second - KEPT as i64 + 1)..=second {
            self.cells[slot(empty) * ROWS..][..ROWS].fill(0);
            self.worst[slot(empty)] = 0.0;
        }
        self.second = second;
        let before = before?;
        let [.., (_, old), (_, new)] = self.minute.make_contiguous() else { return None };
        let (fresh, seconds) = (since(old, new), (second - before).clamp(1, SPREAD_MAX));
        let mut rows = BTreeMap::<usize, u64>::new();
        for (from, to, count) in &fresh {
            *rows.entry(row_of(((*from).max(1) as f64 * (*to).max(1) as f64).sqrt())).or_default() += count;
        }
        let worst = fresh.last().map_or(0, |(_, to, _)| *to);
        let each = |count: &u64| count.div_ceil(seconds.unsigned_abs()).min(u16::MAX.into()) as u16;
        for at in (0..seconds).map(|back| slot(second - back)) {
            for (row, count) in &rows {
                let cell = &mut self.cells[at * ROWS + row];
                *cell = cell.saturating_add(each(count));
            }
            self.worst[at] = self.worst[at].max(worst as f32);
        }
        let cells: Vec<_> = rows.iter().map(|(row, count)| (row, each(count))).collect();
        let (first, last) = (&self.minute.front()?.1, &self.minute.back()?.1);
        let minute = since(first, last);
        let column = json!({
            "cells": cells, "seconds": seconds, "worst": worst,
            "minute": { "p99": quantile(&minute, 0.99), "max": minute.last().map(|(_, to, _)| to) },
        });
        Some((column, quantile(&fresh, 0.99)))
    }

    fn past(&self) -> Value {
        let first = self.first.max(self.second - KEPT as i64 + 1);
        let cells: Vec<_> = (first..=self.second)
            .flat_map(|second| (0..ROWS).map(move |row| (second, row)))
            .filter_map(|(second, row)| {
                let count = self.cells[slot(second) * ROWS + row];
                (count > 0).then(|| (second - first, row, count))
            })
            .collect();
        let worst: Vec<Value> = (first..=self.second).map(|second| short(self.worst[slot(second)])).collect();
        json!({ "first": first, "second": self.second, "cells": cells, "worst": worst })
    }
}

/// Wake-ups counted between two histograms; all of the later one if its loop was restarted in between.
fn since(old: &Buckets, new: &Buckets) -> Buckets {
    let before: BTreeMap<i64, u64> = old.iter().map(|(from, _, count)| (*from, *count)).collect();
    let mut more = Buckets::new();
    for (from, to, count) in new {
        match count.checked_sub(before.get(from).copied().unwrap_or(0)) {
            None => return new.clone(),
            Some(0) => {}
            Some(count) => more.push((*from, *to, count)),
        }
    }
    more
}

/// The upper edge of the bucket with this quantile; `None` if there are no wake-ups.
fn quantile(buckets: &Buckets, share: f64) -> Option<i64> {
    let all: u64 = buckets.iter().map(|(.., count)| count).sum();
    let mut left = (all as f64 * share).ceil() as u64;
    buckets.iter().find_map(|(_, to, count)| {
        left = left.saturating_sub(*count);
        (left == 0).then_some(*to)
    })
}

/// The history of all figures.
#[derive(Default)]
pub(crate) struct History {
    figures: BTreeMap<String, Series>,
    loops: BTreeMap<String, Wakeups>,
    /// The last values of counters.
    counted: BTreeMap<String, u64>,
    /// Late wake-ups, oldest first: their second, the time of the recorder in nanoseconds, and the entry.
    late: VecDeque<(i64, i64, Value)>,
}

impl History {
    /// Takes the figures from new data of a topic at a second since 1970. Returns them for the page.
    pub(crate) fn collect(&mut self, topic: Topic, data: &Value, second: i64) -> Value {
        let (mut values, mut columns) = (Vec::new(), Map::new());
        match topic {
            Topic::Plant => self.of_plant(data, &mut values),
            Topic::Histograms => self.of_loops(data, second, &mut values, &mut columns),
            Topic::Shield => of_shield(data, &mut values),
            Topic::Frames => self.of_frames(data, &mut values),
            Topic::Alarms => values.extend(data["active"].as_f64().map(|active| ("alarms".to_owned(), active))),
            Topic::Archive => {
                values.extend(data["status"]["samples_per_s"].as_f64().map(|rate| ("archive".to_owned(), rate)));
            }
            Topic::Late => {
                return json!({ "second": second, "values": {}, "loops": {}, "late": self.of_late(data, second) });
            }
            Topic::MessageServer | Topic::Plants => {}
        }
        let mut sent = Map::new();
        for (name, value) in values {
            if self.figures.len() < FIGURES_MAX || self.figures.contains_key(&name) {
                self.figures.entry(name.clone()).or_insert_with(|| Series::new(second)).put(second, value);
            }
            sent.insert(name, short(value as f32));
        }
        json!({ "second": second, "values": sent, "loops": columns })
    }

    /// All figures: their values and heat maps, oldest first.
    pub(crate) fn past(&self) -> Value {
        let values: Map<String, Value> = self.figures.iter().map(|(name, one)| (name.clone(), one.past())).collect();
        let loops: Map<String, Value> = self.loops.iter().map(|(name, one)| (name.clone(), one.past())).collect();
        let late = self.late.iter().map(|(second, _, one)| late(*second, one));
        json!({ "values": values, "loops": loops, "late": late.collect::<Vec<_>>() })
    }

    /// Keeps the late wake-ups that are new. Returns them, oldest first.
    fn of_late(&mut self, data: &Value, second: i64) -> Vec<Value> {
        let newest = self.late.back().map_or(i64::MIN, |(_, at, _)| *at);
        let (now, mut fresh) = (data["now_ns"].as_i64().unwrap_or(0), Vec::new());
        for one in data["last"].as_array().into_iter().flatten().rev() {
            let Some(at) = one["at_ns"].as_i64().filter(|at| *at > newest) else { continue };
            let second = second - (now - at) / 1_000_000_000;
            fresh.push(late(second, one));
            self.late.push_back((second, at, one.clone()));
        }
        let oldest = second - KEPT as i64;
        while self.late.len() > LATE_MAX || self.late.front().is_some_and(|(at, ..)| *at < oldest) {
            self.late.pop_front();
        }
        fresh
    }

    /// Increase of a counter since its last value; `None` for the first value. A counter that starts again increases by 0.
    fn more(&mut self, name: String, value: u64) -> Option<f64> {
        let before = self.counted.insert(name, value)?;
        Some(value.saturating_sub(before) as f64)
    }

    fn of_plant(&mut self, data: &Value, values: &mut Vec<(String, f64)>) {
        // The supervisor does not answer: its processes may still exist.
        if data["outcome"] == "unknown" {
            return;
        }
        let none = Vec::new();
        let processes = data["processes"].as_array().unwrap_or(&none);
        let names: Vec<&str> = processes.iter().filter_map(|one| one["name"].as_str()).collect();
        self.forget("process", &names);
        self.loops.retain(|name, _| names.contains(&name.as_str()));
        let (mut cpu, mut missed) = (0.0, None);
        for (name, one) in names.iter().zip(processes) {
            let mut put = |figure: &str, value: Option<f64>| {
                values.extend(value.map(|value| (format!("process/{name}/{figure}"), value)));
                value
            };
            cpu += put("cpu", one["cpu_percent"].as_f64()).unwrap_or(0.0);
            put("memory", one["memory"].as_f64().filter(|_| !one["pid"].is_null()));
            let more = one["loop"]["misses"].as_u64().and_then(|misses| self.more(format!("process/{name}"), misses));
            if let Some(more) = put("missed", more) {
                missed = Some(missed.unwrap_or(0.0) + more);
            }
        }
        values.push(("cpu".to_owned(), cpu));
        values.extend(missed.map(|missed| ("missed".to_owned(), missed)));
    }

    fn of_loops(
        &mut self,
        data: &Value,
        second: i64,
        values: &mut Vec<(String, f64)>,
        columns: &mut Map<String, Value>,
    ) {
        let mut worst = None;
        for one in data.as_array().into_iter().flatten() {
            let (Some(name), Ok(buckets)) = (one["name"].as_str(), serde_json::from_value(one["buckets"].clone()))
            else {
                continue;
            };
            if self.loops.len() >= LOOPS_MAX && !self.loops.contains_key(name) {
                continue;
            }
            let wakeups = self.loops.entry(name.to_owned()).or_insert_with(|| Wakeups::new(second));
            let Some((column, p99)) = wakeups.put(second, buckets) else { continue };
            columns.insert(name.to_owned(), column);
            values.extend(p99.map(|p99| (format!("process/{name}/p99"), p99 as f64)));
            worst = worst.max(p99);
        }
        values.extend(worst.map(|worst| ("p99".to_owned(), worst as f64)));
    }

    fn of_frames(&mut self, data: &Value, values: &mut Vec<(String, f64)>) {
        for one in data.as_array().into_iter().flatten() {
            let Some(name) = one["name"].as_str() else { continue };
            let counts = ["overruns", "lost"].map(|count| one["counts"][count].as_u64());
            let [Some(overruns), Some(lost)] = counts else { continue };
            let more = self.more(format!("frame/{name}"), overruns + lost);
            values.extend(more.map(|more| (format!("frame/{name}/late"), more)));
        }
    }

    /// Removes the figures of a kind whose subject no longer exists.
    fn forget(&mut self, kind: &str, names: &[&str]) {
        let remains = |figure: &String| {
            let subject = figure.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/'));
            subject.is_none_or(|rest| names.iter().any(|name| rest == *name || rest.starts_with(&format!("{name}/"))))
        };
        self.figures.retain(|figure, _| remains(figure));
        self.counted.retain(|figure, _| remains(figure));
    }
}

/// A late wake-up for the page.
fn late(second: i64, one: &Value) -> Value {
    let mut one = one.clone();
    one["second"] = second.into();
    one
}

/// What reached each CPU and all shielded CPUs, in the counting window of 1 s. Ticks are no intrusions: a busy CPU needs them. The kinds of other than
/// the first [`CPUS_MAX`] CPUs are not kept.
fn of_shield(data: &Value, values: &mut Vec<(String, f64)>) {
    let mut all = None;
    for (at, cpu) in data["cpus"].as_array().into_iter().flatten().enumerate() {
        let of = |kind: &str| cpu[kind].as_f64().unwrap_or(0.0);
        let kinds = [
            ("tasks", of("tasks") + of("kernel_threads")),
            ("interrupts", of("interrupts")),
            ("softirqs", of("softirqs")),
            ("ipis", of("ipis")),
        ];
        let sum: f64 = kinds.iter().map(|(_, count)| count).sum();
        values.push((format!("cpu/{}/intrusions", cpu["cpu"]), sum));
        if at < CPUS_MAX {
            let each = kinds.into_iter().chain([("ticks", of("ticks"))]);
            values.extend(each.map(|(kind, count)| (format!("cpu/{}/{kind}", cpu["cpu"]), count)));
        }
        if cpu["shielded"] == true {
            all = Some(all.unwrap_or(0.0) + sum);
        }
    }
    values.extend(all.map(|all| ("intrusions".to_owned(), all)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(misses: u64) -> Value {
        json!({ "outcome": "good", "processes": [
            { "name": "loop", "pid": 7, "cpu_percent": 4.5, "memory": 1024, "loop": { "misses": misses } },
            { "name": "down", "pid": null, "cpu_percent": null, "memory": 0, "loop": null },
        ] })
    }

    #[test]
    fn figures_of_the_last_15_minutes_are_kept_and_older_ones_replaced() {
        let (mut history, start) = (History::default(), 1_795_000_000);
        for second in 0..2 * KEPT as i64 {
            // Two seconds are missing.
            if !(1200..1202).contains(&second) {
                history.collect(Topic::Alarms, &json!({ "active": second }), start + second);
            }
        }
        let past = history.past()["values"]["alarms"].clone();
        let values = past["values"].as_array().unwrap();
        assert_eq!((values.len(), past["second"].as_i64()), (KEPT, Some(start + 1799)));
        assert_eq!((&values[0], &values[299], &values[899]), (&json!(900), &json!(1199), &json!(1799)));
        assert_eq!((&values[300], &values[301], &values[302]), (&Value::Null, &Value::Null, &json!(1202)));
        // After the clock was set back, the stored times are wrong.
        history.collect(Topic::Alarms, &json!({ "active": 3 }), start);
        assert_eq!(history.past()["values"]["alarms"], json!({ "second": start, "values": [3] }));
    }

    #[test]
    fn processes_have_their_cpu_memory_and_misses_until_they_leave_the_plant() {
        let mut history = History::default();
        history.collect(Topic::Plant, &plant(10), 5);
        let sent = history.collect(Topic::Plant, &plant(13), 6);
        let values = json!({
            "cpu": 4.5, "missed": 3, "process/loop/cpu": 4.5, "process/loop/memory": 1024, "process/loop/missed": 3,
        });
        assert_eq!(sent, json!({ "second": 6, "values": values, "loops": {} }));
        // A loop that was restarted counts from 0.
        assert_eq!(history.collect(Topic::Plant, &plant(1), 7)["values"]["missed"], 0);
        // The supervisor does not answer for a moment.
        history.collect(Topic::Plant, &json!({ "outcome": "unknown", "processes": [] }), 8);
        assert!(history.figures.contains_key("process/loop/cpu"));
        history.collect(Topic::Plant, &json!({ "outcome": "good", "processes": [] }), 9);
        assert_eq!(history.figures.keys().collect::<Vec<_>>(), ["cpu", "missed"]);
    }

    #[test]
    fn wake_ups_are_in_the_row_of_their_latency_and_in_the_seconds_in_which_they_were_counted() {
        let mut history = History::default();
        let put = |history: &mut History, second, buckets: Value| {
            let data = json!([{ "name": "loop", "buckets": buckets, "beyond": 0 }]);
            history.collect(Topic::Histograms, &data, second)
        };
        assert_eq!(
            put(&mut history, 100, json!([[1000, 1031, 50]]))["loops"],
            json!({}),
            "the first histogram has older wake-ups"
        );
        let sent = put(&mut history, 102, json!([[1000, 1031, 250], [9_000_000, 9_200_000, 2]]));
        let column = &sent["loops"]["loop"];
        assert_eq!((&column["cells"], &column["seconds"]), (&json!([[1, 100], [24, 1]]), &json!(2)));
        assert_eq!((&column["worst"], &column["minute"]["p99"]), (&json!(9_200_000), &json!(1031)));
        assert_eq!(sent["values"], json!({ "p99": 1031, "process/loop/p99": 1031 }));
        let past = history.past()["loops"]["loop"].clone();
        let cells = json!([[1, 1, 100], [1, 24, 1], [2, 1, 100], [2, 24, 1]]);
        assert_eq!((&past["first"], &past["second"], &past["cells"]), (&json!(100), &json!(102), &cells));
        assert_eq!(past["worst"], json!([0, 9_200_000, 9_200_000]));
        // A loop that was restarted.
        let sent = put(&mut history, 103, json!([[1000, 1031, 10]]));
        assert_eq!(sent["loops"]["loop"]["cells"], json!([[1, 10]]));
    }

    #[test]
    fn late_wake_ups_are_kept_once_with_their_second_and_the_oldest_are_replaced() {
        let mut history = History::default();
        let data = |ats: &[i64]| {
            let one = |at: &i64| json!({ "at_ns": at, "tid": 7, "parts": [["timer", 9]] });
            json!({ "now_ns": 100_000_000_000_i64, "last": ats.iter().map(one).collect::<Vec<_>>() })
        };
        let (old, new) = (97_000_000_000, 99_500_000_000);
        assert_eq!(history.collect(Topic::Late, &data(&[old]), 1000)["late"][0]["second"], 997);
        let fresh = history.collect(Topic::Late, &data(&[new, old]), 1000)["late"].clone();
        assert_eq!((fresh.as_array().unwrap().len(), &fresh[0]["second"]), (1, &json!(1000)));
        assert_eq!(history.past()["late"].as_array().unwrap().len(), 2);
        let many: Vec<i64> = (0..2000).rev().map(|at| new + 1 + at).collect();
        history.collect(Topic::Late, &data(&many), 1000);
        assert_eq!(history.past()["late"].as_array().unwrap().len(), LATE_MAX);
        history.collect(Topic::Late, &data(&[]), 1000 + 2 * KEPT as i64);
        assert_eq!(history.past()["late"], json!([]));
    }

    #[test]
    fn the_rows_of_a_heat_map_cover_all_latencies() {
        let rows = [0.0, 999.0, 1000.0, 9999.0, 10_000.0, 1e8, 1e12].map(row_of);
        assert_eq!(rows, [0, 0, 1, 6, 7, 31, 31]);
    }

    #[test]
    fn each_kind_of_disturbance_of_a_cpu_is_kept_and_ticks_are_no_intrusions() {
        let cpu = |cpu: usize, shielded: bool| json!({ "cpu": cpu, "shielded": shielded, "tasks": 1, "kernel_threads": 2, "interrupts": 3, "softirqs": 4, "ipis": 5, "ticks": 100 });
        let mut history = History::default();
        let sent = history.collect(Topic::Shield, &json!({ "cpus": [cpu(0, false), cpu(1, true)] }), 5);
        let of = |figure: &str| sent["values"][figure].as_f64().unwrap();
        let kinds =
            ["tasks", "interrupts", "softirqs", "ipis", "ticks", "intrusions"].map(|kind| of(&format!("cpu/1/{kind}")));
        assert_eq!((kinds, of("intrusions")), ([3.0, 3.0, 4.0, 5.0, 100.0, 15.0], 15.0));
        // A machine with many CPUs leaves room for the figures of processes.
        let many: Vec<Value> = (0..256).map(|at| cpu(at, true)).collect();
        let sent = history.collect(Topic::Shield, &json!({ "cpus": many }), 6);
        assert_eq!(sent["values"].as_object().unwrap().len(), 1 + 256 + 5 * CPUS_MAX);
    }

    #[test]
    fn memory_for_figures_is_bounded() {
        let mut history = History::default();
        let processes: Vec<Value> = (0..3000)
            .map(|at| json!({ "name": format!("p{at}"), "pid": 1, "cpu_percent": 1.0, "memory": 1 }))
            .collect();
        history.collect(Topic::Plant, &json!({ "outcome": "good", "processes": processes }), 5);
        let loops: Vec<Value> = (0..100).map(|at| json!({ "name": format!("p{at}"), "buckets": [] })).collect();
        history.collect(Topic::Histograms, &json!(loops), 5);
        assert_eq!((history.figures.len(), history.loops.len()), (FIGURES_MAX, LOOPS_MAX));
    }
}
