//! `tahti profile --memory`: which functions allocate memory, and which allocations are not freed.

use super::Args;
use super::program::{Running, prepare};
use crate::failure::{Failure, in_file};
use crate::out::bytes;
use base::DurNs;
use profile::{HEAP_BYTES, Heap, HeapReader, Site};
use recorder::Objects;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use sys::program::find;
use sys::signal::SignalFd;

/// Interval between checks whether the program still runs.
const LOOK: DurNs = DurNs::from_ms(50);
/// Maximum number of processes printed; a program may start many.
const PROCESSES_MAX: usize = 64;
/// Maximum number of callers printed for an allocation site.
const CALLERS: usize = 6;

/// A temporary folder for the preloaded library and its output. Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Failure> {
        let named = |nth: u32| std::env::temp_dir().join(format!("tahti-heap-{}-{nth}", std::process::id()));
        let made = (0..100).map(named).find(|path| DirBuilder::new().mode(0o700).create(path).is_ok());
        made.map(Self).ok_or_else(|| format!("cannot create a folder in {}", std::env::temp_dir().display()).into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes in use at the previous report, by process and allocation site.
type Before = BTreeMap<(i32, Vec<String>), u64>;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let name = args.command.first().ok_or("--memory counts from the start of a program: give its command (-- CMD)")?;
    fit(&find(name, Path::new("."), None)?)?;
    let folder = Folder::make()?;
    let library = folder.0.join("libtahti_heap.so");
    let wrote = in_file(&library);
    std::fs::write(&library, heap::LIBRARY).map_err(wrote)?;
    let mut preload = library.clone().into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let more = [("LD_PRELOAD".to_owned(), preload), (heap::FOLDER.to_owned(), folder.0.clone().into_os_string())];
    let signals = SignalFd::new(&sys::signal::end_signals())?;
    let mut program = prepare(&args.command, &more)?.go()?;
    let mut reader = HeapReader::default();
    watch(args, &folder, &mut program, &signals, &mut reader)?;
    // If the program still runs, it is still counting: the result is a snapshot of its present state.
    let heaps = heaps(&folder.0, &mut reader)?;
    let ended = program.has_ended()?;
    drop(program);
    if heaps.is_empty() {
        return Err(format!(
            "`{}` has counted nothing: the library was not loaded. It must lie on a file system that allows programs ({}), and \
             the program must be linked dynamically and not drop its environment",
            name.display(),
            folder.0.display()
        ).into());
    }
    print!("{}", text(args, &heaps, ended));
    Ok(())
}

/// Rejects programs that cannot load the library.
fn fit(program: &Path) -> Result<(), Failure> {
    let refused = |why: &str| Err(format!("{}: {why}", program.display()).into());
    let about = std::fs::metadata(program).map_err(in_file(program))?;
    if about.permissions().mode() & 0o6000 != 0 {
        return refused(
            "the linker loads no foreign library into a set-user-ID program; run it as that user without the set-user-ID bit",
        );
    }
    let file = File::open(program).map_err(in_file(program))?;
    match profile::linked(file) {
        profile::Linked::Dynamically | profile::Linked::Script => Ok(()),
        profile::Linked::Statically => {
            refused("it is linked statically: no library can be loaded into it, so its allocations cannot be counted")
        }
        profile::Linked::Foreign => refused("it is not a 64-bit program for this machine"),
    }
}

fn watch(
    args: &Args,
    folder: &Folder,
    program: &mut Running,
    signals: &SignalFd,
    reader: &mut HeapReader,
) -> Result<(), Failure> {
    let begin = sys::clock::mono_now();
    let (mut looked, mut before) = (begin, Before::new());
    loop {
        let now = sys::clock::mono_now();
        let interrupted = signals.read()?.is_some();
        if program.has_ended()? || interrupted || args.for_.is_some_and(|span| now - begin >= span) {
            return Ok(());
        }
        if let Some(every) = args.every.filter(|every| now - looked >= *every) {
            looked = now;
            let heaps = heaps(&folder.0, reader)?;
            print!("{}", growth(&heaps, &mut before, now - begin, every, args.top));
        }
        sys::poll::is_readable(signals.as_fd(), LOOK);
    }
}

/// The heaps counted by each process, in descending order of allocations.
fn heaps(folder: &Path, reader: &mut HeapReader) -> Result<Vec<Heap>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(in_file(folder))?;
    let mut heaps = Vec::new();
    for path in
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "heap"))
    {
        let mut bytes = Vec::with_capacity(HEAP_BYTES);
        let read = File::open(&path).and_then(|file| file.take(HEAP_BYTES as u64).read_to_end(&mut bytes));
        read.map_err(in_file(&path))?;
        // A file that is being created is empty and is skipped.
        if let Ok(heap) = reader.read(&bytes, &mut Objects) {
            heaps.push(heap);
        }
    }
    heaps.sort_by_key(|heap| std::cmp::Reverse(heap.allocations));
    Ok(heaps)
}

fn growth(heaps: &[Heap], before: &mut Before, since: DurNs, every: DurNs, top: usize) -> String {
    let mut grown = Vec::new();
    for heap in heaps {
        for site in &heap.sites {
            let key = (heap.pid, site.callers.clone());
            let had = before.insert(key, site.bytes_in_use()).unwrap_or(0);
            if site.bytes_in_use() > had {
                grown.push((site.bytes_in_use() - had, site));
            }
        }
    }
    grown.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let used: u64 = heaps.iter().map(|heap| heap.bytes.saturating_sub(heap.freed_bytes)).sum();
    let mut out = format!(
        "after {}: {} in use; grown within {every}:\n",
        crate::explain::span(since.0.max(0) as u64),
        bytes(used)
    );
    for (more, site) in grown.iter().take(top) {
        let _ = writeln!(out, "  {:>10}  {}", format!("+{}", bytes(*more)), callers(site));
    }
    out
}

fn callers(site: &Site) -> String {
    let mut names = site.callers.iter().take(CALLERS).cloned().collect::<Vec<_>>().join(" < ");
    if site.callers.len() > CALLERS {
        names.push_str(" < …");
    }
    if names.is_empty() { "[unknown]".into() } else { names }
}

fn text(args: &Args, heaps: &[Heap], ended: bool) -> String {
    let mut out = String::new();
    for heap in heaps.iter().take(PROCESSES_MAX) {
        one(&mut out, args, heap, ended);
    }
    if heaps.len() > PROCESSES_MAX {
        let _ = writeln!(out, "and {} processes that allocated less", heaps.len() - PROCESSES_MAX);
    }
    out
}

fn one(out: &mut String, args: &Args, heap: &Heap, ended: bool) {
    let when = if ended { "at the end" } else { "now" };
    let used = heap.bytes.saturating_sub(heap.freed_bytes);
    let _ = writeln!(
        out,
        "{} (process {}): {} allocations, {}; {} {when} in use in {} blocks, at most {} at a time",
        heap.program,
        heap.pid,
        heap.allocations,
        bytes(heap.bytes),
        bytes(used),
        heap.allocations.saturating_sub(heap.frees),
        bytes(heap.peak_bytes)
    );
    if heap.allocations == 0 {
        out.push_str(
            "  nothing was allocated through the C library: it allocates nothing, or contains its own allocator\n",
        );
    }
    let limits = [
        (heap.sites_lost, "allocations whose call site did not fit into the table"),
        (heap.blocks_lost, "allocations that may or may not be freed: too many blocks in use"),
        (heap.modules_lost, "libraries whose names did not fit into the table"),
        (heap.frees_unknown, "freed blocks that were allocated before counting began"),
    ];
    for (count, what) in limits.iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "  {count} {what}");
    }
    let mut table = |title: &str, key: &dyn Fn(&Site) -> u64, line: &dyn Fn(&Site) -> String| {
        let mut sites: Vec<&Site> = heap.sites.iter().filter(|site| key(site) > 0).collect();
        sites.sort_by_key(|site| std::cmp::Reverse(key(site)));
        if sites.is_empty() {
            return;
        }
        let _ = writeln!(out, "  {title}:");
        sites.iter().take(args.top).for_each(|site| {
            let _ = writeln!(out, "    {}  {}", line(site), callers(site));
        });
        if sites.len() > args.top {
            let _ = writeln!(out, "    and {} more places", sites.len() - args.top);
        }
    };
    table(
        "by threads in real-time classes (allocations, frees)",
        &|site| site.rt_allocations + site.rt_frees,
        &|site| format!("{:>8} {:>8}", site.rt_allocations, site.rt_frees),
    );
    table("not freed (bytes, blocks)", &Site::bytes_in_use, &|site| {
        format!("{:>10} {:>8}", bytes(site.bytes_in_use()), site.blocks_in_use())
    });
    table("most allocations (count, bytes)", &|site| site.allocations, &|site| {
        format!("{:>8} {:>10}", site.allocations, bytes(site.bytes))
    });
}
