//! The shield on the real machine, by the real binary: applied, verified, killed at every write, released.
//!
//! Every task that existed before the test is spared. A test shields only tasks that it started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, thread, time::Duration};

/// The last online CPU, because most interrupts go to the first ones.
fn shielded_cpu() -> String {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let last = online.trim().rsplit([',', '-']).next().unwrap().to_owned();
    assert_ne!(last, "0", "a shield needs a second CPU; this machine has CPUs {}", online.trim());
    last
}

/// A test's run directory, and the tasks that it spares.
struct Bench {
    run: PathBuf,
    spare: String,
    cpu: String,
    /// Restored after the shield is released.
    unusual: Option<Unusual>,
    _alone: MutexGuard<'static, ()>,
}

/// Serialises the tests: they change one machine, and a parallel test would restore the values of the other.
static MACHINE: Mutex<()> = Mutex::new(());

impl Bench {
    fn new(name: &str) -> Self {
        let alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(rustix::process::geteuid().is_root(), "this test changes the machine and needs root");
        let run = std::env::temp_dir().join(format!("tahti-root-shield-{name}-{}", std::process::id()));
        harness::machine::wait_for_others(&run);
        let own = std::process::id();
        let spare: Vec<String> =
            user_processes().into_iter().filter(|pid| *pid != own).map(|it| format!("{it}+")).collect();
        Self { run, spare: spare.join(","), cpu: shielded_cpu(), unusual: None, _alone: alone }
    }

    /// A bench on a machine with settings that differ from all defaults.
    fn unusual(name: &str) -> Self {
        let mut bench = Self::new(name);
        bench.unusual = Some(Unusual::set(&bench.cpu));
        bench
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = harness::tahti();
        command.arg("shield").args(words).env("TAHTI_RUN", &self.run).env("TAHTI_SPARE", &self.spare);
        command.stdin(Stdio::null());
        command
    }

    fn tahti(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that must succeed.
    fn done(&self, words: &[&str]) -> String {
        let output = self.tahti(words);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "tahti shield {words:?}: {}\n{out}\n{err}", output.status);
        out.into_owned()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The machine is restored also after a failure. Errors are ignored in favour of the test's own message.
        let _ = self.tahti(&["release", "--force"]);
        let _ = fs::remove_dir_all(&self.run);
    }
}

fn is_kernel(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok().is_none_or(|stat| {
        let flags = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(6)?.parse::<u64>().ok());
        flags.is_none_or(|flags| flags & 0x20_0000 != 0)
    })
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn user_processes() -> Vec<u32> {
    pids().into_iter().filter(|pid| !is_kernel(*pid)).collect()
}

/// A task that a test may move, killed on drop.
struct Sleeper(Child);

impl Sleeper {
    fn new(cpus: Option<&str>) -> Self {
        let child = match cpus {
            None => Command::new("sleep").arg("600").spawn(),
            Some(cpus) => Command::new("taskset").args(["-c", cpus, "sleep", "600"]).spawn(),
        };
        let sleeper = Self(child.unwrap());
        // taskset executes sleep only after it has set the mask.
        let comm = format!("/proc/{}/comm", sleeper.0.id());
        while fs::read_to_string(&comm).unwrap().trim() != "sleep" {
            thread::yield_now();
        }
        sleeper
    }

    fn cpus(&self) -> String {
        field(self.0.id(), "Cpus_allowed_list")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// Settings that differ from all defaults, restored on drop.
struct Unusual(Vec<(String, String)>);

impl Unusual {
    fn set(cpu: &str) -> Self {
        let mut old = Vec::new();
        for (path, value) in [
            ("/proc/sys/vm/stat_interval".to_owned(), "3"),
            ("/proc/sys/vm/swappiness".to_owned(), "47"),
            ("/proc/sys/kernel/watchdog_cpumask".to_owned(), cpu),
            (format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), "5000"),
            ("/sys/devices/virtual/workqueue/writeback/cpumask".to_owned(), "2"),
            ("/sys/block/vda/queue/rq_affinity".to_owned(), "0"),
        ] {
            let Ok(before) = fs::read_to_string(&path) else { continue };
            fs::write(&path, value).unwrap();
            old.push((path, before.trim().to_owned()));
        }
        Self(old)
    }
}

impl Drop for Unusual {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            fs::write(path, value).unwrap();
        }
    }
}

/// Everything that a shield may change, read without tahti: the settings in its table, and some that the table omits.
fn state(sleepers: &[&Sleeper]) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    let mut file = |path: &Path| {
        if let Ok(text) = fs::read_to_string(path) {
            state.insert(path.display().to_string(), text);
        }
    };
    for folder in ["/proc/irq", "/sys/devices/virtual/workqueue", "/sys/class/net", "/sys/block"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            ["smp_affinity_list", "cpumask", "queues/rx-0/rps_cpus", "queues/tx-0/xps_cpus", "queue/rq_affinity"]
                .iter()
                .for_each(|name| file(&path.join(name)));
        }
    }
    for path in ["/proc/sys/kernel/sched_rt_runtime_us", "/sys/module/pcie_aspm/parameters/policy"] {
        file(Path::new(path));
    }
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
    for pattern in host::knob::patterns(&cpus) {
        paths(Path::new("/"), &pattern.path).iter().for_each(|path| file(path));
    }
    cpusets(Path::new("/sys/fs/cgroup/cpuset"), &mut state);
    let kernel = pids().into_iter().filter(|pid| is_kernel(*pid));
    // Excludes kernel workers, which come and go, and interrupt threads, which follow their interrupts.
    let kernel =
        kernel.filter(|pid| !field(*pid, "Name").starts_with("kworker") && !field(*pid, "Name").starts_with("irq/"));
    for pid in kernel.chain(sleepers.iter().map(|sleeper| sleeper.0.id())) {
        let cpuset = fs::read_to_string(format!("/proc/{pid}/cpuset")).unwrap_or_default();
        let name = field(pid, "Name");
        if !name.is_empty() {
            state
                .insert(format!("task {pid} {name}"), format!("{} {}", cpuset.trim(), field(pid, "Cpus_allowed_list")));
        }
    }
    state
}

/// The files below a folder that match a path, in which `*` matches any single name.
fn paths(below: &Path, path: &str) -> Vec<PathBuf> {
    let (name, rest) =
        path.trim_start_matches('/').split_once('/').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let name = name.trim_start_matches('/');
    let found = match name.contains('*') {
        false => vec![below.join(name)],
        true => {
            let entries = fs::read_dir(below).into_iter().flatten().flatten().map(|entry| entry.path());
            entries
                .filter(|entry| entry.file_name().is_some_and(|it| host::knob::is_match(name, &it.to_string_lossy())))
                .collect()
        }
    };
    match rest {
        None => found,
        Some(rest) => found.iter().flat_map(|folder| paths(folder, rest)).collect(),
    }
}

/// Every cpuset with its files.
fn cpusets(dir: &Path, state: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cpusets(&path, state);
        } else if ["cpuset.cpus", "cpuset.mems", "cpuset.cpu_exclusive", "cpuset.sched_load_balance"]
            .iter()
            .any(|name| path.ends_with(name))
        {
            state.insert(path.display().to_string(), fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

fn assert_same(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>, when: &str) {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    // Kernel threads come and go: one that exists only before or only after is ignored.
    let gone = |key: &str| key.starts_with("task ") && (!before.contains_key(key) || !after.contains_key(key));
    let differs: Vec<_> = keys
        .into_iter()
        .filter(|key| before.get(*key) != after.get(*key) && !gone(key))
        .map(|key| (key, before.get(key), after.get(key)))
        .collect();
    assert!(differs.is_empty(), "{when}: {differs:#?}");
}

#[test]
fn a_shield_is_applied_verified_and_released_without_a_trace() {
    let bench = Bench::unusual("whole");
    let (plain, pinned) = (Sleeper::new(None), Sleeper::new(Some(&bench.cpu)));
    let before = state(&[&plain, &pinned]);
    bench.done(&["apply", "--cpus", &bench.cpu]);
    assert!(!plain.cpus().split([',', '-']).any(|cpu| cpu == bench.cpu), "{}", plain.cpus());
    assert_ne!(pinned.cpus(), bench.cpu);
    assert!(bench.done(&["verify"]).contains("are as they were written"));
    for device in fs::read_dir("/sys/block").unwrap().flatten() {
        // Some devices have no request queue.
        let completes = fs::read_to_string(device.path().join("queue/rq_affinity")).unwrap_or("2".to_owned());
        assert_eq!(completes.trim(), "2", "{:?}", device.path());
    }
    assert!(bench.done(&["apply"]).contains("are shielded already"));
    let reached = String::from_utf8(bench.tahti(&["status", "--window", "200ms"]).stdout).unwrap();
    assert!(reached.contains(&format!("Activity on CPU {}:", bench.cpu)), "{reached}");
    let other = bench.tahti(&["apply", "--cpus", "0"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("is active already"), "{other:?}");
    bench.done(&["release"]);
    assert_same(&before, &state(&[&plain, &pinned]), "after the release");
    assert!(bench.done(&["release"]).contains("no shield is active"));
}

#[test]
fn empty_groups_that_a_killed_shield_left_without_a_journal_are_removed_first() {
    let bench = Bench::new("orphans");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mounted = |kind: &str, option: &str| {
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut found = fields.filter(|fields| fields[2] == kind && fields[3].split(',').any(|one| one == option));
        found.next().map(|fields| PathBuf::from(fields[1]))
    };
    let (top, names): (_, &[&[&str]]) = match mounted("cgroup", "cpuset") {
        Some(top) => (top, &[&["tahti.housekeeping"], &["tahti.shield"], &["tahti.housekeeping", "tahti.shield"]]),
        None => (mounted("cgroup2", "rw").unwrap(), &[&["tahti.shield"], &["tahti.shield", "tahti.shield/rt"]]),
    };
    for names in names {
        names.iter().for_each(|name| fs::create_dir(top.join(name)).unwrap());
        let said = bench.done(&["apply", "--cpus", &bench.cpu]);
        assert!(said.contains("of an earlier shield without a journal"), "{names:?}: {said}");
        bench.done(&["release"]);
        assert!(!names.iter().any(|name| top.join(name).exists()), "{names:?}");
    }
}

#[test]
fn a_task_without_a_mask_follows_its_cpuset_again_after_the_release() {
    let mount = Path::new("/sys/fs/cgroup/cpuset");
    assert!(mount.join("tasks").exists(), "this test needs the cpuset controller of cgroup v1 at {}", mount.display());
    let bench = Bench::new("follow");
    let task = Sleeper::new(None);
    let all = task.cpus();
    bench.done(&["apply", "--cpus", &bench.cpu]);
    assert_ne!(task.cpus(), all);
    bench.done(&["release"]);
    assert_eq!(task.cpus(), all);
    // A cpuset that shrinks and grows again: tasks with an explicit mask would not follow.
    let own = mount.join(format!("tahti-test-{}", std::process::id()));
    fs::create_dir(&own).unwrap();
    let follow = || -> std::io::Result<(String, String)> {
        fs::write(own.join("cpuset.mems"), fs::read_to_string(mount.join("cpuset.mems"))?.trim())?;
        fs::write(own.join("cpuset.cpus"), "0")?;
        fs::write(own.join("tasks"), task.0.id().to_string())?;
        let narrow = task.cpus();
        fs::write(own.join("cpuset.cpus"), &all)?;
        Ok((narrow, task.cpus()))
    };
    let found = follow();
    fs::write(mount.join("tasks"), task.0.id().to_string()).unwrap();
    fs::remove_dir(&own).unwrap();
    assert_eq!(found.unwrap(), ("0".to_owned(), all));
}

#[test]
fn a_kill_at_any_write_loses_nothing() {
    let bench = Bench::unusual("kill");
    let (plain, pinned) = (Sleeper::new(None), Sleeper::new(Some(&bench.cpu)));
    let before = state(&[&plain, &pinned]);
    let killed = |words: &[&str], write: u32| {
        let output = bench.command(words).env("TAHTI_DIE_AT_WRITE", write.to_string()).output().unwrap();
        !output.status.success() && output.status.code().is_none()
    };
    let mut writes = 0;
    for write in 1.. {
        let dead = killed(&["apply", "--cpus", &bench.cpu], write);
        if write % 3 == 0 {
            bench.done(&["apply", "--cpus", &bench.cpu]);
        }
        bench.done(&["release"]);
        assert_same(&before, &state(&[&plain, &pinned]), &format!("apply killed at write {write}"));
        if !dead {
            break;
        }
        writes = write;
    }
    assert!(writes > 20, "only {writes} writes were killed");
    for write in 1.. {
        bench.done(&["apply", "--cpus", &bench.cpu]);
        let dead = killed(&["release"], write);
        bench.done(&["release"]);
        assert_same(&before, &state(&[&plain, &pinned]), &format!("release killed at write {write}"));
        if !dead {
            break;
        }
    }
}

#[test]
fn a_value_changed_by_another_program_is_kept_and_sets_the_exit_code() {
    let bench = Bench::new("foreign");
    let before = state(&[]);
    bench.done(&["apply", "--cpus", &bench.cpu]);
    fs::write("/proc/sys/vm/stat_interval", "7").unwrap();
    assert_eq!(bench.tahti(&["verify"]).status.code(), Some(1));
    let release = bench.tahti(&["release"]);
    let out = String::from_utf8_lossy(&release.stdout);
    assert_eq!(release.status.code(), Some(1), "{out}");
    assert!(out.contains("/proc/sys/vm/stat_interval: was 1, we wrote 10, found 7"), "{out}");
    // The shield is no longer in effect, and the remaining values are reported.
    assert_eq!(bench.tahti(&["verify"]).status.code(), Some(2));
    let status = String::from_utf8(bench.tahti(&["status", "--window", "10ms"]).stdout).unwrap();
    let expected = format!("the shield of CPUs {} was released, but not all of its values were restored", bench.cpu);
    assert!(status.starts_with("no shield is active\n") && status.contains(&expected), "{status}");
    assert!(status.contains("stat_interval: was 1, we wrote 10, found 7"), "{status}");
    // The next shield starts from these values and restores them.
    let said = bench.done(&["apply", "--cpus", &bench.cpu]);
    assert!(said.contains("1 value that another program changed under an earlier shield"), "{said}");
    bench.done(&["release"]);
    assert_eq!(fs::read_to_string("/proc/sys/vm/stat_interval").unwrap().trim(), "7");
    fs::write("/proc/sys/vm/stat_interval", "1").unwrap();
    assert_same(&before, &state(&[]), "after the second release");
}

#[test]
fn a_shield_of_another_run_folder_is_reported_with_its_folder_and_stays() {
    let bench = Bench::new("one");
    let before = state(&[]);
    bench.done(&["apply", "--cpus", &bench.cpu]);
    let other = bench.run.join("other");
    for words in [["apply", "--cpus", "0"].as_slice(), &["release"]] {
        let refused = bench.command(words).env("TAHTI_RUN", &other).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("TAHTI_RUN={} tahti shield release", bench.run.display())), "{said}");
    }
    assert!(bench.done(&["verify"]).contains("are as they were written"));
    bench.done(&["release"]);
    assert_same(&before, &state(&[]), "after the release");
}

#[test]
fn tasks_created_under_the_shield_are_restored_like_their_parent_and_new_ones_are_repaired() {
    let bench = Bench::new("born");
    let parent = Sleeper::new(None);
    let all = parent.cpus();
    bench.done(&["apply", "--cpus", &bench.cpu]);
    // The test process itself was moved, so its new children start in the housekeeping cpuset.
    let child = Sleeper::new(None);
    assert_ne!(child.cpus(), all);
    fs::write("/sys/fs/cgroup/cpuset/tasks", child.0.id().to_string()).unwrap();
    assert_eq!(child.cpus(), all);
    let watch = bench.tahti(&["watch", "--repair", "--looks", "2", "--every", "10ms"]);
    let out = String::from_utf8_lossy(&watch.stdout);
    assert_eq!(watch.status.code(), Some(1), "{out}");
    assert!(out.contains("repaired"), "{out}");
    assert_ne!(child.cpus(), all);
    bench.done(&["release"]);
    assert_eq!((child.cpus(), parent.cpus()), (all.clone(), all));
}

#[test]
fn children_of_a_spared_process_are_moved_unless_its_descendants_are_spared() {
    let bench = Bench::new("spare");
    let script = "sleep 600 & echo $!; wait";
    let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut child).unwrap();
    let child: u32 = child.trim().parse().unwrap();
    let cpus = |pid: u32| field(pid, "Cpus_allowed_list");
    let all = cpus(child);
    let mut found = Vec::new();
    for form in ["", "+"] {
        let spare = format!("{},{}{form}", bench.spare, shell.id());
        let output = bench.command(&["apply", "--cpus", &bench.cpu]).env("TAHTI_SPARE", spare).output().unwrap();
        found.push((output.status.code(), cpus(shell.id()) == all, cpus(child) == all));
        bench.done(&["release"]);
    }
    let whole = cpus(child) == all;
    Command::new("kill").arg(child.to_string()).status().unwrap();
    shell.kill().and_then(|()| shell.wait()).unwrap();
    assert_eq!((found, whole), (vec![(Some(0), true, false), (Some(0), true, true)], true));
}

#[test]
fn an_unconfirmed_shield_is_released_automatically_and_a_confirmed_one_stays() {
    let bench = Bench::new("confirm");
    let before = state(&[]);
    bench.done(&["apply", "--cpus", &bench.cpu, "--confirm-within", "300ms"]);
    while bench.run.join("shield.json").exists() {
        thread::sleep(Duration::from_millis(20));
    }
    assert_same(&before, &state(&[]), "after the time was over");
    bench.done(&["apply", "--cpus", &bench.cpu, "--confirm-within", "400ms"]);
    assert!(bench.done(&["confirm"]).starts_with("confirmed"));
    thread::sleep(Duration::from_millis(600));
    assert!(bench.done(&["verify"]).contains("are as they were written"));
    bench.done(&["release"]);
}

/// A process of another user that calls itself irqbalance and answers endlessly, one byte at a time.
const IMPOSTOR: &str = r#"
import os, socket, time, threading
open("/proc/self/comm", "w").write("irqbalance")
s = socket.socket(socket.AF_UNIX)
s.bind("\0irqbalance%d.sock" % os.getpid())
s.listen()
print("listening", flush=True)
def dribble(c):
    while True:
        c.send(b"x")
        time.sleep(0.2)
while True:
    threading.Thread(target=dribble, args=(s.accept()[0],), daemon=True).start()
"#;

#[test]
fn only_the_irqbalance_of_root_is_trusted_and_waited_for() {
    use std::io::{BufRead, BufReader};
    let bench = Bench::new("impostor");
    let before = state(&[]);
    let mut words = vec!["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", IMPOSTOR];
    words.insert(3, "--");
    let mut impostor =
        Command::new("setpriv").args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(impostor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listening\n");
    let mut said = Vec::new();
    for words in [["apply", "--cpus", &bench.cpu].as_slice(), &["release"]] {
        let mut command = bench.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begin = std::time::Instant::now();
        while command.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(10));
        }
        let hangs = command.try_wait().unwrap().is_none();
        command.kill().unwrap();
        let output = command.wait_with_output().unwrap();
        said.push((hangs, output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    impostor.kill().and_then(|()| impostor.wait()).unwrap();
    for (hangs, code, out) in said {
        assert!(!hangs && code == Some(0) && !out.contains("irqbalance"), "{hangs} {code:?} {out}");
    }
    assert_same(&before, &state(&[]), "after the release");
}
