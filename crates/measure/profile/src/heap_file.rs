//! Reader of the heap library's counters: converts its file into allocation sites with the names of their callers.

use crate::object::Object;
use crate::sampled::Files;
use heap::layout::{
    CALLERS_MAX, MAGIC, MODULE_WORDS, MODULES_AT, MODULES_MAX, PATH_MAX, SITE_WORDS, SITES_AT, SITES_MAX, head, site,
};
use std::collections::HashMap;

/// Size of the part of the file that is read, in bytes. After it are the blocks in use, which only the library needs.
pub const HEAP_BYTES: usize = heap::layout::BLOCKS_AT * 8;

/// Prefixes of allocator functions, which are omitted from call stacks.
const BETWEEN: [&str; 8] =
    ["__rust_", "__rdl_", "__rustc::__r", "alloc::", "<alloc::", "std::alloc", "operator new", "std::__new_allocator"];

/// Reason why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapError {
    /// It was not written by the library, or not yet.
    Foreign,
    /// It is too short.
    Short,
}

impl std::fmt::Display for HeapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Foreign => "these are no counts of allocations",
            Self::Short => "counts of allocations that are cut off",
        })
    }
}

impl std::error::Error for HeapError {}

/// Allocation counters of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// Its process id.
    pub pid: i32,
    /// Path of its program.
    pub program: String,
    /// Number of allocations.
    pub allocations: u64,
    /// Allocated bytes.
    pub bytes: u64,
    /// Number of freed blocks.
    pub frees: u64,
    /// Freed bytes.
    pub freed_bytes: u64,
    /// Maximum of bytes in use.
    pub peak_bytes: u64,
    /// Allocations and frees by real-time threads.
    pub rt_calls: u64,
    /// Allocations not assigned to a site, because the table was full.
    pub sites_lost: u64,
    /// Allocations whose free is not tracked, because the table was full.
    pub blocks_lost: u64,
    /// Freed blocks whose allocation was not counted.
    pub frees_unknown: u64,
    /// Programs and libraries beyond the limit, whose names are unknown.
    pub modules_lost: u64,
    /// Allocation sites.
    pub sites: Vec<Site>,
}

/// An allocation site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Call stack, innermost first, without allocator functions.
    pub callers: Vec<String>,
    /// Number of allocations.
    pub allocations: u64,
    /// Allocated bytes.
    pub bytes: u64,
    /// Number of freed blocks.
    pub frees: u64,
    /// Freed bytes.
    pub freed_bytes: u64,
    /// Allocations by real-time threads.
    pub rt_allocations: u64,
    /// Frees by real-time threads.
    pub rt_frees: u64,
}

impl Site {
    /// Allocated bytes that have not been freed.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        self.bytes.saturating_sub(self.freed_bytes)
    }

    /// Allocated blocks that have not been freed.
    #[must_use]
    pub fn blocks_in_use(&self) -> u64 {
        self.allocations.saturating_sub(self.frees)
    }
}

/// A loaded program or library.
struct Module {
    /// Offset of its code in the file.
    offset: u64,
    start: u64,
    end: u64,
    path: String,
}

/// Reader of heap files. Keeps the symbols of programs and libraries, for several files or repeated reads.
#[derive(Debug, Default)]
pub struct HeapReader {
    objects: HashMap<String, Object>,
}

impl HeapReader {
    /// Parses the beginning of a file ([`HEAP_BYTES`]). The file may change during the read: each counter is valid, but not all
    /// are from the same moment.
    ///
    /// # Errors
    /// If it is not a heap file, or truncated.
    pub fn read(&mut self, bytes: &[u8], files: &mut dyn Files) -> Result<Heap, HeapError> {
        let word = |at: usize| bytes.get(at * 8..)?.first_chunk::<8>().map(|word| u64::from_ne_bytes(*word));
        if word(0).ok_or(HeapError::Short)? != MAGIC {
            return Err(HeapError::Foreign);
        }
        if bytes.len() < HEAP_BYTES {
            return Err(HeapError::Short);
        }
        let of = |at: usize| word(at).unwrap_or(0);
        let pid = of(head::PID) as i32;
        let modules: Vec<Module> = (0..(of(head::MODULES) as usize).min(MODULES_MAX))
            .map(|nth| MODULES_AT + nth * MODULE_WORDS)
            .map(|at| {
                let length = (of(at + 3) as usize).min(PATH_MAX);
                let path = bytes.get((at + 4) * 8..).and_then(|rest| rest.get(..length)).unwrap_or_default();
                let path = String::from_utf8_lossy(path).into_owned();
                Module { offset: of(at), start: of(at + 1), end: of(at + 2), path }
            })
            .collect();
        let whole = |at: &usize| of(at + site::HASH) & 1 == 1;
        let places = (0..SITES_MAX).map(|nth| SITES_AT + nth * SITE_WORDS).filter(whole);
        let mut sites = Vec::new();
        for at in places {
            let count = (of(at + site::CALLERS) as usize).min(CALLERS_MAX);
            let addresses: Vec<u64> = (0..count).map(|nth| of(at + site::FIRST + nth)).collect();
            sites.push(Site {
                callers: self.callers(&addresses, &modules, pid, files),
                allocations: of(at + site::ALLOCATIONS),
                bytes: of(at + site::BYTES),
                frees: of(at + site::FREES),
                freed_bytes: of(at + site::FREED_BYTES),
                rt_allocations: of(at + site::RT_ALLOCATIONS),
                rt_frees: of(at + site::RT_FREES),
            });
        }
        Ok(Heap {
            pid,
            program: modules.first().map(|module| module.path.clone()).unwrap_or_default(),
            allocations: of(head::ALLOCATIONS),
            bytes: of(head::BYTES),
            frees: of(head::FREES),
            freed_bytes: of(head::FREED_BYTES),
            peak_bytes: of(head::PEAK_BYTES),
            rt_calls: of(head::RT_CALLS),
            sites_lost: of(head::SITES_LOST),
            blocks_lost: of(head::BLOCKS_LOST),
            frees_unknown: of(head::FREES_UNKNOWN),
            modules_lost: of(head::MODULES_LOST),
            sites,
        })
    }

    /// Names of return addresses.
    fn callers(&mut self, addresses: &[u64], modules: &[Module], pid: i32, files: &mut dyn Files) -> Vec<String> {
        let mut names = Vec::new();
        for address in addresses.iter().map(|address| address.wrapping_sub(1)) {
            let Some(module) = modules.iter().find(|module| (module.start..module.end).contains(&address)) else {
                names.push("[unknown]".to_owned());
                continue;
            };
            // The innermost frames are in the heap library itself.
            if names.is_empty() && module.path.ends_with("/libtahti_heap.so") {
                continue;
            }
            let object = self
                .objects
                .entry(module.path.clone())
                .or_insert_with(|| Object::of(files, pid, &module.path, (0, 0, 0)));
            let bias = object.bias(module.start, module.offset).unwrap_or(0);
            let name = object.function(address.wrapping_sub(bias)).map(|nth| object.function_name(nth));
            let short = || format!("[{}]", module.path.rsplit('/').next().unwrap_or_default());
            let name = name.unwrap_or_else(short);
            if !(names.is_empty() && BETWEEN.iter().any(|between| name.starts_with(between))) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    struct Nothing;

    impl Files for Nothing {
        fn open(&mut self, _: i32, _: &str, _: (u32, u32, u64)) -> Option<Box<dyn Source>> {
            None
        }
        fn debug(&mut self, _: &[u8]) -> Option<Box<dyn Source>> {
            None
        }
        fn made(&mut self, _: i32) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_site_has_its_counts_and_the_object_of_each_caller() {
        let mut bytes = vec![0; HEAP_BYTES];
        let mut put = |at: usize, word: u64| bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        put(head::MAGIC, MAGIC);
        put(head::PID, 7);
        put(head::MODULES, u64::MAX);
        let path = *b"/a/prog\0";
        [0x1000, 0x1000, 0x2000, 7, u64::from_ne_bytes(path)]
            .iter()
            .enumerate()
            .for_each(|(nth, word)| put(MODULES_AT + nth, *word));
        let at = SITES_AT + 5 * SITE_WORDS;
        [9, 3, 30, 1, 10, 2, 1, u64::MAX, 0x1800, 0x9000]
            .iter()
            .enumerate()
            .for_each(|(nth, word)| put(at + nth, *word));
        let heap = HeapReader::default().read(&bytes, &mut Nothing).unwrap();
        assert_eq!((heap.pid, heap.program.as_str(), heap.sites.len()), (7, "/a/prog", 1));
        let site = &heap.sites[0];
        assert_eq!((site.bytes_in_use(), site.blocks_in_use(), site.rt_allocations), (20, 2, 2));
        assert_eq!(site.callers[..2], ["[prog]".to_owned(), "[unknown]".to_owned()]);
    }

    #[test]
    fn a_file_that_is_not_from_the_heap_library_is_refused() {
        let mut reader = HeapReader::default();
        assert_eq!(reader.read(&[], &mut Nothing), Err(HeapError::Short));
        assert_eq!(reader.read(&[0; 64], &mut Nothing), Err(HeapError::Foreign));
        assert_eq!(reader.read(&MAGIC.to_ne_bytes(), &mut Nothing), Err(HeapError::Short));
    }
}
