//! Tests of serving: missing resources, QEMU's exits, and QEMUs whose guests stop running, played by a script and a
//! thread.

use super::*;
use crate::model::Places;
use crate::model::tests::guest;
use base::MonoNs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tahti-guest-{name}-{}", std::process::id())))
    }

    fn fails(&self, guest: &Guest) -> String {
        let found = serve(guest, &self.0, &mut |_| ()).unwrap_err().to_string();
        assert!(!self.0.exists(), "{} still exists", self.0.display());
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_missing_program_or_disk_is_reported_with_a_remedy_and_nothing_is_left() {
    let place = Place::new("missing");
    // A program that exists on every machine; QEMU may be missing here.
    let guest = Guest { accel: Accel::Emulated, program: "/bin/false".into(), ..guest() };
    let found = place.fails(&Guest { program: "no-such-qemu".into(), ..guest.clone() });
    assert!(found.contains("no-such-qemu") && found.contains("install QEMU"), "{found}");
    let found = place.fails(&Guest { disks: vec!["/nowhere/hmi.img".into()], ..guest.clone() });
    assert!(found.contains("the disk image /nowhere/hmi.img: No such file"), "{found}");
    let found = place.fails(&guest);
    assert!(found.contains("before the guest ran"), "{found}");
}

#[test]
fn a_name_that_is_taken_is_refused_with_its_owner() {
    let place = Place::new("taken");
    let held = LockedFolder::take(&guest(), &place.0).unwrap();
    let error = LockedFolder::take(&guest(), &place.0).err().unwrap().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    drop(held);
    assert!(!place.0.exists());
}

#[test]
fn a_path_that_no_socket_can_have_is_refused() {
    let error = LockedFolder::take(&guest(), &Path::new("/tmp").join("x".repeat(100))).err().unwrap();
    assert!(matches!(error, ServeError::TooLong(_)));
}

#[test]
fn the_end_of_qemu_is_judged_by_the_requested_stop() {
    let (good, bad) = (ExitStatus::from_raw(0), ExitStatus::from_raw(9));
    let within = DurNs::from_secs(1);
    let mut stop = Stop::begin(MonoNs(0), within);
    assert_eq!(outcome(good, None, within).unwrap(), GuestEnd::ByItself);
    assert!(matches!(outcome(bad, None, within), Err(ServeError::Lost(_))));
    stop.due(MonoNs(0));
    assert_eq!(outcome(good, Some(&stop), within).unwrap(), GuestEnd::Asked);
    stop.hurry(MonoNs(1));
    stop.due(MonoNs(1));
    assert!(matches!(outcome(good, Some(&stop), within), Err(ServeError::Hung { killed: false, .. })));
}

/// Behaviour of a simulated QEMU.
enum Turn {
    /// QEMU aborts before it listens.
    Aborts,
    /// The guest runs and then has these states, each until it was queried, and shuts down. After [`INTERNAL_ERROR`]
    /// QEMU waits to be killed.
    Runs(&'static [&'static str]),
}

/// Serves a guest under KVM with these QEMUs, one after the other. Returns the result, and the messages, each with the
/// note at that time.
fn served(name: &str, accel: Accel, turns: &'static [Turn]) -> (Result<GuestEnd, ServeError>, String) {
    let (place, bench) = (Place::new(name), Place::new(&format!("{name}-bench")));
    fs::create_dir_all(&bench.0).unwrap();
    let program = bench.0.join("qemu");
    let script = "#!/bin/sh\ncd ${0%/*}\necho \"$*\" >new; mv new begun\nuntil [ -e end ]; do sleep 0.01; done\nmv end now; . ./now\n";
    // Written by another process. If this process had the file open for writing, children of other tests would inherit
    // the descriptor until their exec, and the kernel refuses to execute such a file.
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").args(["-c", write]).arg(&program).arg(script).status().unwrap().success());
    let (folder, room, over) = (place.0.clone(), bench.0.clone(), Arc::new(AtomicBool::new(false)));
    let is_over = over.clone();
    let qemus = std::thread::spawn(move || turns.iter().for_each(|turn| play(turn, &room, &folder, &is_over)));
    let guest = Guest { program: program.display().to_string(), accel, ..guest() };
    let (mut log, note) = (String::new(), place.0.join(NOTE));
    let ended = serve_by(Ok(()), &guest, &place.0, &mut |line| {
        log += &format!("{line} [{}]\n", fs::read_to_string(&note).unwrap_or_default());
    });
    over.store(true, Ordering::Relaxed);
    assert!(qemus.join().is_ok(), "not every turn arrived: {ended:?}, {log}");
    assert!(!place.0.exists(), "{} still exists", place.0.display());
    (ended, log)
}

fn play(turn: &Turn, room: &Path, folder: &Path, is_over: &AtomicBool) {
    // The serving thread may have ended before.
    let awaited = || {
        assert!(!is_over.load(Ordering::Relaxed), "served to the end");
        std::thread::yield_now();
    };
    while !room.join("begun").exists() {
        awaited();
    }
    let is_kvm = fs::read_to_string(room.join("begun")).unwrap().contains("-accel kvm");
    fs::remove_file(room.join("begun")).unwrap();
    let end = |how: &str| {
        fs::write(room.join("end.new"), how).unwrap();
        fs::rename(room.join("end.new"), room.join("end")).unwrap();
    };
    let Turn::Runs(states) = turn else { return end("kill -ABRT $$") };
    let places = Places::of(folder);
    let _console = UnixListener::bind(&places.console).unwrap();
    let control = UnixListener::bind(&places.control).unwrap();
    control.set_nonblocking(true).unwrap();
    let mut qmp = loop {
        match control.accept() {
            Ok((qmp, _)) => break qmp,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => awaited(),
            Err(error) => panic!("{error}"),
        }
    };
    qmp.set_nonblocking(false).unwrap();
    writeln!(qmp, "{{\"QMP\":{{}}}}").unwrap();
    let mut coming = states.iter();
    let mut next = |qmp: &mut dyn io::Write| {
        let state = coming.next();
        match state {
            Some(&"running") => writeln!(qmp, "{{\"event\":\"RESUME\"}}").unwrap(),
            Some(_) => writeln!(qmp, "{{\"event\":\"STOP\"}}").unwrap(),
            // This QEMU would not read the request to end; the next one would.
            None if states.last() == Some(&INTERNAL_ERROR) => {}
            None => end("exit 0"),
        }
        state
    };
    let mut state = None;
    for line in BufReader::new(qmp.try_clone().unwrap()).lines().map_while(Result::ok) {
        let asked: serde_json::Value = serde_json::from_str(&line).unwrap();
        let command = asked["execute"].as_str().unwrap();
        let answer = match command {
            "query-cpus-fast" => serde_json::json!([]),
            "query-kvm" => serde_json::json!({ "enabled": is_kvm }),
            "query-status" => serde_json::json!({ "status": state }),
            _ => serde_json::json!({}),
        };
        // A QEMU that was killed receives nothing.
        let _ = writeln!(qmp, "{}", serde_json::json!({ "return": answer, "id": asked["id"] }));
        if command == "cont" || command == "query-status" {
            state = next(&mut qmp);
        }
    }
}

#[test]
fn a_guest_that_kvm_stops_with_an_internal_error_restarts_emulated_if_allowed() {
    let turns = &[Turn::Runs(&[INTERNAL_ERROR]), Turn::Runs(&[])];
    let (ended, log) = served("falls-back", Accel::Auto, turns);
    assert_eq!(ended.unwrap(), GuestEnd::ByItself, "{log}");
    let emulated = "EMULATED, many times slower than the processor: KVM failed: internal-error";
    for line in [
        "hmi runs, by the processor (KVM) []\n",
        "the guest DOES NOT RUN (internal-error): KVM or the emulator could not continue; see QEMU's messages above",
        "under KVM: the guest cannot continue (internal-error): ",
        &format!("hmi runs, {emulated} [{emulated}]\n"),
    ] {
        assert!(log.contains(line), "{line} in {log}");
    }
}

#[test]
fn a_guest_that_requires_kvm_fails_with_its_internal_error() {
    let (ended, log) = served("only-kvm", Accel::Kvm, &[Turn::Runs(&[INTERNAL_ERROR])]);
    let error = ended.unwrap_err().to_string();
    assert!(
        error.starts_with("the guest cannot continue (internal-error): ") && error.contains("accel = \"emulated\""),
        "{error}"
    );
    assert!(!log.contains("EMULATED"), "{log}");
}

#[test]
fn a_guest_is_emulated_if_qemu_cannot_start_with_kvm() {
    let (ended, log) = served("no-begin", Accel::Auto, &[Turn::Aborts, Turn::Runs(&[])]);
    assert_eq!(ended.unwrap(), GuestEnd::ByItself, "{log}");
    assert!(log.contains("under KVM: QEMU ended with signal: 6 (SIGABRT)"), "{log}");
    assert!(log.contains("the processor: KVM failed: QEMU ended with signal: 6 (SIGABRT)"), "{log}");
}

#[test]
fn a_temporary_stop_of_a_guest_is_reported_and_noted_until_it_continues() {
    let (ended, log) = served("still", Accel::Auto, &[Turn::Runs(&["io-error", "running", "paused", "running"])]);
    assert_eq!(ended.unwrap(), GuestEnd::ByItself, "{log}");
    for line in
        ["the guest DOES NOT RUN (io-error): a write", "the guest DOES NOT RUN (paused): it was paused through QEMU"]
    {
        assert!(log.contains(line), "{line} in {log}");
    }
    assert_eq!(log.matches("the guest runs again").count(), 2, "{log}");
    // The note is updated after the message.
    assert!(log.contains("the guest runs again [the guest DOES NOT RUN (io-error)"), "reported: {log}");
    assert!(
        log.contains("it was paused through QEMU's monitor; continue it with `tahti guest resume` []\n"),
        "no longer: {log}"
    );
}

#[test]
fn virtualization_support_is_detected_by_the_flags_of_the_processor() {
    assert!(virtualizes("processor\t: 0\nflags\t\t: fpu vmx\n") && virtualizes("flags\t\t: fpu svm\n"));
    assert!(!virtualizes("flags\t\t: fpu hypervisor\nvmx flags\t: ept\n"));
    assert!(virtualizes("Features\t: fp asimd\n"), "other processors do not show it there");
}
