//! Who took the CPU from a thread, read from the kernel's own record of context switches.

use std::path::Path;
use sys::tracing::{Instance, Tracing};

/// Instances of ours; the process id follows.
const PREFIX: &str = "tahti-preempt-";

/// A switch away from a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch<'a> {
    /// The thread that left.
    pub from: i32,
    /// Whether it could have gone on.
    pub preempted: bool,
    /// The task that came.
    pub to: i32,
    /// Its name.
    pub name: &'a str,
}

/// Reads a line of `trace_pipe`; `None` if it is no context switch.
///
/// `llrf-71 [001] d..2. 9.1: sched_switch: prev_comm=llrf prev_pid=71 prev_prio=19 prev_state=R+ ==>
/// next_comm=kworker/1:1 next_pid=21 next_prio=120`. A name may hold anything, blanks and `=` included.
#[must_use]
pub fn parse_switch(line: &str) -> Option<Switch<'_>> {
    let (_, event) = line.split_once(": sched_switch: ")?;
    let (previous, next) = event.rsplit_once(" ==> next_comm=")?;
    let (_, previous) = previous.rsplit_once(" prev_pid=")?;
    let (from, previous) = previous.split_once(' ')?;
    let (_, state) = previous.rsplit_once("prev_state=")?;
    let (name, next) = next.rsplit_once(" next_pid=")?;
    let to = next.split(' ').next()?;
    Some(Switch { from: from.parse().ok()?, preempted: state.trim_end().starts_with('R'), to: to.parse().ok()?, name })
}

/// Follows the switches away from some threads, until dropped.
pub(crate) struct Preemptions {
    // In this order they must go.
    instance: Instance,
    _tracing: Tracing,
    /// The end of a line that is not whole yet.
    rest: String,
}

impl Preemptions {
    /// Begins.
    pub(crate) fn follow(tids: &[i32]) -> sys::Result<Self> {
        let tracing = Tracing::mount()?;
        let place = tracing.place();
        sweep(&tracing);
        let instance = Instance::make(&place, &format!("{PREFIX}{}", std::process::id()))?;
        instance.set("buffer_size_kb", "64")?;
        let threads = tids.iter().map(|tid| format!("prev_pid == {tid}")).collect::<Vec<_>>().join(" || ");
        // 0 is "runnable"; the tracer shows a preemption as the bit above all states.
        let filter = format!("({threads}) && (prev_state == 0 || prev_state & 0x100)");
        instance.set("events/sched/sched_switch/filter", &filter)?;
        instance.set("events/sched/sched_switch/enable", "1")?;
        Ok(Self { instance, _tracing: tracing, rest: String::new() })
    }

    /// Calls `each` for every switch since the last time.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&Switch<'_>)) -> sys::Result<()> {
        // Bounded: what comes faster than this is read the next time.
        for _ in 0..16 {
            let more = self.instance.read()?;
            if more.is_empty() {
                break;
            }
            self.rest.push_str(&more);
            let end = self.rest.rfind('\n').map_or(0, |at| at + 1);
            self.rest[..end].lines().filter_map(parse_switch).filter(|switch| switch.preempted).for_each(|s| each(&s));
            self.rest.drain(..end);
        }
        Ok(())
    }
}

/// Removes instances whose process is gone (it was killed).
fn sweep(tracing: &Tracing) {
    for name in tracing.files().list("instances").unwrap_or_default() {
        let Some(pid) = name.strip_prefix(PREFIX) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            // Somebody else may have been quicker.
            let _ = Instance::remove(&tracing.place(), &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_whatever_the_tasks_are_called() {
        let line = "            llrf-71      [001] d..2.    64.100: sched_switch: prev_comm=llrf prev_pid=71 prev_prio=19 \
                    prev_state=R+ ==> next_comm=a next_pid=1 b next_pid=21 next_prio=120";
        let switch = parse_switch(line).unwrap();
        assert_eq!(switch, Switch { from: 71, preempted: true, to: 21, name: "a next_pid=1 b" });
        let sleeping = line.replace("R+", "S");
        assert!(!parse_switch(&sleeping).unwrap().preempted);
    }

    #[test]
    fn other_lines_are_no_switches() {
        for line in ["", "CPU:1 [LOST 12 EVENTS]", "x: sched_switch: prev_comm=a", "x: sched_waking: comm=a pid=1"] {
            assert_eq!(parse_switch(line), None, "{line}");
        }
    }
}
