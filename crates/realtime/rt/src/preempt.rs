//! Preemptions of a thread, read from the kernel's trace of context switches.

use std::path::Path;
use sys::tracing::{Instance, Tracing};

/// Prefix of our trace instances; the process id follows.
const PREFIX: &str = "tahti-preempt-";

/// A context switch away from a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch<'a> {
    /// The thread that was switched out.
    pub from: i32,
    /// Whether it was still runnable.
    pub preempted: bool,
    /// The task that was switched in.
    pub to: i32,
    /// Name of that task.
    pub name: &'a str,
}

/// Parses a line of `trace_pipe`; `None` if it is not a context switch.
///
/// `llrf-71 [001] d..2. 9.1: sched_switch: prev_comm=llrf prev_pid=71 prev_prio=19 prev_state=R+ ==> next_comm=kworker/1:1
/// next_pid=21 next_prio=120`. A name may contain any characters, including blanks and `=`.
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

/// A trace of the switches away from some threads, until dropped.
pub(crate) struct Preemptions {
    // The fields must be dropped in this order.
    instance: Instance,
    _tracing: Tracing,
    /// An incomplete line at the end of the last read.
    rest: String,
}

impl Preemptions {
    /// Starts the trace.
    pub(crate) fn follow(tids: &[i32]) -> sys::Result<Self> {
        let tracing = Tracing::mount()?;
        let place = tracing.place();
        sweep(&tracing);
        let instance = Instance::make(&place, &format!("{PREFIX}{}", std::process::id()))?;
        instance.set("buffer_size_kb", "64")?;
        let threads = tids.iter().map(|tid| format!("prev_pid == {tid}")).collect::<Vec<_>>().join(" || ");
        // State 0 is "runnable". The tracer marks a preemption by the bit above all states.
        let filter = format!("({threads}) && (prev_state == 0 || prev_state & 0x100)");
        instance.set("events/sched/sched_switch/filter", &filter)?;
        instance.set("events/sched/sched_switch/enable", "1")?;
        Ok(Self { instance, _tracing: tracing, rest: String::new() })
    }

    /// Calls `each` for every switch since the last call.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&Switch<'_>)) -> sys::Result<()> {
        // Bounded. Data that arrives faster is read by the next call.
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

/// Removes instances whose process was killed.
fn sweep(tracing: &Tracing) {
    for name in tracing.files().list("instances").unwrap_or_default() {
        let Some(pid) = name.strip_prefix(PREFIX) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            // Another process may have removed it first.
            let _ = Instance::remove(&tracing.place(), &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_parsed_with_any_names_of_tasks() {
        let line = "            llrf-71      [001] d..2.    64.100: sched_switch: prev_comm=llrf prev_pid=71 prev_prio=19 \
                    prev_state=R+ ==> next_comm=a next_pid=1 b next_pid=21 next_prio=120";
        let switch = parse_switch(line).unwrap();
        assert_eq!(switch, Switch { from: 71, preempted: true, to: 21, name: "a next_pid=1 b" });
        let sleeping = line.replace("R+", "S");
        assert!(!parse_switch(&sleeping).unwrap().preempted);
    }

    #[test]
    fn other_trace_lines_are_not_switches() {
        for line in ["", "CPU:1 [LOST 12 EVENTS]", "x: sched_switch: prev_comm=a", "x: sched_waking: comm=a pid=1"] {
            assert_eq!(parse_switch(line), None, "{line}");
        }
    }
}
