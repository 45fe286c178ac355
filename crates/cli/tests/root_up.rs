//! Plants that change the machine: shields and real-time classes. Spares every task that it did not start.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may hang before the test fails: never how long something should take.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A plant with a shield on the machine's last CPU, in a folder of its own.
struct Bench {
    dir: PathBuf,
    /// What interrupts and work queues were like before.
    before: BTreeMap<String, String>,
}

impl Bench {
    fn new(name: &str, processes: &str) -> Self {
        // The effective user, as the kernel sees it.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
        assert!(root, "these tests change the machine: run them as root");
        let cpus: Vec<String> = fs::read_to_string("/sys/devices/system/cpu/online")
            .unwrap()
            .trim()
            .split([',', '-'])
            .map(str::to_owned)
            .collect();
        let last = cpus.last().unwrap();
        assert!(last != "0", "these tests need two CPUs");
        let dir = std::env::temp_dir().join(format!("tahti-root-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let text = format!("[plant]\nname = \"p\"\n[shield]\ncpus = \"{last}\"\nrequired = true\n{processes}");
        fs::write(dir.join("plant.toml"), text).unwrap();
        Self { dir, before: machine() }
    }

    fn tahti(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
        command.args(words).current_dir(&self.dir).env("TAHTI_RUN", self.dir.join("run")).stdin(Stdio::null());
        // Everything but what this test starts: it all descends from init.
        command.env("TAHTI_SPARE", "1");
        command
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.tahti(words).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let log = fs::read_to_string(self.dir.join("run/p/log/_supervisor.log")).unwrap_or_default();
        assert!(output.status.success(), "tahti {}: {text}\n{log}", words.join(" "));
        text
    }

    fn status(&self) -> serde_json::Value {
        let all: serde_json::Value = serde_json::from_str(&self.ok(&["ps", "p", "--json"])).unwrap();
        all[0].clone()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A test that failed half-way must leave nobody behind, nor the machine changed.
        let _ = self.tahti(&["down", "p"]).output();
        let _ = self.tahti(&["shield", "release"]).output();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What a shield changes, as text: affinities of interrupts, masks of work queues, cpusets.
fn machine() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut note = |path: &Path| {
        if let Ok(text) = fs::read_to_string(path) {
            found.insert(path.display().to_string(), text);
        }
    };
    for entry in fs::read_dir("/proc/irq").unwrap().flatten() {
        note(&entry.path().join("smp_affinity_list"));
    }
    note(Path::new("/sys/devices/virtual/workqueue/cpumask"));
    note(Path::new("/sys/fs/cgroup/cpuset/cpuset.sched_load_balance"));
    note(Path::new("/proc/sys/kernel/sched_rt_runtime_us"));
    let cpusets = fs::read_dir("/sys/fs/cgroup/cpuset").into_iter().flatten().flatten();
    let folders = cpusets.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name());
    found.insert("cpusets".to_owned(), format!("{:?}", folders.collect::<Vec<_>>()));
    found
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < WATCHDOG, "never {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const LOOP: &str = "[[process]]\nname = \"loop\"\ncommand = \"sleep 1000\"\nclass = \"fifo:10\"\n";

#[test]
fn a_process_on_the_shield_has_its_class_cpu_and_memory_lock_and_the_machine_is_given_back() {
    let bench = Bench::new("class", &format!("{LOOP}[[process]]\nname = \"other\"\ncommand = \"sleep 1000\"\n"));
    bench.ok(&["up", ".", "--detach"]);
    let status = bench.status();
    assert!(status["shield"].as_str().unwrap().ends_with("isolated"), "{status}");
    let (control, other) = (&status["processes"][0], &status["processes"][1]);
    assert_eq!((&control["class"], &other["class"]), (&"fifo:10".into(), &"other".into()));
    assert_ne!(control["cpus"], other["cpus"]);
    let memory = fs::read_to_string(format!("/proc/{}/status", control["pid"])).unwrap();
    let locked = memory.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    let locked: u64 = locked.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(locked > 0, "a real-time process is locked into memory: {memory}");
    assert_ne!(machine(), bench.before, "a shield changes something");
    let verdict = bench.ok(&["down"]);
    assert!(verdict.contains("everything is as it was"), "{verdict}");
    assert_eq!(machine(), bench.before);
}

#[test]
fn a_supervisor_killed_with_sigkill_leaves_the_shield_and_the_next_one_gives_it_back() {
    let bench = Bench::new("kill", LOOP);
    bench.ok(&["up", ".", "--detach"]);
    let before = bench.status();
    let supervisor = before["supervisor"].to_string();
    let shielded = machine();
    assert!(Command::new("kill").args(["-KILL", &supervisor]).status().unwrap().success());
    until("killed", || {
        fs::read_to_string(format!("/proc/{supervisor}/stat")).map_or(true, |stat| stat.contains(") Z"))
    });
    assert_eq!(machine(), shielded, "the shield outlives its supervisor");
    bench.ok(&["up", ".", "--detach"]);
    let after = bench.status();
    assert_eq!(after["processes"][0]["pid"], before["processes"][0]["pid"]);
    assert_eq!(after["processes"][0]["class"], "fifo:10");
    bench.ok(&["down"]);
    assert_eq!(machine(), bench.before);
}

#[test]
fn a_shield_that_stood_before_the_plant_stays_when_the_plant_goes() {
    let bench = Bench::new("borrowed", LOOP);
    let plant = fs::read_to_string(bench.dir.join("plant.toml")).unwrap();
    let cpus = plant.lines().find_map(|line| line.strip_prefix("cpus = ")).unwrap().trim_matches('"').to_owned();
    bench.ok(&["shield", "apply", "--cpus", &cpus]);
    bench.ok(&["up", ".", "--detach"]);
    assert!(bench.status()["shield"].as_str().unwrap().contains("not by this plant"));
    bench.ok(&["down"]);
    assert_ne!(machine(), bench.before, "it is not the plant's to release");
    bench.ok(&["shield", "release"]);
    assert_eq!(machine(), bench.before);
}

#[test]
fn a_runaway_is_demoted_recorded_and_counts_in_the_verdict() {
    // Burns for less than a second in all, on one CPU, should the guard fail.
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1000";
    let hog = format!(
        "[[process]]\nname = \"hog\"\ncommand = [\"/bin/sh\", \"-c\", \"{burn}\"]\nclass = \"fifo:5\"\nladder = [\"demote 10s\"]\n"
    );
    let bench = Bench::new("hog", &hog);
    bench.ok(&["up", ".", "--detach"]);
    let process = || bench.status()["processes"][0].clone();
    until("demoted", || process()["class"] == "other");
    until("evidence", || process()["evidence"].is_string());
    let evidence = PathBuf::from(process()["evidence"].as_str().unwrap()).join("incident.json");
    assert!(fs::read_to_string(evidence).unwrap().contains("\"runaway\""));
    let down = bench.tahti(&["down"]).output().unwrap();
    assert_eq!(down.status.code(), Some(1), "{}", String::from_utf8_lossy(&down.stdout));
    assert_eq!(machine(), bench.before);
}

#[test]
fn no_room_in_the_run_folder_is_an_error_before_anything_starts() {
    let bench = Bench::new("room", "[[process]]\nname = \"a\"\ncommand = [\"/bin/sh\", \"-c\", \"touch started\"]\n");
    let run = bench.dir.join("small");
    fs::create_dir(&run).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=16k none {run} && TAHTI_RUN={run} exec {tahti} up .",
        run = run.display(),
        tahti = env!("CARGO_BIN_EXE_tahti")
    );
    // A mount namespace of its own: the file system goes with the command.
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(&bench.dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no room in"), "{said}");
    assert!(!bench.dir.join("started").exists());
    assert_eq!(machine(), bench.before);
}
