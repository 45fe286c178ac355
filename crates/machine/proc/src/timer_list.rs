//! `/proc/timer_list`: the high-resolution timers that are armed, CPU by CPU. Only root may read it.

use base::CpuId;

/// The functions of the timers that are armed on `cpu`, in the file's order, each once.
///
/// The timer wheel (low-resolution timers of drivers and the network) is not in this file: it runs from the tick.
#[must_use]
pub fn armed(text: &str, cpu: CpuId) -> Vec<&str> {
    let mut here = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("cpu: ") {
            here = number.trim().parse() == Ok(cpu);
        } else if line.starts_with("Tick Device:") {
            break;
        } else if here
            && line.starts_with(" #")
            && let Some(function) = line.split(", ").nth(1)
            && !found.contains(&function)
        {
            found.push(function);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Timer List Version: v0.10\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 10879777015 nsecs\n\ncpu: 0\n \
        clock 0:\n  .base:       0000000040ac70ff\nactive timers:\n #0: <000000004a0c4509>, tick_nohz_handler, S:01\n \
        # expires at 10884000000-10884000000 nsecs [in 4222985 to 4222985 nsecs]\n \
        #1: <00000000b02628de>, dl_task_timer, S:01\n #2: <00000000b02628df>, dl_task_timer, S:01\ncpu: 10\n clock 0:\n\
        active timers:\n #0: <000000005eb46d28>, watchdog_timer_fn, S:01\n\nTick Device: mode:     1\n #1: <0>, no, S:01\n";

    #[test]
    fn timers_are_found_by_their_cpu_and_named_once() {
        assert_eq!(armed(LIST, 0), ["tick_nohz_handler", "dl_task_timer"]);
        assert_eq!(armed(LIST, 10), ["watchdog_timer_fn"]);
        assert!(armed(LIST, 1).is_empty() && armed("", 0).is_empty());
    }
}
