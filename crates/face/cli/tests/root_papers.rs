//! The published experiments: the smallest form of each measurement runs, and every row is answered.
//!
//! Every task outside the measurements is spared by their shields.

use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// After this time the measurements hang: they take minutes, also next to compilers. Below the silence that the test runner allows.
const HANGS: Duration = Duration::from_secs(1080);

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("tahti-papers-{}-{nth}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The reports of `tahti bench all --smallest`.
fn measured(folder: &Folder) -> Vec<Value> {
    let [answer, errors] = ["all.json", "errors"].map(|name| folder.0.join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
    command.args(["bench", "all", "--smallest", "--json", "--spare", "1+"]);
    command.env("TAHTI_RUN", folder.0.join("run")).stdin(Stdio::null());
    command.stdout(File::create(&answer).unwrap()).stderr(File::create(&errors).unwrap());
    let (mut child, begun) = (command.spawn().unwrap(), Instant::now());
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > HANGS => {
                // SIGTERM: a measurement in progress releases its shield.
                Command::new("kill").arg(child.id().to_string()).status().unwrap();
                panic!("`bench all --smallest` hangs:\n{}", fs::read_to_string(&errors).unwrap());
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    assert!(status.success(), "{}", fs::read_to_string(&errors).unwrap());
    serde_json::from_str(&fs::read_to_string(&answer).unwrap()).unwrap()
}

/// A list of texts of a row.
fn texts<'a>(row: &'a Value, key: &str) -> Vec<&'a str> {
    row[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_smallest_form_of_each_published_experiment_answers_its_row() {
    let folder = Folder::new();
    let reports = measured(&folder);
    let rows = reports.iter().find_map(|report| report["experiments"].as_array()).expect("published experiments");
    // Measurements that stop every other process, or need a device, are not repeated without a request.
    let by_hand = |command: &&str| command.contains("--every-cpu") || command.contains("--device");
    // Only CPUs that share a core have figures of hyper-threading.
    let rows_of_all = rows.iter().filter(|row| row["key"] != "vxworks/hyper-threads");
    let open: Vec<_> = rows_of_all.flat_map(|row| texts(row, "missing")).filter(|one| !by_hand(one)).collect();
    assert_eq!(open, [""; 0], "measurements without figures");
    for row in rows {
        let (found, by, needs) = (texts(row, "found"), texts(row, "by"), &row["needs"]);
        assert!(!found.is_empty() || !by.is_empty() || needs.is_string(), "{row}");
        assert!(found.iter().all(|line| !line.contains("not measured")), "{row}");
    }
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no row {key}"));
    // A run with other arguments does not answer.
    let jitter = texts(row("vxworks/jitter"), "by");
    assert!(jitter.len() == 1 && jitter[0].contains("--period 4001Hz --load all --compare"), "{jitter:?}");
    let latency = texts(row("react/thread-latency"), "by");
    assert!(latency.len() == 1 && !latency[0].contains("--period"), "{latency:?}");
    let wire = texts(row("open-next/network"), "by");
    assert!(wire.len() == 2 && wire.iter().all(|command| command.contains("--link 1000 --work fft")), "{wire:?}");
    let spin = texts(row("madoca/spin"), "by");
    assert!(spin.len() == 2 && spin.iter().all(|command| command.contains("--period 100us")), "{spin:?}");
    for key in ["kek/scan-load", "kek/transfer", "madoca/case-1", "madoca/case-2", "vxworks/adaptive-optics"] {
        assert!(!texts(row(key), "found").is_empty(), "{key}");
    }
    for key in ["kek/interrupt", "kek/post-event", "vxworks/ptp"] {
        assert!(texts(row(key), "found").is_empty() && row(key)["needs"].is_string(), "{key}");
    }
}

#[test]
fn real_time_loops_on_every_cpu_are_demoted_and_the_recovery_is_timed() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
    command.args(["bench", "runaway", "--every-cpu", "--trials", "2", "--json"]);
    let output = command.env("TAHTI_RUN", folder.0.join("run")).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["latency"]["count"], &rows[1]["ours"]["value"]), (&2.into(), &0.0.into()), "{report:#}");
    let recovery = rows[2]["ours"]["samples"].as_array().unwrap();
    let is_recovery = rows[2]["name"].as_str().unwrap().starts_with("recovery:");
    assert!(is_recovery && recovery.len() == 2 && recovery.iter().all(|ms| ms.as_f64() > Some(0.0)), "{report:#}");
}

#[test]
fn streams_are_measured_between_two_interfaces_of_the_host() {
    let folder = Folder::new();
    let tahti = env!("CARGO_BIN_EXE_tahti");
    let script = format!(
        "ip link add left type veth peer name right && \
         {tahti} bench interference --no-primes --rounds 1 --between left right --spare 1+ --json && ip -o link show right >&2"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script]).env("TAHTI_RUN", folder.0.join("run")).stdin(Stdio::null());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = &report["tables"][0];
    assert!(table["title"].as_str().unwrap().contains("100 Mbit/s between real interfaces"), "{report:#}");
    let missed =
        table["rows"].as_array().unwrap().iter().find(|row| row["name"] == "UDP, deadline of 1ms missed, plain");
    assert!(missed.is_some_and(|row| row["ours"]["value"].is_number()), "{report:#}");
    // The interface is back, and down.
    assert!(errors.contains("right") && errors.contains("state DOWN"), "{errors}");
}
