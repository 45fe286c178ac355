//! Samples into counts: bounded by the number of functions and of different stacks, not by time.

use crate::found::{Found, Frame, Stack, Thread};
use crate::object::{Object, Source};
use crate::record::{Record, Records, Sample, Timed};
use crate::space::{Cache, Space};
use crate::stack::{Cut, FRAMES_MAX, unwind};
use std::collections::{BTreeMap, HashMap};
use trace::Symbols;

/// As many different stacks as are told apart; what comes later is counted under its innermost function.
const STACKS_MAX: usize = 1 << 18;
/// As many objects, processes and threads as are told apart.
const OBJECTS_MAX: usize = 1 << 14;
const SPACES_MAX: usize = 1 << 12;
const THREADS_MAX: usize = 1 << 16;
/// Nanoseconds between two looks for code that a process has made.
const LOOK_NS: u64 = 1_000_000_000;
/// Marks between the addresses of a call chain: whatever follows is kernel's, user's.
const IN_KERNEL: u64 = -128i64 as u64;
const IN_USER: u64 = -512i64 as u64;
/// The least mark.
const MARKS: u64 = -4095i64 as u64;

/// Where code comes from.
pub trait Files {
    /// The object that process `pid` knows as `path`, if it still is the one of that device and number (0 where not told); `[vdso]`, too.
    fn open(&mut self, pid: i32, path: &str, file: (u32, u32, u64)) -> Option<Box<dyn Source>>;

    /// The file with the debugging information of the object with this build id.
    fn debug(&mut self, build_id: &[u8]) -> Option<Box<dyn Source>>;

    /// What process `pid` says of code that it made (`/tmp/perf-PID.map`).
    fn made(&mut self, pid: i32) -> Option<String>;
}

/// Code that a process made while it ran.
struct Made {
    object: u32,
    looked: u64,
}

/// What a frame is told apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Function(u32, u32),
    Unknown(u32),
    Kernel(String),
    Cut(Cut),
    Nowhere,
}

/// A thread's place among the threads, and those of a stack's frames, the outermost first.
type StackKey = (u32, Box<[u32]>);

/// What is known of the sampled threads.
pub struct Profile {
    kernel: Symbols,
    registers: Option<usize>,
    cache: Cache,
    pending: Vec<u8>,
    spaces: HashMap<i32, Space>,
    objects: Vec<Object>,
    by_file: HashMap<(String, (u32, u32, u64)), u32>,
    made: BTreeMap<i32, Made>,
    threads: Vec<Thread>,
    by_tid: HashMap<i32, u32>,
    frames: Vec<Frame>,
    by_key: HashMap<Key, u32>,
    stacks: HashMap<StackKey, (u64, u64)>,
    lost: u64,
    throttled: u64,
    merged: u64,
    cut: BTreeMap<Cut, u64>,
    addresses: Vec<u64>,
    samples: u64,
}

impl Profile {
    /// Knows nothing yet. `kernel`: its functions, none where they may not be known; `stacks`: whether samples carry registers and stack.
    #[must_use]
    pub fn new(kernel: Symbols, stacks: bool) -> Self {
        Self {
            kernel,
            registers: stacks.then_some(crate::REGISTERS),
            cache: Cache::new(),
            pending: Vec::new(),
            spaces: HashMap::new(),
            objects: vec![Object::unknown("[kernel]"), Object::unknown("[unknown]")],
            by_file: HashMap::new(),
            made: BTreeMap::new(),
            threads: Vec::new(),
            by_tid: HashMap::new(),
            frames: Vec::new(),
            by_key: HashMap::new(),
            stacks: HashMap::new(),
            lost: 0,
            throttled: 0,
            merged: 0,
            cut: BTreeMap::new(),
            addresses: Vec::new(),
            samples: 0,
        }
    }

    /// A thread that runs already.
    pub fn thread(&mut self, pid: i32, tid: i32, name: &str) {
        self.name(pid, tid, name, false);
    }

    /// Memory of a process that runs already, as `/proc/PID/maps` says it. Lines that are not understood are passed over.
    pub fn maps(&mut self, pid: i32, text: &str, files: &mut dyn Files) {
        for line in text.lines() {
            let mut words = line.splitn(6, ' ');
            let mut word = || words.next().unwrap_or_default();
            let (range, permissions, offset, device, inode) = (word(), word(), word(), word(), word());
            let path = word().trim_start();
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            let Some((start, end)) = range.split_once('-').and_then(|(start, end)| hex(start).zip(hex(end))) else {
                continue;
            };
            let Some((major, minor)) = device.split_once(':').and_then(|(one, two)| hex(one).zip(hex(two))) else {
                continue;
            };
            if !permissions.contains('x') || end <= start {
                continue;
            }
            let file = (major as u32, minor as u32, inode.parse().unwrap_or(0));
            let path = if path.is_empty() { "//anon" } else { path };
            self.map(pid, (start, end - start, hex(offset).unwrap_or(0)), path, file, files);
        }
    }

    /// Takes what stood in a ring.
    pub fn take(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Understands what has been taken and is not newer than `until`: before that, all rings have been read.
    pub fn advance(&mut self, until: u64, files: &mut dyn Files) {
        let pending = std::mem::take(&mut self.pending);
        let mut records: Vec<Timed<'_>> = Records::new(&pending, self.registers).collect();
        // Rings are in order each; among them only time is.
        records.sort_by_key(|timed| timed.at);
        for timed in records {
            match timed.at <= until {
                true => self.record(timed.at, timed.record, files),
                false => self.pending.extend_from_slice(timed.bytes),
            }
        }
    }

    fn record(&mut self, at: u64, record: Record<'_>, files: &mut dyn Files) {
        match record {
            Record::Sample(sample) => self.sample(at, &sample, files),
            Record::Mapping { pid, start, bytes, offset, file, path } => {
                let path = String::from_utf8_lossy(path);
                self.map(pid, (start, bytes, offset), &path, file, files);
            }
            Record::Name { pid, tid, exec, name } => {
                if exec {
                    // Its memory is a new one.
                    self.spaces.remove(&pid);
                    self.made.remove(&pid);
                }
                self.name(pid, tid, &base::OneLine(&String::from_utf8_lossy(name)).to_string(), exec);
            }
            Record::Fork { pid, parent, tid } => self.fork(pid, parent, tid),
            Record::Lost(lost) => self.lost += lost,
            Record::Throttled => self.throttled += 1,
        }
    }

    fn fork(&mut self, pid: i32, parent: i32, tid: i32) {
        if pid != parent
            && self.spaces.len() < SPACES_MAX
            && let Some(space) = self.spaces.get(&parent).cloned()
        {
            self.spaces.insert(pid, space);
        }
        let name = self.by_tid.get(&parent).map(|&nth| self.threads[nth as usize].name.clone());
        // A number that was used before is another thread now.
        self.by_tid.remove(&tid);
        self.name(pid, tid, &name.unwrap_or_default(), false);
    }

    fn name(&mut self, pid: i32, tid: i32, name: &str, anew: bool) {
        let next = self.threads.len();
        let known = self.by_tid.get(&tid).filter(|_| !anew).map(|&nth| nth as usize);
        if let Some(thread) = known.and_then(|nth| self.threads.get_mut(nth)) {
            name.clone_into(&mut thread.name);
        } else if next < THREADS_MAX {
            self.by_tid.insert(tid, next as u32);
            self.threads.push(Thread { pid, tid, name: name.to_owned() });
        }
    }

    fn map(&mut self, pid: i32, at: (u64, u64, u64), path: &str, file: (u32, u32, u64), files: &mut dyn Files) {
        let number = self.object(pid, path, file, files);
        if self.spaces.len() >= SPACES_MAX && !self.spaces.contains_key(&pid) {
            return;
        }
        let (start, bytes, offset) = at;
        self.spaces.entry(pid).or_default().map(start, bytes, offset, number, &self.objects[number as usize]);
    }

    /// The object's number; 1 where nothing is known.
    fn object(&mut self, pid: i32, path: &str, file: (u32, u32, u64), files: &mut dyn Files) -> u32 {
        let key = (path.to_owned(), file);
        if let Some(&number) = self.by_file.get(&key) {
            return number;
        }
        // Memory without a file that processes share has a path in `maps` all the same: what is in it is known by what its maker says.
        let is_shared = ["/dev/zero", "/memfd:", "/SYSV"].iter().any(|start| path.starts_with(start));
        let is_code = path.starts_with('/') && !path.starts_with("//") && !is_shared || path == "[vdso]";
        if !is_code || self.objects.len() >= OBJECTS_MAX {
            return 1;
        }
        let object = Object::of(files, pid, path, file);
        let number = self.objects.len() as u32;
        self.objects.push(object);
        self.by_file.insert(key, number);
        number
    }

    fn sample(&mut self, at: u64, sample: &Sample<'_>, files: &mut dyn Files) {
        self.samples += 1;
        if !self.by_tid.contains_key(&sample.tid) {
            self.name(sample.pid, sample.tid, "", false);
        }
        let Some(&thread) = self.by_tid.get(&sample.tid) else {
            self.merged += 1;
            return;
        };
        let mut stack = Vec::with_capacity(32);
        let cut = self.chain(at, sample, &mut stack, files);
        if let Some(cut) = cut {
            *self.cut.entry(cut).or_default() += 1;
            let frame = self.frame(Key::Cut(cut));
            stack.push(frame);
        }
        if stack.is_empty() {
            stack.push(self.frame(Key::Nowhere));
        }
        let full = self.stacks.len() >= STACKS_MAX;
        stack.reverse();
        let mut key = (thread, stack.into_boxed_slice());
        if full && !self.stacks.contains_key(&key) {
            self.merged += 1;
            key.1 = key.1.last().copied().into_iter().collect();
        }
        let count = self.stacks.entry(key).or_default();
        *count = (count.0 + 1, count.1.saturating_add(sample.period));
    }

    /// The frames of a sample, the innermost first, and why some are missing.
    fn chain(&mut self, at: u64, sample: &Sample<'_>, stack: &mut Vec<u32>, files: &mut dyn Files) -> Option<Cut> {
        let (mut mark, mut first) = (IN_USER, true);
        for word in sample.chain.chunks_exact(8).take(FRAMES_MAX) {
            let address = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            if address >= MARKS {
                (mark, first) = (address, true);
                continue;
            }
            // All but the innermost say where a call returns to.
            let within = address.wrapping_sub(u64::from(!std::mem::take(&mut first)));
            let frame = match mark {
                IN_KERNEL => self.kernel_frame(within),
                _ => self.user_frame(at, sample.pid, within, files),
            };
            stack.push(frame);
        }
        let user = sample.user.as_ref()?;
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.clear();
        let nowhere = Space::default();
        let space = self.spaces.get(&sample.pid).unwrap_or(&nowhere);
        let cut = unwind(space, &mut self.cache, user, &mut addresses);
        for &address in &addresses {
            let frame = self.user_frame(at, sample.pid, address, files);
            stack.push(frame);
        }
        self.addresses = addresses;
        cut
    }

    fn kernel_frame(&mut self, address: u64) -> u32 {
        let name = self.kernel.name(address).unwrap_or("[kernel]").to_owned();
        self.frame(Key::Kernel(name))
    }

    fn user_frame(&mut self, at: u64, pid: i32, address: u64, files: &mut dyn Files) -> u32 {
        let Some(mapping) = self.spaces.get(&pid).and_then(|space| space.find(address)) else {
            return self.frame(Key::Unknown(1));
        };
        let (object, inside) = (mapping.object, address.wrapping_sub(mapping.bias));
        if object == 1 {
            return self.made_frame(at, pid, address, files);
        }
        match self.objects[object as usize].function(inside) {
            Some(function) => self.frame(Key::Function(object, function)),
            None => self.frame(Key::Unknown(object)),
        }
    }

    /// Code that stands in no file.
    fn made_frame(&mut self, at: u64, pid: i32, address: u64, files: &mut dyn Files) -> u32 {
        let known = self.made.get(&pid).map(|made| (made.object, made.looked));
        let found = |this: &Self, object: u32| this.objects[object as usize].function(address);
        if let Some((object, looked)) = known {
            if let Some(function) = found(self, object) {
                return self.frame(Key::Function(object, function));
            }
            if at < looked.saturating_add(LOOK_NS) {
                return self.frame(Key::Unknown(1));
            }
        }
        if self.objects.len() >= OBJECTS_MAX || self.made.len() >= SPACES_MAX {
            return self.frame(Key::Unknown(1));
        }
        let Some(text) = files.made(pid) else {
            self.made.insert(pid, Made { object: 1, looked: at });
            return self.frame(Key::Unknown(1));
        };
        // Functions that were counted keep their numbers: what was read anew is another object.
        let object = self.objects.len() as u32;
        self.objects.push(Object::made_at_run_time("[made at run time]", &text));
        self.made.insert(pid, Made { object, looked: at });
        match found(self, object) {
            Some(function) => self.frame(Key::Function(object, function)),
            None => self.frame(Key::Unknown(1)),
        }
    }

    fn frame(&mut self, key: Key) -> u32 {
        if let Some(&frame) = self.by_key.get(&key) {
            return frame;
        }
        let number = self.frames.len() as u32;
        let frame = match &key {
            Key::Function(object, function) => {
                let of = &self.objects[*object as usize];
                Frame {
                    name: of.function_name(*function),
                    object: of.name.clone(),
                    function: Some((*object, *function)),
                }
            }
            Key::Unknown(object) => {
                let name = &self.objects[*object as usize].name;
                let short = name.rsplit('/').next().unwrap_or_default();
                let shown = if name.starts_with('[') { name.clone() } else { format!("[{short}]") };
                Frame { name: shown, object: name.clone(), function: None }
            }
            Key::Kernel(name) => Frame { name: name.clone(), object: "[kernel]".into(), function: None },
            Key::Cut(cut) => Frame { name: cut.frame().into(), object: String::new(), function: None },
            Key::Nowhere => Frame { name: "[unknown]".into(), object: String::new(), function: None },
        };
        self.frames.push(frame);
        self.by_key.insert(key, number);
        number
    }

    /// Whether a thread has been told of, or was seen.
    #[must_use]
    pub fn knows(&self, tid: i32) -> bool {
        self.by_tid.contains_key(&tid)
    }

    /// How many samples have been understood.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// What was found. `files` are asked for what came last.
    #[must_use]
    pub fn found(mut self, files: &mut dyn Files) -> Found {
        self.advance(u64::MAX, files);
        let stack =
            |((thread, frames), (samples, weight)): (StackKey, (u64, u64))| Stack { thread, frames, samples, weight };
        let mut stacks: Vec<Stack> = std::mem::take(&mut self.stacks).into_iter().map(stack).collect();
        stacks.sort_by(|one, two| (one.thread, &one.frames).cmp(&(two.thread, &two.frames)));
        let functions = self.objects.iter().map(|object| (object.name.clone(), object.functions())).collect();
        Found {
            threads: self.threads,
            frames: self.frames,
            stacks,
            samples: self.samples,
            lost: self.lost,
            throttled: self.throttled,
            merged: self.merged,
            cut: self.cut,
            functions,
            objects: self.objects,
        }
    }
}
