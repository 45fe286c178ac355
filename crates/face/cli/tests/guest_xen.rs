//! The output of `tahti guest define --for xen`, started with Xen's own tools in its dom0. `TAHTI_XEN` names the
//! folders of these tools, one per package.

use harness::plant::Bench;
use harness::process::{Running, finish, text};
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Xen's tools in their usual paths, and the services that they need.
struct Dom0 {
    _store: Running,
    _console: Running,
}

impl Dom0 {
    fn begin(bench: &Bench) -> Self {
        let folders = std::env::var("TAHTI_XEN").expect("the guest's script sets TAHTI_XEN");
        for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
            let copy = "tar -C \"$0\" -cf - . | tar -C / --keep-directory-symlink -xf -";
            succeeds(Command::new("sh").args(["-c", copy, folder]));
        }
        succeeds(&mut Command::new("ldconfig"));
        succeeds(Command::new("mount").args(["-t", "xenfs", "xenfs", "/proc/xen"]));
        for folder in ["/var/lib/xen", "/var/lib/xenstored", "/var/log/xen/console", "/run/xen", "/run/xenstored"] {
            fs::create_dir_all(folder).unwrap();
        }
        let store = Running::start(tool("xenstored").arg("--no-fork").stdin(Stdio::null()));
        bench.until("xenstored listens", || fs::exists("/run/xenstored/socket").unwrap());
        succeeds(&mut tool("xen-init-dom0"));
        let words = ["-i", "--log=all", "--log-dir=/var/log/xen/console"];
        let console = Running::start(tool("xenconsoled").args(words).stdin(Stdio::null()));
        Self { _store: store, _console: console }
    }
}

fn tool(name: &str) -> Command {
    Command::new(format!("/usr/lib/xen-4.17/bin/{name}"))
}

fn succeeds(command: &mut Command) -> String {
    let output: Output =
        finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let said = text(&output);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn xl(words: &[&str]) -> String {
    succeeds(tool("xl").args(words))
}

/// Console output of the domain so far.
fn console() -> String {
    fs::read_to_string("/var/log/xen/console/guest-hmi.log").unwrap_or_default()
}

#[test]
fn a_defined_guest_runs_under_xen_on_the_cpu_of_a_separate_pool() {
    testkit::guest::required();
    let folder = std::env::var("TAHTI_GUEST").expect("the guest's script sets TAHTI_GUEST");
    let bench = Bench::new(
        "xen",
        &format!(
            "[[guest]]\nname = \"hmi\"\nmemory = \"192MiB\"\nvcpu_cpus = \"3\"\nkernel = \"{folder}/vmlinuz\"\n\
             initrd = \"{folder}/initrd.img\"\nappend = \"console=hvc0 quiet\"\n"
        ),
    );
    let mut last = Instant::now();
    let mut took = |what: &str| {
        println!("{what}: {:.1} s", last.elapsed().as_secs_f64());
        last = Instant::now();
    };
    let _dom0 = Dom0::begin(&bench);
    took("Xen's tools in their places and running");
    let defined = bench.dir.join("hmi.cfg");
    let output =
        finish(bench.tahti(&["guest", "define", ".", "hmi", "--for", "xen"]).stdout(Stdio::piped()).spawn().unwrap());
    // A pool with the one CPU reserved for the guest, as the printed notes describe.
    xl(&["cpupool-cpu-remove", "Pool-0", "3"]);
    let pool = bench.dir.join("pool.cfg");
    fs::write(&pool, "name = \"realtime\"\nsched = \"credit\"\ncpus = [\"3\"]\n").unwrap();
    xl(&["cpupool-create", &pool.display().to_string()]);
    let text = String::from_utf8(output.stdout).unwrap() + "pool = \"realtime\"\n";
    assert!(text.contains("type = \"pvh\""), "{text}");
    took("defined, and a pool made");
    // First as printed, with hardware virtualisation (PVH); then paravirtualised (PV), where the guest kernel calls
    // the hypervisor instead.
    for (times, kind) in (1..).zip(["pvh", "pv"]) {
        fs::write(&defined, text.replace("type = \"pvh\"", &format!("type = \"{kind}\""))).unwrap();
        xl(&["create", &defined.display().to_string()]);
        // The hypervisor and the kernel run within an emulator: 13 s on two CPUs while compilers run, and 40 s for
        // the tools before it. A busier host takes longer. This limit is a watchdog, shorter than that of the whole
        // test, and the message contains the output.
        let begin = Instant::now();
        while console().matches("the guest is up").count() < times {
            let state = || format!("{}\n{}\n{}", xl(&["vcpu-list"]), xl(&["dmesg"]), console());
            assert!(begin.elapsed() < Duration::from_secs(240), "the {kind} domain has not booted:\n{}", state());
            assert!(xl(&["list"]).contains("hmi"), "the {kind} domain ended before it had booted:\n{}", state());
            std::thread::sleep(Duration::from_secs(1));
        }
        let list = xl(&["vcpu-list", "hmi"]);
        let vcpu = list.lines().find(|line| line.starts_with("hmi")).unwrap_or_else(|| panic!("{list}"));
        let words: Vec<&str> = vcpu.split_whitespace().collect();
        assert_eq!((words[3], words[6]), ("3", "3"), "on its CPU, and bound to it: {list}");
        assert!(xl(&["list", "-c"]).lines().any(|line| line.starts_with("hmi") && line.contains("realtime")));
        xl(&["shutdown", "-w", "hmi"]);
        assert!(!xl(&["list"]).contains("hmi"));
        took(&format!("{kind} domain created, booted, inspected and shut down"));
    }
    xl(&["cpupool-destroy", "realtime"]);
}
