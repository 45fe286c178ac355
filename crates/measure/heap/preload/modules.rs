//! Programs and libraries of this process, as listed by the kernel in `/proc/self/maps`.
//!
//! The dynamic linker has its own list, but a lock protects it. In a forked child, the lock may be held for ever; a thread that waits for
//! malloc may also hold it.

use super::{Counts, close, open, read, readlink};
use crate::layout::*;
use core::sync::atomic::Ordering::*;

/// Bytes per read. The buffer is on the stack of the thread that allocates.
const BYTES: usize = 1024;

const fn at(nth: usize) -> usize {
    MODULES_AT + nth * MODULE_WORDS
}

/// Whether an address is in a recorded module.
pub(crate) fn holds(counts: Counts, address: u64) -> bool {
    let known = (counts.word(head::MODULES).load(Acquire) as usize).min(MODULES_MAX);
    (0..known).map(at).any(|at| {
        let start = counts.word(at + 1).load(Acquire);
        start != 0 && start <= address && address < counts.word(at + 2).load(Relaxed)
    })
}

/// Records modules that were loaded since the last call. The first entry is the program.
pub(crate) fn note(counts: Counts) {
    if counts.word(head::MODULES).load(Acquire) == 0 {
        let mut path = [0u8; PATH_MAX];
        // SAFETY: writes at most `PATH_MAX` bytes, the length of `path`.
        let length = unsafe { readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), PATH_MAX) };
        write_path(counts, 0, &path, usize::try_from(length).unwrap_or(0));
        counts.add(head::MODULES, 1);
    }
    let Some(fd) = open(c"/proc/self/maps", 0o2000000) else { return };
    let (mut line, mut bytes) = (Line::NEW, [0u8; BYTES]);
    while let Some(length) = read(fd, &mut bytes) {
        for byte in &bytes[..length] {
            if *byte == b'\n' {
                add(counts, &line);
                line = Line::NEW;
            } else {
                line.take(*byte);
            }
        }
    }
    close(fd);
}

/// One line of the file: `START-END PERM OFFSET DEVICE INODE    PATH`.
struct Line {
    /// 0: start, 1: end, 2: permissions, 3: offset, 4: device, 5: inode, 6: path.
    field: u8,
    start: u64,
    end: u64,
    offset: u64,
    runs: bool,
    path: [u8; PATH_MAX],
    length: usize,
}

impl Line {
    const NEW: Self = Self { field: 0, start: 0, end: 0, offset: 0, runs: false, path: [0; PATH_MAX], length: 0 };

    fn take(&mut self, byte: u8) {
        let digit = u64::from((byte as char).to_digit(16).unwrap_or(0));
        match (self.field, byte) {
            (0, b'-') | (1..=5, b' ') => self.field += 1,
            (0, _) => self.start = self.start << 4 | digit,
            (1, _) => self.end = self.end << 4 | digit,
            (2, b'x') => self.runs = true,
            (3, _) => self.offset = self.offset << 4 | digit,
            // Spaces before the path pad the column.
            (6, b' ') if self.length == 0 => {}
            (6, _) if self.length < PATH_MAX => {
                self.path[self.length] = byte;
                self.length += 1;
            }
            _ => {}
        }
    }

    fn path(&self) -> &[u8] {
        &self.path[..self.length]
    }
}

fn add(counts: Counts, line: &Line) {
    let is_module = line.path().first() == Some(&b'/') || line.path() == b"[vdso]";
    if !line.runs || !is_module || holds(counts, line.start) {
        return;
    }
    let is_program = counts.word(at(0) + 1).load(Relaxed) == 0 && has_path(counts, 0, line);
    let nth = if is_program { 0 } else { counts.add(head::MODULES, 1) as usize };
    if nth >= MODULES_MAX {
        counts.word(head::MODULES).store(MODULES_MAX as u64, Relaxed);
        counts.add(head::MODULES_LOST, 1);
        return;
    }
    write_path(counts, nth, &line.path, line.length);
    counts.word(at(nth)).store(line.offset, Relaxed);
    counts.word(at(nth) + 2).store(line.end, Relaxed);
    counts.word(at(nth) + 1).store(line.start, Release);
}

fn words(path: &[u8; PATH_MAX]) -> impl Iterator<Item = u64> + '_ {
    let whole = path.chunks_exact(8);
    whole.map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn has_path(counts: Counts, nth: usize, line: &Line) -> bool {
    let mut known = words(&line.path).enumerate();
    counts.word(at(nth) + 3).load(Relaxed) == line.length as u64
        && known.all(|(word, part)| counts.word(at(nth) + 4 + word).load(Relaxed) == part)
}

fn write_path(counts: Counts, nth: usize, path: &[u8; PATH_MAX], length: usize) {
    for (word, part) in words(path).enumerate() {
        counts.word(at(nth) + 4 + word).store(part, Relaxed);
    }
    counts.word(at(nth) + 3).store(length as u64, Relaxed);
}
