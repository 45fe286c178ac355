//! Frames with priorities on dedicated CPUs. Their activities are C programs; each process joins its frame by name.
#![allow(dead_code, reason = "each test binary uses its part")]

use base::{CpuId, DurNs, Policy, Priority};
use frame::{Activity, Config, Mode, Recovery, Spec, TimeBase};
use ring::{ActivityCounter, FrameCounter, FramePage, FrameState, Presence};
use rt::frames::{Cause, Report, Runner, Watcher, what_word};
use rt::{Imports, Lock, Number};
use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of each wait, for slow guests and busy machines.
const PATIENCE: Duration = Duration::from_secs(100);
/// Length of a minor frame. All calls without a fault end within it, in emulation as well.
const MINOR: DurNs = DurNs::from_ms(20);
/// Priority of the dispatcher.
const PRIORITY: Priority = Priority(40);

/// Waits until `holds` returns true.
///
/// # Panics
/// After `PATIENCE`, with `what` in the message.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Folder of the shared library, which is built once per test program: cargo builds no shared library for a test. A
/// guest has no cargo; there the library was built with the guest's tests.
fn library() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(build);
    &BUILT
}

fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().to_owned();
    let boot = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if !boot.contains("tahti.guest=") {
        let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "capi"]).status().unwrap();
        assert!(built.success(), "libtahti does not build");
    }
    assert!(folder.join("libtahti.so").exists(), "{}: no libtahti.so", folder.display());
    folder
}

/// A program that was compiled for one test. Its file is removed with it.
pub(crate) struct Program(PathBuf);

impl Deref for Program {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The compiled activity in C.
pub(crate) fn activity() -> Program {
    compiled("activity")
}

/// Compiles a program of this folder.
pub(crate) fn compiled(what: &str) -> Program {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // Tests run in parallel, so each program has its own file.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let (here, library) = (PathBuf::from(env!("CARGO_MANIFEST_DIR")), library().display().to_string());
    let program = std::env::temp_dir().join(format!("tahti-{what}-{}-{count}", std::process::id()));
    let status = Command::new("cc")
        .arg(here.join(format!("tests/separate/{what}.c")))
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .args(["-o".as_ref(), program.as_os_str()])
        .args([&format!("-L{library}"), &format!("-Wl,-rpath,{library}"), "-ltahti"])
        .status();
    assert!(status.expect("cc (a C compiler) is needed: install gcc").success());
    Program(program)
}

/// A frame served by a thread of the test, and the processes of its activities.
pub(crate) struct Frame {
    pub(crate) name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Report>>>,
    processes: Vec<Child>,
}

impl Frame {
    /// A frame on `cpu` with these activities, in order.
    pub(crate) fn new(what: &str, cpu: CpuId, base: TimeBase, names: &[&str], followers: &[&str]) -> Self {
        Self::of(what, cpu, names, followers, |spec| spec.base = base)
    }

    /// The same with a specification that `say` may change.
    fn of(what: &str, cpu: CpuId, names: &[&str], followers: &[&str], say: impl FnOnce(&mut Spec)) -> Self {
        let name = format!("sep{}/{what}", std::process::id());
        let activities = names.iter().map(|name| Activity::new(name, Some(DurNs::from_us(500)), 0..4)).collect();
        let mut spec = Spec::new(&name, vec![MINOR; 4], activities);
        say(&mut spec);
        let config = Config {
            spec,
            cpu: Some(cpu),
            priority: PRIORITY,
            join_within: DurNs::from_secs(60),
            followers: followers.iter().map(|name| (*name).to_owned()).collect(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, ready) = channel();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let mut runner = Runner::new(config).unwrap();
                tell.send(()).unwrap();
                let mut reports = vec![];
                while !stop.load(Ordering::Acquire) && !runner.is_over() {
                    runner.turn(|report| reports.push(report));
                }
                reports
            }
        });
        ready.recv().unwrap();
        Self { name, stop, thread: Some(thread), processes: vec![] }
    }

    /// Starts a process that joins the frame as `name`.
    pub(crate) fn join(&mut self, program: &Path, name: &str, every: u32, how: &str) -> u32 {
        self.join_with(program, name, every, how, &[])
    }

    fn join_with(&mut self, program: &Path, name: &str, every: u32, how: &str, more: &[&str]) -> u32 {
        let every = every.to_string();
        let mut command = Command::new(program);
        let child = command.args([&self.name, name, every.as_str(), how]).args(more).spawn().unwrap();
        let pid = child.id();
        self.processes.push(child);
        pid
    }

    /// Reads the frame's page. On a busy machine the frame's own thread, which is not real-time, may answer after the
    /// time limit of a caller.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&FramePage<'_>) -> T) -> T {
        let mut watcher = None;
        until("the frame accepts a watcher", || {
            watcher = Watcher::open(&self.name).ok();
            watcher.is_some()
        });
        read(&watcher.unwrap().page())
    }

    pub(crate) fn calls(&self, activity: usize) -> u64 {
        self.look(|page| page.activity_counter(activity, ActivityCounter::Calls))
    }

    /// Waits until each of these activities has made 20 further calls.
    pub(crate) fn go_on(&self, activities: &[usize]) {
        let before: Vec<u64> = activities.iter().map(|activity| self.calls(*activity)).collect();
        until(&format!("activities {activities:?} of {} go on", self.name), || {
            activities.iter().zip(&before).all(|(activity, before)| self.calls(*activity) >= before + 20)
        });
    }

    /// Causes of an activity's overruns and underruns so far.
    fn causes(&self, activity: u16) -> Vec<Cause> {
        self.look(|page| {
            let (mut cursor, mut causes) = (page.events(), vec![]);
            while let Some(event) = page.next_event(&mut cursor) {
                if event.activity == activity && ["overrun", "underrun"].contains(&what_word(event.what)) {
                    causes.push(Cause::of(event.cause));
                }
            }
            causes
        })
    }

    /// Ends the frame and returns its reports.
    pub(crate) fn end(mut self) -> Vec<Report> {
        self.finish()
    }

    fn finish(&mut self) -> Vec<Report> {
        self.stop.store(true, Ordering::Release);
        let reports = self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default();
        for child in &mut self.processes {
            // The process may have ended with the frame.
            let _ = child.kill();
            let _ = child.wait();
        }
        reports
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.finish();
        }
    }
}

/// A frame of three activities on `cpu`. The middle one misbehaves once.
fn troubled(cpu: CpuId, how: &str) -> (Frame, u32) {
    let program = activity();
    let mut frame = Frame::new(how, cpu, TimeBase::Timer, &["first", "troubled", "last"], &[]);
    frame.join(&program, "first", 0, "spin");
    let pid = frame.join(&program, "troubled", 30, how);
    frame.join(&program, "last", 0, "spin");
    until("the frame runs", || frame.look(|page| page.state() == FrameState::Running));
    frame.go_on(&[0, 1, 2]);
    (frame, pid)
}

/// An activity that overruns for ever is parked. The other activities keep their frames, without page faults and
/// allocations.
pub(crate) fn overruns_for_ever(cpu: CpuId) {
    let (frame, _) = troubled(cpu, "spin");
    until("its own code is the cause", || frame.causes(1).contains(&Cause::OwnCode));
    frame.go_on(&[0, 2]);
    frame.look(|page| {
        assert!(page.counter(FrameCounter::Parked) > 0);
        assert_eq!((page.counter(FrameCounter::PageFaults), page.counter(FrameCounter::Allocations)), (0, 0));
    });
    frame.end();
}

/// An activity that blocks in its call is passed over: the next one has its turn in the same minor.
pub(crate) fn blocks(cpu: CpuId) {
    let (frame, _) = troubled(cpu, "sleep");
    until("it is reported as blocked", || frame.causes(1).contains(&Cause::Blocked));
    frame.go_on(&[0, 2]);
    assert!(frame.look(|page| page.counter(FrameCounter::Blocked)) > 0, "it was passed over");
    frame.end();
}

/// An activity that ends inside its call is reported. The others keep their frames.
pub(crate) fn dies_inside(cpu: CpuId) {
    let (frame, _) = troubled(cpu, "exit");
    until("its end is detected", || frame.look(|page| page.activity_counter(1, ActivityCounter::Absences)) > 3);
    frame.go_on(&[0, 2]);
    let reports = frame.end();
    assert!(reports.contains(&Report::Gone("troubled".to_owned(), false)), "{reports:?}");
}

/// An activity dies with a mutex that all activities of its frame lock in each call. The next owner is notified, once,
/// and all continue.
pub(crate) fn dies_with_a_mutex(cpu: CpuId) {
    let program = activity();
    let name = format!("held-{}", std::process::id());
    let mutex = Lock::create(0).unwrap();
    rt::offer(&name, mutex.fd()).unwrap();
    let mut frame = Frame::new("mutex", cpu, TimeBase::Timer, &["first", "troubled", "last"], &[]);
    frame.join_with(&program, "first", 0, "spin", &[&name]);
    frame.join_with(&program, "troubled", 30, "exit", &[&name]);
    frame.join_with(&program, "last", 0, "spin", &[&name]);
    until("its end is detected", || frame.look(|page| page.activity_counter(1, ActivityCounter::Absences)) > 3);
    frame.go_on(&[0, 2]);
    let told = |who: &str| match Imports::open(&format!("{name}-{who}")).unwrap().get("inherited").unwrap().value {
        Number::Int(times) => times,
        other => panic!("{other:?}"),
    };
    assert_eq!(told("first") + told("last"), 1, "only the next owner is notified");
    frame.end();
}

/// An activity to which a debugger attaches is reported as stopped, and the others keep their frames. It continues when
/// the debugger detaches.
pub(crate) fn is_debugged(cpu: CpuId) {
    let (frame, pid) = troubled(cpu, "debugged");
    let program = compiled("debugger");
    let mut command = Command::new(&*program);
    let mut debugger = command.arg(pid.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(debugger.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "attached\n");
    until("it is reported as stopped", || frame.causes(1).contains(&Cause::Stopped));
    frame.go_on(&[0, 2]);
    drop(debugger.stdin.take());
    assert!(debugger.wait().unwrap().success());
    frame.go_on(&[0, 1, 2]);
    frame.end();
}

/// The faults of an activity that is stopped by a signal are counted, and the others keep their frames. It continues
/// after SIGCONT.
pub(crate) fn is_stopped(cpu: CpuId) {
    let (frame, pid) = troubled(cpu, "stopped");
    sys::process::Process::open(pid as i32).unwrap().signal(19).unwrap();
    let faults = || {
        frame.look(|page| {
            page.activity_counter(1, ActivityCounter::Overruns) + page.activity_counter(1, ActivityCounter::Underruns)
        })
    };
    until("its faults are counted", || faults() >= 3);
    frame.go_on(&[0, 2]);
    sys::process::Process::open(pid as i32).unwrap().signal(18).unwrap();
    frame.go_on(&[0, 1, 2]);
    frame.end();
}

/// The only activity of a frame overruns for ever and is demoted: it stays in the background in each minor, and is
/// restored with its next thread.
pub(crate) fn is_demoted_alone(cpu: CpuId) {
    let program = activity();
    let demote = |spec: &mut Spec| spec.activities[0].recovery = Recovery::Demote;
    let mut frame = Frame::of("demoted", cpu, &["troubled"], &[], demote);
    let pid = frame.join(&program, "troubled", 30, "spin");
    let demoted = |frame: &Frame| frame.look(|page| page.activity_counter(0, ActivityCounter::Demoted));
    let priority = |frame: &Frame| {
        let thread = frame.look(|page| page.who(0).2);
        sys::sched::scheduling(thread as i32).unwrap().policy
    };
    until("it is demoted", || demoted(&frame) == 1);
    // In each later minor it is first in the queue, because it is alone. This does not raise its priority.
    let minors = || frame.look(|page| page.counter(FrameCounter::Minors));
    for _ in 0..8 {
        let before = minors();
        until("a minor begins", || minors() > before);
        assert_eq!(priority(&frame), Policy::Fifo(Priority(PRIORITY.0 - 3)));
    }
    sys::process::Process::open(pid as i32).unwrap().signal(9).unwrap();
    until("its end is detected", || frame.look(|page| page.who(0).0 == Presence::Died));
    frame.join(&program, "troubled", 0, "spin");
    until("its place and priority are restored", || {
        frame.calls(0) > 0 && demoted(&frame) == 0 && priority(&frame) == Policy::Fifo(Priority(PRIORITY.0 - 1))
    });
    frame.end();
}

/// A demoted activity stays below the others when its call ends, also after a minor in which it had no turn.
pub(crate) fn stays_demoted(cpu: CpuId) {
    let program = activity();
    let demote = |spec: &mut Spec| spec.activities[1].recovery = Recovery::Demote;
    let mut frame = Frame::of("below", cpu, &["first", "troubled"], &[], demote);
    frame.join(&program, "first", 10, "long");
    frame.join(&program, "troubled", 10, "long");
    let counter = |of: usize, counter| frame.look(|page| page.activity_counter(of, counter));
    until("it is demoted", || counter(1, ActivityCounter::Demoted) == 1);
    let (overruns, calls) = (counter(0, ActivityCounter::Overruns), frame.calls(1));
    // Its call ends, and the other activity overruns: in those minors the queue does not reach it.
    until("it continues behind the other activity", || frame.calls(1) > calls + 1);
    until("the other overruns", || counter(0, ActivityCounter::Overruns) > overruns + 4);
    frame.go_on(&[0, 1]);
    let thread = frame.look(|page| page.who(1).2);
    let policy = sys::sched::scheduling(thread as i32).unwrap().policy;
    assert_eq!(policy, Policy::Fifo(Priority(PRIORITY.0 - 3)));
    frame.end();
}

/// A mode requested by an activity begins with a major frame. An unknown mode is refused.
pub(crate) fn asks_for_a_mode(cpu: CpuId) {
    let program = activity();
    let modes = |spec: &mut Spec| {
        let mode = |name: &str, activities: &[&str]| Mode {
            name: name.to_owned(),
            activities: activities.iter().map(|name| (*name).to_owned()).collect(),
        };
        spec.modes = vec![mode("all", &["first", "asking", "last"]), mode("fewer", &["first", "asking"])];
    };
    let mut frame = Frame::of("modes", cpu, &["first", "asking", "last"], &[], modes);
    frame.join(&program, "first", 0, "spin");
    frame.join(&program, "asking", 30, "mode:fewer");
    frame.join(&program, "last", 0, "spin");
    until("the mode is entered", || frame.look(|page| page.border().mode) == 1);
    let last = frame.calls(2);
    assert!(last > 0, "it ran in the first mode");
    frame.go_on(&[0, 1]);
    assert_eq!(frame.calls(2), last, "it does not run in the other mode");
    let minors: Vec<u16> = frame.look(|page| {
        let mut cursor = page.events();
        std::iter::from_fn(|| page.next_event(&mut cursor))
            .filter(|event| what_word(event.what) == "mode")
            .map(|event| event.minor)
            .collect()
    });
    assert_eq!(minors, [0], "entered once, with a major frame");
    frame.end();
}

/// An activity that shares its calls with a team of threads and checks their sums continues, and ends without an error
/// with its frame.
pub(crate) fn runs_a_team(cpu: CpuId) {
    let program = compiled("team");
    let mut frame = Frame::new("team", cpu, TimeBase::Timer, &["shared"], &[]);
    let mut command = Command::new(&*program);
    frame.processes.push(command.args([&frame.name, "shared"]).spawn().unwrap());
    frame.go_on(&[0]);
    let mut child = frame.processes.pop().unwrap();
    frame.end();
    assert!(child.wait().unwrap().success(), "all sums were right");
}

/// A group of frames on several CPUs: no frame begins before all are ready, and all run the same minors.
pub(crate) fn group(cpus: &[CpuId]) {
    let program = activity();
    let names: Vec<String> = cpus[1..].iter().map(|cpu| format!("on{cpu}")).collect();
    let followers: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut leader = Frame::new("leader", cpus[0], TimeBase::Timer, &["a"], &followers);
    let base = TimeBase::Frame(leader.name.clone());
    leader.join(&program, "a", 0, "spin");
    let mut group = vec![];
    for (cpu, name) in cpus[1..].iter().zip(&names) {
        assert!(leader.look(|page| page.state() == FrameState::Forming), "{name} is missing");
        let mut frame = Frame::new(name, *cpu, base.clone(), &["a"], &[]);
        frame.join(&program, "a", 0, "spin");
        group.push(frame);
    }
    leader.go_on(&[0]);
    for frame in &group {
        frame.go_on(&[0]);
        let border = frame.look(|page| page.border());
        assert_eq!(border.pulse % 4, u64::from(border.minor), "{}", frame.name);
    }
    // When the leader ends, its followers end.
    leader.end();
    for frame in group {
        let reports = frame.end();
        assert!(reports.iter().any(|report| matches!(report, Report::Running { .. })), "{reports:?}");
    }
}
