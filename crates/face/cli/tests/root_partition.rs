//! Partitions: hostile processes within real control groups of this machine, and a process outside.

use harness::machine::last_cpu;
use harness::plant::{Bench, sh};
use harness::process::{kill, text};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Serialises the tests: each checks for leftovers on the whole machine.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    last_cpu();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command with its supervisor killed at its first write, then at its second, and so on, until it completes.
/// Runs `after` after each death. Returns the number of deaths.
fn killed_at_each_write(mut run: impl FnMut(&str) -> Output, mut after: impl FnMut(u32)) -> u32 {
    for write in 1.. {
        let output = run(&write.to_string());
        if output.status.code().is_some() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return write - 1;
        }
        after(write);
    }
    unreachable!("it ends within the range of the numbers")
}

/// Leftovers of partitions, except the journal.
fn left(bench: &Bench) -> Vec<PathBuf> {
    let text = fs::read_to_string(bench.dir.join("run/p/partitions.json")).unwrap_or_default();
    assert_eq!(text, "", "the journal is removed with the last directory");
    left_dirs()
}

/// Control group directories with the name prefix of this run, in all hierarchies.
fn left_dirs() -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>, depth: usize) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with("tahti-p.") {
                    found.push(path.clone());
                }
                below(&path, found, depth - 1);
            }
        }
    }
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), &mut found, 6);
    found
}

const PARTITION: &str = "[[partition]]\nname = \"hmi\"\n";

#[test]
fn a_fork_bomb_and_memory_and_cpu_hogs_stay_within_their_partition() {
    let _turn = turn();
    let bounds =
        format!("{PARTITION}cpu_max = \"20%/50ms\"\ncpu_weight = 10\nmemory_max = \"48MiB\"\ntasks_max = 24\n");
    let inside = "partition = \"hmi\"\nrestart = { policy = \"never\" }";
    // It never ends by itself: a refused fork is retried.
    let bomb = "b() { while :; do (sleep 1000) & sleep 0.02; done; }; b 2>/dev/null & b 2>/dev/null & wait";
    // If the bound is not effective, the limit on the address space is.
    let memory = format!("{inside}\nlimits = {{ memory = \"1GiB\" }}");
    let plant = bounds
        + &sh("bomb", bomb, inside)
        + &sh("memory", "sleep 0.3; while :; do tail /dev/zero; done 2>/dev/null", &memory)
        + &sh("cpu", "while :; do :; done", inside)
        + &sh("free", "while :; do sleep 0.05; date +%s%N; done", "");
    let bench = Bench::new("root-partition", &plant);
    bench.ok(&["check", "."]);
    bench.ok(&["up", ".", "--detach"]);
    let hmi = || bench.status()["partitions"][0].clone();
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    bench.until("all three bounds were reached", || {
        let hmi = hmi();
        number(&hmi["cpu"]["throttled"]) > 10 && number(&hmi["memory"]["met"]) > 0 && number(&hmi["tasks"]["met"]) > 0
    });
    let found = hmi();
    assert_eq!((&found["memory"]["max"], &found["tasks"]["max"]), (&(48 << 20).into(), &24.into()), "{found}");
    assert!(number(&found["memory"]["used"]) <= 48 << 20 && number(&found["tasks"]["used"]) <= 24, "{found}");
    assert_eq!(found["processes"], serde_json::json!(["bomb", "memory", "cpu"]));
    assert_eq!(found["drift"], serde_json::json!([]));
    // Independent of other load: time sharing got at most a fifth of a CPU, plus the rest of one period.
    let (used, up) = (&found["cpu"]["used"], bench.status());
    let span = up["now"].as_u64().unwrap() - up["since"].as_u64().unwrap();
    let used: base::DurNs = serde_json::from_value(used.clone()).expect("counted");
    assert!(used.0 as f64 <= 0.2 * span as f64 + 100e6, "{used} of {span}");
    let free = bench.process("free");
    assert_eq!(free["state"], "running", "{free}");
    let said = || fs::read_to_string(bench.dir.join("run/p/log/free.log")).unwrap().lines().count();
    let before = said();
    bench.until("the outside process continues", || said() > before + 3);
    let shown = bench.ok(&["ps"]);
    assert!(shown.contains("partition hmi (bomb, memory, cpu)") && shown.contains("10ms of each 50ms"), "{shown}");
    bench.run(&["down"]);
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
}

/// The whole disk that holds this folder, if it is on a disk.
fn disk(folder: &Path) -> Option<String> {
    let device = fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if place.join("partition").exists() {
        place.pop();
    }
    let path = format!("/dev/{}", place.file_name()?.to_str()?);
    Path::new(&path).exists().then_some(path)
}

#[test]
fn a_disk_hog_writes_no_faster_than_its_bound() {
    let _turn = turn();
    let Some(disk) = disk(&std::env::temp_dir()) else { return eprintln!("no disk to write to: not tried") };
    let bounds = format!("{PARTITION}io_max = [{{ device = \"{disk}\", write = \"10MiB\" }}]\n");
    let script = "exec dd if=/dev/zero of=written bs=1M count=20 oflag=direct";
    let inside = "partition = \"hmi\"\nrestart = { policy = \"never\" }";
    let bench = Bench::new("root-partition-disk", &(bounds + &sh("hog", script, inside) + &sh("a", "sleep 1000", "")));
    bench.ok(&["up", ".", "--detach"]);
    let log = || fs::read_to_string(bench.dir.join("run/p/log/hog.log")).unwrap_or_default();
    bench.until("written", || log().contains(" copied, "));
    let log = log();
    let seconds = log.split(" copied, ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok()).unwrap();
    // 20 MiB at 10 MiB/s. The first and the last MiB may pass without delay.
    assert!(seconds > 1.5, "{log}");
    bench.run(&["down"]);
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
}

/// Runs this test again in a separate network namespace, where it does not affect other traffic. Returns whether this
/// is the inner run.
fn within_own_network(test: &str) -> bool {
    const MARK: &str = "TAHTI_TEST_OWN_NETWORK";
    let _turn = turn();
    if std::env::var_os(MARK).is_some() {
        let script = "ip link set lo up; ip link add tahti0 type veth peer name tahti1; ip link set tahti1 up; ip link set tahti0 up; \
                      ip addr add 10.9.0.1/24 dev tahti0; ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev tahti0 nud permanent";
        let output = Command::new("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let again = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args([test, "--exact", "--nocapture"])
        .env(MARK, "1")
        .output();
    let output = again.expect("util-linux has unshare");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// All traffic control settings of the test's device.
fn traffic() -> String {
    let run = |what: &str| Command::new("tc").args([what, "show", "dev", "tahti0"]).output().unwrap();
    ["qdisc", "class"].map(|what| String::from_utf8(run(what).stdout).unwrap()).concat()
}

/// Bytes that have left the test's device so far.
fn arrived() -> u64 {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("tahti1:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A flood of datagrams through that device.
const FLOOD: &str = "exec bash -c \"exec 3>/dev/udp/10.9.0.2/9; exec dd if=/dev/zero bs=1400 >&3\"";
const NETWORK: &str =
    "network = { device = \"tahti0\", link = \"200Mbit\", rate = \"4Mbit\", max = \"8Mbit\", delay = \"20ms\" }\n";

#[test]
fn a_network_flood_stays_within_its_class_and_the_device_is_restored() {
    if !within_own_network("a_network_flood_stays_within_its_class_and_the_device_is_restored") {
        return;
    }
    let before = traffic();
    let plant = |inside: &str| {
        format!("{PARTITION}{NETWORK}tasks_max = 20\n")
            + &sh("a", "sleep 1000", "partition = \"hmi\"")
            + &sh("flood", FLOOD, inside)
    };
    let bench = Bench::new("root-partition-net", &plant("partition = \"hmi\""));
    bench.ok(&["check", "."]);
    bench.ok(&["up", ".", "--detach"]);
    let ordered = traffic();
    assert!(
        ordered.contains("qdisc htb 7a68: root") && ordered.contains("class htb 7a68:10 parent 7a68:1"),
        "{ordered}"
    );
    assert!(
        ordered.contains("rate 4Mbit ceil 8Mbit") && ordered.contains("qdisc bfifo 7a78: parent 7a68:10 limit 10000b"),
        "{ordered}"
    );
    // Independent of delays of the test itself: both ends of the span are read within it.
    let rate = |span: Duration| {
        let (first, began) = (arrived(), Instant::now());
        std::thread::sleep(span);
        let (more, took) = (arrived() - first, began.elapsed());
        more as f64 * 8.0 / took.as_secs_f64() / 1e6
    };
    bench.until("the flood flows", || arrived() > 100_000);
    let inside = rate(Duration::from_secs(2));
    // The initial content of the token bucket is added: 64 KiB and one period's worth.
    assert!(inside < 8.0 * 1.1 + 0.4, "{inside} Mbit/s of 8");
    let shown = bench.ok(&["ps"]);
    assert!(shown.contains("network tahti0: guaranteed 4Mbit, at most 8Mbit, sent "), "{shown}");
    // A change by another program is reported.
    let change = [
        "class", "change", "dev", "tahti0", "parent", "7a68:1", "classid", "7a68:10", "htb", "rate", "4mbit", "ceil",
        "9mbit",
    ];
    assert!(Command::new("tc").args(change).status().unwrap().success());
    bench.until("reported", || {
        bench.log().contains("another program has written a bound: traffic of tahti0, class 7a68:10 reads")
    });
    bench.run(&["down"]);
    assert_eq!(traffic(), before);
    // The same flood from outside the partition is limited by the link only.
    bench.write(&plant(""));
    bench.ok(&["up", ".", "--detach"]);
    let outside = arrived();
    bench.until("much more than the partition's bound", || arrived() > outside + 4_000_000);
    bench.ok(&["down"]);
    assert_eq!(traffic(), before);
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
}

#[test]
fn a_kill_at_any_network_write_leaves_nothing_and_a_foreign_discipline_is_refused() {
    if !within_own_network("a_kill_at_any_network_write_leaves_nothing_and_a_foreign_discipline_is_refused") {
        return;
    }
    let before = traffic();
    let bench = Bench::new(
        "root-partition-netkill",
        &(format!("{PARTITION}{NETWORK}") + &sh("a", "sleep 1000", "partition = \"hmi\"")),
    );
    let up =
        |write: &str| bench.tahti(&["up", ".", "--for", "300ms"]).env("TAHTI_DIE_AT_WRITE", write).output().unwrap();
    let died = killed_at_each_write(up, |write| {
        bench.ok(&["up", ".", "--for", "200ms"]);
        assert_eq!(traffic(), before, "killed at write {write}");
        assert_eq!(left(&bench), [] as [PathBuf; 0], "killed at write {write}");
    });
    // One directory, five settings of the device, the sender, and at least two journal entries; the same number on
    // the way back.
    assert!(died >= 12, "{died}");
    let theirs = [
        "qdisc", "add", "dev", "tahti0", "root", "handle", "1:", "tbf", "rate", "1mbit", "burst", "10k", "latency",
        "50ms",
    ];
    assert!(Command::new("tc").args(theirs).status().unwrap().success());
    let ordered = traffic();
    for command in ["check", "up"] {
        let refused = bench.run(&[command, "."]);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
        assert!(
            !refused.status.success()
                && text.contains("another program orders the traffic of ")
                && text.contains("its first discipline is tbf 1:"),
            "{text}"
        );
    }
    assert_eq!(traffic(), ordered);
    bench.write(
        &(format!("{PARTITION}{}", NETWORK.replace("tahti0", "tahti9"))
            + &sh("a", "sleep 1000", "partition = \"hmi\"")),
    );
    let refused = bench.run(&["check", "."]);
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(!refused.status.success() && text.contains("tahti9 is no network device"), "{text}");
}

#[test]
fn bounds_change_in_place_by_reload_and_empty_partitions_are_added_and_removed() {
    let _turn = turn();
    let plant =
        |first: &str, more: &str| format!("{PARTITION}{first}\n{more}") + &sh("a", "sleep 1000", "partition = \"hmi\"");
    let bench = Bench::new("root-partition-reload", &plant("cpu_max = \"50%\"\ntasks_max = 20", ""));
    bench.ok(&["up", ".", "--detach"]);
    let pid = bench.pid("a");
    let hmi = |at: usize| bench.status()["partitions"][at].clone();
    // Bounds are raised and lowered while the process runs. A bound that is removed from the file is no longer
    // enforced.
    bench.write(&plant("cpu_max = \"30%/50ms\"\ntasks_max = 40", ""));
    let dry = bench.ok(&["reload", "--dry-run"]);
    assert!(dry.contains("~ partition hmi: limits change in place (cpu_max, tasks_max)"), "{dry}");
    assert_eq!(hmi(0)["tasks"]["max"], 20, "no change yet");
    bench.ok(&["reload"]);
    assert_eq!((hmi(0)["tasks"]["max"].clone(), hmi(0)["cpu"]["max"].clone()), (40.into(), serde_json::json!("15ms")));
    bench.write(&plant("tasks_max = 10", ""));
    bench.ok(&["reload"]);
    assert_eq!((hmi(0)["tasks"]["max"].clone(), hmi(0)["drift"].clone()), (10.into(), serde_json::json!([])));
    assert_eq!(bench.pid("a"), pid, "it continues");
    // Changes by another program are reverted.
    let journal = || fs::read_to_string(bench.dir.join("run/p/partitions.json")).unwrap();
    let dirs: Vec<PathBuf> = left_dirs();
    let pids = dirs.iter().find(|dir| dir.join("pids.max").exists()).unwrap().join("pids.max");
    fs::write(&pids, "77").unwrap();
    assert!(bench.ok(&["reload"]).contains("1 bounds restored"), "{}", bench.log());
    assert_eq!(fs::read_to_string(&pids).unwrap().trim(), "10");
    // A second partition and its process, then back to the first alone.
    let second =
        "[[partition]]\nname = \"two\"\ntasks_max = 5\n".to_owned() + &sh("b", "sleep 1000", "partition = \"two\"");
    bench.write(&plant("tasks_max = 10", &second));
    assert!(bench.ok(&["reload"]).contains("+ partition two: added"));
    bench.until("b runs in it", || hmi(1)["tasks"]["used"].as_u64() > Some(0));
    bench.write(&plant("tasks_max = 10", ""));
    let refused = bench.run(&["reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("partition \"two\" is to be removed, but has processes"),
        "{text}"
    );
    bench.ok(&["stop", "b"]);
    bench.ok(&["reload"]);
    assert!(
        !journal().contains("p.two") && bench.status()["partitions"].as_array().unwrap().len() == 1,
        "{}",
        journal()
    );
    assert_eq!(bench.pid("a"), pid);
    bench.ok(&["down"]);
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
}

#[test]
fn a_kill_at_any_write_leaves_nothing_after_the_next_run_of_the_plant() {
    let _turn = turn();
    let bounds = format!("{PARTITION}cpu_max = \"50%\"\nmemory_max = \"64MiB\"\ntasks_max = 20\n");
    let plant = bounds + &sh("a", "sleep 1000", "partition = \"hmi\"\nmemory_max = \"32MiB\"");
    let bench = Bench::new("root-partition-kill", &plant);
    let up =
        |write: &str| bench.tahti(&["up", ".", "--for", "300ms"]).env("TAHTI_DIE_AT_WRITE", write).output().unwrap();
    let died = killed_at_each_write(up, |write| {
        bench.ok(&["up", ".", "--for", "200ms"]);
        assert_eq!(left(&bench), [] as [PathBuf; 0], "killed at write {write}");
    });
    // Four directories, four bounds, at least two journal entries; the same number on the way back.
    assert!(died >= 14, "{died}");
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
}

#[test]
fn an_overwritten_bound_is_reported_and_a_foreign_directory_is_refused() {
    let _turn = turn();
    let bounds = format!("{PARTITION}tasks_max = 20\n");
    let plant = bounds + &sh("a", "sleep 1000", "partition = \"hmi\"");
    let bench = Bench::new("root-partition-drift", &plant);
    bench.ok(&["up", ".", "--detach"]);
    let journal = fs::read_to_string(bench.dir.join("run/p/partitions.json")).unwrap();
    let journal: serde_json::Value = serde_json::from_str(&journal).unwrap();
    let dir = journal["rounds"][0][0]["target"]["path"].as_str().unwrap().to_owned();
    let members = fs::read_to_string(format!("{dir}/cgroup.procs")).unwrap();
    assert!(members.lines().any(|pid| pid == bench.pid("a").to_string()), "{dir}: {members}");
    fs::write(format!("{dir}/pids.max"), "30").unwrap();
    bench.until("reported", || bench.log().contains("another program has written a bound"));
    assert!(bench.ok(&["ps"]).contains("pids.max reads 30, expected 20"));
    // After its supervisor is killed and continued, the process is in the same group.
    let pid = bench.pid("a");
    kill(bench.supervisor(), "KILL");
    bench.until("continued", || bench.run(&["up", ".", "--detach"]).status.success());
    assert_eq!(bench.pid("a"), pid);
    bench.until("bounded again", || bench.status()["partitions"][0]["tasks"]["max"] == 20);
    bench.run(&["down"]);
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
    fs::create_dir(&dir).unwrap();
    let refused = bench.run(&["up", "."]);
    fs::remove_dir(&dir).unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("exists, but has no journal"), "{text}");
    assert!(bench.ok(&["up", ".", "--for", "100ms"]).contains("good"));
}

#[test]
fn read_only_control_groups_of_a_container_are_reported_with_a_remedy_before_any_write() {
    let _turn = turn();
    let plant = format!("{PARTITION}tasks_max = 20\n") + &sh("a", "touch started", "partition = \"hmi\"");
    let bench = Bench::new("root-partition-container", &plant);
    // A separate mount namespace, in which control groups are mounted as in containers.
    let script = r#"
        while read -r _ at kind _; do
            case $kind in cgroup|cgroup2) mount -o bind,remount,ro "$at" || exit 9;; esac
        done < /proc/self/mounts
        "$TAHTI" check .; "$TAHTI" up . --for 100ms
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).env("TAHTI", env!("CARGO_BIN_EXE_tahti"));
    let output = command.env("TAHTI_RUN", bench.dir.join("run")).current_dir(&bench.dir).output().unwrap();
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert_eq!(said.matches("is mounted read-only, as container runtimes mount control groups").count(), 2, "{said}");
    assert!(!bench.dir.join("started").exists());
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
    assert!(bench.ok(&["up", ".", "--for", "100ms"]).contains("good"));
}

#[test]
fn a_kill_at_any_write_of_a_reload_is_continued_by_the_next_supervisor() {
    let _turn = turn();
    let plant = |bounds: &str, more: &str| {
        format!("{PARTITION}{bounds}\n{more}") + &sh("a", "sleep 1000", "partition = \"hmi\"")
    };
    let first = plant("cpu_max = \"50%\"\ntasks_max = 20", "");
    let second = plant("tasks_max = 10", "[[partition]]\nname = \"two\"\ntasks_max = 5\n");
    let bench = Bench::new("root-partition-reload-kill", &first);
    let mut in_reload = 0;
    for write in 1.. {
        bench.write(&first);
        let mut up = bench.tahti(&["up", ".", "--detach"]);
        let begun = up.env("TAHTI_DIE_AT_WRITE", write.to_string()).output().unwrap().status.success();
        if begun {
            let pid = bench.pid("a");
            let supervisor = bench.supervisor();
            bench.write(&second);
            if bench.run(&["reload"]).status.success() {
                break;
            }
            in_reload += 1;
            bench.until("the supervisor has ended", || !harness::process::alive(supervisor));
            bench.ok(&["up", ".", "--detach"]);
            assert_eq!(bench.pid("a"), pid, "the process continues, killed at write {write}");
            let partitions = bench.status()["partitions"].clone();
            let bound = |at: usize| partitions[at]["tasks"]["max"].as_u64();
            assert_eq!((bound(0), bound(1)), (Some(10), Some(5)), "killed at write {write}: {partitions}");
            assert!(
                partitions.as_array().unwrap().iter().all(|one| one["drift"] == serde_json::json!([])),
                "{partitions}"
            );
            bench.ok(&["down"]);
        } else {
            // The other test covers the writes before the reload.
            bench.ok(&["up", ".", "--for", "100ms"]);
        }
        assert_eq!(left(&bench), [] as [PathBuf; 0], "killed at write {write}");
    }
    // The write that triggers the kill may be one during `down`.
    bench.run(&["down"]);
    bench.ok(&["up", ".", "--for", "100ms"]);
    assert_eq!(left(&bench), [] as [PathBuf; 0]);
    // A directory and a bound of the new partition, two bounds of the other, and their journal entries.
    assert!(in_reload >= 4, "{in_reload}");
}
