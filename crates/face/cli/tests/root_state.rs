//! After the example has been up and down, the machine is as before. The whole state is compared, not only the
//! settings that a shield is known to change. `TAHTI_TEST_FOR` makes it run longer than the default of a few seconds.
//! The plant of the tutorial, edited as on its page, gets its class and its CPU.

use harness::plant::Bench;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Maximum size of a settings file, in bytes.
const BYTES_MAX: u64 = 16 << 10;

/// The kernel's trees of settings. `/proc/sys/net` is excluded: it has hundreds of files, which belong to other
/// namespaces.
const TREES: [&str; 10] = [
    "/sys/fs/cgroup",
    "/proc/irq",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/sys/dev",
    "/sys/devices/virtual/workqueue",
    "/sys/devices/system/cpu",
    "/sys/devices/system/clocksource",
    "/sys/kernel/mm",
    "/sys/module/pcie_aspm",
];

/// Every setting with its value, every control group, and the CPUs, class and control groups of every task.
fn state() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    TREES.iter().for_each(|tree| walk(Path::new(tree), &mut found));
    for pid in numbers("/proc") {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap_or_default();
            let (stat, status) = (read("stat"), read("status"));
            let Some((_, fields)) = stat.rsplit_once(')') else { continue };
            let fields: Vec<&str> = fields.split_whitespace().collect();
            // An exiting task (PF_EXITING) leaves its control groups by itself.
            if fields.get(6).and_then(|flags| flags.parse().ok()).is_none_or(|flags: u64| flags & 4 != 0) {
                continue;
            }
            // The start time distinguishes a task from a later one with the same id. Class and priority are recorded
            // with it.
            let (Some(start), Some(class)) = (fields.get(19), fields.get(37..39)) else { continue };
            let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap_or_default();
            let value = format!("{cpus} {class:?} {}", read("cgroup"));
            found.insert(format!("task {tid} of {pid}, started {start}"), value);
        }
    }
    found
}

fn numbers(dir: &str) -> Vec<u32> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

fn walk(dir: &Path, found: &mut BTreeMap<String, String>) {
    found.insert(dir.display().to_string(), "a folder".to_owned());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_dir() {
            walk(&path, found);
        } else if kind.is_file()
            && is_setting(&path)
            && let Ok(value) = fs::read_to_string(&path)
        {
            found.insert(path.display().to_string(), value);
        }
    }
}

/// Whether the file is harmless to read and holds a setting. Lists of tasks and kernel counters are not settings;
/// counters also differ between two reads.
fn is_setting(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lists = ["tasks", "cgroup.procs", "cgroup.threads", "cgroup.event_control", "spurious"];
    // Excluded: peak usage (resettable), pressure (takes triggers), the last process id. These are counters that can
    // be written.
    let marks = ["max_usage_in_bytes", "failcnt", ".peak", ".pressure", "ns_last_pid"];
    let is_written = path.metadata().is_ok_and(|data| data.mode() & 0o222 != 0 && data.len() <= BYTES_MAX);
    // DAMON stores its findings about memory use there.
    let counted = ["/proc/sys/kernel/random", "/sys/kernel/mm/damon"];
    is_written
        && !lists.contains(&&*name)
        && !marks.iter().any(|mark| name.ends_with(mark))
        && !counted.iter().any(|tree| path.starts_with(tree))
}

/// Entries that differ, and settings that exist on one side only. Tasks come and go, and so do control groups of
/// other programs; those of tahti contain its name.
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let keys = before.keys().chain(after.keys());
    let both = |key: &str| before.contains_key(key) && after.contains_key(key);
    let of_others =
        |key: &str| key.starts_with("task ") || key.starts_with("/sys/fs/cgroup/") && !key.contains("/tahti");
    let counts = |key: &&String| !of_others(key) || both(key);
    keys.filter(counts)
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| (key.clone(), format!("{:?} -> {:?}", before.get(key), after.get(key))))
        .collect()
}

#[test]
fn the_example_leaves_no_difference_behind() {
    harness::machine::last_cpu();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/llrf");
    let bench = Bench::new("state", "");
    let length = std::env::var("TAHTI_TEST_FOR").unwrap_or_else(|_| "3s".to_owned());
    // Values that change by themselves also change between two reads of an undisturbed machine. They are excluded.
    let first = state();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let before = state();
    let restless = differences(&first, &before);
    let detached = bench.tahti(&["up", example, "--for", &length, "--require-rt"]).output().unwrap();
    let said = harness::process::text(&detached);
    let log = fs::read_to_string(bench.dir.join("run/llrf/log/_supervisor.log")).unwrap_or_default();
    assert!(said.contains("everything is as it was"), "{said}\n{log}");
    let after = state();
    let left: Vec<String> = differences(&before, &after)
        .into_iter()
        .filter(|(key, _)| !restless.contains_key(key))
        .map(|(key, change)| format!("{key}: {change}"))
        .collect();
    println!("{} values compared, {} restless", before.len(), restless.len());
    assert!(left.is_empty(), "{} of {} values differ:\n{}", left.len(), before.len(), left.join("\n"));
    // Proves that a shield was applied: the supervisor wrote to the machine.
    assert!(said.contains("writes, everything is as it was"), "{said}");
    assert!(!bench.dir.join("run/shield.json").exists(), "the journal is removed");
}

#[test]
fn the_loop_of_the_tutorial_has_its_priority_and_a_reserved_cpu() {
    harness::machine::last_cpu();
    let page = include_str!("../../../../docs/tutorials/real-time-loop.md");
    let bench = Bench::new("tutorial", "");
    harness::machine::wait_for_others(&bench.dir.join("run"));
    // Plant names are machine-wide.
    let name = harness::fresh("cavity").replace('-', "x");
    bench.ok(&["init", "cavity", "--name", &name, "--template", "loop"]);
    for edit in page.lines().filter_map(|line| line.strip_prefix("$ sed")) {
        let edited = Command::new("sh").args(["-c", &format!("sed{edit}")]).current_dir(&bench.dir).status().unwrap();
        assert!(edited.success(), "sed{edit}");
    }
    let up = harness::process::text(&bench.run(&["up", "cavity", "--detach"]));
    let status = harness::process::text(&bench.run(&["ps", &name]));
    // The plant goes down before anything is asserted, so that no shield stays.
    let down = harness::process::text(&bench.run(&["down", &name]));
    let is_loop = |line: &&str| line.trim_start().starts_with("loop ") && line.contains("running");
    let of_loop = status.lines().find(is_loop).unwrap_or_else(|| panic!("{up}{status}{down}"));
    assert!(of_loop.contains(" fifo:80 "), "{up}{status}");
    assert!(status.contains(" isolated, supervisor "), "{up}{status}");
    assert!(!status.contains("NOT isolated"), "{up}{status}");
    assert!(down.contains("everything is as it was"), "{down}");
}
