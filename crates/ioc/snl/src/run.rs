//! The course of a program: connections, entry block, state sets, exit block.

use crate::builtin::{Fun, STAT_TIMEOUT};
use crate::code::{Op, StateDef};
use crate::error::{Pos, SnlError};
use crate::machine::{Action, Machine, Now, Stage, Wait};
use crate::memory::Trap;
use crate::vm::Outcome;
use base::{DurNs, MonoNs};
use std::sync::Arc;

/// Instructions that a state set executes before the others and the events have their turn.
const SHARE: u32 = 20_000;
/// Changes of state that are made in one step, before events have their turn.
const CHANGES_MAX: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Enters the current state.
    Enter,
    Entry,
    Armed,
    Condition(usize),
    Idle,
    Action(usize),
    /// The exit block runs before this state.
    Leave(usize),
    Ended,
}

impl Machine {
    /// Runs the program. Returns when to call this again without an event; `None` if only an event continues it.
    pub fn step(&mut self, now: Now) -> Option<MonoNs> {
        self.now = now;
        if self.stage == Stage::Connecting {
            self.connecting();
        }
        let mut again = false;
        if matches!(self.stage, Stage::Entry | Stage::Exit) {
            again |= self.block();
        }
        if self.stage == Stage::Running {
            for set in 0..self.sets.len() {
                if self.stage == Stage::Running {
                    again |= self.run_set(set);
                }
            }
            // A state set may have changed what an earlier one waits for.
            again |= self.sets.iter().any(|set| set.poked && set.phase == Phase::Idle);
            if self.stage == Stage::Running && self.sets.iter().all(|set| set.phase == Phase::Ended) {
                again |= self.begin(Stage::Exit, self.program.exit);
            }
        }
        if self.stage == Stage::Ended {
            return None;
        }
        if again {
            return Some(now.mono);
        }
        let waits = self.sets.iter().filter_map(|set| set.wait.map(Wait::until));
        let delays = self.sets.iter().filter(|set| set.phase == Phase::Idle).filter_map(|set| set.wake);
        let report = self.report_at.iter().map(|(at, _)| *at);
        waits.chain(delays).chain(report).min()
    }

    /// Begins to run once the connections exist, or without waiting with the option `-c`.
    fn connecting(&mut self) {
        if self.stopping {
            return self.end();
        }
        let (assigned, connected, monitored, first) = self.counts();
        let ready = assigned == connected && monitored == first;
        if self.program.has_option('c') && !ready {
            if let Some((at, pause)) = self.report_at
                && at <= self.now.mono
            {
                let passed = (self.now.mono.0 - self.started.0) / 1_000_000_000;
                let missing = self.channels.iter().find(|channel| {
                    !channel.name.is_empty() && (!channel.connected || channel.monitored && !channel.has_monitor)
                });
                let missing = missing.map_or("", |channel| channel.name.as_str());
                self.log(format!(
                    "after {passed} s: assigned={assigned}, connected={connected}, monitored={monitored}, \
                     got monitor={first}; the first that is missing: {missing}"
                ));
                let pause = (pause * 171 / 100).min(3_600);
                self.report_at = Some((self.now.mono + DurNs::from_secs(pause), pause));
            }
            return;
        }
        if self.program.has_option('c') {
            self.log("all channels connected & received 1st monitor".to_owned());
        }
        self.report_at = None;
        if self.is_safe {
            (0..self.sets.len()).for_each(|set| self.refresh_all(set));
        }
        self.begin(Stage::Entry, self.program.entry);
    }

    /// Begins a block of the program, in the context of the first state set. Returns `true`.
    fn begin(&mut self, stage: Stage, unit: Option<u32>) -> bool {
        self.stage = stage;
        let program = Arc::clone(&self.program);
        match unit {
            None => self.next_stage(),
            Some(unit) => {
                if let Err(trap) = self.sets[0].task.start(&program, unit) {
                    self.fail(0, &trap, Pos::default());
                }
            }
        }
        true
    }

    fn next_stage(&mut self) {
        match self.stage {
            Stage::Entry => self.stage = Stage::Running,
            _ => self.end(),
        }
    }

    /// Continues the entry or exit block of the program. Returns whether it can continue at once.
    fn block(&mut self) -> bool {
        if !self.is_ready(0) {
            return false;
        }
        self.share = SHARE;
        match self.run(0) {
            Ok(Outcome::Waits) => return false,
            Ok(Outcome::Share) => {}
            Ok(_) => self.next_stage(),
            Err((trap, pos)) => self.fail(0, &trap, pos),
        }
        true
    }

    /// Whether the code of a state set need not wait. Ends a wait whose time has passed.
    fn is_ready(&mut self, set: usize) -> bool {
        let Some(wait) = self.sets[set].wait else { return true };
        if wait.until() > self.now.mono {
            return false;
        }
        let set_state = &mut self.sets[set];
        set_state.wait = None;
        match wait {
            Wait::Sleep(_) => set_state.resume = Some(0),
            Wait::Read(number, _) | Wait::Write(number, _) => {
                set_state.resume = Some(STAT_TIMEOUT as u64);
                let channel = &mut self.channels[number as usize];
                (channel.status, channel.message) = (STAT_TIMEOUT, "timeout");
                let queue = if matches!(wait, Wait::Read(..)) { &mut channel.readers } else { &mut channel.writers };
                queue.iter_mut().filter(|waits| **waits == Some(set)).for_each(|waits| *waits = None);
            }
            // The pending request is dropped. The repeated call replaces it.
            Wait::Pending(read, number, _) => self.cancel(set, number, read),
        }
        true
    }

    /// Runs a state set. Returns whether it can continue at once.
    fn run_set(&mut self, set: usize) -> bool {
        let program = Arc::clone(&self.program);
        self.share = SHARE;
        let mut changes = 0;
        loop {
            if self.stage != Stage::Running || !self.is_ready(set) {
                return false;
            }
            let current = self.sets[set].state;
            let state = &program.sets[set].states[current];
            let changed = self.sets[set].previous != Some(current);
            let phase = self.sets[set].phase;
            let result = match phase {
                Phase::Ended => return false,
                Phase::Enter => {
                    let entry = state.entry.filter(|_| changed || state.entry_each_time);
                    self.sets[set].phase = if entry.is_some() { Phase::Entry } else { Phase::Armed };
                    self.start_unit(set, entry)
                }
                Phase::Armed => {
                    if changed || state.resets_delays {
                        self.sets[set].entered = self.now.mono;
                    }
                    (self.sets[set].phase, self.sets[set].poked) = (Phase::Idle, true);
                    Ok(())
                }
                Phase::Idle => {
                    let due = self.sets[set].wake.is_some_and(|wake| wake <= self.now.mono);
                    if self.stopping {
                        self.sets[set].phase = Phase::Ended;
                        return false;
                    }
                    if !due && !self.sets[set].poked {
                        return false;
                    }
                    (self.sets[set].poked, self.sets[set].wake) = (false, None);
                    self.refresh_all(set);
                    self.next_condition(set, state, 0)
                }
                Phase::Entry | Phase::Condition(_) | Phase::Action(_) | Phase::Leave(_) => match self.run(set) {
                    Ok(Outcome::Waits) => return false,
                    Ok(Outcome::Share) => return true,
                    Ok(done) => self.unit_done(set, state, phase, done),
                    Err(failed) => Err(failed),
                },
            };
            if let Err((trap, pos)) = result {
                self.fail(set, &trap, pos);
                return false;
            }
            changes += u32::from(phase == Phase::Enter);
            if changes > CHANGES_MAX {
                return true;
            }
        }
    }

    fn start_unit(&mut self, set: usize, unit: Option<u32>) -> Result<(), (Trap, Pos)> {
        let program = Arc::clone(&self.program);
        match unit {
            Some(unit) => self.sets[set].task.start(&program, unit).map_err(|trap| (trap, Pos::default())),
            None => Ok(()),
        }
    }

    fn next_condition(&mut self, set: usize, state: &StateDef, nth: usize) -> Result<(), (Trap, Pos)> {
        let when = state.whens.get(nth);
        self.sets[set].phase = if when.is_some() { Phase::Condition(nth) } else { Phase::Idle };
        self.start_unit(set, when.map(|when| when.condition))
    }

    /// A piece of code has ended.
    fn unit_done(&mut self, set: usize, state: &StateDef, phase: Phase, done: Outcome) -> Result<(), (Trap, Pos)> {
        match phase {
            Phase::Entry => self.sets[set].phase = Phase::Armed,
            Phase::Condition(nth) if done == Outcome::Value(0) => return self.next_condition(set, state, nth + 1),
            Phase::Condition(nth) => {
                self.sets[set].phase = Phase::Action(nth);
                return self.start_unit(set, Some(state.whens[nth].action));
            }
            Phase::Action(nth) => {
                if !self.program.has_option('e') {
                    self.clear_tested(state);
                }
                let next = match done {
                    Outcome::State(next) => Some(next),
                    _ => state.whens[nth].next,
                };
                let Some(next) = next.map(|next| next as usize) else {
                    self.sets[set].phase = Phase::Ended;
                    self.stopping = true;
                    self.poke();
                    return Ok(());
                };
                self.sets[set].phase = Phase::Leave(next);
                match state.exit.filter(|_| next != self.sets[set].state || state.exit_each_time) {
                    Some(exit) => return self.start_unit(set, Some(exit)),
                    None => self.change(set, next),
                }
            }
            Phase::Leave(next) => self.change(set, next),
            _ => {}
        }
        Ok(())
    }

    fn change(&mut self, set: usize, next: usize) {
        let set = &mut self.sets[set];
        (set.previous, set.state, set.phase) = (Some(set.state), next, Phase::Enter);
    }

    /// With the option `-e`: clears the event flags that the conditions of a state test.
    fn clear_tested(&mut self, state: &StateDef) {
        let program = Arc::clone(&self.program);
        for when in &state.whens {
            for pair in program.units[when.condition as usize].ops.windows(2) {
                if let [Op::Push(flag), Op::Builtin(Fun::EfTest | Fun::EfTestAndClear, ..)] = pair {
                    self.clear_flag(*flag as u32);
                }
            }
        }
    }

    pub(crate) fn log(&mut self, text: String) {
        self.actions.push(Action::Log(format!("{}: {text}", self.program.name)));
    }

    /// Ends the program after an error in its code.
    pub(crate) fn fail(&mut self, set: usize, trap: &Trap, pos: Pos) {
        let program = Arc::clone(&self.program);
        let mut error = SnlError::new(pos, trap.to_string());
        program.files.get(usize::from(pos.file)).map_or("", String::as_str).clone_into(&mut error.file);
        let state = &program.sets[set].states[self.sets[set].state];
        self.log(format!("state set {}, state {}: {error}; the program ends", program.sets[set].name, state.name));
        self.end();
    }

    fn end(&mut self) {
        self.stage = Stage::Ended;
        for number in 0..self.channels.len() {
            if !self.channels[number].name.is_empty() {
                self.actions.push(Action::Disconnect(number as u32));
            }
        }
        self.log("the program has ended".to_owned());
    }
}
