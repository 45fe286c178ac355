//! The transitions: the effect of an event on each process.

use super::{ABORT_WAIT, Action, Blame, Cause, End, Event, Id, KILL_WAIT, Note, Phase, State, Supervision};
use crate::plant::{Restart, RestartPolicy, Signal};
use base::{DurNs, MonoNs};

pub(super) fn handle(all: &mut Supervision, now: MonoNs, event: Event) {
    match event {
        Event::Up => {
            for unit in all.units.iter_mut().filter(|unit| !unit.retired) {
                unit.wanted = !unit.stopped;
            }
            all.was_up &= matches!(all.phase, Phase::Starting | Phase::Up);
            (all.phase, all.failed, all.forced) = (Phase::Starting, None, false);
        }
        Event::Down => go_down(all, None),
        Event::Started(id) if all.units[id].state == State::Launching => {
            all.units[id].history.started = Some(now);
            match (all.units[id].blame, all.units[id].spec.ready_within) {
                // A restart was requested during the start: the instance still has the old settings.
                (Some(blame), _) => stop(all, now, id, blame),
                (None, Some(within)) => all.units[id].state = State::Warming { until: now + within },
                (None, None) => ready(all, now, id),
            }
        }
        Event::StartFailed(id, why) if all.units[id].state == State::Launching => {
            ended(all, now, id, Cause::NoStart(why));
        }
        Event::Ready(id) if matches!(all.units[id].state, State::Warming { .. }) => ready(all, now, id),
        Event::Exited(id, end) if all.units[id].state.is_alive() => {
            let cause = match all.units[id].blame.take() {
                Some(Blame::Asked) => Cause::Asked(end),
                Some(Blame::Hang) => Cause::Hang,
                Some(Blame::Runaway) => Cause::Runaway,
                Some(Blame::NotReady) => Cause::NotReady,
                None => Cause::Own(end),
            };
            ended(all, now, id, cause);
        }
        Event::HeartbeatLost(id) if matches!(all.units[id].state, State::Warming { .. } | State::Running) => {
            if all.units[id].blame.is_some() {
                // The guard acts on it. A frozen process cannot send a heartbeat.
                return;
            }
            trouble(all, id, Blame::Hang);
            // SIGABRT at once, for a core file: a hung process does not react to SIGTERM.
            all.actions.push_back(Action::Signal(id, Signal::ABRT));
            all.units[id].state = State::Stopping { step: usize::MAX, until: now + ABORT_WAIT };
        }
        Event::Runaway(id)
            if matches!(all.units[id].state, State::Warming { .. } | State::Running)
                && all.units[id].blame.is_none() =>
        {
            trouble(all, id, Blame::Runaway);
        }
        Event::Starved(id) if all.units[id].state.is_alive() => {
            all.units[id].history.troubles.starved += 1;
            all.actions.push_back(Action::Note(id, Note::Trouble(Cause::Starved)));
        }
        Event::DeadlineMissed(id) if matches!(all.units[id].state, State::Warming { .. } | State::Running) => {
            all.units[id].history.troubles.deadlines += 1;
            all.actions.push_back(Action::Note(id, Note::Trouble(Cause::DeadlineMissed)));
            if all.units[id].spec.has_fault_command {
                all.actions.push_back(Action::RunFaultCommand(id));
            }
        }
        Event::Extend(id, more) => extend(all, now, id, more),
        Event::AutoRestart(id, on) => all.units[id].held = !on,
        Event::Restart(id) if !all.units[id].retired && matches!(all.phase, Phase::Starting | Phase::Up) => {
            restart(all, now, id);
        }
        Event::Stop(id) if !all.units[id].retired && matches!(all.phase, Phase::Starting | Phase::Up) => {
            let unit = &mut all.units[id];
            (unit.stopped, unit.wanted) = (true, false);
            if matches!(unit.state, State::Resting { .. } | State::Finished | State::Faulted) {
                unit.state = State::Idle;
            }
        }
        Event::Start(id) if !all.units[id].retired && matches!(all.phase, Phase::Starting | Phase::Up) => {
            if !matches!(all.units[id].state, State::Launching | State::Warming { .. } | State::Running) {
                restart(all, now, id);
            }
            let unit = &mut all.units[id];
            (unit.stopped, unit.wanted) = (false, true);
        }
        Event::Force if matches!(all.phase, Phase::Stopping(_)) => {
            all.forced = true;
            for unit in &mut all.units {
                if let State::Stopping { .. } = unit.state {
                    unit.state = State::Stopping { step: usize::MAX, until: now };
                }
            }
        }
        // Late or repeated events of a process in another state, and ticks.
        _ => {}
    }
    advance(all, now);
}

/// Restart by an operator: a running process is stopped and started; any other is started again.
fn restart(all: &mut Supervision, now: MonoNs, id: Id) {
    let unit = &mut all.units[id];
    (unit.stopped, unit.wanted) = (false, true);
    unit.history.recent.clear();
    match unit.state {
        State::Warming { .. } | State::Running => stop(all, now, id, Blame::Asked),
        State::Resting { .. } | State::Finished | State::Faulted => unit.state = State::Idle,
        State::Launching => unit.blame = Some(Blame::Asked),
        State::Idle | State::Stopping { .. } => {}
    }
}

fn go_down(all: &mut Supervision, failed: Option<Id>) {
    all.phase = Phase::Stopping(failed);
    all.failed = all.failed.or(failed);
    for unit in &mut all.units {
        unit.wanted = false;
        // A hung process, or one that did not become ready, is being killed already. A pending restart is cancelled.
        if let State::Resting { .. } = unit.state {
            unit.state = State::Idle;
        }
    }
}

fn ready(all: &mut Supervision, now: MonoNs, id: Id) {
    let unit = &mut all.units[id];
    unit.state = State::Running;
    unit.history.ready = Some(now);
    let took = now - unit.asked.or(unit.history.started).unwrap_or(now);
    all.actions.push_back(Action::Note(id, Note::Ready(took)));
}

/// Reports a fault of a running process and runs its safe-output command at once.
fn trouble(all: &mut Supervision, id: Id, blame: Blame) {
    let troubles = &mut all.units[id].history.troubles;
    let (cause, count) = match blame {
        Blame::Hang => (Cause::Hang, &mut troubles.hangs),
        Blame::Runaway => (Cause::Runaway, &mut troubles.runaways),
        Blame::NotReady | Blame::Asked => (Cause::NotReady, &mut troubles.unready),
    };
    *count += 1;
    all.units[id].blame = Some(blame);
    all.actions.push_back(Action::Note(id, Note::Trouble(cause)));
    if all.units[id].spec.has_fault_command {
        all.actions.push_back(Action::RunFaultCommand(id));
    }
}

/// Executes the first step of the stop sequence.
fn stop(all: &mut Supervision, now: MonoNs, id: Id, blame: Blame) {
    all.units[id].blame = Some(blame);
    all.units[id].state = State::Stopping { step: if all.forced { usize::MAX } else { 0 }, until: now };
    next_step(all, now, id);
}

/// Executes the next step of the stop sequence. After the last step SIGKILL is repeated.
fn next_step(all: &mut Supervision, now: MonoNs, id: Id) {
    let State::Stopping { step, .. } = all.units[id].state else { return };
    let (signal, wait) = match all.units[id].spec.stop.get(step) {
        Some(given) => (given.signal, given.wait),
        None => (Signal::KILL, KILL_WAIT),
    };
    all.actions.push_back(Action::Signal(id, signal));
    all.units[id].state = State::Stopping { step: step.saturating_add(1), until: now + wait };
}

/// Extends the time limit for becoming ready or for ending. SIGKILL for a hung process, and after the last step, is not
/// delayed.
fn extend(all: &mut Supervision, now: MonoNs, id: Id, more: DurNs) {
    let forced = all.forced;
    let unit = &mut all.units[id];
    match &mut unit.state {
        State::Warming { until } => *until = (*until).max(now + more),
        State::Stopping { step, until } if !forced && *step <= unit.spec.stop.len() => {
            *until = (*until).max(now + more)
        }
        _ => {}
    }
}

/// Handles the end of a process, or a failed start.
fn ended(all: &mut Supervision, now: MonoNs, id: Id, cause: Cause) {
    let was_ready = !matches!(all.units[id].state, State::Launching | State::Warming { .. });
    let asked = matches!(cause, Cause::Asked(_));
    let told = matches!(cause, Cause::Hang | Cause::Runaway | Cause::NotReady);
    let unit = &mut all.units[id];
    unit.blame = None;
    unit.history.ended = Some((now, cause.clone()));
    unit.state = State::Idle;
    let wanted = unit.wanted;
    let (policy, has_fault_command) = (unit.spec.restart.policy, unit.spec.has_fault_command);
    all.actions.push_back(Action::Note(id, Note::Ended(cause.clone())));
    if asked {
        return;
    }
    let success = was_ready && cause == Cause::Own(End::Exit(0));
    if !success && !told && has_fault_command {
        all.actions.push_back(Action::RunFaultCommand(id));
    }
    if !wanted {
        return;
    }
    match policy {
        RestartPolicy::Never | RestartPolicy::OnFailure if success => all.units[id].state = State::Finished,
        RestartPolicy::Never => latch(all, id, cause),
        _ if all.units[id].held => latch(all, id, cause),
        RestartPolicy::Always | RestartPolicy::OnFailure => rest(all, now, id, cause),
    }
}

/// Pauses before the next start, or latches the fault after too many restarts.
fn rest(all: &mut Supervision, now: MonoNs, id: Id, cause: Cause) {
    let unit = &mut all.units[id];
    let Restart { backoff, backoff_max, window, limit, .. } = unit.spec.restart;
    unit.history.recent.retain(|at| now - *at < window);
    let used = unit.history.recent.len() as u32;
    if used >= limit {
        return latch(all, id, cause);
    }
    let pause = backoff_after(used, backoff, backoff_max);
    unit.history.recent.push_back(now);
    unit.history.restarts += 1;
    unit.state = State::Resting { until: now + pause };
    all.actions.push_back(Action::Note(id, Note::RestartIn(pause, used + 1)));
}

/// The pause before a restart after `used` restarts: doubled each time, up to the maximum.
fn backoff_after(used: u32, first: DurNs, longest: DurNs) -> DurNs {
    let factor = 1i64.checked_shl(used).filter(|factor| *factor > 0).unwrap_or(i64::MAX);
    DurNs(first.0.saturating_mul(factor)).min(longest)
}

fn latch(all: &mut Supervision, id: Id, cause: Cause) {
    all.units[id].state = State::Faulted;
    all.actions.push_back(Action::Note(id, Note::Latched(cause)));
    if all.phase == Phase::Starting && !all.was_up && !all.units[id].spec.optional {
        all.actions.push_back(Action::Note(id, Note::GroupStop));
        go_down(all, Some(id));
    }
}

/// Executes everything that the time and the states of other processes allow, until nothing more follows.
fn advance(all: &mut Supervision, now: MonoNs) {
    let mut changed = true;
    while changed {
        changed = false;
        for id in 0..all.units.len() {
            let unit = &all.units[id];
            let before = unit.state;
            match unit.state {
                State::Idle if unit.wanted && all.may_start(unit) => start(all, now, id),
                State::Resting { until } if now >= until && all.may_start(unit) => start(all, now, id),
                State::Resting { .. } if !unit.wanted => all.units[id].state = State::Idle,
                State::Warming { .. } | State::Running if !unit.wanted && all.may_stop(id) => {
                    stop(all, now, id, Blame::Asked);
                }
                State::Warming { until } if now >= until => {
                    trouble(all, id, Blame::NotReady);
                    stop(all, now, id, Blame::NotReady);
                }
                State::Stopping { until, .. } if now >= until => next_step(all, now, id),
                _ => {}
            }
            changed |= all.units[id].state != before;
        }
    }
    settle(all);
}

fn start(all: &mut Supervision, now: MonoNs, id: Id) {
    all.units[id].state = State::Launching;
    all.units[id].history.starts += 1;
    all.units[id].asked = Some(now);
    all.actions.push_back(Action::Start(id));
}

/// Checks whether the plant has reached its target phase.
fn settle(all: &mut Supervision) {
    match all.phase {
        Phase::Starting => {
            let is_settled = |state| match state {
                State::Running | State::Finished => true,
                State::Faulted => all.was_up,
                _ => false,
            };
            let mut wanted = all.units.iter().filter(|unit| unit.wanted && !unit.spec.optional);
            if wanted.all(|unit| is_settled(unit.state)) {
                (all.phase, all.was_up) = (Phase::Up, true);
            }
        }
        Phase::Stopping(_) if !all.is_alive() => all.phase = Phase::Down,
        Phase::Stopping(_) | Phase::Up | Phase::Down => {}
    }
}
