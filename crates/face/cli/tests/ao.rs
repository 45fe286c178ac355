//! `examples/ao` end to end, without privileges and at a low rate: the loop closes, and lost packets are counted.

use harness::plant::Bench;
use harness::port::free_port;
use harness::process::{Running, finish, text};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// One of this many frames is archived.
const EVERY: u64 = 5;

/// Newest image of a float stream with its frame number, read as any program would. `None` during a write.
fn image(path: &Path) -> Option<(u64, Vec<f32>)> {
    let file = File::open(path).ok()?;
    let head = || {
        let mut head = [0; 384];
        file.read_exact_at(&mut head, 0).ok()?;
        let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap());
        (head[288] == 0).then(|| (word(264), word(280), word(128)))
    };
    let before = head()?;
    let mut bytes = vec![0; 4 * before.2 as usize];
    file.read_exact_at(&mut bytes, 384).ok()?;
    let floats = bytes.chunks(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect();
    (head()? == before).then_some((before.1, floats))
}

/// Records further archived frames (slopes and commands) as they are in the streams.
fn witness(bench: &Bench, seen: &mut BTreeMap<u64, [Vec<f32>; 2]>) {
    let wanted = seen.len() + 8;
    bench.until("frames are seen", || {
        let now = ["slopes", "dm"].map(|name| image(&bench.dir.join(format!("ao_{name}.im.shm"))));
        if let [Some((frame, slopes)), Some((same, commands))] = now
            && frame == same
            && frame % EVERY == 0
        {
            seen.insert(frame, [slopes, commands]);
        }
        // Frames may arrive between two reads.
        std::thread::sleep(Duration::from_millis(1));
        seen.len() >= wanted
    });
}

/// Reads frames until the archive contains some of them unchanged.
fn frames_are_archived(bench: &Bench, figure: &str) {
    let mut seen = BTreeMap::new();
    // On a busy machine the logger may miss most frames.
    bench.until("frames are archived as they were seen", || {
        witness(bench, &mut seen);
        are_archived(bench, &seen, figure)
    });
}

/// Whether the archive has the same frames: slopes and commands as seen, and the figure that the loop computed from
/// the slopes.
fn are_archived(bench: &Bench, seen: &BTreeMap<u64, [Vec<f32>; 2]>, figure: &str) -> bool {
    // Queries each signal by name; fails until the archive has all three. Notes about pulses that some signals lack
    // are excluded.
    let signals = ["streams/ao_dm", "streams/ao_slopes", figure];
    let words =
        [&["archive", "get", "archive"], &signals[..], &["--from", "-20s", "--join", "pulse", "--format", "json"]]
            .concat();
    let output = bench.run(&words);
    let rows = String::from_utf8(output.stdout).unwrap();
    let floats = |value: &serde_json::Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    let mut found = 0;
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let [commands, slopes] = ["streams/ao_dm", "streams/ao_slopes"].map(|name| floats(&row[name]));
        let square: f64 = slopes.iter().map(|slope| f64::from(*slope).powi(2)).sum();
        let (mean, figure) = ((square / slopes.len() as f64).sqrt(), row[figure].as_f64().unwrap());
        assert!((mean - figure).abs() <= 1e-4 * figure, "slopes of {mean}, the loop printed {figure}: {row}");
        let frame = row["pulse"].as_u64().unwrap();
        if let Some(seen) = seen.get(&frame) {
            assert_eq!(*seen, [slopes, commands], "frame {frame}");
            found += 1;
        }
    }
    found >= 2
}

/// The example in a separate folder with separate names and ports: a small pupil, a slow camera, a lossy network, no
/// shield.
fn example() -> (Bench, String, [String; 2]) {
    let server = harness::fresh("ao");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/ao");
    let (pixels, commands) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let own = |text: &str| {
        let text = text.replace("\"ao-messages\"", &format!("\"{server}\""));
        let text = text.replace("\"ao-settings\"", &format!("\"{server}-settings\""));
        let text = text.replace("from = \"ao\"", &format!("from = \"{server}-loop\""));
        let text = text.replace("from = \"telescope\"", &format!("from = \"{server}-sky\""));
        text.replace("@ao/", &format!("@{server}-loop/")).replace("@telescope/", &format!("@{server}-sky/"))
    };
    let plant = own(&std::fs::read_to_string(example.join("plant.toml")).unwrap());
    let (_, processes) = plant.split_once("[[process]]").unwrap();
    let (processes, _) = processes.split_once("# The variables of every frame").unwrap();
    // A budget is only for real-time classes.
    let is_budget = |line: &&str| line.starts_with("budget = ");
    let processes: String = processes.lines().filter(|line| !is_budget(line)).flat_map(|line| [line, "\n"]).collect();
    let processes = processes
        .replace("# It simulates for most of each period, which is no runaway.\n", "")
        .replace("# Inverts a matrix before it closes.\n", "");
    let slow = "\"--across\", \"12\", \"--period\", \"10ms\"";
    let sky = format!(
        "\"telescope\", {slow}, \"--to\", \"{pixels}\", \"--listen\", \"{commands}\", \"--exports\", \"{server}-sky\", \"--lose\", \"10\", \"--late\", \"5\", \"--reorder\", \"5\"]"
    );
    let control = format!(
        "\"ao\", {slow}, \"--pixels\", \"{pixels}\", \"--commands\", \"{commands}\", \"--exports\", \"{server}-loop\", \"--settings\", \"{server}-settings\", \"--messages\", \"{server}\", \"--streams\", \".\", \"--open\"]"
    );
    let processes = processes.replace("\"telescope\"]\nclass = \"fifo:20\"", &sky).replace(
        &format!(
            "\"ao\", \"--messages\", \"{server}\", \"--streams\", \"/dev/shm\"]\nclass = \"fifo:80\"\ncpus = \"shield\""
        ),
        &control,
    );
    let processes = processes.replace("heartbeat = { within = \"500ms\" }", "heartbeat = { within = \"60s\" }");
    let processes = processes.replace("miss_ratio_max = \"1%\"", "miss_ratio_max = \"100%\"");
    assert!(processes.contains(&sky) && processes.contains(&control), "{processes}");
    let archive = format!(
        "[archive]\nname = \"archive\"\nfolder = \"archive\"\nsync = \"50ms\"\n\
         [[signal]]\nstreams = [\"./ao_slopes.im.shm\", \"./ao_dm.im.shm\"]\nvariables = [\"{server}-loop/slopes\"]\nevery = {EVERY}\n"
    );
    let bench = Bench::new("ao", &format!("[[process]]{processes}{archive}"));
    for file in ["settings.toml", "ao.db"] {
        std::fs::write(bench.dir.join(file), own(&std::fs::read_to_string(example.join(file)).unwrap())).unwrap();
    }
    (bench, server, [pixels, commands])
}

#[test]
fn a_loop_closes_by_a_message_counts_lost_packets_and_returns_after_a_kill() {
    let (bench, server, ports) = example();
    let port = free_port();
    let tahti = |words: &[&str]| {
        let mut command = bench.tahti(words);
        let variables = [
            ("EPICS_CA_SERVER_PORT", port.to_string()),
            ("EPICS_CA_REPEATER_PORT", (port + 1).to_string()),
            ("EPICS_CA_ADDR_LIST", "127.0.0.1".into()),
            ("EPICS_CA_AUTO_ADDR_LIST", "NO".into()),
            ("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1".into()),
            ("TAHTI_MESSAGES", server.clone()),
        ];
        command.envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(command.spawn().unwrap());
        (output.status.success(), text(&output).trim().to_owned())
    };
    let (good, said) = tahti(&["up", ".", "--detach"]);
    assert!(good, "{said}");
    assert!(said.contains("plant p is up"), "{said}");
    let ask = |message: &str| tahti(&["msg", "send", "--timeout", "60s", message]);
    let send = |message: &str| {
        let (good, said) = ask(message);
        assert!(good, "{message}: {said}\n{}", bench.log());
    };
    // On a busy machine a value may be stale for a while. It is not a number then.
    let number = |message: &str| ask(message).1.trim_end_matches("nm").parse::<f64>().unwrap_or(f64::NAN);
    let nm = |what: &str| number(&format!("get/ao_loop/{what}"));
    let figure = format!("{server}-loop/slopes");
    frames_are_archived(&bench, &figure);
    let mut open = 0.0;
    bench.until("the residual is that of the open loop", || {
        open = nm("residual");
        open > 50.0 && (open - nm("air")).abs() < 0.2 * open
    });
    send("put/ao_loop/closed");
    bench.until("closed", || nm("residual") < 0.4 * nm("air"));
    send("put/ao_loop/gain=0.3");
    bench.until("shown", || (number("get/ao_loop/gain") - 0.3).abs() < 1e-6);
    send("put/ao_loop/open");
    bench.until("open again", || nm("residual") > 0.9 * nm("air"));
    let value = |name: &str| {
        let said = text(&bench.run(&["em", "values", &format!("{server}-loop")]));
        let line = said.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let values = |name: &str| value(name).unwrap_or_else(|| panic!("no {name}\n{}", bench.log()));
    for counted in ["lost", "late", "reordered", "patched", "whole"] {
        bench.until(counted, || values(counted) > 0.0);
    }
    assert_eq!((values("held"), values("unbounded"), values("foreign")), (0.0, 0.0, 0.0));
    // A process variable has the same effect as a message.
    let (good, said) = tahti(&["caput", "-w", "30", "AO:gain", "0.4"]);
    assert!(good, "{said}");
    bench.until("shown", || (number("get/ao_loop/gain") - 0.4).abs() < 1e-6);
    bench.until("read", || tahti(&["caget", "-w", "30", "-t", "AO:gain:now"]).1 == "0.4");
    // The reconstructor can be saved, loaded and measured again. One of another shape is refused and changes nothing.
    assert!(ask("describe/ao_calibration").1.contains("reconstructor=FILE"));
    let (saved, said) = ask("put/ao_calibration/save");
    assert!(saved && said.contains(bench.dir.to_str().unwrap()), "{said}");
    send("put/ao_calibration/reconstructor=reconstructor.npy");
    bench.until("exchanged", || values("exchanged") == 1.0);
    let wrong = ask("put/ao_calibration/reconstructor=dark.npy");
    assert!(!wrong.0 && wrong.1.contains("96 x 96 numbers; expected"), "{wrong:?}");
    // The same for a file that is larger than expected.
    let wrong = ask("put/ao_calibration/zeros=reconstructor.npy");
    assert!(!wrong.0 && wrong.1.contains("x 1 for zeros"), "{wrong:?}");
    assert!(!ask("put/ao_calibration/reconstructor=../x.npy").0 && !ask("put/ao_calibration/x").0);
    let said = ask("put/ao_calibration/run");
    assert!(said.0 && said.1.contains("actuators poked"), "{said:?}");
    let said = ask("get/ao_calibration/latency");
    assert!(said.0 && said.1.contains("frames"), "{said:?}");
    bench.until("measured", || values("hardware-frames") >= 1.0);
    assert_eq!(values("exchanged"), 2.0);
    for stream in ["wfs", "slopes", "dm", "telemetry"] {
        assert_eq!(&std::fs::read(bench.dir.join(format!("ao_{stream}.im.shm"))).unwrap()[..4], b"2.00");
    }
    // Other packets are counted and change nothing.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in &ports {
        for bytes in [&b""[..], b"x", &[0x80; 60], &[0; 4000]] {
            stranger.send_to(bytes, port).unwrap();
        }
    }
    bench.until("foreign", || values("foreign") >= 4.0);
    bench.until("closed again", || {
        send("put/ao_loop/closed");
        nm("residual") < 0.4 * nm("air")
    });
    // After a kill the loop restarts: it repeats all measurements, replaces the streams left behind, and closes the
    // loop.
    let killed = bench.pid("loop");
    assert!(Command::new("kill").args(["-KILL", &killed.to_string()]).status().unwrap().success());
    bench.until("restarted", || bench.process("loop")["pid"].as_i64().is_some_and(|pid| pid != i64::from(killed)));
    bench.until("counts from its start", || {
        value("exchanged") == Some(0.0) && value("whole").is_some_and(|frames| frames > 0.0)
    });
    bench.until("closed by the second loop", || {
        send("put/ao_loop/closed");
        nm("residual") < 0.4 * nm("air")
    });
    frames_are_archived(&bench, &figure);
    let kept = bench.ok(&["archive", "get", "archive", "streams/ao_slopes"]);
    assert!(kept.contains("-- source restarted"), "{kept}");
    let down = text(&bench.run(&["down", "p"]));
    assert!(down.contains("loop"), "{down}");
    // The process ends cleanly with all its threads.
    let log = bench.ok(&["logs", "loop"]);
    assert!(log.contains("frames: ") && log.contains("after arming: allocations 0"), "{log}");
    for stream in ["wfs", "slopes", "dm", "telemetry"] {
        let left = bench.dir.join(format!("ao_{stream}.im.shm"));
        assert!(!left.exists(), "{} still exists after the end of its loop", left.display());
    }
}

#[test]
fn an_armed_loop_with_streams_allocates_nothing_and_has_no_page_faults() {
    let (pixels, commands) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let [sky, own] = ["sky", "ao"].map(harness::fresh);
    let demo = |words: &[&str]| {
        let mut command = harness::tahti();
        command.arg("demo").args(words).args(["--across", "12", "--period", "5ms"]);
        command
    };
    let _sky =
        Running::until(&mut demo(&["telescope", "--to", &pixels, "--listen", &commands, "--exports", &sky]), "armed: ");
    // In memory: writes to a file on a disk cause page faults.
    let prefix = format!("{own}_");
    let streams = ["--streams", "/dev/shm", "--prefix", &prefix, "--for", "1s"];
    let names = ["--pixels", &pixels, "--commands", &commands, "--exports", &own, "--settings", &sky];
    let mut control = demo(&[&["ao"], &names[..], &streams].concat());
    let output = finish(control.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let armed = said.lines().find_map(|line| line.split_once("; after arming: ")).unwrap_or_else(|| panic!("{said}")).1;
    let (allocations, faults) = armed.split_once(", ").unwrap();
    assert_eq!(allocations, "allocations 0", "{said}");
    // If memory cannot be locked, page faults are allowed.
    if !said.contains("memory locked") {
        assert_eq!(faults, "page faults 0 + 0", "{said}");
    }
    let frames = said.lines().find_map(|line| line.strip_prefix("frames: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(frames.split(' ').next().unwrap().parse::<u64>().unwrap() > 10, "{said}");
}

#[test]
fn impossible_options_of_loops_and_cameras_are_refused_before_any_wait() {
    for (words, expected) in [
        ("ao --workers 5000", "--workers 5000: the process has"),
        ("ao --gain 2.5", "--gain 2.5: expected 0 to 2"),
        ("ao --leak nan", "--leak NaN: expected 0 to 1"),
        ("ao --stroke 0", "--stroke 0: expected 1 to 1000000"),
        ("ao --regularise inf", "--regularise inf: expected 0 to 1"),
        ("ao --pixels 127.0.0.1:0 --streams /proc/none", "/proc/none"),
        ("telescope --lose 999 --late 2", "expected a sum of at most 1000"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
        command.arg("demo").args(words.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(command.spawn().unwrap());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{words}: {said}");
    }
}
