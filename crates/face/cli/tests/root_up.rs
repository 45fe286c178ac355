//! Plants that change the machine: shields and real-time classes. Spares every task that it did not start.

use harness::plant::Bench;
use harness::process::{text, thread};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A plant with a shield on the machine's last CPU, in a separate folder.
struct Shielded {
    bench: Bench,
    /// Interrupts and work queues before the test.
    before: BTreeMap<String, String>,
}

impl Shielded {
    fn new(name: &str, processes: &str) -> Self {
        let last = harness::machine::last_cpu();
        let shield = format!("[shield]\ncpus = \"{last}\"\nrequired = true\n");
        Self { bench: Bench::new(&format!("root-{name}"), &(shield + processes)), before: machine() }
    }
}

impl std::ops::Deref for Shielded {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl Drop for Shielded {
    fn drop(&mut self) {
        // A test that failed half-way must leave neither a plant nor a shield behind.
        let _ = self.run(&["down", "p"]);
        let _ = self.run(&["shield", "release"]);
    }
}

/// The settings that a shield changes, as text: affinities of interrupts, masks of work queues, cpusets.
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

const LOOP: &str = "[[process]]\nname = \"loop\"\ncommand = \"sleep 1000\"\nclass = \"fifo:10\"\n";

#[test]
fn a_process_on_the_shield_has_its_class_cpu_and_memory_lock_and_the_machine_is_restored() {
    let bench = Shielded::new("class", &format!("{LOOP}[[process]]\nname = \"other\"\ncommand = \"sleep 1000\"\n"));
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
fn a_supervisor_killed_with_sigkill_leaves_the_shield_and_the_next_one_releases_it() {
    let bench = Shielded::new("kill", LOOP);
    bench.ok(&["up", ".", "--detach"]);
    let before = bench.status();
    let supervisor = before["supervisor"].to_string();
    let shielded = machine();
    assert!(Command::new("kill").args(["-KILL", &supervisor]).status().unwrap().success());
    bench.until("killed", || !harness::process::alive(supervisor.parse().unwrap()));
    assert_eq!(machine(), shielded, "the shield outlives its supervisor");
    bench.ok(&["up", ".", "--detach"]);
    let after = bench.status();
    assert_eq!(after["processes"][0]["pid"], before["processes"][0]["pid"]);
    assert_eq!(after["processes"][0]["class"], "fifo:10");
    bench.ok(&["down"]);
    assert_eq!(machine(), bench.before);
}

#[test]
fn a_detached_daemon_without_environment_ends_with_its_killed_keeper_by_their_group() {
    harness::machine::last_cpu();
    let script = "env -i setsid sh -c 'trap \"\" HUP TERM; echo $$ > daemon; while :; do /bin/sleep 1; done' & wait";
    let bench = Bench::new("root-group", &harness::plant::sh("a", script, "restart = { policy = \"never\" }"));
    bench.ok(&["up", ".", "--detach"]);
    let daemon = || fs::read_to_string(bench.dir.join("daemon")).ok()?.trim().parse::<i32>().ok();
    bench.until("its daemon", || daemon().is_some());
    let group = fs::read_to_string(bench.dir.join("run/p/keep/a/group")).unwrap();
    let keeper = bench.process("a")["keeper"].as_i64().unwrap() as i32;
    harness::process::kill(keeper, "KILL");
    bench.until("ended", || !harness::process::alive(daemon().unwrap()));
    bench.run(&["down"]);
    assert!(!Path::new(&group).exists(), "{group} stays");
}

#[test]
fn a_process_of_another_user_and_its_safe_output_command_have_clean_environments() {
    harness::machine::last_cpu();
    let bench = Bench::new("root-user", "");
    // The folder belongs to the operator and may contain any file.
    let own = bench.dir.join("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    fs::write(own.join("off"), "#!/bin/sh\nid -u > off-was\n").unwrap();
    fs::set_permissions(own.join("off"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let keys =
        "user = \"65534\"\ndir = \"own\"\non_fault = \"./off\"\nrestart = { policy = \"never\" }\numask = \"0077\"";
    let script =
        "env > env; grep NoNewPrivs /proc/self/status > privileges; while [ ! -e go ]; do sleep 0.05; done; exit 3";
    bench.write(&harness::plant::sh("a", script, keys));
    let mut up = bench.tahti(&["up", ".", "--detach"]);
    up.env("JOURNAL_STREAM", "8:1").env("INVOCATION_ID", "x").env("SECRET", "y");
    let output = harness::process::finish(up.spawn().unwrap());
    assert!(output.status.success(), "{}", bench.log());
    let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
    bench.until("its privileges", || read("privileges").ends_with('\n'));
    let environment = read("env");
    assert_eq!(read("privileges"), "NoNewPrivs:\t1\n");
    for name in ["JOURNAL_STREAM=", "INVOCATION_ID=", "SECRET=", "HOME=/root"] {
        assert!(!environment.contains(name), "{name} in {environment}");
    }
    assert!(environment.contains("TAHTI_PROCESS=a\n") && environment.contains("USER=nobody\n"), "{environment}");
    let mode = std::os::unix::fs::MetadataExt::mode(&own.join("env").metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    fs::write(own.join("go"), "").unwrap();
    bench.until("its safe-output command", || read("off-was").ends_with('\n'));
    assert_eq!(read("off-was"), "65534\n", "not root");
    bench.until("reported", || bench.log().contains("safe-output command done"));
}

#[test]
fn operators_may_read_and_type_if_allowed_and_other_users_may_not() {
    use std::os::unix::process::CommandExt;
    harness::machine::last_cpu();
    const GROUP: u32 = 61234;
    for may_type in [false, true] {
        let bench = Bench::new(&format!("root-operators-{may_type}"), "");
        let head = format!("[plant]\nname = \"p\"\noperators = \"{GROUP}\"\noperators_may_type = {may_type}\n");
        let echo = harness::plant::sh("a", "while read line; do echo heard $line; done", "");
        fs::write(bench.dir.join("plant.toml"), head + &echo).unwrap();
        // A copy of the program in a folder where every user may run it.
        let program = bench.dir.join("tahti");
        fs::copy(env!("CARGO_BIN_EXE_tahti"), &program).unwrap();
        bench.ok(&["up", ".", "--detach"]);
        let as_member = |group: u32, words: &[&str], typed: &str| {
            let mut command = Command::new(&program);
            command.args(words).env("TAHTI_RUN", bench.dir.join("run")).uid(65534).gid(group).current_dir("/");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            use std::io::Write;
            // A refused process may have closed its input.
            let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
            let output = harness::process::finish(child);
            (output.status.success(), text(&output))
        };
        let (good, said) = as_member(GROUP, &["ps"], "");
        assert!(good && said.contains("running"), "{said}");
        let (good, said) = as_member(GROUP, &["logs", "a"], "");
        assert!(good && said.contains("started"), "{said}");
        for words in [&["down"][..], &["restart", "a"], &["signal", "USR1", "a"], &["reload"]] {
            let (good, said) = as_member(GROUP, words, "");
            assert!(!good && said.contains("operators may only read"), "{words:?}: {said}");
        }
        let (good, said) = as_member(GROUP, &["attach", "a"], "beam\n");
        assert_eq!(good, may_type, "{said}");
        if may_type {
            bench.until("received", || bench.ok(&["logs", "a"]).contains("heard beam"));
        } else {
            assert!(said.contains("--read-only"), "{said}");
        }
        for words in [&["ps", "p"][..], &["logs", "a", "-P", "p"], &["attach", "a", "-P", "p", "--read-only"]] {
            let (good, said) = as_member(65534, words, "");
            assert!(!good, "{words:?} of another user: {said}");
        }
        bench.ok(&["down"]);
    }
}

#[test]
fn a_shield_applied_before_the_plant_stays_when_the_plant_goes_down() {
    let bench = Shielded::new("borrowed", LOOP);
    let plant = fs::read_to_string(bench.dir.join("plant.toml")).unwrap();
    let cpus = plant.lines().find_map(|line| line.strip_prefix("cpus = ")).unwrap().trim_matches('"').to_owned();
    bench.ok(&["shield", "apply", "--cpus", &cpus]);
    bench.ok(&["up", ".", "--detach"]);
    assert!(bench.status()["shield"].as_str().unwrap().contains("not by this plant"));
    bench.ok(&["down"]);
    assert_ne!(machine(), bench.before, "the plant does not release it");
    bench.ok(&["shield", "release"]);
    assert_eq!(machine(), bench.before);
}

#[test]
fn after_an_incomplete_release_the_next_plant_applies_and_releases_a_new_shield() {
    let bench = Shielded::new("left", LOOP);
    let path = "/proc/sys/vm/stat_interval";
    let old = fs::read_to_string(path).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    fs::write(path, "7").unwrap();
    let down = text(&bench.run(&["down"]));
    assert!(down.contains("stat_interval was changed by another program and is left as it is"), "{down}");
    bench.ok(&["up", ".", "--detach"]);
    let status = bench.status();
    assert!(status["shield"].as_str().unwrap().ends_with("isolated"), "{status}");
    let verdict = bench.ok(&["down"]);
    let after = fs::read_to_string(path).unwrap();
    fs::write(path, old.trim()).unwrap();
    assert!(verdict.contains("everything is as it was"), "{verdict}");
    assert_eq!((machine(), after.trim()), (bench.before.clone(), "7"));
}

#[test]
fn a_second_shield_on_other_cpus_is_refused_and_the_first_one_stays() {
    let bench = Shielded::new("overlap", LOOP);
    bench.ok(&["shield", "apply", "--cpus", "0"]);
    let shielded = machine();
    let refused = bench.run(&["shield", "apply", "--cpus", &harness::machine::last_cpu()]);
    let expected = "a shield on CPUs 0 (profile control-loop) is active already: release it first";
    assert!(refused.status.code() == Some(2) && text(&refused).contains(expected), "{}", text(&refused));
    let refused = bench.run(&["up", ".", "--detach"]);
    assert!(refused.status.code() == Some(1) && text(&refused).contains(expected), "{}", text(&refused));
    assert_eq!(bench.ok(&["ps"]), "no plant is up\n");
    assert_eq!(machine(), shielded);
    bench.ok(&["shield", "release"]);
    assert_eq!(machine(), bench.before);
}

#[test]
fn a_reservation_without_a_separate_partition_is_refused_with_the_remedy() {
    let process = |cpus: &str| {
        harness::plant::sh(
            "a",
            "touch started; sleep 1000",
            &format!("class = \"deadline:1ms/10ms/10ms\"\ncpus = \"{cpus}\""),
        )
    };
    // All other tasks are spared here, so the shield's CPU stays in the common root domain. This is reported once, or
    // is an error if real time is required.
    let bench = Shielded::new("deadline", &process("shield"));
    bench.ok(&["up", ".", "--detach"]);
    let process_now = bench.process("a");
    let lack = "no class deadline:1ms/10ms/10ms";
    let ordinary = process_now["class"].as_str().is_some_and(|class| class.starts_with("other"));
    assert!(ordinary && process_now["shortfalls"].to_string().contains(lack), "{process_now}");
    assert!(bench.ok(&["ps"]).contains("DEADLINE needs a separate partition"), "{}", bench.log());
    bench.ok(&["down"]);
    fs::remove_file(bench.dir.join("started")).unwrap();
    let refused = text(&bench.run(&["up", ".", "--require-rt"]));
    assert!(refused.contains(lack) && refused.contains("failed to start"), "{refused}");
    assert_eq!(machine(), bench.before);
    for (shield, cpus) in [("", "housekeeping"), ("[shield]\ncpus = \"1\"\n", "0")] {
        bench.write(&format!("{shield}{}", process(cpus)));
        let refused = text(&bench.run(&["up", "."]));
        let expected = ["needs a partition for DEADLINE", "add a [shield] and `cpus = \"shield\"`, or use fifo"];
        assert!(expected.iter().all(|part| refused.contains(part)), "{refused}");
    }
    assert!(!bench.dir.join("started").exists());
}

#[test]
fn a_plant_that_was_adopted_is_compared_with_and_without_its_shield() {
    let channel = format!("adopted-{}", std::process::id());
    let command = format!("[\"tahti\", \"demo\", \"llrf\", \"--channel\", \"{channel}\"]");
    let llrf = format!("[[process]]\nname = \"loop\"\ncommand = {command}\nclass = \"fifo:50\"\n");
    let bench = Shielded::new("compare", &llrf);
    bench.ok(&["up", ".", "--detach"]);
    let (supervisor, pid) = (bench.supervisor(), bench.pid("loop"));
    harness::process::kill(supervisor, "KILL");
    bench.until("killed", || !harness::process::alive(supervisor));
    let output = bench.run(&["up", ".", "--compare", "--for", "14s"]);
    let said = text(&output);
    assert!(bench.log().contains("continues the plant of process"), "{}", bench.log());
    assert!(said.contains("wake-up latency of loop,") && said.contains("only the shield differing"), "{said}");
    let cycles = said.lines().find_map(|line| line.trim().strip_prefix("cycles ")).unwrap();
    let cycles: Vec<u64> = cycles.split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert!(cycles.len() == 2 && cycles.iter().all(|count| *count > 0), "both sides: {said}");
    assert!(said.contains("everything is as it was"), "{said}");
    assert!(!harness::process::alive(pid));
    assert_eq!(machine(), bench.before);
}

#[test]
fn a_reload_changes_the_shield_of_running_processes_and_the_machine_is_restored() {
    let bench = Shielded::new("reshield", LOOP);
    bench.ok(&["up", ".", "--detach"]);
    let (pid, cpus) = (bench.pid("loop"), bench.process("loop")["cpus"].clone());
    let plant = fs::read_to_string(bench.dir.join("plant.toml")).unwrap();
    let polling = plant.replace("required = true", "required = true\nprofile = \"polling\"");
    fs::write(bench.dir.join("plant.toml"), &polling).unwrap();
    bench.ok(&["reload"]);
    let shield: serde_json::Value =
        serde_json::from_str(&bench.ok(&["shield", "status", "--window", "1ms", "--json"])).unwrap();
    assert_eq!(shield["want"]["profile"], "polling");
    assert_eq!((bench.pid("loop"), &bench.process("loop")["cpus"]), (pid, &cpus), "it continues in the same state");
    let group = fs::read_to_string(format!("/proc/{pid}/cpuset")).unwrap_or_default();
    assert!(group.contains("tahti.shield"), "{group}");

    // Without the shield, then with it again.
    fs::write(
        bench.dir.join("plant.toml"),
        polling
            .replace("[shield]", "")
            .lines()
            .filter(|line| !["cpus = ", "required", "profile"].iter().any(|key| line.starts_with(key)))
            .collect::<Vec<_>>()
            .join("\n"),
    )
    .unwrap();
    bench.ok(&["reload"]);
    assert_eq!(machine(), bench.before);
    assert_eq!(bench.status()["shield"], "no shield");
    fs::write(bench.dir.join("plant.toml"), &plant).unwrap();
    bench.ok(&["reload"]);
    assert_ne!(machine(), bench.before);
    // The source of its CPUs has changed, so it was restarted.
    bench.until("on the shield again", || {
        bench.process("loop")["cpus"] == cpus && bench.process("loop")["pid"].is_i64()
    });
    bench.ok(&["down"]);
    assert_eq!(machine(), bench.before);
}

/// An irqbalance that obeys at its next scan, and scans only when the test lets it. It has this process's name.
struct Irqbalance {
    scans: Arc<AtomicBool>,
}

impl Irqbalance {
    fn start() -> Self {
        fs::write("/proc/self/comm", "irqbalance").unwrap();
        let name = format!("irqbalance{}.sock", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let scans = Arc::new(AtomicBool::new(true));
        let may_scan = scans.clone();
        std::thread::spawn(move || {
            let (mut banned, mut wanted) = ("0".to_owned(), None);
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut bytes = [0; 256];
                let got = stream.read(&mut bytes).unwrap_or(0);
                let said = String::from_utf8_lossy(&bytes[..got]).into_owned();
                if let Some(list) = said.strip_prefix("settings cpus ") {
                    let mask = |list: &str| list.split(',').map(|cpu| 1u64 << cpu.parse::<u32>().unwrap()).sum::<u64>();
                    wanted = Some(if list == "NULL" { "0".to_owned() } else { format!("{:x}", mask(list)) });
                } else {
                    banned = wanted.take_if(|_| may_scan.load(Ordering::Relaxed)).unwrap_or(banned);
                    let _ = write!(stream, "SLEEP 58 BANNED {banned}");
                }
            }
        });
        Self { scans }
    }
}

#[test]
fn watchdogs_are_petted_and_processes_supervised_while_a_reload_waits_for_irqbalance() {
    let irqbalance = Irqbalance::start();
    let bench = Shielded::new("balance", "");
    let device = bench.dir.join("dog");
    fs::write(&device, "").unwrap();
    let plant = fs::read_to_string(bench.dir.join("plant.toml")).unwrap();
    let keys = "heartbeat = { within = \"600s\", critical = true }\nrestart = { backoff = \"0s\" }";
    let rest = harness::plant::sh("a", "sleep 1000", keys) + &harness::plant::sh("b", "sleep 1000", keys);
    let plant = format!("{plant}{rest}[watchdog]\ndevice = {device:?}\ntimeout = \"1s\"\n");
    let plant_file = bench.dir.join("plant.toml");
    fs::write(&plant_file, &plant).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    fs::write(&plant_file, plant.replace("required = true", "required = true\nprofile = \"polling\"")).unwrap();
    irqbalance.scans.store(false, Ordering::Relaxed);
    let reload = bench.tahti(&["reload"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Wait until the first reload has begun. Otherwise the second could begin first, and the first would be the one
    // that waits.
    let supervisor = bench.supervisor();
    bench.until("begun", || thread(supervisor, "tahti-shield").is_some());
    assert_eq!(bench.run(&["reload"]).status.code(), Some(1), "one at a time");
    let pets = || fs::metadata(&device).unwrap().len();
    let before = pets();
    bench.until("petted", || pets() >= before + 8);
    let old = bench.pid("a");
    harness::process::kill(old, "SEGV");
    bench.until("its end is detected", || bench.process("a")["pid"].is_null());
    irqbalance.scans.store(true, Ordering::Relaxed);
    let output = harness::process::finish(reload);
    assert!(output.status.success() && text(&output).contains("~ shield"), "{}", text(&output));
    bench.until("it runs again", || bench.process("a")["pid"].is_i64());
    bench.run(&["down"]);
    assert_eq!(machine(), bench.before);
    assert_eq!(fs::read(&device).unwrap().last(), Some(&b'V'));
}

#[test]
fn a_runaway_is_demoted_recorded_and_counts_in_the_verdict() {
    // If the guard fails, this loads one CPU for less than a second in total.
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1000";
    let hog = format!(
        "[[process]]\nname = \"hog\"\ncommand = [\"/bin/sh\", \"-c\", \"{burn}\"]\nclass = \"fifo:5\"\nladder = [\"demote 10s\"]\n"
    );
    let bench = Shielded::new("hog", &hog);
    bench.ok(&["up", ".", "--detach"]);
    let process = || bench.status()["processes"][0].clone();
    bench.until("demoted", || process()["class"] == "other");
    bench.until("evidence", || process()["evidence"].is_string());
    let evidence = PathBuf::from(process()["evidence"].as_str().unwrap()).join("incident.json");
    assert!(fs::read_to_string(evidence).unwrap().contains("\"runaway\""));
    let down = bench.tahti(&["down"]).output().unwrap();
    assert_eq!(down.status.code(), Some(3), "{}", String::from_utf8_lossy(&down.stdout));
    assert_eq!(machine(), bench.before);
}

#[test]
fn only_a_process_itself_reports_its_readiness_and_heartbeats() {
    // Every user may run perl.
    let say = "socket(S, PF_UNIX, SOCK_DGRAM, 0); sub say_it { send(S, $_[1], 0, sockaddr_un($_[0])) or die $! }";
    let script = format!(
        "{say} say_it($ENV{{NOTIFY_SOCKET}}, q(READY=1)); while (1) {{ say_it($ENV{{NOTIFY_SOCKET}}, q(WATCHDOG=1)); sleep 1 }}"
    );
    let keys = "user = \"nobody\"\nready = { notify = true, within = \"30s\" }\nheartbeat = { within = \"10s\" }";
    let process =
        format!("[[process]]\nname = \"a\"\ncommand = [\"perl\", \"-MSocket\", \"-e\", '''{script}''']\n{keys}\n");
    let bench = Bench::new("root-user", &process);
    bench.ok(&["up", ".", "--detach"]);
    let before = bench.process("a");
    assert_eq!(before["state"], "running", "{}", bench.log());
    // Other users may neither send life signs for it nor read its files.
    let folder = bench.dir.join("run/p");
    let run_as = |uid: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups"]).args(words);
        command.output().unwrap().status.success()
    };
    let foreign = |words: &[&str]| run_as("65532", words);
    let socket = folder.join("keep/a/notify").display().to_string();
    let speak = ["perl", "-MSocket", "-e", &format!("{say} say_it($ARGV[0], q(X=1))"), &socket];
    assert!(run_as("65534", &speak) && !foreign(&speak));
    for name in ["", "keep", "log", "log/a.log", "evidence", "state.json", "lock", "keep/a/spec.json"] {
        assert!(!foreign(&["cat", &folder.join(name).display().to_string()]), "{name}");
        assert!(!foreign(&["ls", &folder.join(name).join(".").display().to_string()]), "{name}");
    }
    assert_eq!(bench.process("a")["pid"], before["pid"]);
    assert!(bench.ok(&["down"]).contains("good"));
}

#[test]
fn a_full_disk_costs_log_lines_but_neither_processes_nor_their_state() {
    let processes = harness::plant::sh("a", "touch ready; sleep 1000", "ready = { file = \"ready\", within = \"5s\" }")
        + &harness::plant::sh("b", "sleep 1000", "restart = { backoff = \"0s\" }");
    let bench = Bench::new("root-full", &processes);
    let run = bench.dir.join("small");
    fs::create_dir(&run).unwrap();
    // A separate mount namespace: the file system is removed when the commands end.
    let script = r#"
        set -e
        mount -t tmpfs -o size=1m none "$TAHTI_RUN"
        "$TAHTI" up . --detach
        supervisor=$("$TAHTI" ps p --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["supervisor"])')
        cat /dev/zero > "$TAHTI_RUN/full" || true
        "$TAHTI" restart b
        "$TAHTI" signal KILL b
        until "$TAHTI" ps p --json > before && python3 -c '
import json
b = json.load(open("before"))[0]["processes"][1]
raise SystemExit(not (b["pid"] and b["starts"] == 3 and b["state"] == "running"))'; do sleep 0.05; done
        kill -KILL $supervisor
        while kill -0 $supervisor 2> /dev/null; do sleep 0.02; done
        "$TAHTI" up . --detach
        "$TAHTI" ps p --json > after
        "$TAHTI" down > verdict || true
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).current_dir(&bench.dir).stdin(Stdio::null());
    command.env("TAHTI_RUN", &run).env("TAHTI", env!("CARGO_BIN_EXE_tahti")).env("TAHTI_SPARE", "1");
    let said = text(&harness::process::finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()));
    let read = |name: &str| -> serde_json::Value {
        let text = fs::read_to_string(bench.dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}: {said}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}: {said}"))
    };
    let (before, after) = (read("before"), read("after"));
    for (before, after) in [0, 1].map(|at| (&before[0]["processes"][at], &after[0]["processes"][at])) {
        for key in ["pid", "keeper", "started", "starts", "restarts", "ended", "state"] {
            assert_eq!(before[key], after[key], "{key}: {said}");
        }
    }
    assert!(fs::read_to_string(bench.dir.join("verdict")).unwrap().contains("b                down"), "{said}");
}

#[test]
fn a_full_run_folder_is_an_error_before_anything_starts() {
    let bench =
        Shielded::new("room", "[[process]]\nname = \"a\"\ncommand = [\"/bin/sh\", \"-c\", \"touch started\"]\n");
    let run = bench.dir.join("small");
    fs::create_dir(&run).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=16k none {run} && TAHTI_RUN={run} exec {tahti} up .",
        run = run.display(),
        tahti = env!("CARGO_BIN_EXE_tahti")
    );
    // A separate mount namespace: the file system is removed when the command ends.
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(&bench.dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no room in"), "{said}");
    assert!(!bench.dir.join("started").exists());
    assert_eq!(machine(), bench.before);
}

#[test]
fn processes_receive_the_list_of_users_of_their_plant_to_trust() {
    let processes = harness::plant::sh("theirs", "sleep 60", "user = \"nobody\"")
        + &harness::plant::sh("ours", "echo peers=$TAHTI_PEERS; exec sleep 60", "");
    let bench = Bench::new("root-peers", &processes);
    bench.ok(&["up", ".", "--detach"]);
    bench.until("reported", || bench.ok(&["logs", "ours"]).contains("peers=65534"));
    bench.ok(&["down"]);
}
