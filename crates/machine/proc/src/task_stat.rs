//! `/proc/PID/stat`: one line about a task.

/// The fields of the line that tahti uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The task's id.
    pub tid: i32,
    /// The task's own name, up to 15 bytes (a kernel thread's is longer).
    pub comm: String,
    /// The state's letter.
    pub state: char,
    /// The parent's id.
    pub ppid: i32,
    /// `PF_…` flags.
    pub flags: u64,
    /// The nice value.
    pub nice: i8,
    /// Threads of its process.
    pub threads: u32,
    /// Start, in clock ticks since boot: with the id it names a task for ever.
    pub start: u64,
    /// The CPU on which it ran last.
    pub last_cpu: u16,
    /// Static real-time priority; 0 for time sharing.
    pub rt_priority: u8,
    /// `SCHED_…` number.
    pub policy: u8,
}

/// `PF_EXITING`.
const EXITING: u64 = 0x4;
/// `PF_KTHREAD`.
pub const KTHREAD: u64 = 0x0020_0000;
/// `PF_NO_SETAFFINITY`: the kernel bound this thread, and refuses every other mask.
pub const NO_SETAFFINITY: u64 = 0x0400_0000;

impl Stat {
    /// The task has ended or is ending: it no longer runs, and the kernel has moved it to the root of all
    /// hierarchies.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') || self.flags & EXITING != 0
    }

    /// Whether the kernel bound this thread, or is about to: workers of workqueues are found under their name before
    /// that, and any thread in its first moment under that of kthreadd, which makes it. A mask that is set then does not last.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        let newborn = self.comm.starts_with("kworker/") || (self.comm == "kthreadd" && self.ppid != 0);
        self.flags & NO_SETAFFINITY != 0 || (self.flags & KTHREAD != 0 && newborn)
    }

    /// Reads the line; nothing if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A task may name itself `) R 1 (`: the name ends at the last bracket.
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let tid = text[..open].trim().parse().ok()?;
        let comm = base::OneLine(text.get(open + 1..close)?).to_string();
        let mut fields = text[close + 1..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let ppid = fields.next()?.parse().ok()?;
        // From here `nth` counts from the field behind the last one taken; proc(5) numbers are in brackets.
        let flags = fields.nth(4)?.parse().ok()?; // (9)
        let nice = fields.nth(9)?.parse().ok()?; // (19)
        let threads = fields.next()?.parse().ok()?; // (20)
        let start = fields.nth(1)?.parse().ok()?; // (22)
        let last_cpu = fields.nth(16)?.parse().ok()?; // (39)
        let rt_priority = fields.next()?.parse().ok()?; // (40)
        let policy = fields.next()?.parse().ok()?; // (41)
        Some(Self { tid, comm, state, ppid, flags, nice, threads, start, last_cpu, rt_priority, policy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "1390 (a) R 1 (b) S 1362 1362 7213 0 -1 4194304 98 0 0 0 0 0 0 0 -51 0 1 0 258348 3133440 359 \
        18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 1 50 1 0 0 0 6 7 8 9 10 11 12 0";

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = Stat::parse(LINE).unwrap();
        let expected = Stat {
            tid: 1390,
            comm: "a) R 1 (b".into(),
            state: 'S',
            ppid: 1362,
            flags: 4_194_304,
            nice: 0,
            threads: 1,
            start: 258_348,
            last_cpu: 1,
            rt_priority: 50,
            policy: 1,
        };
        assert_eq!(stat, expected);
    }

    #[test]
    fn a_kernel_thread_under_construction_counts_as_bound() {
        let bound =
            |comm: &str, ppid, flags| Stat { comm: comm.into(), ppid, flags, ..Stat::parse(LINE).unwrap() }.is_bound();
        assert!(bound("ksoftirqd/1", 2, KTHREAD | NO_SETAFFINITY) && !bound("kswapd0", 2, KTHREAD));
        assert!(bound("kworker/u9:1", 2, KTHREAD) && bound("kthreadd", 2, KTHREAD));
        assert!(
            !bound("kthreadd", 0, KTHREAD) && !bound("kworker/u9:1", 1, 0),
            "kthreadd itself, and processes with only its name"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", cut in 0usize..300) {
            let _ = Stat::parse(&text);
            let _ = Stat::parse(LINE.get(..cut).unwrap_or(LINE));
        }
    }
}
