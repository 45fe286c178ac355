//! A quiet section on a kernel that was booted for it, and on one of its CPUs that was not.

use harness::plant::Bench;
use serde_json::Value;

/// The report of `tahti bench quiet` on a CPU, and its longest stretch without an interrupt of the timer, in ms.
fn quiet(bench: &Bench, cpu: &str) -> (Value, f64) {
    let output = bench.run(&["bench", "quiet", "--cpu", cpu, "--for", "3s", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    let rows = report["tables"].as_array().unwrap().iter().flat_map(|table| table["rows"].as_array().unwrap());
    let longest =
        rows.filter(|row| row["name"] == "longest stretch without one").find_map(|row| row["ours"]["value"].as_f64());
    let longest = longest.unwrap_or_else(|| panic!("{report:#}"));
    (report, longest)
}

#[test]
fn half_a_second_without_the_timer_is_recorded_on_a_nohz_full_cpu_and_its_lack_is_explained_elsewhere() {
    testkit::guest::required();
    // A section that is longer than the stretch: an interrupt in its middle does not hide the stretch.
    const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let before = std::fs::read_to_string(RUNTIME).unwrap();
    std::fs::write(RUNTIME, "-1").unwrap();
    let bench = Bench::new("quiet", "");
    let (report, longest) = quiet(&bench, "3");
    assert!(longest >= 500.0, "{longest} ms: {report:#}");
    let (report, longest) = quiet(&bench, "1");
    let notes = report["notes"].to_string();
    assert!(longest < 500.0, "{longest} ms: {report:#}");
    assert!(
        notes.contains("no stretch of 500ms without the timer") && notes.contains("CPU 1 is not in nohz_full="),
        "{notes}"
    );
    std::fs::write(RUNTIME, before).unwrap();
}
