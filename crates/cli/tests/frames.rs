//! A frame and its activities as separate processes: what happens when each of them dies, stands still or comes twice.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A watchdog: nothing here takes long, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the test, killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(args: &[&str], plant: &str, frame: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
        command.args(args).env("TAHTI_PLANT", plant).stdout(Stdio::piped()).stderr(Stdio::null());
        frame.map(|frame| command.env("TAHTI_FRAME", frame));
        let mut child = command.spawn().unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { child, lines, seen: vec![] }
    }

    /// Waits for a line that contains this.
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
                    panic!("{text:?} was not said; but:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    fn signal(&self, signal: i32) {
        sys::child::kill(self.child.id() as i32, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A frame with two activities, without any privilege: the priority and CPU of real plants do not matter here.
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
    // Variables are exported under the activity's name, which tests that run side by side must not share.
    Running::start(
        &["demo", "activity", "fast", name, "--work", "10us", "--exports", &format!("{plant}-{name}")],
        plant,
        None,
    )
}

/// What `tahti frames show` says of an activity: its calls.
fn calls(plant: &str, name: &str) -> u64 {
    let out =
        Command::new(env!("CARGO_BIN_EXE_tahti")).args(["frames", "show", &format!("{plant}/fast")]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let line = text.lines().rfind(|line| line.starts_with(name) && !line.contains("takes")).unwrap_or_default();
    line.split_whitespace().nth(2).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Waits until an activity has made more calls.
fn goes_on(plant: &str, name: &str) {
    let (before, until) = (calls(plant, name), Instant::now() + PATIENCE);
    while calls(plant, name) < before + 3 {
        assert!(Instant::now() < until, "{name} makes no calls any more");
    }
}

#[test]
fn an_activity_that_is_killed_costs_the_others_nothing_and_may_come_again() {
    let plant = format!("kill{}", std::process::id());
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let (_steady, troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    goes_on(&plant, "troubled");
    let mut twice = Command::new(env!("CARGO_BIN_EXE_tahti"));
    let twice =
        twice.args(["demo", "activity", &format!("{plant}/fast"), "troubled", "--exports", "twice"]).output().unwrap();
    let refusal = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(!twice.status.success() && refusal.contains("has joined as it already"), "{refusal}");
    troubled.signal(9);
    frame.says("troubled is gone");
    goes_on(&plant, "steady");
    drop(troubled);
    let _again = activity(&plant, "troubled");
    frame.says("troubled joined");
    goes_on(&plant, "troubled");
}

#[test]
fn a_debugger_that_stops_an_activity_is_named_as_the_cause() {
    let plant = format!("stop{}", std::process::id());
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let (_steady, troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    goes_on(&plant, "troubled");
    troubled.signal(19);
    let line = frame.says("stopped (debugger or signal)");
    assert!(line.contains("troubled"), "{line}");
    goes_on(&plant, "steady");
    troubled.signal(18);
    goes_on(&plant, "troubled");
}

#[test]
fn restart_kills_an_activity_that_does_not_behave() {
    let plant = format!("again{}", std::process::id());
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "restart")));
    frame.says("waits for its activities");
    let (_steady, mut troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    // On a busy machine it may have misbehaved without this already.
    troubled.signal(19);
    let line = frame.says(", restart");
    assert!(line.contains("troubled"), "{line}");
    frame.says("troubled is gone");
    assert!(!troubled.child.wait().unwrap().success());
    goes_on(&plant, "steady");
}

#[test]
fn activities_end_when_their_frame_is_killed_and_nothing_is_left_of_it() {
    let plant = format!("dead{}", std::process::id());
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
    let (mut steady, mut troubled) = (activity(&plant, "steady"), activity(&plant, "troubled"));
    frame.says("frame fast runs");
    goes_on(&plant, "troubled");
    frame.signal(9);
    for activity in [&mut steady, &mut troubled] {
        activity.says("ends with its frame");
        assert!(activity.child.wait().unwrap().success());
    }
    frame.child.wait().unwrap();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&format!("tahti-frame-{plant}-fast")), "its socket is still there");
    // The name is free again.
    let mut frame = Running::start(&["frames", "run"], &plant, Some(&frame_json("fast", "none")));
    frame.says("waits for its activities");
}
