//! Guests as members of a plant, in a real QEMU: `TAHTI_QEMU` names it, `TAHTI_GUEST` the folder of a small Linux;
//! `cargo xtask test guests` sets both.
//!
//! Some guests run that Linux, some a boot sector. The boot sector prints on its first serial line that it is up, and
//! reacts to the power button or ignores it.

#[path = "guests/real.rs"]
mod real;

use base::DurNs;
use harness::guest::disk;
use harness::plant::Bench;
use harness::process::{Running, alive, finish, kill, text};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads a configuration as `xl` does, and prints its keys.
const XL: &str = r#"
#include <stdio.h>
#include <libxlutil.h>
int main(int count, char **keys) {
  static char text[1 << 16];
  int length = fread(text, 1, sizeof text, stdin);
  XLU_Config *config = xlu_cfg_init(stderr, "guest");
  if (xlu_cfg_readdata(config, text, length)) return 1;
  for (int at = 1; at < count; at++) {
    const char *value; XLU_ConfigList *list; int entries;
    if (!xlu_cfg_get_string(config, keys[at], &value, 1)) printf("%s=%s\n", keys[at], value);
    else if (!xlu_cfg_get_list(config, keys[at], &list, &entries, 1))
      for (int entry = 0; entry < entries; entry++) printf("%s=%s\n", keys[at], xlu_cfg_get_listitem(list, entry));
  }
  return 0;
}
"#;

fn qemu() -> String {
    std::env::var("TAHTI_QEMU").expect("TAHTI_QEMU is not set; run `cargo xtask test guests`")
}

/// A plant `p` with a running guest `hmi`.
fn up(name: &str, deaf: bool, keys: &str) -> Bench {
    let qemu = qemu();
    let guest = format!(
        "[[guest]]\nname = \"hmi\"\nprogram = \"{qemu}\"\naccel = \"emulated\"\nmemory = \"32MiB\"\ndisks = [\"hmi.img\"]\nvcpu_cpus = \"0\"\n{keys}\n"
    );
    let bench = Bench::new(name, &guest);
    disk(&bench.dir.join("hmi.img"), deaf);
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("the guest has booted", || log(&bench).contains("the guest is \\x1b[2Jup"));
    bench
}

/// The table of a guest `hmi` that is Debian's Linux, with a shell on its console.
fn linux(boot: &str, keys: &str) -> String {
    let folder = std::env::var("TAHTI_GUEST").expect("TAHTI_GUEST is not set; run `cargo xtask test guests`");
    format!(
        "[[guest]]\nname = \"hmi\"\nprogram = \"{}\"\naccel = \"emulated\"\nmemory = \"192MiB\"\nkernel = \"{folder}/vmlinuz\"\n\
         initrd = \"{folder}/initrd.img\"\nappend = \"console=ttyS0 quiet {boot}\"\n{keys}\n",
        qemu()
    )
}

/// A plant `p` with this Linux, which is running.
fn linux_up(name: &str, boot: &str, keys: &str) -> Bench {
    let bench = Bench::new(name, &linux(boot, keys));
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("Linux is up", || log(&bench).contains("the guest is up"));
    listens(&bench);
    bench
}

/// Waits until a shell answers on the guest's console. Input before the shell has opened the line is lost, as on any
/// serial line, so it is typed again.
fn listens(bench: &Bench) {
    let begin = Instant::now();
    while !log(bench).contains("listens-2") {
        assert!(begin.elapsed() < harness::PATIENCE, "no process listens on the console: {}", log(bench));
        typed(bench, "echo listens-$((1+1))");
        let asked = Instant::now();
        while !log(bench).contains("listens-2") && asked.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Types a line into the guest's console, as a person does, and waits for the answer.
fn types(bench: &Bench, line: &str, answer: &str) {
    typed(bench, line);
    let start = Instant::now();
    while !log(bench).contains(answer) {
        assert!(start.elapsed() < harness::PATIENCE, "{line:?} was never answered by {answer:?}: {}", log(bench));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Types a line into the guest's console.
fn typed(bench: &Bench, line: &str) {
    let mut typing = bench
        .tahti(&["guest", "console", "hmi", "-P", "p"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(typing.stdin.take().unwrap(), "{line}").unwrap();
    finish(typing);
}

/// Waits until the text is in the log: the last lines of a process are written after it has ended.
fn says(bench: &Bench, words: &str) {
    bench.until(words, || log(bench).contains(words));
}

fn log(bench: &Bench) -> String {
    fs::read_to_string(bench.dir.join("run/p/log/hmi.log")).unwrap_or_default()
}

/// QEMU's process id, and the output of `tahti guest status`.
fn process(bench: &Bench) -> (i32, String) {
    let status = bench.ok(&["guest", "status", "hmi", "--plant", "p"]);
    let pid = status.lines().find_map(|line| line.strip_prefix("QEMU is process ")?.parse().ok());
    (pid.unwrap_or_else(|| panic!("{status}")), status)
}

fn nothing_is_left(bench: &Bench, qemu: i32) {
    bench.until("QEMU has ended", || !alive(qemu));
    assert!(!bench.dir.join("run/p/guest/hmi").exists(), "its sockets still exist");
}

#[test]
fn a_guest_boots_logs_its_start_and_shuts_down_in_order() {
    let bench = up("guest-order", false, "vcpus = 2\nvcpu_class = \"other:7\"\nnetwork = \"user\"");
    let (qemu, status) = process(&bench);
    assert!(status.starts_with("hmi: running, emulated\n"), "{status}");
    assert_eq!(status.matches("CPUs 0, other:7, has run ").count(), 2, "{status}");
    let said = log(&bench);
    assert!(said.contains("EMULATED, many times slower than the processor: accel = \"emulated\""), "{said}");
    assert!(!said.contains("\u{1b}[2J"), "a guest cannot steer the reader's terminal: {said:?}");
    let taken = bench.run(&["guest", "serve", "hmi", "--plant", "p", "--disk", "hmi.img", "--accel", "emulated"]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains("a guest \"hmi\" is served already"));
    bench.ok(&["guest", "stop", "hmi", "--plant", "p"]);
    says(&bench, "it shut down on request");
    nothing_is_left(&bench, qemu);
    let gone = bench.run(&["guest", "status", "hmi", "--plant", "p"]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no guest \"hmi\" runs"));
}

#[test]
fn a_guest_that_hangs_at_shutdown_is_ended_and_reported() {
    let bench = up("guest-hangs", true, "stop_within = \"200ms\"");
    let (qemu, _) = process(&bench);
    bench.ok(&["stop", "hmi"]);
    let said = log(&bench);
    assert!(said.contains("the guest did not shut down within 200ms: QEMU received the request to quit"), "{said}");
    nothing_is_left(&bench, qemu);
}

#[test]
fn a_qemu_that_stops_answering_is_killed() {
    let bench = up("guest-silent", false, "stop_within = \"100ms\"");
    let (qemu, _) = process(&bench);
    kill(qemu, "STOP");
    bench.ok(&["stop", "hmi"]);
    let said = log(&bench);
    assert!(said.contains("no answer to quit within 3s"), "{said}");
    assert!(said.contains("QEMU is killed"), "{said}");
    nothing_is_left(&bench, qemu);
}

#[test]
fn a_guest_stopped_through_its_monitor_is_reported_and_continues_on_resume() {
    let bench = up("guest-still", false, "");
    // QEMU's second socket is for observers, and also executes commands.
    let mut qmp = UnixStream::connect(bench.dir.join("run/p/guest/hmi/status")).unwrap();
    qmp.write_all(b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"stop\"}\n").unwrap();
    let still =
        "the guest DOES NOT RUN (paused): it was paused through QEMU's monitor; continue it with `tahti guest resume`";
    says(&bench, still);
    drop(qmp);
    bench.until("ps shows it", || bench.ok(&["ps", "p"]).contains(still));
    let (_, status) = process(&bench);
    assert!(status.starts_with(&format!("hmi: paused, emulated\n{still}\n")), "{status}");
    bench.ok(&["guest", "resume", "hmi", "--plant", "p"]);
    says(&bench, "the guest runs again");
    bench.until("ps no longer shows it", || !bench.ok(&["ps", "p"]).contains(still));
    bench.ok(&["guest", "stop", "hmi", "--plant", "p"]);
    says(&bench, "it shut down on request");
}

#[test]
fn qemu_ends_with_the_process_that_serves_its_guest() {
    let bench = up("guest-killed", false, "restart = { policy = \"never\" }");
    let (qemu, _) = process(&bench);
    kill(bench.pid("hmi"), "KILL");
    bench.until("QEMU has ended", || !alive(qemu));
    // The next start finds the folder of the previous one and clears it.
    bench.ok(&["guest", "start", "hmi"]);
    let (qemu, _) = process(&bench);
    bench.ok(&["stop", "hmi"]);
    nothing_is_left(&bench, qemu);
}

#[test]
fn a_server_killed_before_its_qemu_answers_leaves_no_qemu_and_the_next_one_no_folder() {
    let keys =
        "accel = \"emulated\"\ndisks = [\"hmi.img\"]\nrestart = { policy = \"never\" }\nready = { line = \"begun\" }";
    let bench =
        Bench::new("guest-killed-early", &format!("[[guest]]\nname = \"hmi\"\nprogram = \"./silent\"\n{keys}\n"));
    disk(&bench.dir.join("hmi.img"), false);
    fs::write(bench.dir.join("silent"), "#!/bin/sh\necho begun as $$,\nexec sleep 1000\n").unwrap();
    fs::set_permissions(bench.dir.join("silent"), fs::Permissions::from_mode(0o755)).unwrap();
    let begun = || -> Vec<i32> {
        let log = log(&bench);
        log.split("begun as ").skip(1).map(|rest| rest.split(',').next().unwrap().parse().unwrap()).collect()
    };
    bench.ok(&["up", "plant.toml", "--detach"]);
    let first = begun()[0];
    assert!(alive(first));
    kill(bench.pid("hmi"), "KILL");
    bench.until("its child processes have ended", || !alive(first));
    bench.ok(&["start", "hmi"]);
    bench.until("another child process runs", || begun().len() == 2);
    bench.ok(&["stop", "hmi"]);
    says(&bench, "it was stopped before it ran");
    nothing_is_left(&bench, begun()[1]);
}

#[test]
fn linux_shows_its_first_line_accepts_input_and_reacts_to_its_power_button() {
    let bench = linux_up("guest-linux", "", "vcpu_cpus = \"0\"");
    let (qemu, _) = process(&bench);
    types(&bench, "echo $((6*7))-$(uname -s)", "42-Linux");
    bench.ok(&["guest", "stop", "hmi", "--plant", "p"]);
    says(&bench, "it shut down on request");
    says(&bench, "the guest shuts down");
    nothing_is_left(&bench, qemu);
}

#[test]
fn linux_that_ignores_its_power_button_is_ended_and_reported() {
    let bench = linux_up("guest-deaf", "deaf", "stop_within = \"300ms\"");
    let (qemu, _) = process(&bench);
    bench.ok(&["stop", "hmi"]);
    let said = log(&bench);
    assert!(said.contains("the guest did not shut down within 300ms: QEMU received the request to quit"), "{said}");
    nothing_is_left(&bench, qemu);
}

#[test]
fn linux_that_shuts_down_itself_ends_without_a_fault() {
    let bench = linux_up("guest-itself", "", "");
    let (qemu, _) = process(&bench);
    types(&bench, "poweroff -f", "it shut down by itself");
    nothing_is_left(&bench, qemu);
}

#[test]
fn a_check_of_the_plant_finds_missing_files() {
    let bench = Bench::new("guest-check", &linux("", "disks = [\"hmi.qcow2\"]"));
    let found = text(&bench.run(&["check", "plant.toml"]));
    assert!(found.contains("hmi: ") && found.contains("the disk image hmi.qcow2: No such file"), "{found}");
    fs::write(bench.dir.join("hmi.qcow2"), "").unwrap();
    bench.ok(&["check", "plant.toml"]);
    bench.write(&linux("", "").replace(&qemu(), "no-such-qemu"));
    let found = text(&bench.run(&["check", "plant.toml"]));
    assert!(found.contains("\"no-such-qemu\" is in no folder of PATH") && found.contains("install QEMU"), "{found}");
}

#[test]
fn a_guest_that_is_stopped_before_it_runs_never_runs() {
    // A QEMU that does not answer.
    let bench = Bench::new("guest-early", "");
    let mut serve =
        bench.tahti(&["guest", "serve", "early", "--program", "./slow", "--disk", "hmi.img", "--accel", "emulated"]);
    disk(&bench.dir.join("hmi.img"), false);
    fs::write(bench.dir.join("slow"), "#!/bin/sh\necho begun\nexec sleep 1000\n").unwrap();
    fs::set_permissions(bench.dir.join("slow"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut serve = Running::follow(&mut serve);
    serve.hears("begun");
    serve.signal("-TERM");
    serve.hears("it was stopped before it ran");
    assert!(serve.child.wait().unwrap().success());
    assert!(!bench.dir.join("run/_guest/early").exists());
}

#[test]
fn the_next_server_of_a_guest_ends_the_qemu_of_a_killed_one_outside_a_plant() {
    let bench = Bench::new("guest-alone", "");
    disk(&bench.dir.join("hmi.img"), false);
    let qemu = qemu();
    let words = [
        "guest",
        "serve",
        "alone",
        "--program",
        &qemu,
        "--disk",
        "hmi.img",
        "--accel",
        "emulated",
        "--memory",
        "32MiB",
    ];
    let first = Running::follow(&mut bench.tahti(&words));
    first.hears("the guest is");
    let status = bench.ok(&["guest", "status", "alone"]);
    let left: i32 = status.lines().find_map(|line| line.strip_prefix("QEMU is process ")?.parse().ok()).unwrap();
    kill(first.child.id() as i32, "KILL");
    bench.until("it is killed", || first.has_ended());
    assert!(alive(left), "QEMU outlives it");
    let found = text(&bench.run(&["guest", "status", "alone"]));
    assert!(found.contains("no guest \"alone\" runs"), "{found}");
    let second = Running::follow(&mut bench.tahti(&words));
    second.hears("the guest is");
    bench.until("the remaining process has ended", || !alive(left));
    bench.ok(&["guest", "stop", "alone"]);
    assert!(!bench.dir.join("run/_guest/alone").exists());
}

/// An HTTP server that answers with these words until the test ends; returns its port.
fn web(words: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked);
            let _ = write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{words}\n", words.len() + 1);
        }
    });
    port
}

#[test]
fn linux_reaches_only_the_addresses_of_its_rules() {
    let (allowed, denied) = (web("it is allowed"), web("it is not"));
    let keys = format!("allow = [\"80=127.0.0.1:{allowed}\"]\nnetwork_rate = \"1MiB\"");
    let bench = linux_up("guest-network", "", &keys);
    types(&bench, "ip addr show eth0", "inet 10.0.2.15/24");
    types(&bench, "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 100 10.0.2.2 80", "it is allowed");
    typed(&bench, &format!("nc -w 100 10.0.2.2 {denied} 2> /said"));
    // The message may interrupt a line of the guest's output, so the count is queried afterwards.
    says(&bench, &format!("the guest wants tcp 10.0.2.2:{denied}, which `allow` does not name"));
    types(&bench, "grep -c refused /said | sed s/^/times-/", "times-1");
    types(&bench, "nc -w 5 10.0.2.3 80 || echo absent-$((1+1))", "absent-2");
    types(&bench, "nc -w 5 192.0.2.1 80 || echo beyond-$((1+1))", "beyond-2");
    let said = log(&bench);
    assert!(!said.contains("it is not"), "{said}");
    bench.ok(&["stop", "hmi"]);
    says(&bench, "it shut down on request");
}

#[test]
fn a_guest_that_is_stopped_while_it_boots_shuts_down_once_it_reacts() {
    let bench = Bench::new("guest-booting", &linux("", "stop_within = \"100s\""));
    bench.ok(&["up", "plant.toml", "--detach"]);
    says(&bench, "hmi runs");
    // The guest misses this press of the power button, because its kernel has not started.
    bench.ok(&["guest", "stop", "hmi", "--plant", "p"]);
    says(&bench, "it shut down on request");
    assert_eq!(log(&bench).matches("the power button was pressed").count(), 1, "{}", log(&bench));
}

#[test]
fn bounds_on_a_disk_are_enforced() {
    let bench = Bench::new("guest-disk", &linux("", "disks = [\"data.img\"]\ndisk_rate = \"1MiB\""));
    fs::write(bench.dir.join("data.img"), vec![0; 8 << 20]).unwrap();
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("Linux is up", || log(&bench).contains("the guest is up"));
    // Transfers above the limit take time: 4 MiB at 1 MiB/s take at least two seconds.
    types(
        &bench,
        "a=$(cut -d. -f1 /proc/uptime); dd if=/dev/vda of=/dev/null bs=1M count=4; b=$(cut -d. -f1 /proc/uptime); echo took $((b-a)) s",
        " s\r",
    );
    // The console also echoes the command, in lines of any length. Only a number is the result.
    let took = || {
        let said = log(&bench);
        said.lines().rev().find_map(|line| line.split("took ").nth(1)?.split(' ').next()?.parse::<u32>().ok())
    };
    bench.until("it is read", || took().is_some());
    assert!(took().unwrap() >= 2, "{}", log(&bench));
}

/// A server that reads and discards all input until the test ends; returns its port and the bytes received so far.
fn sink() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, taken) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU64::new(0)));
    let counted = taken.clone();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Ok(length @ 1..) = stream.read(&mut bytes) {
                counted.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    });
    (port, taken)
}

/// A guest with two virtual CPUs that computes on both and floods its permitted network and its disk, next to a 1 kHz
/// loop.
fn hostile(name: &str, bounds: &str, partition: &str) -> (Bench, Arc<AtomicU64>) {
    let (port, taken) = sink();
    let keys = format!("vcpus = 2\nallow = [\"80=127.0.0.1:{port}\"]\ndisks = [\"data.img\"]\n{bounds}\n{partition}");
    let command = format!("tahti demo llrf --channel {name}{}", std::process::id());
    let beside = format!(
        "[[process]]\nname = \"loop\"\ncommand = \"{command}\"\nheartbeat = {{ within = \"60s\" }}\nready = {{ line = \"armed\" }}\n"
    );
    let bench = Bench::new(name, &(linux("", &keys) + &beside));
    fs::write(bench.dir.join("data.img"), vec![0; 8 << 20]).unwrap();
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("Linux is up", || log(&bench).contains("the guest is up"));
    let busy = "while :; do :; done & while :; do :; done & \
                while :; do dd if=/dev/zero bs=64k | nc 10.0.2.2 80; done >/dev/null 2>&1 & \
                while :; do dd if=/dev/vda of=/dev/null bs=64k iflag=direct; done >/dev/null 2>&1 & echo hostile-$((1+1))";
    types(&bench, busy, "hostile-2");
    bench.until("it floods", || taken.load(Ordering::Relaxed) > 100_000);
    (bench, taken)
}

/// Bytes that QEMU has read from files. Nearly all are from the guest's disk.
fn read_bytes(qemu: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{qemu}/io")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap()
}

/// CPU time of everything that belongs to the guest, and cycles of the loop.
fn stands(bench: &Bench) -> (DurNs, DurNs, u64) {
    let (hmi, now) = (bench.process("hmi"), bench.status()["now"].as_u64().unwrap());
    let used: DurNs = serde_json::from_value(hmi["family"]["cpu"].clone()).unwrap();
    (used, DurNs(now as i64), bench.process("loop")["loop"]["cycles"].as_u64().unwrap())
}

#[test]
fn a_hostile_guest_stays_within_its_bounds_and_a_loop_of_a_kilohertz_continues() {
    // Without bounds the guest uses more CPU than the bound will allow, so the bound has an effect.
    let (free, _) = hostile("guest-free", "", "");
    let share = |bench: &Bench, span: Duration| {
        let (used, began, cycles) = stands(bench);
        std::thread::sleep(span);
        let (more, now, later) = stands(bench);
        assert!(later > cycles, "the loop continues");
        (more.0 - used.0) as f64 / (now.0 - began.0) as f64
    };
    free.until("it takes more than a quarter of a CPU", || share(&free, Duration::from_secs(2)) > 0.25);
    let (qemu, _) = process(&free);
    let disk = |qemu: i32, span: Duration| {
        let (first, began) = (read_bytes(qemu), Instant::now());
        std::thread::sleep(span);
        (read_bytes(qemu) - first) as f64 / began.elapsed().as_secs_f64()
    };
    // Even emulated, the guest reads more than the bound will allow.
    free.until("it reads more than 512 KiB a second", || disk(qemu, Duration::from_secs(2)) > (512 << 10) as f64);
    free.ok(&["down"]);
    let rates = "network_rate = \"256KiB\"\ndisk_rate = \"256KiB\"";
    let bound = "partition = \"hmi\"\n[[partition]]\nname = \"hmi\"\ncpu_max = \"20%/50ms\"\nmemory_max = \"600MiB\"";
    let (bench, taken) = hostile("guest-bound", rates, bound);
    let (first, began) = (taken.load(Ordering::Relaxed), Instant::now());
    let used = share(&bench, Duration::from_secs(5));
    let (sent, span) = (taken.load(Ordering::Relaxed) - first, began.elapsed().as_secs_f64());
    let (qemu, _) = process(&bench);
    let read = disk(qemu, Duration::from_secs(5));
    // One second's worth may come at once. QEMU's other reads are few.
    assert!(read > 1000.0 && read < 256.0 * 1024.0 * (6.0 / 5.0) * 1.1, "{read} bytes a second of the disk");
    // Allows one period at the start and one at the end. The counters are read a moment after the clock.
    assert!(used < 0.2 + 0.05, "{used} of a CPU");
    // The network's bound applies to data that the guest sends. One second's worth may be in transit.
    let most = 256.0 * 1024.0 * (span + 1.0) * 1.1;
    assert!((sent as f64) < most, "{sent} bytes in {span} s, at most {most}");
    let hmi = bench.status()["partitions"][0].clone();
    assert!(hmi["cpu"]["throttled"].as_u64().unwrap() > 0 && hmi["drift"] == serde_json::json!([]), "{hmi}");
    assert!(hmi["memory"]["used"].as_u64().unwrap() <= 600 << 20, "{hmi}");
    bench.run(&["down"]);
}

#[test]
fn a_windows_guest_boots_from_its_devices_and_has_a_screen() {
    let qemu = qemu();
    let guest = format!(
        "[[guest]]\nname = \"hmi\"\nprogram = \"{qemu}\"\naccel = \"emulated\"\nmemory = \"64MiB\"\nprofile = \"windows\"\n\
         disks = [\"hmi.img\"]\nnetwork = \"user\"\nscreen = true\n"
    );
    let bench = Bench::new("guest-windows", &guest);
    disk(&bench.dir.join("hmi.img"), false);
    bench.ok(&["up", "plant.toml", "--detach"]);
    // The guest's BIOS boots from the SATA disk.
    bench.until("the guest has booted", || log(&bench).contains("the guest is"));
    let mut screen = UnixStream::connect(bench.dir.join("run/p/guest/hmi/screen")).unwrap();
    let mut greeting = [0; 12];
    screen.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"RFB 003.008\n");
    drop(screen);
    bench.ok(&["stop", "hmi"]);
}

#[test]
fn the_packaging_line_sorts_and_its_panel_shows_the_counts() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/packaging/plant.toml");
    let text = fs::read_to_string(example).unwrap();
    // The packaged example, except for two things that parallel tests cannot share: the shield and fixed ports.
    let bench = Bench::new("packaging", "");
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (counts, images) = (free(), free());
    let (begin, end) = (text.find("[shield]").unwrap(), text.find("# Decides").unwrap());
    let text = (text[..begin].to_owned() + &text[end..])
        .replace("cpus = \"shield\"\n", "")
        .replace("\"packaging\"", "\"p\"")
        .replace("127.0.0.1:8900", &counts)
        .replace("\"demo\", \"sorter\"", &format!("\"demo\", \"sorter\", \"--counts={counts}\", \"--images={images}\""))
        .replace("\"demo\", \"camera\"", &format!("\"demo\", \"camera\", \"--to={images}\""))
        .replace("memory = ", &format!("program = \"{}\"\nmemory = ", qemu()));
    fs::write(bench.dir.join("plant.toml"), text).unwrap();
    std::os::unix::fs::symlink(std::env::var("TAHTI_GUEST").unwrap(), bench.dir.join("guest")).unwrap();
    bench.ok(&["up", "plant.toml", "--detach"]);
    let shown = || {
        let log = log(&bench);
        let line = log.lines().rev().find(|line| line.contains("sorted "))?.split("sorted ").nth(1)?.to_owned();
        let numbers =
            line.split(", ").map(|part| part.rsplit(' ').find_map(|word| word.parse::<u64>().ok()).unwrap_or(0));
        Some(numbers.collect::<Vec<u64>>())
    };
    bench.until("the panel shows the sorted numbers", || {
        shown().is_some_and(|shown| shown.len() == 6 && shown[0] >= 50 && shown[1] >= 5)
    });
    let shown = shown().unwrap();
    assert_eq!(shown[2], 0, "wrong decisions: {shown:?}");
    bench.ok(&["stop", "hmi"]);
    says(&bench, "it shut down on request");
}

#[test]
fn a_snapshot_is_restored_and_needs_a_disk_that_can_store_it() {
    let bench = Bench::new("guest-snapshot", &linux("", "disks = [\"hmi.qcow2\"]"));
    let mut make = Command::new("qemu-img");
    make.args(["create", "-q", "-f", "qcow2", "hmi.qcow2", "1G"]).current_dir(&bench.dir);
    assert!(make.status().unwrap().success());
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("Linux is up", || log(&bench).contains("the guest is up"));
    let snapshot = |words: &[&str]| {
        let words: Vec<&str> = ["guest", "snapshot"].iter().chain(words).chain(&["--plant", "p"]).copied().collect();
        text(&bench.run(&words))
    };
    types(&bench, "word=before; echo set-$((1+0))", "set-1");
    assert_eq!(snapshot(&["save", "hmi", "good"]), "");
    assert!(snapshot(&["list", "hmi"]).contains("good"));
    types(&bench, "word=after; echo set-$((1+1))", "set-2");
    assert_eq!(snapshot(&["load", "hmi", "good"]), "");
    types(&bench, "echo it-is-$word", "it-is-before");
    let found = snapshot(&["load", "hmi", "none"]);
    assert!(found.contains("snapshot \"none\" of hmi: Error") && found.contains("`list` shows"), "{found}");
    bench.ok(&["stop", "hmi"]);
    says(&bench, "it shut down on request");
    bench.ok(&["down", "p"]);
    bench.write(&linux("", "stop_within = \"1s\""));
    bench.ok(&["up", "plant.toml", "--detach"]);
    let found = snapshot(&["save", "hmi", "good"]);
    assert!(found.contains("must be .qcow2"), "{found}");
}

#[test]
fn definitions_of_guests_are_accepted_by_libvirts_schema_and_the_parser_of_xl() {
    let schemas = std::env::var("TAHTI_LIBVIRT_SCHEMAS").expect("`cargo xtask test guests` sets TAHTI_LIBVIRT_SCHEMAS");
    let guests = "[[guest]]\nname = \"hmi\"\nvcpus = 2\nmemory = \"256MiB\"\nmemory_max = \"400MiB\"\nmlock = true\nkernel = \"vmlinuz\"\n\
         append = \"console=ttyS0 say='<a> & \\\"b\\\"'\"\ndisks = [\"a,b.qcow2\", \"c d.img\"]\ndisk_rate = \"1MiB\"\ndisk_operations = 100\n\
         allow = [\"80=127.0.0.1:8900\"]\nnetwork_rate = \"1MiB\"\nvcpu_cpus = \"0\"\nvcpu_class = \"fifo:10\"\ncpus = \"0\"\nscreen = true\n\
         [[guest]]\nname = \"panel\"\nprofile = \"windows\"\ndisks = [\"c.qcow2\"]\nfirmware = \"code.fd\"\nfirmware_variables = \"variables.fd\"\n\
         vcpu_class = \"other:5\"\nscreen = true\naccel = \"kvm\"\n";
    let bench = Bench::new("define", guests);
    let program = bench.dir.join("xl");
    fs::write(bench.dir.join("xl.c"), XL).unwrap();
    let built =
        Command::new("cc").arg("-o").arg(&program).arg(bench.dir.join("xl.c")).arg("-lxlutil").output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    for name in ["hmi", "panel"] {
        let domain = bench.run(&["guest", "define", "plant.toml", name, "--for", "libvirt"]);
        let notes = String::from_utf8_lossy(&domain.stderr);
        assert!(domain.status.success() && notes.contains("virsh shutdown"), "{notes}");
        let file = bench.dir.join(format!("{name}.xml"));
        fs::write(&file, &domain.stdout).unwrap();
        let schema = Path::new(&schemas).join("domain.rng");
        let checked = Command::new("xmllint").arg("--noout").arg("--relaxng").arg(schema).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}\n{}", text(&checked), String::from_utf8_lossy(&domain.stdout));
    }
    let defined = bench.run(&["guest", "define", ".", "hmi", "--for", "xen"]);
    assert!(defined.status.success(), "{}", text(&defined));
    let mut parser = Command::new(&program);
    parser.args(["name", "type", "cpus", "cmdline", "disk", "vif"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parser = parser.stderr(Stdio::piped()).spawn().unwrap();
    parser.stdin.take().unwrap().write_all(&defined.stdout).unwrap();
    let folder = bench.dir.canonicalize().unwrap();
    let expected = format!(
        "name=hmi\ntype=pvh\ncpus=0\ncmdline=console=ttyS0 say='<a> & \"b\"'\n\
         disk=format=qcow2, vdev=xvda, access=rw, target={0}/a,b.qcow2\ndisk=format=raw, vdev=xvdb, access=rw, target={0}/c d.img\n",
        folder.display()
    );
    let read = finish(parser);
    assert_eq!(String::from_utf8_lossy(&read.stdout), expected, "{}", String::from_utf8_lossy(&read.stderr));
    let unknown = bench.run(&["guest", "define", ".", "absent", "--for", "xen"]);
    assert!(text(&unknown).contains("no guest \"absent\"; it has hmi, panel"), "{}", text(&unknown));
}
