//! Result of a profile, and reports derived from it.

use crate::object::Object;
use crate::stack::Cut;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A thread that was selected for sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process id.
    pub pid: i32,
    /// Its thread id.
    pub tid: i32,
    /// Its name; empty if unknown.
    pub name: String,
}

/// A frame: a function, or a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name; placeholders are in brackets.
    pub name: String,
    /// The object that contains it: a path, `[kernel]` or `[vdso]`; empty if none.
    pub object: String,
    /// Numbers of its object, and of the function in it.
    pub(crate) function: Option<(u32, u32)>,
}

/// A stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Index of the thread.
    pub thread: u32,
    /// Indices of the frames, outermost first.
    pub frames: Box<[u32]>,
    /// Number of samples.
    pub samples: u64,
    /// Total weight of these samples, in nanoseconds or cycles.
    pub weight: u64,
}

/// Samples of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its object.
    pub object: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in the function and its callees.
    pub total: u64,
}

/// Functions of an object, by whether they were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The object.
    pub object: String,
    /// Names of the functions seen, sorted.
    pub seen: Vec<String>,
    /// Names of the functions not seen, sorted.
    pub not_seen: Vec<String>,
}

/// Result of a profile.
#[derive(Debug)]
pub struct ProfileData {
    /// The threads.
    pub threads: Vec<Thread>,
    /// The functions.
    pub frames: Vec<Frame>,
    /// The stacks. Their samples add up to `samples`, except those of threads beyond the limit.
    pub stacks: Vec<Stack>,
    /// Number of samples.
    pub samples: u64,
    /// Records lost because a ring was full.
    pub lost: u64,
    /// Number of times the kernel paused sampling because it took too much time.
    pub throttled: u64,
    /// Samples counted under their innermost function, or dropped, because a limit was reached.
    pub merged: u64,
    /// Samples with an incomplete stack, by reason.
    pub cut: BTreeMap<Cut, u64>,
    /// Name and number of functions of each object.
    pub functions: Vec<(String, u32)>,
    pub(crate) objects: Vec<Object>,
}

impl ProfileData {
    /// One line per stack, `thread;outermost;…;innermost COUNT`: the input format of flame graph tools.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        for stack in &self.stacks {
            let mut line = plain(&self.thread_name(stack.thread));
            for &frame in &stack.frames {
                let frame = &self.frames[frame as usize];
                let kernel = if frame.object == "[kernel]" { "_[k]" } else { "" };
                let _ = write!(line, ";{}{kernel}", plain(&frame.name));
            }
            *lines.entry(line).or_default() += stack.samples;
        }
        lines.into_iter().fold(String::new(), |mut text, (line, samples)| {
            let _ = writeln!(text, "{line} {samples}");
            text
        })
    }

    /// Name of a thread, or its id if the name is unknown.
    #[must_use]
    pub fn thread_name(&self, nth: u32) -> String {
        let thread = self.threads.get(nth as usize);
        thread.map_or_else(
            String::new,
            |of| if of.name.is_empty() { format!("thread {}", of.tid) } else { of.name.clone() },
        )
    }

    /// Threads with samples, most samples first.
    #[must_use]
    pub fn by_thread(&self) -> Vec<(&Thread, u64)> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        self.stacks.iter().for_each(|stack| *counts.entry(stack.thread).or_default() += stack.samples);
        let mut threads: Vec<_> =
            counts.iter().map(|(&nth, &samples)| (&self.threads[nth as usize], samples)).collect();
        threads.sort_by_key(|&(thread, samples)| (std::cmp::Reverse(samples), thread.tid));
        threads
    }

    /// Functions with their samples, of thread `tid` or of all threads, sorted by samples in the function itself.
    #[must_use]
    pub fn rows(&self, tid: Option<i32>) -> Vec<Row> {
        let mut counts: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        let meant = |stack: &&Stack| tid.is_none_or(|tid| self.threads[stack.thread as usize].tid == tid);
        for stack in self.stacks.iter().filter(meant) {
            let key = |frame: &u32| {
                let frame = &self.frames[*frame as usize];
                (frame.name.as_str(), frame.object.as_str())
            };
            // A recursive function counts once per stack.
            for of in stack.frames.iter().map(key).collect::<BTreeSet<_>>() {
                counts.entry(of).or_default().1 += stack.samples;
            }
            if let Some(last) = stack.frames.last() {
                counts.entry(key(last)).or_default().0 += stack.samples;
            }
        }
        let row = |((name, object), (own, total)): ((&str, &str), (u64, u64))| Row {
            name: name.to_owned(),
            object: object.to_owned(),
            own,
            total,
        };
        let mut rows: Vec<Row> = counts.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.own, row.total)));
        rows
    }

    /// The functions of each object seen on any stack. A function that was not seen may still have run.
    #[must_use]
    pub fn coverage(&self) -> Vec<Covered> {
        let mut seen: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (object, function) in self.frames.iter().filter_map(|frame| frame.function) {
            seen.entry(object).or_default().insert(function);
        }
        let covered = |(&object, seen): (&u32, &BTreeSet<u32>)| {
            let of = &self.objects[object as usize];
            let (yes, no): (Vec<u32>, Vec<u32>) = (0..of.functions()).partition(|nth| seen.contains(nth));
            let names = |numbers: Vec<u32>| {
                let mut names: Vec<String> = numbers.into_iter().map(|nth| of.function_name(nth)).collect();
                names.sort();
                names
            };
            Covered { object: of.name.clone(), seen: names(yes), not_seen: names(no) }
        };
        seen.iter().map(covered).collect()
    }
}

/// Removes the separators of the folded format.
fn plain(name: &str) -> String {
    name.replace(';', ",").replace(['\n', '\r'], " ")
}
