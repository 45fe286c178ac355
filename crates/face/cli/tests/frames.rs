//! A frame and its activities as separate processes: each of them dies, hangs or starts twice.

use harness::plant::{Bench, sh};
use harness::process::{alive, kill};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Watchdog: the steps are short, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the test, killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(args: &[&str], plant: &str, frame: Option<&str>) -> Self {
        let mut command = harness::tahti();
        command.args(args).env("TAHTI_PLANT", plant).stdout(Stdio::piped()).stderr(Stdio::null());
        frame.map(|frame| command.env("TAHTI_FRAME", frame));
        let mut child = command.spawn().unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { child, lines, seen: vec![] }
    }

    /// Waits for a line that contains `text`.
    fn says(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{text:?} was not printed; but:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    fn signal(&self, signal: i32) {
        sys::process::Process::open(self.child.id() as i32).unwrap().signal(signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A frame with two activities that needs no privilege: priority and CPU do not matter in this test.
fn frame_json(name: &str, recovery: &str) -> String {
    let queue = r#"[[0, {"underrunnable":false,"overrunnable":false,"continuable":false,"background":false}]]"#;
    let activity = |name: &str, recovery: &str| {
        format!(r#"{{"name":"{name}","budget":"100us","queue":{queue},"recovery":"{recovery}","tolerate":null}}"#)
    };
    format!(
        r#"{{"spec":{{"name":"{name}","base":"timer","minors":["5ms"],"activities":[{},{}],"modes":[],"reserve":"0s"}},
           "cpu":null,"priority":50,"join_within":"60s","followers":[]}}"#,
        activity("steady", "none"),
        activity("troubled", recovery)
    )
}

fn activity(plant: &str, name: &str) -> Running {
    // Variables are exported under the activity's name, so parallel tests need different names.
    Running::start(
        &["demo", "activity", "fast", name, "--work", "10us", "--exports", &format!("{plant}-{name}")],
        plant,
        None,
    )
}

/// The number of calls of an activity, as `tahti frames show` prints it.
fn calls(frame: &str, name: &str) -> u64 {
    let out = harness::tahti().args(["frames", "show", frame]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let line = text.lines().rfind(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(2).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Waits until an activity has made more calls.
fn goes_on(frame: &str, name: &str) {
    let (before, until) = (calls(frame, name), Instant::now() + PATIENCE);
    while calls(frame, name) < before + 3 {
        assert!(Instant::now() < until, "{name} makes no further calls");
    }
}

#[test]
fn a_killed_activity_does_not_disturb_the_others_and_may_join_again() {
    let plant = format!("kill{}", std::process::id());
    let fast = format!("{plant}/fast");
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let (_steady, troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    goes_on(&fast, "troubled");
    let mut twice = harness::tahti();
    let twice =
        twice.args(["demo", "activity", &format!("{plant}/fast"), "troubled", "--exports", "twice"]).output().unwrap();
    let refusal = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(!twice.status.success() && refusal.contains("has joined as it already"), "{refusal}");
    troubled.signal(9);
    frame.says("troubled is gone");
    goes_on(&fast, "steady");
    drop(troubled);
    let _again = activity(&plant, "troubled");
    frame.says("troubled joined");
    goes_on(&fast, "troubled");
}

#[test]
fn a_debugger_that_stops_an_activity_is_named_as_the_cause() {
    let plant = format!("stop{}", std::process::id());
    let fast = format!("{plant}/fast");
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let (_steady, troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    goes_on(&fast, "troubled");
    troubled.signal(19);
    let line = frame.says("stopped (debugger or signal)");
    assert!(line.contains("troubled"), "{line}");
    goes_on(&fast, "steady");
    troubled.signal(18);
    goes_on(&fast, "troubled");
}

#[test]
fn restart_kills_an_activity_that_does_not_behave() {
    let plant = format!("again{}", std::process::id());
    let fast = format!("{plant}/fast");
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "restart")));
    frame.says("waits for its activities");
    let (steady, mut troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    // Simulates a faulty activity that overwrites the process id in its page.
    let watcher = rt::frames::Watcher::open(&fast).unwrap();
    watcher.page().set_who(1, ring::Presence::Joined, steady.child.id(), steady.child.id());
    // The stopped process fails its next call. On a busy machine a call may have failed already.
    troubled.signal(19);
    let line = frame.says(", restart");
    assert!(line.contains("troubled"), "{line}");
    frame.says("troubled is gone");
    assert!(!troubled.child.wait().unwrap().success());
    goes_on(&fast, "steady");
}

#[test]
fn a_frame_without_free_descriptors_reports_it_once_and_continues_when_it_has_some() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let plant = format!("full{}", std::process::id());
    let fast = format!("{plant}/fast");
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let open = std::fs::read_dir(format!("/proc/{}/fd", frame.child.id())).unwrap().count() as u64;
    let limit = Rlimit { current: Some(open + 2), maximum: Some(open + 2) };
    prlimit(Pid::from_raw(frame.child.id() as i32), Resource::Nofile, limit).unwrap();
    let address = rt::frames::address(&fast);
    let callers: Vec<_> = (0..5).map(|_| sys::handover::connect(&address).unwrap()).collect();
    frame.says("serve a caller");
    drop(callers);
    while rt::frames::Watcher::open(&fast).is_err() {
        std::thread::yield_now();
    }
    let _steady = activity(&plant, "steady");
    // A joining activity may be refused for the same reason: it needs more descriptors than are available.
    frame.says("steady");
    let told = frame.seen.iter().filter(|line| line.contains("serve a caller")).count();
    assert_eq!(told, 1, "{:?}", frame.seen);
}

#[test]
fn activities_end_when_their_frame_is_killed_and_nothing_of_it_remains() {
    let plant = format!("dead{}", std::process::id());
    let fast = format!("{plant}/fast");
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let (mut steady, mut troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    goes_on(&fast, "troubled");
    frame.signal(9);
    for activity in [&mut steady, &mut troubled] {
        assert!(!activity.child.wait().unwrap().success(), "it fails, so that a plant restarts it with its frame");
    }
    frame.child.wait().unwrap();
    assert!(!sockets().contains(&format!("tahti-frame-{plant}-fast")), "its socket still exists");
    // The name can be used again.
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
}

/// A plant with a frame and two activities, and the frame's name, which is unique on this machine.
fn plant(name: &str) -> (Bench, String) {
    let frame = format!("{name}{}", std::process::id());
    let activity = |name: &str| {
        format!(
            "[[process]]\nname = \"{name}\"\nrestart = {{ backoff = \"0s\" }}\n\
             command = \"tahti demo activity {frame} {name} --work 10us --exports {frame}-{name}\"\n\
             [[frame.activity]]\nname = \"{name}\"\nbudget = \"100us\"\n"
        )
    };
    let text = format!(
        "[[frame]]\nname = \"{frame}\"\nminors = 2\nperiod = \"5ms\"\njoin_within = \"60s\"\n{}{}",
        activity("steady"),
        activity("troubled")
    );
    let bench = Bench::new(name, &text);
    bench.ok(&["up", ".", "--detach"]);
    (bench, frame)
}

#[test]
fn activities_that_overran_are_named_in_the_verdict() {
    let frame = format!("over{}", std::process::id());
    let text = format!(
        "[[frame]]\nname = \"{frame}\"\nminors = 2\nperiod = \"5ms\"\njoin_within = \"60s\"\nmiss_ratio_max = \"0%\"\n\
         [[frame.activity]]\nname = \"slow\"\nbudget = \"100us\"\ndeadline = {{ at = \"1ms\", kind = \"firm\" }}\n\
         [[process]]\nname = \"slow\"\ncommand = \"tahti demo activity {frame} slow --work 20ms\"\n"
    );
    let bench = Bench::new("over", &text);
    bench.ok(&["up", ".", "--detach"]);
    goes_on(&format!("p/{frame}"), "slow");
    let said = harness::process::text(&bench.run(&["down"]));
    let last = said.lines().last().unwrap();
    assert!(
        last.contains(": failed: ")
            && last.contains(" activities overran in ")
            && last.contains(", more than its limit of 0 %"),
        "{said}"
    );
    assert!(!last.contains(" 0 activities overran"), "{said}");
    assert!(last.contains(&format!("{frame}: 0.00 % of the full value obtained (")), "each call takes longer: {said}");
}

#[test]
fn an_activity_that_no_program_joins_breaks_the_promise_of_its_frame_until_one_joins() {
    let frame = format!("wrong{}", std::process::id());
    let text = format!(
        "[[frame]]\nname = \"{frame}\"\nminors = 2\nperiod = \"5ms\"\njoin_within = \"1s\"\n\
         [[frame.activity]]\nname = \"steady\"\nbudget = \"100us\"\n"
    );
    let bench = Bench::new("wrong", &(text + &sh("steady", "exec sleep 1000", "")));
    bench.ok(&["up", ".", "--detach"]);
    let found = bench.until_row(&frame, "serves", "broken");
    let expected = format!(
        "activity steady has not joined within 1s; expected a program that joins frame \"{frame}\" by this name"
    );
    assert_eq!(found["evidence"], *expected);
    let _late =
        Running::start(&["demo", "activity", &format!("p/{frame}"), "steady", "--exports", &frame], "elsewhere", None);
    bench.until_row(&frame, "serves", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains(&format!("failed: {frame}: activity steady has not joined")), "{last}");
}

/// Waits until both activities make progress.
fn both_go_on(frame: &str) {
    ["steady", "troubled"].into_iter().for_each(|name| goes_on(&format!("p/{frame}"), name));
}

#[test]
fn frames_continue_without_their_supervisor_and_under_the_next_one() {
    let (bench, frame) = plant("nosup");
    both_go_on(&frame);
    let before = bench.process(&frame)["pid"].clone();
    let supervisor = bench.supervisor();
    kill(supervisor, "KILL");
    bench.until("killed", || !alive(supervisor));
    both_go_on(&frame);
    bench.ok(&["up", ".", "--detach"]);
    assert_eq!(bench.process(&frame)["pid"], before, "the frame was adopted, not restarted");
    both_go_on(&frame);
    bench.ok(&["down"]);
    assert!(!sockets().contains(&frame), "its socket still exists");
}

#[test]
fn killed_processes_and_keepers_of_a_plant_with_a_frame_are_restarted() {
    let (bench, frame) = plant("each");
    both_go_on(&frame);
    for process in [frame.as_str(), "troubled"] {
        for which in ["pid", "keeper"] {
            let id = |bench: &Bench| bench.process(process)[which].as_i64();
            let killed = id(&bench).unwrap();
            kill(killed as i32, "KILL");
            let what = format!("the {which} of {process} is another one");
            bench.until(&what, || id(&bench).is_some_and(|now| now != killed));
            both_go_on(&frame);
        }
    }
    bench.ok(&["down"]);
    assert!(!sockets().contains(&frame), "its socket still exists");
}

#[test]
fn a_plant_that_goes_down_ends_its_frame_first_and_then_its_activities() {
    let (bench, frame) = plant("ends");
    both_go_on(&frame);
    bench.ok(&["down"]);
    let log = bench.log();
    assert!(log.contains(&format!("{frame}: SIGTERM sent")), "{log}");
    let place = |text: &str| log.find(text).unwrap_or_else(|| panic!("no {text} in {log}"));
    for activity in ["steady", "troubled"] {
        // SIGTERM may arrive while the activity ends. It ends because yield returned 0, not by the signal.
        let ended = ["ended: exit 0", "ended: stopped (exit 0)"].map(|how| format!("{activity}: {how}"));
        let end = ended.iter().find(|line| log.contains(*line)).unwrap_or_else(|| panic!("{activity}: {log}"));
        assert!(place(&format!("{frame}: SIGTERM sent")) < place(end), "{log}");
    }
    let said = bench.ok(&["logs", &frame, "--plant", "p", "-n", "100000"]);
    assert!(said.contains("absences 0,") && !said.contains(" died"), "their end is not counted as a fault: {said}");
}

#[test]
fn a_frame_alone_in_its_plant_runs_with_activities_started_elsewhere() {
    let frame = format!("alone{}", std::process::id());
    let activity = "[[frame.activity]]\nname = \"steady\"\nbudget = \"100us\"\n";
    let text =
        format!("[[frame]]\nname = \"{frame}\"\nminors = 2\nperiod = \"5ms\"\njoin_within = \"60s\"\n{activity}");
    let bench = Bench::new("alone", &text);
    // The activity joins as soon as the frame exists.
    let address = format!("p/{frame}");
    let _steady = Running::start(&["demo", "activity", &address, "steady", "--exports", &frame], "elsewhere", None);
    bench.ok(&["up", ".", "--detach"]);
    goes_on(&address, "steady");
    bench.ok(&["down"]);
}

fn sockets() -> String {
    std::fs::read_to_string("/proc/net/unix").unwrap()
}
