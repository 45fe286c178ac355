//! Starts processes on the real kernel, as root, and reads the requested settings back from the kernel.

use base::Policy;
use keep::launch::{Capability, LaunchSpec, Limit, Resource, Shortfall, Started, Terminal, start};
use std::path::PathBuf;
use sys::child::{Waited, look};
use sys::root::RootDir;

fn root() -> RootDir {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test must run as root (cargo xtask test --unprivileged leaves it out)"
    );
    RootDir::machine()
}

/// A process that is killed and reaped on drop, so also if the test fails.
struct Running(Started);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.process.signal(9);
        while matches!(look(self.0.child.pid, false), Ok(Waited::Nothing)) {
            std::thread::yield_now();
        }
    }
}

fn sleeper() -> LaunchSpec {
    let mut spec = LaunchSpec::new("sleeper", ["sleep", "20"]);
    (spec.terminal, spec.require_rt) = (Terminal::Null, true);
    spec
}

fn run(spec: &LaunchSpec) -> Running {
    Running(start(spec).unwrap_or_else(|error| panic!("{error}")))
}

fn status(running: &Running, field: &str) -> String {
    let text = root().read(&format!("/proc/{}/status", running.0.child.pid)).unwrap();
    text.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned()
}

#[test]
fn every_class_is_set_in_the_kernel() {
    root();
    for text in ["fifo:7", "rr:3", "batch:5", "idle", "other:-4", "deadline:1ms/50ms/100ms"] {
        let policy: Policy = text.parse().unwrap();
        let mut spec = sleeper();
        spec.policy = Some(policy);
        let running = run(&spec);
        let found = sys::sched::scheduling(running.0.child.pid).unwrap();
        assert_eq!(found.policy, policy);
        assert_eq!(found.reset_on_fork, matches!(policy, Policy::Deadline(_)), "{text}");
    }
}

#[test]
fn cpus_limits_directory_and_cpuset_are_set_before_the_program_runs() {
    let root = root();
    let mut spec = sleeper();
    spec.cpus = Some("1".parse().unwrap());
    spec.dir = Some("/usr".into());
    spec.limits = vec![Limit { resource: Resource::Files, value: Some(55) }];
    spec.oom_score = Some(500);
    (spec.policy, spec.nice) = (Some("fifo:3".parse().unwrap()), Some(-7));
    spec.env.insert("BEAM".into(), "on".into());
    let running = run(&spec);
    assert_eq!(status(&running, "Cpus_allowed_list:"), "1");
    let at = |name: &str| format!("/proc/{}/{name}", running.0.child.pid);
    assert_eq!(std::fs::read_link(at("cwd")).unwrap(), PathBuf::from("/usr"));
    let limits = root.read(&at("limits")).unwrap();
    assert!(limits.lines().any(|line| line.starts_with("Max open files") && line.contains(" 55 ")), "{limits}");
    let pid = rustix::process::Pid::from_raw(running.0.child.pid);
    assert_eq!(rustix::process::getpriority_process(pid).unwrap(), -7);
    assert_eq!(root.read(&at("oom_score_adj")).unwrap().trim(), "500");
    assert!(root.read(&at("environ")).unwrap().contains("BEAM=on"));
}

#[test]
fn memory_of_a_foreign_program_is_locked() {
    root();
    let mut spec = sleeper();
    spec.mlock = true;
    let running = run(&spec);
    let kib = |field| status(&running, field).split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(kib("VmLck:") > 0, "locked before the first instruction");
    // The shared library is mapped long after exec, so it is locked only if MCL_FUTURE holds.
    while !status(&running, "State:").starts_with('S') {
        std::thread::yield_now();
    }
    let (locked, size) = (kib("VmLck:"), kib("VmSize:"));
    assert!(size > 1000 && locked * 10 > size * 9, "{locked} of {size} KiB locked");
}

#[test]
fn memory_of_a_setuid_program_cannot_be_locked_from_outside() {
    root();
    let file = std::env::temp_dir().join(format!("tahti-setuid-{}", std::process::id()));
    std::fs::copy("/bin/sleep", &file).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let mut spec = sleeper();
    spec.argv[0] = file.clone().into_os_string();
    spec.mlock = true;
    let refused = start(&spec);
    spec.require_rt = false;
    let Running(Started { shortfalls, .. }) = &run(&spec);
    std::fs::remove_file(&file).unwrap();
    let error = refused.unwrap_err();
    assert!(error.found.contains("setuid") && error.remedy.contains("capabilities"), "{error}");
    assert!(matches!(&shortfalls[..], [Shortfall { wanted, .. }] if wanted == "memory lock"), "{shortfalls:?}");
}

#[test]
fn a_process_of_a_user_gets_only_the_declared_capabilities() {
    root();
    let mut spec = sleeper();
    spec.user = Some("nobody".into());
    spec.policy = Some("fifo:5".parse().unwrap());
    spec.mlock = true;
    let refused = start(&spec).unwrap_err();
    assert!(refused.remedy.contains("CAP_IPC_LOCK"), "{refused}");
    spec.capabilities = Some(vec![Capability::IPC_LOCK, Capability::SYS_NICE]);
    let running = run(&spec);
    let expected = format!("{:016x}", Capability::IPC_LOCK.bit() | Capability::SYS_NICE.bit());
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(status(&running, set), expected, "{set}");
    }
    assert_eq!(status(&running, "Uid:").split('\t').next(), Some("65534"));
    assert_eq!(sys::sched::scheduling(running.0.child.pid).unwrap().policy, "fifo:5".parse().unwrap());
    assert_ne!(status(&running, "VmLck:"), "0 kB");
}

/// A control group that is removed on drop.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str) -> Self {
        let dir = PathBuf::from(format!("/sys/fs/cgroup/{controller}/tahti-launch-test-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}; cgroup v1 is needed", dir.display()));
        Self(dir)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is busy until the kernel has released its last task.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn a_cpu_group_without_real_time_runtime_is_named_with_its_remedy() {
    root();
    let group = Group::new("cpu");
    if !group.0.join("cpu.rt_runtime_us").exists() {
        panic!("this kernel has no RT_GROUP_SCHED, which the test needs");
    }
    let mut spec = sleeper();
    spec.cgroups = vec![group.0.clone()];
    spec.policy = Some("fifo:10".parse().unwrap());
    let error = start(&spec).unwrap_err();
    assert!(error.found.contains("cpu.rt_runtime_us = 0"), "{error}");
    assert!(error.remedy.contains(&format!("echo 950000 > {}/cpu.rt_runtime_us", group.0.display())), "{error}");
    // Without `require_rt` the process runs, and the shortfall is reported.
    spec.require_rt = false;
    let running = run(&spec);
    assert_eq!(running.0.shortfalls.len(), 1);
    let class = |pid| sys::sched::scheduling(pid).unwrap().policy;
    assert_eq!(class(running.0.child.pid), class(0));
}

#[test]
fn a_cpuset_is_joined_before_the_cpus_are_set() {
    let root = root();
    let group = Group::new("cpuset");
    let mut spec = sleeper();
    spec.cgroups = vec![group.0.clone()];
    let error = start(&spec).unwrap_err();
    assert!(error.remedy.contains("cpuset.mems"), "{error}");
    std::fs::write(group.0.join("cpuset.cpus"), "1").unwrap();
    std::fs::write(group.0.join("cpuset.mems"), "0").unwrap();
    let running = run(&spec);
    assert_eq!(status(&running, "Cpus_allowed_list:"), "1");
    let own = root.read(&format!("/proc/{}/cgroup", running.0.child.pid)).unwrap();
    assert!(own.contains("cpuset:/tahti-launch-test"), "{own}");
    drop(running);
    spec.cpus = Some("0".parse().unwrap());
    let error = start(&spec).unwrap_err();
    assert!(error.wanted == "CPUs 0" && error.remedy.contains("cpuset"), "{error}");
}

#[test]
fn a_reservation_on_some_of_the_cpus_is_refused_with_the_partition_as_remedy() {
    root();
    let mut spec = sleeper();
    spec.cpus = Some("1".parse().unwrap());
    spec.policy = Some("deadline:1ms/10ms/10ms".parse().unwrap());
    let error = start(&spec).unwrap_err();
    assert!(error.remedy.contains("partition"), "{error}");
}

/// Runs a shell script with these settings and returns its output.
fn says(spec: &mut LaunchSpec, script: &str) -> String {
    spec.argv = ["/bin/sh", "-c", script].map(Into::into).to_vec();
    let file = PathBuf::from(format!("/run/tahti-launch-says-{}-{}", spec.name, std::process::id()));
    (spec.terminal, spec.output) = (Terminal::Null, Some(file.clone()));
    let child = start(spec).unwrap_or_else(|error| panic!("{error}")).child;
    while !matches!(look(child.pid, false), Ok(Waited::Ended(_))) {
        std::thread::yield_now();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    text
}

#[test]
fn a_process_of_another_user_gets_its_environment_and_not_that_of_the_starter() {
    root();
    let mut spec = LaunchSpec::new("env", ["env"]);
    spec.user = Some("nobody".into());
    spec.env_pass = Some(vec!["CARGO_PKG_NA*".into()]);
    spec.env.insert("BEAM".into(), "on".into());
    let text = says(&mut spec, "env");
    let has = |line: &str| text.lines().any(|found| found == line);
    assert!(has("USER=nobody") && has("LOGNAME=nobody") && has("HOME=/nonexistent"), "{text}");
    assert!(
        text.contains("SHELL=/") && text.contains("PATH=/") && has("BEAM=on") && has("CARGO_PKG_NAME=keep"),
        "{text}"
    );
    assert!(!text.contains("CARGO_MANIFEST_DIR") && !text.contains("HOME=/root"), "{text}");
}

#[test]
fn umask_time_limit_and_no_new_privileges_are_set_in_the_kernel() {
    root();
    let mut spec = LaunchSpec::new("mask", ["sh"]);
    (spec.umask, spec.no_new_privileges) = (Some(0o027), true);
    spec.limits = vec![Limit { resource: Resource::RtTime, value: Some(500_000) }];
    let text = says(&mut spec, "umask; cat /proc/self/limits /proc/self/status");
    assert!(text.starts_with("0027\n"), "{text}");
    assert!(text.lines().any(|line| line == "NoNewPrivs:\t1"), "{text}");
    let limit = text.lines().find(|line| line.starts_with("Max realtime timeout")).unwrap();
    assert_eq!(limit.split_whitespace().filter(|word| *word == "500000").count(), 2, "{limit}");
}

#[test]
fn a_sandbox_hides_and_protects_its_paths_and_the_machine_is_unchanged() {
    root();
    let folder = PathBuf::from(format!("/var/lib/tahti-sandbox-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("secret")).unwrap();
    std::fs::write(folder.join("secret/key"), "x").unwrap();
    std::fs::write(folder.join("file"), "x").unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let sandbox = host::plant::Sandbox {
        private_tmp: true,
        protect_system: host::plant::ProtectSystem::Strict,
        protect_home: host::plant::ProtectHome::Yes,
        read_write_paths: vec![path("")],
        inaccessible_paths: vec![path("secret"), path("file")],
    };
    let mut spec = LaunchSpec::new("sandbox", ["sh"]);
    spec.sandbox = Some(sandbox.clone());
    let tries = format!(
        "w() {{ (echo x > $1) 2>/dev/null && echo wrote $1 || echo refused $1; }}; w /usr/x; w /etc/x; w /var/lib/x; w {0}/x; \
         w /tmp/tahti-x; echo tmp $(ls /tmp | wc -l); echo home $(ls -A /root | wc -l); cat {0}/file; ls {0}/secret; echo x > /dev/null && \
         echo done",
        folder.display()
    );
    let text = says(&mut spec, &tries);
    let expected = format!(
        "refused /usr/x\nrefused /etc/x\nrefused /var/lib/x\nwrote {}/x\nwrote /tmp/tahti-x\ntmp 1\nhome 0\ndone\n",
        folder.display()
    );
    assert_eq!(text, expected);
    assert!(!std::path::Path::new("/tmp/tahti-x").exists());
    assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    spec.sandbox = Some(host::plant::Sandbox { inaccessible_paths: vec![path("none")], ..sandbox });
    let error = start(&spec).unwrap_err();
    assert!(error.found.contains("none, which does not exist"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
