//! The report for people.

use serde_json::Value;

/// What SPring-8 measured (S1.5): min, median, mean, standard deviation, max in us.
const MADOCA: [(&str, [f64; 5]); 2] = [
    ("MADOCA II, real time", [1131.0, 1286.0, 1293.0, 47.0, 1760.0]),
    ("MADOCA II, time sharing", [1029.0, 1126.0, 1141.0, 670.0, 141_985.0]),
];

pub(super) fn report(report: &Value) {
    for key in ["model name", "microcode"] {
        println!("{key}: {}", report["machine"]["cpu"][key].as_str().unwrap_or("unknown"));
    }
    for case in list(&report["cases"]) {
        head(&format!("round trips [us], {}", title(case)));
        rows(case);
        let (name, [min, median, mean, sd, max]) = MADOCA[usize::from(case["class"] == "other")];
        println!("{name:<24}{min:>10.1}{median:>10.1}{mean:>10.1}{sd:>10.1}{:>10}{:>10}{max:>10.1}", "-", "-");
        let [futex, message, direct, libzmq] = [0, 1, 2, 3].map(|row| case["table"][row]["median_ns"].as_f64());
        ratio("message / two futex round trips, medians", message, futex);
        ratio("message / without the server, medians", message, direct);
        ratio("message / libzmq, medians", message, libzmq);
    }
    if let Some(why) = report["libzmq_missing"].as_str() {
        println!("libzmq DID NOT RUN: {why}");
    }
    for side in ["unloaded", "loaded"] {
        let case = &report["bulk"][side];
        if !case.is_null() {
            let beside = if side == "loaded" { ", 8 clients with 64 KiB each on band 0" } else { "" };
            head(&format!("most urgent band [us], {}{beside}", title(case)));
            rows(case);
        }
    }
    for (row, name) in [(0, "message"), (1, "libzmq")] {
        let [with, without] = ["loaded", "unloaded"].map(|side| report["bulk"][side]["table"][row]["p99_ns"].as_f64());
        ratio(&format!("{name}: p99 loaded / unloaded"), with, without);
    }
    if let Some(rate) = report["bodies"]["bytes_per_s"].as_f64() {
        println!("\nbodies of 1 MiB, one copy: {:.2} GB/s", rate / 1e9);
    }
    for (key, name) in [("singly", "with 128 outstanding"), ("batched", "in batches of 256")] {
        let flow = &report["throughput"][key];
        if let (Some(all), Some(cpu)) = (flow["pairs_per_s"].as_f64(), flow["pairs_per_server_cpu_s"].as_f64()) {
            println!(
                "{name}: {all:.0} pairs/s; {cpu:.0} for a second of the server's CPU time; log records lost: {}",
                flow["unlogged"]
            );
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn title(case: &Value) -> String {
    let word = |key: &str| case[key].as_str().unwrap_or_default();
    let load = if case["loaded"] == true { "beside cpu and disk load" } else { "without load" };
    format!("all {} on CPUs {}, {load}", word("class"), word("cpus"))
}

fn head(title: &str) {
    println!("\n{title}");
    println!(
        "{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "min", "median", "mean", "sd", "p99", "p99.99", "max"
    );
}

fn rows(case: &Value) {
    if let Some(why) = case["missing"].as_str() {
        println!("DID NOT RUN: {why}");
    }
    let us = |value: &Value| value.as_f64().map_or("-".to_owned(), |ns| format!("{:.1}", ns / 1e3));
    for row in list(&case["table"]) {
        let name = row["name"].as_str().unwrap_or_default();
        let keys = ["min_ns", "median_ns", "mean_ns", "sd_ns", "p99_ns", "p99_99_ns", "max_ns"];
        let cells: String = keys.iter().map(|key| format!("{:>10}", us(&row[*key]))).collect();
        println!("{name:<24}{cells}");
    }
}

fn ratio(name: &str, of: Option<f64>, to: Option<f64>) {
    if let (Some(of), Some(to)) = (of, to) {
        println!("{name}: {:.2}", of / to);
    }
}
