//! Keepers as separate processes, with real children.

use base::Size;
use host::plant::Bounds;
use keep::keeper::protocol::{
    ChildId, EXITS_NAME, End, Event, ExitRecord, KeeperSpec, LogSpec, Reply, Request, Target, WindowSize, line,
};
use keep::keeper::{Keeper, News, Refusal};
use keep::launch::{LaunchSpec, Terminal};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::process::Process;

/// Only a failing test reaches this timeout. Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn tahti() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tahti"))
}

/// A folder of the test. On drop, a keeper in it is ended.
struct KeeperFolder(PathBuf);

impl KeeperFolder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tahti-keeper-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn spec(&self, script: &str) -> KeeperSpec {
        let mut launch = LaunchSpec::new("loop", ["/bin/sh", "-c", script]);
        launch.terminal = Terminal::Pty;
        let log = LogSpec { path: self.0.join("log"), size: Size(1 << 20), keep: 2, also: None };
        let dir = self.0.join("keeper");
        KeeperSpec {
            dir,
            launch,
            bounds: Bounds::default(),
            within: Vec::new(),
            log: Some(log),
            ready_line: None,
            notify: false,
            held: false,
            operators: None,
            supervisor: None,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.join("log")).unwrap()
    }

    fn exits(&self) -> Vec<ExitRecord> {
        let text = std::fs::read_to_string(self.0.join("keeper").join(EXITS_NAME)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for KeeperFolder {
    fn drop(&mut self) {
        // Errors are ignored: either the test has already failed, or the keeper has ended.
        if let Ok(Some((mut keeper, status))) = Keeper::adopt(&self.0.join("keeper")) {
            if status.child.is_some() {
                let _ = keeper.signal(9, Target::All);
            }
            let process = Process::open(status.keeper.pid);
            let _ = process.and_then(|process| process.signal(15));
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(spec: &KeeperSpec) -> Keeper {
    Keeper::start(spec, tahti()).unwrap_or_else(|error| panic!("{error}"))
}

fn expect<T>(keeper: &mut Keeper, what: &str, pick: impl Fn(Event) -> Option<T>) -> T {
    loop {
        match keeper.wait_event(PATIENCE).unwrap() {
            Some(event) => {
                if let Some(found) = pick(event) {
                    return found;
                }
            }
            None => panic!("{what} did not happen"),
        }
    }
}

fn ended(keeper: &mut Keeper) -> ExitRecord {
    expect(keeper, "the exit", |event| if let Event::Exited(record) = event { Some(record) } else { None })
}

#[test]
fn a_child_runs_is_logged_and_its_end_is_recorded() {
    let place = KeeperFolder::new("runs");
    let mut keeper = start(&place.spec("echo first; test -t 0 && echo on a terminal; exit 7"));
    assert!(matches!(keeper.wait_event(PATIENCE).unwrap(), Some(Event::Started(_))));
    let record = ended(&mut keeper);
    assert_eq!(record.end, End::Exit(7));
    assert_eq!(place.exits(), std::slice::from_ref(&record));
    let log = place.log();
    assert!(log.contains("Z first\n") && log.contains("Z on a terminal\n"), "{log}");
    assert!(log.contains("ended: exit status 7"), "{log}");
    let status = keeper.status().unwrap();
    assert_eq!((status.child, status.starts, status.last_exit), (None, 1, Some(record)));
    keeper.start_child().unwrap();
    assert_eq!(ended(&mut keeper).end, End::Exit(7));
    assert_eq!(place.exits().len(), 2);
    keeper.quit().unwrap();
}

#[test]
fn a_program_that_cannot_start_is_reported_with_the_remedy() {
    let place = KeeperFolder::new("missing");
    let mut spec = place.spec("");
    spec.launch.argv = vec!["no-such-program-of-tahti".into()];
    let mut keeper = start(&spec);
    let Some(Event::LaunchFailed(text)) = keeper.wait_event(PATIENCE).unwrap() else { panic!("no LaunchFailed") };
    assert!(text.contains("\"no-such-program-of-tahti\" is in no folder of PATH"), "{text}");
    keeper.quit().unwrap();
}

#[test]
fn a_watched_child_waits_for_its_supervisor_also_for_the_next_one() {
    let place = KeeperFolder::new("held");
    let mut spec = place.spec("echo ran; read line");
    spec.held = true;
    let mut keeper = start(&spec);
    let Some(Event::Held(child)) = keeper.wait_event(PATIENCE).unwrap() else { panic!("no Held") };
    assert_eq!(std::fs::read_link(format!("/proc/{}/exe", child.pid)).unwrap(), tahti());
    assert!(keeper.start_child().unwrap_err().to_string().contains("is already running"));
    // The supervisor dies before it watches the child.
    drop(keeper);
    let (mut keeper, status) = Keeper::adopt(&place.0.join("keeper")).unwrap().expect("a keeper");
    assert_eq!((status.child, status.held), (None, Some(child)));
    assert!(!place.log().contains("ran"), "{}", place.log());
    keeper.go().unwrap();
    assert!(matches!(keeper.wait_event(PATIENCE).unwrap(), Some(Event::Started(started)) if started == child));
    assert!(keeper.go().unwrap_err().to_string().contains("no process waits"));
    keeper.signal(9, Target::All).unwrap();
    ended(&mut keeper);
    // The next child is held at its start, too. It is killed there, so it never runs.
    keeper.start_child().unwrap();
    let child = expect(&mut keeper, "Held", |event| if let Event::Held(child) = event { Some(child) } else { None });
    Process::open(child.pid).unwrap().signal(9).unwrap();
    let failed = |event| if let Event::LaunchFailed(why) = event { Some(why) } else { None };
    let why = expect(&mut keeper, "its end", failed);
    assert!(why.contains("ended before it ran: signal 9"), "{why}");
    keeper.quit().unwrap();
}

#[test]
fn keeper_and_child_outlive_the_supervisor_and_are_adopted_with_their_history() {
    let place = KeeperFolder::new("adopt");
    let mut spec = place.spec("echo up; read line; exit 4");
    spec.ready_line = Some("up".into());
    let keeper = start(&spec);
    drop(keeper);
    let dir = place.0.join("keeper");
    let (mut keeper, status) = Keeper::adopt(&dir).unwrap().expect("a keeper");
    let child = status.child.expect("a running child");
    let is_alive = |id: ChildId| Process::started_at(id.pid, id.start_ticks).is_ok_and(|process| !process.has_ended());
    assert!(is_alive(child) && is_alive(status.keeper));
    assert!(Keeper::start(&spec, tahti()).unwrap_err().to_string().contains("another keeper"));
    // The child ends while no supervisor is connected: the event is kept.
    keeper.signal(9, Target::Child).unwrap();
    drop(keeper);
    let (status, mut keeper) = loop {
        let (keeper, status) = Keeper::adopt(&dir).unwrap().expect("a keeper");
        if status.child.is_none() {
            break (status, keeper);
        }
    };
    assert_eq!(status.last_exit.unwrap().end, End::Signal { signal: 9, core: false });
    keeper.auto_restart(false).unwrap();
    assert!(!keeper.status().unwrap().auto_restart);
    keeper.quit().unwrap();
    assert!(Keeper::adopt(&dir).unwrap().is_none());
}

#[test]
fn readiness_and_notifications_reach_the_supervisor() {
    let place = KeeperFolder::new("ready");
    let script = "echo booting; echo 'beam is on'; python3 -c \"
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b'STATUS=tuning', os.environ['NOTIFY_SOCKET'])
\"; read line";
    let mut spec = place.spec(script);
    (spec.ready_line, spec.notify) = (Some("beam is".into()), true);
    let mut keeper = start(&spec);
    expect(&mut keeper, "readiness", |event| (event == Event::Ready).then_some(()));
    expect(&mut keeper, "the status", |event| (event == Event::Notify("STATUS=tuning".into())).then_some(()));
    let status = keeper.status().unwrap();
    assert_eq!((status.ready, status.said.as_deref()), (true, Some("tuning")));
}

#[test]
fn the_ready_text_is_found_in_lines_of_any_length_and_after_a_carriage_return() {
    let long = "x".repeat(600);
    for (name, script, text) in [
        ("long", format!("printf '%s' {long}"), long.clone()),
        (
            "bar",
            "i=0; while [ $i -lt 300 ]; do printf '%3d percent' $i; i=$((i+1)); done; printf armed".into(),
            "armed".into(),
        ),
        ("return", "printf 'ar\\rmed '; printf '50 %%\\rarmed'".into(), "armed".to_owned()),
    ] {
        let place = KeeperFolder::new(&format!("ready-{name}"));
        let mut spec = place.spec(&format!("{script}; read line"));
        spec.ready_line = Some(text);
        let mut keeper = start(&spec);
        expect(&mut keeper, name, |event| (event == Event::Ready).then_some(()));
    }
}

#[test]
fn a_child_with_a_heartbeat_gets_the_watchdog_variables_of_systemd() {
    let place = KeeperFolder::new("asked");
    let mut spec = place.spec("echo $WATCHDOG_USEC, $((WATCHDOG_PID - $$)).");
    spec.launch.watchdog = Some(base::DurNs::from_ms(250));
    let mut keeper = start(&spec);
    ended(&mut keeper);
    assert!(place.log().contains("Z 250000, 0.\n"), "{}", place.log());
    keeper.quit().unwrap();
}

#[test]
fn a_daemon_that_names_its_main_process_runs_until_that_process_ends() {
    let place = KeeperFolder::new("main");
    let mut spec =
        place.spec("sh -c 'echo $$ > part; mv part main; exec sleep 1000' & while [ ! -e go ]; do sleep 0.02; done");
    (spec.launch.dir, spec.notify) = (Some(place.0.clone()), true);
    let mut keeper = start(&spec);
    let first = expect(&mut keeper, "its start", |event| if let Event::Started(id) = event { Some(id) } else { None });
    let main = loop {
        if let Ok(text) = std::fs::read_to_string(place.0.join("main")) {
            break text.trim().parse::<i32>().unwrap();
        }
        std::thread::yield_now();
    };
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let send = |text: String| socket.send_to(text.as_bytes(), spec.dir.join("notify")).unwrap();
    // The test process does not belong to the daemon.
    send(format!("MAINPID={}", std::process::id()));
    send(format!("MAINPID={main}"));
    let named =
        expect(&mut keeper, "the main process", |event| if let Event::Main(id) = event { Some(id) } else { None });
    assert_eq!((named.pid, named == first), (main, false));
    std::fs::write(place.0.join("go"), "").unwrap();
    let parent = Process::started_at(first.pid, first.start_ticks);
    while parent.as_ref().is_ok_and(|parent| !parent.has_ended()) {
        std::thread::yield_now();
    }
    assert_eq!(keeper.status().unwrap().child, Some(named), "the end of the first process is not the end");
    assert!(place.log().contains("not a descendant of this keeper"), "{}", place.log());
    keeper.signal(15, Target::Group).unwrap();
    let record = ended(&mut keeper);
    assert_eq!((record.child, record.end), (named, End::Signal { signal: 15, core: false }));
    keeper.quit().unwrap();
}

#[test]
fn a_main_process_that_another_process_reaps_ends_with_an_unknown_status() {
    let place = KeeperFolder::new("unseen");
    let mut spec = place.spec("sleep 1000 & echo $! > part; mv part main; wait; sleep 1000");
    (spec.launch.dir, spec.notify) = (Some(place.0.clone()), true);
    let mut keeper = start(&spec);
    let main = loop {
        if let Ok(text) = std::fs::read_to_string(place.0.join("main")) {
            break text.trim().parse::<i32>().unwrap();
        }
        std::thread::yield_now();
    };
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    socket.send_to(format!("MAINPID={main}").as_bytes(), spec.dir.join("notify")).unwrap();
    expect(&mut keeper, "the main process", |event| matches!(event, Event::Main(_)).then_some(()));
    keeper.signal(9, Target::Child).unwrap();
    let record = ended(&mut keeper);
    assert_eq!((record.child.pid, record.end), (main, End::Unseen));
    assert!(record.left_behind >= 1, "another process than the main one ended: {record:?}");
    keeper.quit().unwrap();
}

#[test]
fn a_moved_log_is_recreated_at_sighup_or_with_the_next_line() {
    let place = KeeperFolder::new("moved");
    let mut spec = place
        .spec("until [ -e one ]; do sleep 0.02; done; echo first; until [ -e two ]; do sleep 0.02; done; echo second");
    spec.launch.dir = Some(place.0.clone());
    let mut keeper = start(&spec);
    expect(&mut keeper, "its start", |event| matches!(event, Event::Started(_)).then_some(()));
    let (log, old) = (place.0.join("log"), place.0.join("log.old"));
    std::fs::rename(&log, &old).unwrap();
    Process::open(keeper.status().unwrap().keeper.pid).unwrap().signal(sys::signal::SIGHUP).unwrap();
    while !log.exists() {
        std::thread::yield_now();
    }
    std::fs::write(place.0.join("one"), "").unwrap();
    while !place.log().contains("first") {
        std::thread::yield_now();
    }
    std::fs::remove_file(&log).unwrap();
    std::fs::write(place.0.join("two"), "").unwrap();
    ended(&mut keeper);
    assert!(std::fs::read_to_string(&old).unwrap().contains("started"));
    assert!(place.log().contains("Z second\n") && !place.log().contains("first"), "{}", place.log());
    keeper.quit().unwrap();
}

#[test]
fn processes_left_by_a_stopped_child_end_in_order_before_its_end_is_reported() {
    let place = KeeperFolder::new("left");
    // The wrapper ends at once. The wrapped process, in a separate session, needs 0.2 s for an orderly end.
    let wrapped = "trap 'sleep 0.2; echo orderly > orderly; exit' TERM; echo up; while :; do sleep 0.02; done";
    let mut spec =
        place.spec(&format!("setsid sh -c \"{wrapped}\" & trap 'exit 0' TERM; while :; do sleep 0.02; done"));
    spec.launch.dir = Some(place.0.clone());
    spec.ready_line = Some("up".into());
    let mut keeper = start(&spec);
    expect(&mut keeper, "up", |event| (event == Event::Ready).then_some(()));
    keeper.signal(15, Target::Group).unwrap();
    let record = ended(&mut keeper);
    assert_eq!(record.end, End::Exit(0));
    assert!(record.left_behind >= 1, "{record:?}");
    assert_eq!(std::fs::read_to_string(place.0.join("orderly")).unwrap(), "orderly\n");
    assert!(place.log().contains("processes that it left behind were ended, 0 by SIGKILL"), "{}", place.log());
    assert_eq!(keeper.status().unwrap().child, None);
    keeper.quit().unwrap();
}

#[test]
fn requests_to_a_stopped_keeper_do_not_block() {
    let place = KeeperFolder::new("stopped");
    let mut keeper = start(&place.spec("sleep 1000"));
    expect(&mut keeper, "its start", |event| matches!(event, Event::Started(_)).then_some(()));
    let process = keeper.process().unwrap();
    Process::open(process.pid).unwrap().signal(19).unwrap();
    let told = base::MonoNs(7);
    keeper.tell(&Request::Signal { signal: 15, to: Target::Child }, told).unwrap();
    keeper.tell(&Request::Quit, base::MonoNs(8)).unwrap();
    assert_eq!(keeper.next_news(), Ok(None));
    assert_eq!(keeper.silent_since(), Some(told));
    Process::open(process.pid).unwrap().signal(18).unwrap();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        match keeper.next_news().unwrap() {
            Some(News::Answer(answer)) => answers.push(answer),
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert_eq!(answers, [Ok(()), Err(Refusal("its process still runs".to_owned()))]);
    assert_eq!(keeper.silent_since(), None);
    assert_eq!(ended(&mut keeper).end, End::Signal { signal: 15, core: false });
    keeper.quit().unwrap();
}

#[test]
fn orphans_are_reaped_and_end_with_the_child() {
    let place = KeeperFolder::new("orphans");
    // A daemon that left its session and parent; its grandchild outlives it.
    let mut keeper = start(&place.spec("setsid sh -c 'sleep 60 & echo orphan $!' & wait; sleep 0.1; exit 0"));
    assert_eq!(ended(&mut keeper).end, End::Exit(0));
    let log = place.log();
    let orphan: i32 = log.lines().find_map(|line| line.split("orphan ").nth(1)?.parse().ok()).unwrap();
    let gone = || !Path::new(&format!("/proc/{orphan}")).exists();
    let until = std::time::Instant::now() + PATIENCE;
    while !gone() {
        assert!(std::time::Instant::now() < until, "process {orphan} still runs: {log}");
        std::thread::yield_now();
    }
    assert!(place.log().contains("1 processes that it left behind were ended, 1 by SIGKILL"), "{}", place.log());
}

/// A console as `tahti attach` opens it.
struct Console(BufReader<UnixStream>);

impl Console {
    fn open(place: &KeeperFolder, read_only: bool) -> Self {
        let stream = UnixStream::connect(place.0.join("keeper/socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (&stream).write_all(&line(&Request::Attach { read_only, size: None })).unwrap();
        let mut reader = BufReader::new(stream);
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        assert!(matches!(serde_json::from_str(&answer), Ok(Reply::Status(_))), "{answer}");
        Self(reader)
    }

    fn see(&mut self, wanted: &str) {
        let mut seen = Vec::new();
        let mut byte = [0u8];
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            let got = self.0.read(&mut byte);
            assert!(matches!(got, Ok(1)), "no {wanted:?} in {:?}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn two_consoles_share_a_child_and_a_viewer_cannot_type() {
    let place = KeeperFolder::new("console");
    let mut keeper = start(&place.spec("stty -echo; echo hello; while read a; do echo \"got <$a>\"; done"));
    expect(&mut keeper, "the start", |event| matches!(event, Event::Started(_)).then_some(()));
    let (mut one, mut two) = (Console::open(&place, false), Console::open(&place, true));
    one.see("^X kills it");
    two.see("read only");
    one.see("hello");
    two.see("hello");
    two.send("smuggled\n\u{18}");
    one.send("open valve\n");
    one.see("got <open valve>");
    two.see("got <open valve>");
    assert!(!place.log().contains("smuggled"));
    one.send("\u{14}");
    two.see("automatic restart is now off");
    expect(&mut keeper, "the toggle", |event| (event == Event::AutoRestart { on: false }).then_some(()));
    one.send("\u{18}");
    expect(&mut keeper, "the kill", |event| (event == Event::ConsoleKill).then_some(()));
    two.see("ended: signal 9");
    assert_eq!(ended(&mut keeper).end, End::Signal { signal: 9, core: false });
    one.send("\u{12}");
    expect(&mut keeper, "the request to start", |event| (event == Event::ConsoleStart).then_some(()));
    drop(keeper);
    // Without a supervisor the keeper starts the child by itself. It may notice the supervisor's disconnection only
    // in the same round: the request is repeated until it is granted.
    one.0.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        one.send("\u{12}");
        let mut bytes = [0u8; 512];
        if one.0.read(&mut bytes).is_ok_and(|got| String::from_utf8_lossy(&bytes[..got]).contains("started")) {
            break;
        }
        assert!(std::time::Instant::now() < until, "never started");
    }
}

#[test]
fn a_terminal_that_changes_its_size_changes_that_of_the_child() {
    let place = KeeperFolder::new("resize");
    let script = "trap 'stty size' WINCH; echo armed; while :; do sleep 0.05; done";
    let mut keeper = start(&place.spec(script));
    let mut console = Console::open(&place, false);
    console.see("armed");
    let mut beside = UnixStream::connect(place.0.join("keeper/socket")).unwrap();
    let size = WindowSize { rows: 33, columns: 77 };
    beside.write_all(&line(&Request::Resize { size })).unwrap();
    console.see("33 77");
    console.send("\u{18}");
    ended(&mut keeper);
}

#[test]
fn the_keys_and_the_size_of_a_terminal_reach_a_child_with_a_notify_socket() {
    let place = KeeperFolder::new("keys");
    let script = "trap 'stty size' WINCH; trap 'echo interrupted' INT; echo armed; while :; do sleep 0.05; done";
    let mut spec = place.spec(script);
    spec.notify = true;
    let mut keeper = start(&spec);
    let mut console = Console::open(&place, false);
    console.see("armed");
    let mut beside = UnixStream::connect(place.0.join("keeper/socket")).unwrap();
    beside.write_all(&line(&Request::Resize { size: WindowSize { rows: 31, columns: 78 } })).unwrap();
    console.see("31 78");
    console.send("\u{3}");
    console.see("interrupted");
    console.send("\u{1c}");
    assert!(matches!(ended(&mut keeper).end, End::Signal { signal: 3, .. }));
}

#[test]
fn a_child_with_a_notify_socket_ends_with_its_keeper() {
    let place = KeeperFolder::new("orphan");
    let mut spec = place.spec("exec sleep 1000");
    spec.notify = true;
    let mut keeper = start(&spec);
    let child = expect(&mut keeper, "its start", |event| if let Event::Started(id) = event { Some(id) } else { None });
    let process = Process::started_at(child.pid, child.start_ticks).unwrap();
    Process::open(keeper.status().unwrap().keeper.pid).unwrap().signal(9).unwrap();
    while !process.has_ended() {
        std::thread::yield_now();
    }
}

#[test]
fn a_log_is_rotated_while_the_child_runs() {
    let place = KeeperFolder::new("rotate");
    let mut spec = place.spec("i=0; while [ $i -lt 400 ]; do echo line number $i; i=$((i+1)); done");
    spec.launch.terminal = Terminal::Pipes;
    spec.log = Some(LogSpec { path: place.0.join("log"), size: Size(4096), keep: 2, also: None });
    let mut keeper = start(&spec);
    assert_eq!(ended(&mut keeper).end, End::Exit(0));
    let size = |name: &str| std::fs::metadata(place.0.join(name)).unwrap().len();
    assert!((4096..4200).contains(&size("log.1")) && (4096..4200).contains(&size("log.2")));
    assert!(!place.0.join("log.3").exists() && size("log") < 4200);
}

#[test]
fn a_keeper_that_is_terminated_ends_its_child() {
    let place = KeeperFolder::new("end");
    let mut keeper = start(&place.spec("sleep 60"));
    let status = keeper.status().unwrap();
    Process::open(status.keeper.pid).unwrap().signal(15).unwrap();
    assert!(matches!(ended(&mut keeper).end, End::Signal { signal: 15, .. }));
    while keeper.wait_event(PATIENCE).unwrap().is_some() {}
    assert!(keeper.is_lost());
}
