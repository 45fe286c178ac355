//! What a profile found, and what is made of it.

use crate::object::Object;
use crate::stack::Cut;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A thread that was sampled, or might have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// Its name; empty if nobody told.
    pub name: String,
}

/// A function, or what stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name; in brackets what is none.
    pub name: String,
    /// The object that it is in: a path, `[kernel]`, `[vdso]`; empty where there is none.
    pub object: String,
    /// Its object's number and its own there.
    pub(crate) function: Option<(u32, u32)>,
}

/// A stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its thread's place among the threads.
    pub thread: u32,
    /// Places of its frames, the outermost first.
    pub frames: Box<[u32]>,
    /// How often it was seen.
    pub samples: u64,
    /// What these samples stand for: nanoseconds or cycles.
    pub weight: u64,
}

/// A function's share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its object.
    pub object: String,
    /// Samples in itself.
    pub own: u64,
    /// Samples in itself and what it called.
    pub total: u64,
}

/// What of an object's functions was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The object.
    pub object: String,
    /// Names of functions that were seen, sorted.
    pub seen: Vec<String>,
    /// Those that were not.
    pub not_seen: Vec<String>,
}

/// What a profile found.
#[derive(Debug)]
pub struct Found {
    /// The threads.
    pub threads: Vec<Thread>,
    /// The functions.
    pub frames: Vec<Frame>,
    /// The stacks: samples of all add up to `samples`, less those of threads too many to be told apart.
    pub stacks: Vec<Stack>,
    /// How many samples there were.
    pub samples: u64,
    /// Records that found no room in the ring.
    pub lost: u64,
    /// How often the kernel stopped for a while because it took too much time.
    pub throttled: u64,
    /// Samples that were counted under their innermost function, or not at all, for want of room.
    pub merged: u64,
    /// Samples whose stack has no outer part, by why.
    pub cut: BTreeMap<Cut, u64>,
    /// Each object's name with the number of its functions.
    pub functions: Vec<(String, u32)>,
    pub(crate) objects: Vec<Object>,
}

impl Found {
    /// A line for each stack, `thread;outermost;…;innermost COUNT`: what tools that draw flame graphs read.
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

    /// A thread's name, or its number where nobody told one.
    #[must_use]
    pub fn thread_name(&self, nth: u32) -> String {
        let thread = self.threads.get(nth as usize);
        thread.map_or_else(
            String::new,
            |of| if of.name.is_empty() { format!("thread {}", of.tid) } else { of.name.clone() },
        )
    }

    /// Threads that were seen, with their samples, those with most first.
    #[must_use]
    pub fn by_thread(&self) -> Vec<(&Thread, u64)> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        self.stacks.iter().for_each(|stack| *counts.entry(stack.thread).or_default() += stack.samples);
        let mut threads: Vec<_> =
            counts.iter().map(|(&nth, &samples)| (&self.threads[nth as usize], samples)).collect();
        threads.sort_by_key(|&(thread, samples)| (std::cmp::Reverse(samples), thread.tid));
        threads
    }

    /// Functions with their shares, of thread `tid` or of all, those with most samples in themselves first.
    #[must_use]
    pub fn rows(&self, tid: Option<i32>) -> Vec<Row> {
        let mut counts: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        let meant = |stack: &&Stack| tid.is_none_or(|tid| self.threads[stack.thread as usize].tid == tid);
        for stack in self.stacks.iter().filter(meant) {
            let key = |frame: &u32| {
                let frame = &self.frames[*frame as usize];
                (frame.name.as_str(), frame.object.as_str())
            };
            // One that calls itself counts once.
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

    /// Which functions of each object were seen on any stack. That one was not seen is no proof that it did not run.
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

/// Without what folded lines are split at.
fn plain(name: &str) -> String {
    name.replace(';', ",").replace(['\n', '\r'], " ")
}
