//! Programs and libraries of sampled processes, opened as those processes see them.

use profile::{Files, Source};
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{Cursor, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use sys::root::RootDir;

/// Maximum bytes read of a process's map of generated code.
const MADE_MAX: u64 = 64 << 20;
/// Maximum size of the vDSO, which has a few pages.
const VDSO_MAX: u64 = 1 << 20;
/// Do not block on opening a pipe.
const NONBLOCK: i32 = 0o4000;

/// Files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects;

impl Files for Objects {
    fn open(&mut self, pid: i32, path: &str, file: (u32, u32, u64)) -> Option<Box<dyn Source>> {
        if path == "[vdso]" {
            return vdso().map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Source>);
        }
        let named = path.strip_suffix(" (deleted)").unwrap_or(path);
        // Through the process's root; after its end, by our own path. The program itself is also available if its file was
        // deleted.
        let places = [format!("/proc/{pid}/root{named}"), named.to_owned(), format!("/proc/{pid}/exe")];
        let opened = places.iter().filter_map(|place| regular(place));
        // Overlay file systems report different devices for a mapping and its file, but the same inode.
        let same = |about: &Metadata| file.2 == 0 || about.ino() == file.2;
        let found = opened.filter(|(_, about)| same(about)).map(|(file, _)| file).next()?;
        Some(Box::new(found))
    }

    fn debug(&mut self, build_id: &[u8]) -> Option<Box<dyn Source>> {
        let (first, rest) = build_id.split_first()?;
        let rest = rest.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let (file, about) = regular(&format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"))?;
        (about.uid() == 0).then(|| Box::new(file) as Box<dyn Source>)
    }

    fn made(&mut self, pid: i32) -> Option<String> {
        let status = RootDir::machine().read(&format!("/proc/{pid}/status")).ok()?;
        // In a container, the process has a different id.
        let inner = proc::status::field(&status, "NSpid").and_then(|ids| ids.split_ascii_whitespace().next_back());
        let own: u32 = proc::status::field(&status, "Uid")?.split_ascii_whitespace().next()?.parse().ok()?;
        let inner = inner.map_or_else(|| pid.to_string(), str::to_owned);
        let (file, about) = regular(&format!("/proc/{pid}/root/tmp/perf-{inner}.map"))?;
        // Any user may create files there.
        if about.uid() != own && about.uid() != 0 {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MADE_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Opens a regular file, with its metadata.
fn regular(path: &str) -> Option<(File, Metadata)> {
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path).ok()?;
    let about = file.metadata().ok()?;
    let kind = about.file_type();
    (kind.is_file() && !kind.is_fifo()).then_some((file, about))
}

/// The vDSO is the same in all processes; read it from this one.
fn vdso() -> Option<Vec<u8>> {
    let maps = RootDir::machine().read("/proc/self/maps").ok()?;
    let range = maps.lines().find(|line| line.ends_with("[vdso]"))?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    memory.take((end - start).min(VDSO_MAX)).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
