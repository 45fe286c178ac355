use super::*;
use crate::plant::{Anywhere, check};
use proptest::prelude::*;

/// A plant of processes given as `name: keys`, without a shield.
fn plant(processes: &[(&str, &str)]) -> Plant {
    let mut text = "[plant]\nname = \"p\"\n".to_owned();
    for (name, keys) in processes {
        text += &format!("[[process]]\nname = \"{name}\"\ncommand = \"x\"\n{keys}\n");
    }
    let checked = check(&text, &Anywhere);
    checked.plant.unwrap_or_else(|| panic!("{}", crate::plant::render_all(&checked.found, "test", &text)))
}

/// Supervision with a clock that the test advances.
struct Bench {
    all: Supervision,
    now: MonoNs,
}

impl Bench {
    fn new(processes: &[(&str, &str)]) -> Self {
        Self { all: Supervision::new(&plant(processes)), now: MonoNs(1_000_000_000) }
    }

    /// The actions that follow an event, without notes.
    fn on(&mut self, event: Event) -> Vec<Action> {
        self.all.handle(self.now, event);
        std::iter::from_fn(|| self.all.next_action()).filter(|action| !matches!(action, Action::Note(..))).collect()
    }

    /// Advances to `next_wake`, which must be `expected` away.
    fn wake(&mut self, expected: DurNs) -> Vec<Action> {
        let wake = self.all.next_wake().expect("something is due");
        assert_eq!(wake - self.now, expected);
        self.now = wake;
        self.on(Event::Tick)
    }

    fn state(&self, id: Id) -> State {
        self.all.units()[id].state
    }
}

const FAILED: End = End::Exit(1);

#[test]
fn processes_start_in_order_when_their_predecessors_are_ready_and_stop_in_reverse() {
    let mut bench = Bench::new(&[("b", "after = [\"a\"]"), ("a", "ready = { line = \"up\" }"), ("c", "")]);
    assert_eq!(bench.on(Event::Up), [Action::Start(1), Action::Start(2)]);
    assert_eq!(bench.on(Event::Started(1)), []);
    assert_eq!(bench.on(Event::Started(2)), []);
    assert_eq!(bench.all.phase(), Phase::Starting);
    assert_eq!(bench.on(Event::Ready(1)), [Action::Start(0)]);
    assert_eq!(bench.on(Event::Started(0)), []);
    assert_eq!(bench.all.phase(), Phase::Up);

    assert_eq!(bench.on(Event::Down), [Action::Signal(0, Signal::TERM), Action::Signal(2, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(2, End::Signal(Signal::TERM))), []);
    assert_eq!(bench.on(Event::Exited(0, End::Exit(0))), [Action::Signal(1, Signal::TERM)]);
    assert_eq!(bench.all.phase(), Phase::Stopping(None));
    assert_eq!(bench.on(Event::Exited(1, End::Exit(0))), []);
    assert_eq!(bench.all.phase(), Phase::Down);
    assert_eq!(bench.all.units()[1].history.ended.clone().unwrap().1, Cause::Asked(End::Exit(0)));
}

#[test]
fn a_plant_is_up_without_its_optional_processes_and_their_failure_stops_nothing() {
    let mut plant =
        plant(&[("a", ""), ("page", "ready = { line = \"up\", within = \"3s\" }\nrestart = { limit = 0 }")]);
    plant.processes[1].optional = true;
    let mut bench = Bench { all: Supervision::new(&plant), now: MonoNs(1_000_000_000) };
    bench.on(Event::Up);
    bench.on(Event::Started(1));
    assert_eq!(bench.all.phase(), Phase::Starting);
    // In the opposite order: it fails before the plant is up.
    let mut failing = Bench { all: bench.all.clone(), now: bench.now };
    failing.on(Event::Exited(1, FAILED));
    assert_eq!((failing.state(1), failing.all.phase()), (State::Faulted, Phase::Starting));
    failing.on(Event::Started(0));
    assert_eq!((failing.all.phase(), failing.all.failed()), (Phase::Up, None));

    bench.on(Event::Started(0));
    assert_eq!(bench.all.phase(), Phase::Up, "no process waits for it");
    bench.on(Event::Ready(1));
    assert_eq!(bench.on(Event::Down), [Action::Signal(0, Signal::TERM), Action::Signal(1, Signal::TERM)]);
}

#[test]
fn frames_end_before_the_processes_that_go_down_with_them() {
    let frame =
        "[[frame]]\nname = \"f\"\nminors = 1\nperiod = \"1ms\"\n[[frame.activity]]\nname = \"a\"\nbudget = \"1us\"\n";
    let process = |name: &str| format!("[[process]]\nname = \"{name}\"\ncommand = \"x\"\n");
    let read = |text: String| check(&format!("[plant]\nname = \"p\"\n{text}"), &Anywhere).plant.expect("no error");
    let (two, one) = (read(frame.to_owned() + &process("a") + &process("b")), read(frame.to_owned() + &process("a")));
    let mut bench = Bench { all: Supervision::new(&two), now: MonoNs(1_000_000_000) };
    assert_eq!(bench.on(Event::Up), [Action::Start(0), Action::Start(1), Action::Start(2)]);
    (0..3).for_each(|id| assert_eq!(bench.on(Event::Started(id)), []));
    bench.on(Event::Ready(0));
    assert_eq!(bench.all.phase(), Phase::Up);
    // A process that goes down alone does not wait for a frame.
    bench.all.reload(bench.now, &two, &one);
    assert_eq!(bench.on(Event::Tick), [Action::Signal(2, Signal::TERM)]);
    bench.on(Event::Exited(2, End::Exit(0)));
    assert_eq!(bench.on(Event::Down), [Action::Signal(0, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(0, End::Exit(0))), [Action::Signal(1, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(1, End::Exit(0))), []);
    assert_eq!(bench.all.phase(), Phase::Down);
}

#[test]
fn the_time_to_become_ready_counts_from_the_request_to_start() {
    let mut bench = Bench::new(&[("a", "ready = { line = \"up\" }")]);
    bench.on(Event::Up);
    bench.now = bench.now + DurNs::from_ms(30);
    // Both events are handled at the same time, which is not the duration of the start.
    bench.on(Event::Started(0));
    bench.all.handle(bench.now, Event::Ready(0));
    assert_eq!(bench.all.next_action(), Some(Action::Note(0, Note::Ready(DurNs::from_ms(30)))));
}

#[test]
fn restarts_back_off_exponentially_until_the_fault_is_latched_and_an_operator_resets_it() {
    let keys = "restart = { backoff = \"100ms\", backoff_max = \"300ms\", window = \"60s\", limit = 3 }";
    let mut bench = Bench::new(&[("a", keys), ("b", "")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Started(1));
    for pause in [100, 200, 300] {
        assert_eq!(bench.on(Event::Exited(0, FAILED)), []);
        assert_eq!(bench.wake(DurNs::from_ms(pause)), [Action::Start(0)]);
        bench.on(Event::Started(0));
    }
    assert_eq!(bench.on(Event::Exited(0, FAILED)), []);
    assert_eq!(bench.state(0), State::Faulted);
    assert_eq!(bench.all.next_wake(), None);
    // The plant was up before, so the other processes continue.
    assert_eq!((bench.state(1), bench.all.phase()), (State::Running, Phase::Up));
    assert_eq!(bench.on(Event::Restart(0)), [Action::Start(0)]);
    assert_eq!(bench.all.units()[0].history.restarts, 3);
}

#[test]
fn restarts_longer_ago_than_the_window_do_not_count() {
    let mut bench = Bench::new(&[("a", "restart = { backoff = \"1s\", window = \"10s\", limit = 1 }")]);
    bench.on(Event::Up);
    for _ in 0..5 {
        bench.on(Event::Started(0));
        bench.now = bench.now + DurNs::from_secs(11);
        assert_eq!(bench.on(Event::Exited(0, FAILED)), []);
        assert_eq!(bench.wake(DurNs::from_secs(1)), [Action::Start(0)]);
    }
}

#[test]
fn the_restart_policy_decides_which_ends_cause_a_restart() {
    for (policy, end, expected) in [
        ("always", End::Exit(0), "back-off"),
        ("always", FAILED, "back-off"),
        ("on-failure", End::Exit(0), "finished"),
        ("on-failure", End::Signal(Signal::KILL), "back-off"),
        ("never", End::Exit(0), "finished"),
        ("never", FAILED, "FAULT"),
        ("never", End::OutOfMemory, "FAULT"),
    ] {
        let mut bench = Bench::new(&[("a", &format!("restart = {{ policy = \"{policy}\" }}"))]);
        bench.on(Event::Up);
        bench.on(Event::Started(0));
        bench.on(Event::Exited(0, end));
        assert_eq!(bench.state(0).word(), expected, "{policy} {end}");
    }
}

#[test]
fn a_process_that_ends_before_it_was_started_is_restarted_and_its_successor_waits() {
    let restart = "restart = { policy = \"always\", backoff = \"1s\" }";
    let mut bench = Bench::new(&[("a", restart), ("b", "after = [\"a\"]")]);
    assert_eq!(bench.on(Event::Up), [Action::Start(0)]);
    assert_eq!(bench.on(Event::Exited(0, End::OutOfMemory)), []);
    assert_eq!(bench.all.units()[0].history.ended.clone().unwrap().1, Cause::Own(End::OutOfMemory));
    assert_eq!((bench.all.phase(), bench.state(1)), (Phase::Starting, State::Idle));
    assert_eq!(bench.wake(DurNs::from_secs(1)), [Action::Start(0)]);
    assert_eq!(bench.on(Event::Started(0)), [Action::Start(1)]);
}

#[test]
fn a_process_may_extend_its_time_to_become_ready_and_to_end_but_not_after_sigkill() {
    let keys = "ready = { line = \"up\", within = \"1s\" }\nstop = [\"TERM 1s\"]";
    let mut bench = Bench::new(&[("a", keys)]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Extend(0, DurNs::from_secs(5)));
    // A shorter extension than the remaining time has no effect.
    bench.on(Event::Extend(0, DurNs::from_ms(1)));
    assert_eq!(bench.all.next_wake().unwrap() - bench.now, DurNs::from_secs(5));
    bench.on(Event::Ready(0));
    assert_eq!(bench.on(Event::Down), [Action::Signal(0, Signal::TERM)]);
    bench.on(Event::Extend(0, DurNs::from_secs(7)));
    assert_eq!(bench.wake(DurNs::from_secs(7)), [Action::Signal(0, Signal::KILL)]);
    bench.on(Event::Extend(0, DurNs::from_secs(7)));
    assert_eq!(bench.wake(KILL_WAIT), [Action::Signal(0, Signal::KILL)]);
}

#[test]
fn a_stop_sequence_sends_each_signal_in_order_and_ends_with_sigkill() {
    let mut bench = Bench::new(&[("a", "stop = [\"INT 2s\", \"TERM 3s\"]")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    assert_eq!(bench.on(Event::Down), [Action::Signal(0, Signal::INT)]);
    assert_eq!(bench.wake(DurNs::from_secs(2)), [Action::Signal(0, Signal::TERM)]);
    assert_eq!(bench.wake(DurNs::from_secs(3)), [Action::Signal(0, Signal::KILL)]);
    assert_eq!(bench.wake(KILL_WAIT), [Action::Signal(0, Signal::KILL)]);
    bench.on(Event::Exited(0, End::Signal(Signal::KILL)));
    assert_eq!(bench.all.phase(), Phase::Down);
}

#[test]
fn a_process_that_is_not_ready_in_time_is_stopped_and_counts_as_failed() {
    let keys = "ready = { file = \"/x\", within = \"1s\" }\non_fault = \"safe\"\nrestart = { limit = 1 }";
    let mut bench = Bench::new(&[("a", keys), ("b", ""), ("c", "after = [\"a\"]")]);
    bench.on(Event::Up);
    bench.on(Event::Started(1));
    bench.on(Event::Started(0));
    assert_eq!(bench.wake(DurNs::from_secs(1)), [Action::RunFaultCommand(0), Action::Signal(0, Signal::TERM)]);
    bench.on(Event::Exited(0, End::Signal(Signal::TERM)));
    assert_eq!(bench.all.units()[0].history.ended.clone().unwrap().1, Cause::NotReady);
    assert_eq!(bench.wake(DurNs::from_ms(200)), [Action::Start(0)]);
    // The last attempt fails as well. Running processes go down again; waiting ones never start.
    assert_eq!(
        bench.on(Event::StartFailed(0, "no such file".into())),
        [Action::RunFaultCommand(0), Action::Signal(1, Signal::TERM)]
    );
    assert_eq!(bench.all.phase(), Phase::Stopping(Some(0)));
    bench.on(Event::Exited(1, End::Exit(0)));
    assert_eq!((bench.all.phase(), bench.state(0)), (Phase::Down, State::Faulted));
}

#[test]
fn a_hang_is_aborted_for_its_core_file_then_killed_and_its_safe_output_runs_once() {
    let mut bench = Bench::new(&[("a", "on_fault = \"safe\"\nrestart = { backoff = \"0s\" }")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    assert_eq!(bench.on(Event::HeartbeatLost(0)), [Action::RunFaultCommand(0), Action::Signal(0, Signal::ABRT)]);
    assert_eq!(bench.on(Event::HeartbeatLost(0)), []);
    assert_eq!(bench.wake(ABORT_WAIT), [Action::Signal(0, Signal::KILL)]);
    assert_eq!(bench.on(Event::Exited(0, End::Signal(Signal::KILL))), [Action::Start(0)]);
    assert_eq!(bench.all.units()[0].history.ended.clone().unwrap().1, Cause::Hang);
}

#[test]
fn a_runaway_is_distinguished_from_a_crash_and_left_to_the_guard() {
    let mut bench = Bench::new(&[("a", "on_fault = \"safe\"")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    assert_eq!(bench.on(Event::Runaway(0)), [Action::RunFaultCommand(0)]);
    assert_eq!(bench.on(Event::Runaway(0)), []);
    assert_eq!(bench.on(Event::HeartbeatLost(0)), [], "a process frozen by the guard has no heartbeat");
    assert_eq!(bench.on(Event::Exited(0, End::Signal(Signal::ABRT))), []);
    assert_eq!(bench.all.units()[0].history.ended.clone().unwrap().1, Cause::Runaway);
    assert_eq!(bench.state(0).word(), "back-off");
}

#[test]
fn a_missed_hard_deadline_runs_the_safe_output_command_and_the_process_continues() {
    let mut bench = Bench::new(&[("a", "on_fault = \"safe\""), ("b", "")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Started(1));
    assert_eq!(bench.on(Event::DeadlineMissed(0)), [Action::RunFaultCommand(0)]);
    assert_eq!(bench.on(Event::DeadlineMissed(1)), [], "it has no safe-output command");
    assert_eq!((bench.state(0), bench.all.units()[0].history.troubles.deadlines), (State::Running, 1));
    bench.on(Event::Exited(0, End::Exit(0)));
    assert_eq!(bench.on(Event::DeadlineMissed(0)), [], "an event of an ended process");
}

#[test]
fn a_restart_by_an_operator_does_not_count_as_a_failure() {
    let mut bench = Bench::new(&[("a", "restart = { policy = \"never\" }\non_fault = \"safe\"")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    assert_eq!(bench.on(Event::Restart(0)), [Action::Signal(0, Signal::TERM)]);
    assert_eq!(bench.on(Event::Restart(0)), []);
    assert_eq!(bench.on(Event::Exited(0, End::Exit(3))), [Action::Start(0)]);
    assert_eq!(bench.all.units()[0].history.restarts, 0);
}

#[test]
fn a_restart_requested_during_a_start_is_done_once_the_process_exists() {
    let mut bench = Bench::new(&[("a", "")]);
    bench.on(Event::Up);
    assert_eq!(bench.on(Event::Restart(0)), []);
    assert_eq!(bench.on(Event::Started(0)), [Action::Signal(0, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(0, End::Signal(Signal::TERM))), [Action::Start(0)]);
    bench.on(Event::Started(0));
    assert_eq!((bench.state(0), bench.all.units()[0].history.restarts), (State::Running, 0));
}

#[test]
fn a_process_that_is_still_starting_at_down_is_stopped_as_soon_as_it_exists() {
    let mut bench = Bench::new(&[("a", "")]);
    bench.on(Event::Up);
    assert_eq!(bench.on(Event::Down), []);
    assert_eq!(bench.on(Event::Started(0)), [Action::Signal(0, Signal::TERM)]);
    bench.on(Event::Exited(0, End::Exit(0)));
    assert_eq!(bench.all.phase(), Phase::Down);
}

#[test]
fn the_state_of_the_supervision_survives_a_round_trip() {
    let mut bench = Bench::new(&[("a", ""), ("b", "after = [\"a\"]")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Exited(0, FAILED));
    let text = serde_json::to_string(&bench.all).unwrap();
    let again: Supervision = serde_json::from_str(&text).unwrap();
    assert_eq!(again, bench.all);
}

#[test]
fn running_processes_are_adopted_although_the_state_is_lost_or_outdated() {
    let keys = "ready = { line = \"up\", within = \"10s\" }";
    let plant = plant(&[("a", keys), ("b", "")]);
    // State lost: `a` is found, `b` is not and starts.
    let mut bench = Bench { all: Supervision::begun(&plant), now: MonoNs(1_000_000_000) };
    bench.all.take_up(bench.now, 0, false);
    assert_eq!(bench.on(Event::Started(0)), [Action::Start(1)]);
    assert_eq!(bench.on(Event::Up), []);
    assert_eq!(bench.on(Event::Ready(0)), []);
    bench.on(Event::Started(1));
    assert_eq!((bench.state(0), bench.all.phase()), (State::Running, Phase::Up));
    // A process that is not in the plant file is stopped.
    let stray = bench.all.stray("c");
    bench.all.take_up(bench.now, stray, false);
    assert_eq!(bench.on(Event::Started(stray)), [Action::Signal(stray, Signal::TERM)]);
    bench.on(Event::Exited(stray, End::Signal(Signal::TERM)));
    assert_eq!((bench.all.phase(), bench.state(stray)), (Phase::Up, State::Idle));

    // Its time to become ready expired while no supervisor was running.
    let mut bench = Bench { all: Supervision::new(&plant), now: MonoNs(1_000_000_000) };
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.now = bench.now + DurNs::from_secs(100);
    bench.all.take_up(bench.now, 0, true);
    assert_eq!(bench.on(Event::Started(0)), []);
    assert_eq!(bench.on(Event::Ready(0)), []);
    assert_eq!(bench.state(0), State::Running);
    // The state could not be stored. It shows that this process is being killed, which is true for an earlier one only.
    bench.on(Event::HeartbeatLost(0));
    bench.all.take_up(bench.now, 0, false);
    assert_eq!(bench.on(Event::Started(0)), []);
    assert_eq!(bench.on(Event::Ready(0)), []);
    assert_eq!(bench.state(0), State::Running);
    assert_eq!(bench.on(Event::Down), [Action::Signal(0, Signal::TERM)]);
}

#[test]
fn a_reload_changes_only_processes_that_differ() {
    let old = plant(&[("a", ""), ("b", ""), ("c", "after = [\"a\"]"), ("d", "")]);
    let new = plant(&[("a", "stop = [\"INT 1s\"]"), ("b", "mlock = true"), ("c", "after = [\"a\"]"), ("e", "")]);
    let shown: Vec<_> = diff(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["~ a: continues (changed: stop)", "~ b: restarts (changed: mlock)", "- d: stops", "+ e: starts"]
    );
    let mut bench = Bench::new(&[("a", ""), ("b", ""), ("c", "after = [\"a\"]"), ("d", "")]);
    bench.on(Event::Up);
    for id in [0, 1, 3, 2] {
        bench.on(Event::Started(id));
    }
    bench.all.reload(bench.now, &old, &new);
    let actions = bench.on(Event::Tick);
    assert_eq!(actions, [Action::Signal(1, Signal::TERM), Action::Signal(3, Signal::TERM), Action::Start(4)]);
    assert_eq!(bench.on(Event::Exited(1, End::Exit(0))), [Action::Start(1)]);
    assert_eq!(bench.on(Event::Exited(3, End::Exit(0))), []);
    assert_eq!((bench.all.find("d"), bench.all.find("e")), (None, Some(4)));
    assert_eq!(diff(&new, &new), []);
}

#[test]
fn a_process_that_fails_to_start_after_a_reload_leaves_the_others_running() {
    let (old, new) =
        (plant(&[("a", ""), ("b", "")]), plant(&[("a", ""), ("b", "mlock = true\nrestart = { policy = \"never\" }")]));
    let mut bench = Bench::new(&[("a", ""), ("b", "")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Started(1));
    bench.all.reload(bench.now, &old, &new);
    assert_eq!(bench.on(Event::Tick), [Action::Signal(1, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(1, End::Exit(0))), [Action::Start(1)]);
    assert_eq!(bench.on(Event::StartFailed(1, "no such file".into())), []);
    assert_eq!((bench.state(0), bench.state(1), bench.all.phase()), (State::Running, State::Faulted, Phase::Up));
    // After it was down, a failed start makes the plant go down again.
    let mut bench = Bench::new(&[("a", ""), ("b", "restart = { policy = \"never\" }")]);
    for last in [Event::Started(1), Event::StartFailed(1, "no such file".into())] {
        bench.on(Event::Up);
        bench.on(Event::Started(0));
        bench.on(last);
        let is_up = bench.all.phase() == Phase::Up;
        bench.on(Event::Down);
        bench.on(Event::Exited(0, End::Exit(0)));
        bench.on(Event::Exited(1, End::Exit(0)));
        assert_eq!((is_up, bench.all.failed()), if is_up { (true, None) } else { (false, Some(1)) });
    }
    assert_eq!(bench.all.failed(), Some(1));
}

/// Random events for the processes of the model.
#[derive(Clone, Debug)]
enum Blow {
    Started(Id),
    StartFailed(Id),
    Ready(Id),
    Exited(Id, bool),
    HeartbeatLost(Id),
    Runaway(Id),
    Restart(Id),
    Up,
    Down,
    Wait(u32),
}

fn blows() -> impl Strategy<Value = Vec<Blow>> {
    let id = 0..5usize;
    let one = prop_oneof![
        6 => id.clone().prop_map(Blow::Started),
        1 => id.clone().prop_map(Blow::StartFailed),
        6 => id.clone().prop_map(Blow::Ready),
        3 => (id.clone(), any::<bool>()).prop_map(|(id, well)| Blow::Exited(id, well)),
        1 => id.clone().prop_map(Blow::HeartbeatLost),
        1 => id.clone().prop_map(Blow::Runaway),
        1 => id.prop_map(Blow::Restart),
        2 => Just(Blow::Up),
        1 => Just(Blow::Down),
        4 => (0..20_000u32).prop_map(Blow::Wait),
    ];
    proptest::collection::vec(one, 0..120)
}

/// Existing processes of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Real {
    Gone,
    /// A start was requested.
    Asked,
    Lives,
}

proptest! {
    #[test]
    fn no_process_runs_twice_or_out_of_order(blows in blows()) {
        let ready = "ready = { notify = true, within = \"3s\" }";
        let keys = [
            format!("{ready}\nrestart = {{ policy = \"always\", limit = 3 }}"),
            format!("after = [\"p0\"]\n{ready}"),
            "after = [\"p0\"]\nrestart = { policy = \"never\" }\non_fault = \"safe\"".to_owned(),
            "after = [\"p1\", \"p2\"]\nstop = [\"INT 1s\"]".to_owned(),
            String::new(),
        ];
        let names = ["p0", "p1", "p2", "p3", "p4"];
        let given: Vec<_> = names.iter().zip(&keys).map(|(name, keys)| (*name, keys.as_str())).collect();
        let mut bench = Bench::new(&given);
        let mut real = [Real::Gone; 5];
        for blow in blows {
            let before = bench.all.clone();
            let event = match blow {
                // Impossible events of missing processes are skipped.
                Blow::Started(id) if real[id] == Real::Asked => { real[id] = Real::Lives; Event::Started(id) }
                Blow::StartFailed(id) if real[id] == Real::Asked => {
                    real[id] = Real::Gone;
                    Event::StartFailed(id, "x".into())
                }
                Blow::Exited(id, well) if real[id] == Real::Lives => {
                    real[id] = Real::Gone;
                    Event::Exited(id, End::Exit(i32::from(!well)))
                }
                Blow::Ready(id) => Event::Ready(id),
                Blow::HeartbeatLost(id) => Event::HeartbeatLost(id),
                Blow::Runaway(id) => Event::Runaway(id),
                Blow::Restart(id) => Event::Restart(id),
                Blow::Up if bench.all.phase() == Phase::Down => Event::Up,
                Blow::Down => Event::Down,
                Blow::Wait(ms) => { bench.now = bench.now + DurNs::from_ms(ms.into()); Event::Tick }
                _ => continue,
            };
            for action in bench.on(event.clone()) {
                match action {
                    Action::Start(id) => {
                        prop_assert_eq!(real[id], Real::Gone, "two copies of {} after {:?}", id, event);
                        real[id] = Real::Asked;
                        for dep in &bench.all.units()[id].spec.after {
                            let state = bench.all.units()[*dep].state;
                            prop_assert!(matches!(state, State::Running | State::Finished), "{} before {}", id, dep);
                        }
                    }
                    Action::Signal(id, _) => prop_assert_eq!(real[id], Real::Lives, "a signal to an ended process"),
                    Action::RunFaultCommand(id) => prop_assert!(bench.all.units()[id].spec.has_fault_command),
                    Action::Note(..) => {}
                }
            }
            for (id, unit) in bench.all.units().iter().enumerate() {
                prop_assert_eq!(unit.state.is_alive(), real[id] != Real::Gone, "{:?} against {:?}", unit.state, real[id]);
                // Stopped by request while the plant goes down: no process that depends on it may be alive.
                let fresh = matches!(before.units()[id].state, State::Running | State::Warming { .. })
                    && matches!(unit.state, State::Stopping { .. });
                if fresh && unit.blame == Some(Blame::Asked) && !unit.wanted {
                    let late = bench.all.units().iter().any(|o| o.spec.after.contains(&id) && o.state.is_alive());
                    prop_assert!(!late, "{} was stopped before its dependents", id);
                }
            }
            if bench.all.phase() == Phase::Down {
                prop_assert!(real.iter().all(|real| *real == Real::Gone));
            }
        }
        // After any events, a plant goes down on request if its processes end on SIGKILL.
        bench.on(Event::Down);
        for _ in 0..200 {
            for (id, real) in real.iter_mut().enumerate() {
                if *real == Real::Asked {
                    *real = Real::Lives;
                    bench.on(Event::Started(id));
                }
            }
            let Some(wake) = bench.all.next_wake() else { break };
            bench.now = wake;
            for action in bench.on(Event::Tick) {
                prop_assert!(!matches!(action, Action::Start(_)), "started during the stop");
                if let Action::Signal(id, Signal::KILL) = action {
                    real[id] = Real::Gone;
                    bench.on(Event::Exited(id, End::Signal(Signal::KILL)));
                }
            }
        }
        prop_assert_eq!(bench.all.phase(), Phase::Down);
    }
}

#[test]
fn a_process_stopped_by_an_operator_stays_down_until_it_is_started() {
    let mut bench = Bench::new(&[("a", ""), ("b", "after = [\"a\"]"), ("c", "")]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Started(1));
    bench.on(Event::Started(2));
    assert_eq!((bench.all.needing(&[0]), bench.all.needing(&[0, 1])), (vec![1], vec![]));
    // In reverse start order, independent of the order of the requests.
    assert_eq!(bench.on(Event::Stop(0)), []);
    assert_eq!(bench.on(Event::Stop(1)), [Action::Signal(1, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(1, End::Exit(0))), [Action::Signal(0, Signal::TERM)]);
    assert_eq!(bench.on(Event::Exited(0, End::Signal(Signal::TERM))), []);
    assert_eq!([0, 1, 2].map(|id| bench.all.units()[id].word()), ["stopped", "stopped", "running"]);
    assert_eq!(bench.all.phase(), Phase::Up);
    assert_eq!(bench.on(Event::Up), [], "a supervisor that continues the plant keeps them down");
    assert_eq!(bench.all.phase(), Phase::Up);
    assert_eq!((bench.all.missing(&[1]), bench.all.missing(&[0, 1])), (vec![0], vec![]));
    assert_eq!(bench.on(Event::Start(1)), []);
    assert_eq!(bench.on(Event::Start(0)), [Action::Start(0)]);
    assert_eq!(bench.on(Event::Started(0)), [Action::Start(1)]);
    assert_eq!(bench.on(Event::Start(0)), [], "running processes continue");
    assert_eq!(bench.state(0), State::Running);
}

#[test]
fn a_process_can_be_stopped_in_any_state_and_started_after_a_fault() {
    let mut bench = Bench::new(&[("a", "restart = { backoff = \"1s\", limit = 1 }")]);
    assert_eq!(bench.on(Event::Up), [Action::Start(0)]);
    assert_eq!(bench.on(Event::Stop(0)), []);
    assert_eq!(bench.on(Event::Started(0)), [Action::Signal(0, Signal::TERM)]);
    // Started again before it has ended: it ends first.
    assert_eq!(bench.on(Event::Start(0)), []);
    assert_eq!(bench.on(Event::Exited(0, End::Exit(0))), [Action::Start(0)]);
    bench.on(Event::Started(0));
    bench.on(Event::Exited(0, FAILED));
    assert!(matches!(bench.state(0), State::Resting { .. }));
    assert_eq!(bench.on(Event::Stop(0)), []);
    assert_eq!((bench.all.units()[0].word(), bench.all.next_wake()), ("stopped", None));
    assert_eq!(bench.on(Event::Start(0)), [Action::Start(0)]);
    bench.on(Event::Started(0));
    bench.on(Event::Exited(0, FAILED));
    bench.wake(DurNs::from_secs(1));
    bench.on(Event::Started(0));
    bench.on(Event::Exited(0, FAILED));
    assert_eq!(bench.state(0), State::Faulted);
    assert_eq!(bench.on(Event::Start(0)), [Action::Start(0)]);
}

#[test]
fn a_plant_that_is_forced_down_kills_in_the_declared_order() {
    let patient = "stop = [\"TERM 5s\", \"INT 3s\"]";
    let mut bench = Bench::new(&[("a", patient), ("b", &format!("{patient}\nafter = [\"a\"]"))]);
    bench.on(Event::Up);
    bench.on(Event::Started(0));
    bench.on(Event::Started(1));
    assert_eq!(bench.on(Event::Force), [], "force has no effect on a plant that is up");
    assert_eq!(bench.on(Event::Down), [Action::Signal(1, Signal::TERM)]);
    let in_8s = bench.now + DurNs::from_secs(8);
    assert_eq!((bench.all.killed_at(1), bench.all.killed_at(0)), (Some(in_8s), None));
    assert_eq!(bench.on(Event::Force), [Action::Signal(1, Signal::KILL)]);
    assert_eq!(bench.on(Event::Exited(1, End::Signal(Signal::KILL))), [Action::Signal(0, Signal::KILL)]);
    assert_eq!(bench.on(Event::Exited(0, End::Signal(Signal::KILL))), []);
    assert_eq!(bench.all.phase(), Phase::Down);
}

#[test]
fn a_signal_of_another_process_is_named_as_such_and_a_last_line_is_not_called_the_cause() {
    for (cause, text) in [
        (Cause::Own(End::Signal(Signal::KILL)), "SIGKILL from outside"),
        (Cause::Own(End::Signal(Signal::TERM)), "SIGTERM from outside"),
        (Cause::Own(End::Signal(Signal(11))), "SIGSEGV"),
        (Cause::Asked(End::Signal(Signal::KILL)), "stopped (SIGKILL)"),
        (Cause::Own(End::OutOfMemory), "out of memory"),
    ] {
        assert_eq!(cause.to_string(), text);
    }
    let killed = Cause::Own(End::Signal(Signal::KILL));
    assert_eq!(killed.behind(Some("armed: 1000 Hz")), "; last line: \"armed: 1000 Hz\"");
    assert_eq!(killed.behind(None), "");
    assert_eq!(Cause::Own(End::OutOfMemory).behind(Some("it used 1 MiB")), ": it used 1 MiB");
}
