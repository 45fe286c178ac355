//! Guests with all options: locked memory, a real-time virtual CPU on a shielded CPU, KVM, access to services of the
//! plant by rule, a partition shared with an IOC.

use super::{Bench, linux, log, process, says, types, up};
use harness::guest::disk;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A value in KiB from a process's status.
fn kib(pid: i32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{key} in {status}"));
    line.trim_matches([':', '\t', ' ']).split(' ').next().unwrap().parse().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn memory_is_locked_before_the_first_instruction() {
    let bench = up("guest-locked", false, "mlock = true");
    let (qemu, _) = process(&bench);
    assert!(kib(qemu, "VmLck") >= 32 << 10, "{} KiB are locked", kib(qemu, "VmLck"));
    assert_eq!(kib(qemu, "VmSwap"), 0);
    bench.ok(&["stop", "hmi"]);
    says(&bench, "it shut down on request");
}

#[test]
fn a_real_time_virtual_cpu_runs_on_a_shielded_cpu_and_the_rest_of_qemu_outside() {
    if !is_root() {
        println!("NOT TRIED: a shield needs root");
        return;
    }
    // The arrangement for Xen: one core, bounded and locked memory, a separate disk.
    let keys = "mlock = true\nmemory_max = \"2GiB\"\nvcpu_cpus = \"shield\"\nvcpu_class = \"fifo:10\"\nbudget = \"95%/30s\"\ndisks = [\"own.img\"]\n\
                [shield]\ncpus = \"auto:1\"";
    let bench = Bench::new("guest-core", &linux("", keys));
    fs::write(bench.dir.join("own.img"), vec![0; 1 << 20]).unwrap();
    let up = bench.run(&["up", "plant.toml", "--detach"]);
    assert!(up.status.success(), "{}{}", super::text(&up), log(&bench));
    bench.until("Linux is up", || log(&bench).contains("the guest is up"));
    types(&bench, "echo $((6*7))-$(uname -s)", "42-Linux");
    let (qemu, status) = process(&bench);
    let shield = bench.ok(&["shield", "status"]);
    let vcpu = status.lines().find(|line| line.starts_with("virtual CPU 0:")).unwrap();
    let thread: i32 = vcpu.split("thread ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let cpus = vcpu.split("CPUs ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert!(vcpu.contains(&format!("CPUs {cpus}, fifo:10, has run ")), "{status}{}{}", log(&bench), bench.log());
    assert!(shield.contains(&format!("CPU {cpus}")) || shield.contains(&format!("CPUs {cpus}")), "{cpus}: {shield}");
    let allowed = |tid: i32| {
        let status = fs::read_to_string(format!("/proc/{qemu}/task/{tid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim().to_owned()
    };
    assert_eq!(allowed(thread), cpus);
    let threads = fs::read_dir(format!("/proc/{qemu}/task")).unwrap().flatten();
    let others: Vec<i32> = threads.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect();
    assert!(others.iter().filter(|tid| **tid != thread).all(|tid| allowed(*tid) != cpus), "{others:?}");
    bench.ok(&["stop", "hmi"]);
    let said = text_of(&bench, &["down"]);
    assert!(!said.contains("left"), "{said}");
}

fn text_of(bench: &Bench, words: &[&str]) -> String {
    super::text(&bench.run(words))
}

#[test]
fn a_guest_runs_by_kvm_if_available_and_is_otherwise_refused_with_a_remedy() {
    let qemu = super::qemu();
    let keys = "memory = \"32MiB\"\ndisks = [\"hmi.img\"]\nprocessor = \"qemu64\"\nrestart = { policy = \"never\" }";
    let guest = |accel| format!("[[guest]]\nname = \"hmi\"\nprogram = \"{qemu}\"\naccel = \"{accel}\"\n{keys}\n");
    let bench = Bench::new("guest-kvm", &guest("kvm"));
    disk(&bench.dir.join("hmi.img"), false);
    let kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if kvm.is_err() {
        let said = text_of(&bench, &["check", "plant.toml"]);
        assert!(said.contains("accel = \"kvm\": /dev/kvm: ") && said.contains("or set accel = \"auto\""), "{said}");
        bench.write(&guest("auto"));
        bench.ok(&["up", "plant.toml", "--detach"]);
        says(&bench, "hmi runs, EMULATED, many times slower than the processor: /dev/kvm: ");
        return;
    }
    bench.ok(&["up", "plant.toml", "--detach"]);
    says(&bench, "hmi runs, by the processor (KVM)");
    bench.until("the guest has booted", || log(&bench).contains("the guest is \\x1b[2Jup"));
    let (_, status) = process(&bench);
    assert!(status.starts_with("hmi: running, by the processor (KVM)\n"), "{status}");
    bench.ok(&["stop", "hmi"]);
    says(&bench, "it shut down on request");
}

#[test]
fn a_guest_that_kvm_cannot_run_fails_with_the_reason_and_a_remedy() {
    let keys = "memory = \"32MiB\"\ndisks = [\"hmi.img\"]\nprocessor = \"qemu64\"\nrestart = { policy = \"never\" }";
    let guest = format!("[[guest]]\nname = \"hmi\"\nprogram = \"{}\"\naccel = \"kvm\"\n{keys}\n", super::qemu());
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap();
    let is_software = !flags.split_whitespace().any(|flag| ["vmx", "svm"].contains(&flag));
    if fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() || !is_software {
        println!("NOT TRIED: needs a KVM that runs without the processor's help");
        return;
    }
    let bench = Bench::new("guest-kvm-fails", &guest);
    disk(&bench.dir.join("hmi.img"), false);
    // Replaces the power button code by an instruction (addps) that such a KVM cannot execute.
    let mut sector = fs::read(bench.dir.join("hmi.img")).unwrap();
    sector[18..30].copy_from_slice(&[0x0f, 0x20, 0xe0, 0x80, 0xcc, 0x06, 0x0f, 0x22, 0xe0, 0x0f, 0x58, 0xc0]);
    fs::write(bench.dir.join("hmi.img"), &sector).unwrap();
    bench.ok(&["up", "plant.toml", "--detach"]);
    says(&bench, "the guest DOES NOT RUN (internal-error): KVM or the emulator could not continue");
    says(&bench, "tahti: the guest cannot continue (internal-error): ");
    assert!(log(&bench).contains("set accel = \"emulated\""), "{}", log(&bench));
    bench.until("it has failed", || bench.process("hmi")["pid"].is_null());
    assert!(!bench.dir.join("run/p/guest/hmi").exists(), "its sockets still exist");
    // If the plant does not require KVM, such a KVM is not used. The ordinary disk, as with the other one the guest ends at once.
    bench.run(&["down"]);
    disk(&bench.dir.join("hmi.img"), false);
    bench.write(&guest.replace("accel = \"kvm\"\n", "").replace("processor = \"qemu64\"\n", ""));
    bench.ok(&["up", "plant.toml", "--detach"]);
    says(&bench, "hmi runs, EMULATED, many times slower than the processor: the processor has neither vmx nor svm");
    let note = "EMULATED, many times slower than the processor: the processor has neither vmx nor svm";
    let (_, status) = process(&bench);
    assert!(status.starts_with(&format!("hmi: running, emulated\n{note}")), "{status}");
    assert!(bench.ok(&["ps", "p"]).contains(note), "{}", bench.ok(&["ps", "p"]));
}

/// Adds this program to the small Linux's RAM disk as `/bin/tahti`, with its shared libraries.
fn with_tahti(folder: &Path) {
    let tree = folder.join("tree");
    let copy = |from: &str, to: &str| {
        let to = tree.join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    };
    let program = env!("CARGO_BIN_EXE_tahti");
    copy(program, "/bin/tahti");
    let strip = Command::new("strip").arg(tree.join("bin/tahti")).status().unwrap();
    assert!(strip.success());
    let linked = Command::new("ldd").arg(program).output().unwrap();
    for line in String::from_utf8(linked.stdout).unwrap().lines() {
        if let Some(file) = line.split_whitespace().find(|word| word.starts_with('/')) {
            copy(file, file);
        }
    }
    let guest = std::env::var("TAHTI_GUEST").unwrap();
    let script = format!(
        "cp {guest}/initrd.img initrd.img && cd tree && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >>../initrd.img"
    );
    assert!(Command::new("sh").args(["-ec", &script]).current_dir(folder).status().unwrap().success());
}

#[test]
fn linux_reaches_records_messages_and_the_dashboard_only_by_its_rules() {
    let server = format!("guest{}", std::process::id());
    let plant = |allow: &str| {
        let text = linux("", &format!("memory = \"512MiB\"\npartition = \"hmi\"\n{allow}"));
        let text = text.replace("memory = \"192MiB\"\n", "");
        let own = format!("initrd = \"{}/initrd.img\"", std::env::var("TAHTI_GUEST").unwrap());
        let services = format!(
            "[[ioc]]\nname = \"ioc\"\nload = [{{ file = \"m.db\" }}]\npartition = \"hmi\"\n\
             [messages]\nname = \"{server}\"\n\
             [[process]]\nname = \"zmq\"\ncommand = \"tahti msg zmq --server {server}\"\n\
             [dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:8765\"\nnames = [\"10.0.2.2\"]\n\
             [[partition]]\nname = \"hmi\"\nmemory_max = \"2GiB\"\ntasks_max = 200\n"
        );
        text.replace(&own, "initrd = \"initrd.img\"") + &services
    };
    let bench = Bench::new("guest-services", &plant("allow = [\"dashboard\", \"ca\", \"messages\"]"));
    with_tahti(&bench.dir);
    fs::write(bench.dir.join("m.db"), "record(ao, \"sr:current\") { field(VAL, \"42.5\") field(PINI, \"YES\") }\n")
        .unwrap();
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("Linux is up", || log(&bench).contains("the guest is up"));
    for pid in [process(&bench).0, bench.pid("ioc")] {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(groups.contains("tahti-p.hmi"), "process {pid} is in {groups}");
    }
    let names = "export EPICS_CA_ADDR_LIST=10.0.2.2 EPICS_CA_AUTO_ADDR_LIST=NO; ";
    types(&bench, &format!("{names} tahti caget -w 60 -t sr:current; echo read-$?"), "42.5");
    types(&bench, &format!("{names} tahti caput -w 60 -t sr:current 7.25; echo written-$?"), "written-0");
    let get =
        "(printf 'GET / HTTP/1.0\\r\\nHost: 10.0.2.2:8765\\r\\n\\r\\n'; sleep 3) | nc -w 20 10.0.2.2 8765 | head -n 1";
    types(&bench, get, "200 OK");
    // A minimal ZeroMQ client: greeting, READY with its socket type, an empty frame and a request.
    let ask = "(printf '\\377\\0\\0\\0\\0\\0\\0\\0\\0\\177\\3\\0NULL'; head -c 48 /dev/zero; sleep 1; \
               printf '\\4\\31\\5READY\\13Socket-Type\\0\\0\\0\\3REQ'; sleep 1; printf '\\1\\0\\0\\13list/server'; sleep 5) \
               | nc -w 30 10.0.2.2 5555 | tr -cd ' -~'; echo";
    types(&bench, ask, "OK/");
    bench.ok(&["down"]);
    // The same guest without rules.
    bench.write(&plant("network = \"user\""));
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("Linux is up", || log(&bench).matches("the guest is up").count() == 2);
    types(&bench, &format!("{names} tahti caget -w 5 sr:current; echo unread-$?"), "unread-1");
    for port in [5064, 5555, 8765] {
        types(
            &bench,
            &format!("nc -w 20 10.0.2.2 {port} </dev/null || echo refused-$(({port}+1))"),
            &format!("refused-{}", port + 1),
        );
    }
    let said = log(&bench);
    for what in ["udp 10.0.2.2:5064", "tcp 10.0.2.2:5064", "tcp 10.0.2.2:5555", "tcp 10.0.2.2:8765"] {
        assert!(said.contains(&format!("the guest wants {what}, which `allow` does not name")), "{what}: {said}");
    }
}

#[test]
fn a_guest_larger_than_its_memory_bound_is_killed_and_a_remedy_is_logged() {
    let keys = "mlock = true\nmemory_max = \"40MiB\"\nrestart = { policy = \"never\" }";
    let bench = Bench::new("guest-large", &linux("", keys));
    let up = bench.run(&["up", "plant.toml", "--detach"]);
    assert!(!up.status.success());
    says(&bench, "raise `memory_max`, its own or its partition's");
}
