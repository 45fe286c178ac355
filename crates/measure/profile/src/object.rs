//! Programs and libraries: symbols and unwind tables.

use crate::sampled::Files;
use object::elf::{
    FileHeader64, PF_X, PT_INTERP, PT_LOAD, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _};
use object::{Endianness, ReadCache, ReadRef};
use std::io::{Read, Seek};
use std::ops::Range;
use std::sync::Arc;

/// Source of an object's bytes: a file or memory.
pub trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// Maximum functions per object; the largest known programs have a third of that.
const FUNCTIONS_MAX: usize = 1 << 21;
/// Maximum size of a section, in bytes.
const SECTION_MAX: u64 = 1 << 29;

/// A function of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its address in the object.
    start: u64,
    bytes: u64,
    /// Range of its name in `names`.
    name: (u32, u32),
}

/// An executable segment of a file.
#[derive(Clone, Debug)]
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// Address range of a section in the object, and its contents.
pub(crate) type Section = (Range<u64>, Arc<[u8]>);

/// A program, a library, or code generated at run time.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// Its path, or a placeholder.
    pub(crate) name: String,
    segments: Vec<Segment>,
    functions: Vec<Function>,
    names: Vec<u8>,
    pub(crate) eh_frame: Option<Section>,
    pub(crate) eh_frame_hdr: Option<Section>,
    build_id: Option<Vec<u8>>,
}

impl Object {
    /// An object without symbols.
    pub(crate) fn unknown(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Reads the object that process `pid` maps as `path`, with separate debug symbols if available. Without symbols if it cannot
    /// be read.
    pub(crate) fn of(files: &mut dyn Files, pid: i32, path: &str, file: (u32, u32, u64)) -> Self {
        let opened = files.open(pid, path, file);
        let mut object = opened.and_then(|source| Self::read(path, source)).unwrap_or_else(|| Self::unknown(path));
        if let Some(source) = object.build_id.as_deref().and_then(|id| files.debug(id)) {
            object.add_debug_file(source);
        }
        object
    }

    /// Reads a 64-bit ELF file.
    fn read(name: &str, from: impl Source) -> Option<Self> {
        let mut object = Self::unknown(name);
        let cache = ReadCache::new(from);
        object.fill(&cache, true)?;
        object.sort();
        Some(object)
    }

    /// Uses the functions of the separate debug file, if it has more.
    fn add_debug_file(&mut self, from: impl Source) {
        let mut other = Self::default();
        if other.fill(&ReadCache::new(from), false).is_some() && other.functions.len() > self.functions.len() {
            other.sort();
            (self.functions, self.names) = (other.functions, other.names);
        }
    }

    /// Parses functions in text form, one `START SIZE NAME` per line in hexadecimal (`/tmp/perf-PID.map` of programs with a JIT
    /// compiler). If several have the same address, the last one is valid.
    pub(crate) fn made_at_run_time(name: &str, text: &str) -> Self {
        let mut object = Self::unknown(name);
        for line in text.lines().take(FUNCTIONS_MAX) {
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (Some(start), Some(bytes)) = (number(), number()) else { continue };
            if let Some(name) = words.next() {
                object.add(start, bytes, name.as_bytes());
            }
        }
        object.functions.reverse();
        object.sort();
        object
    }

    fn fill<'a, R: ReadRef<'a>>(&mut self, data: R, unwinding: bool) -> Option<()> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        for segment in header.program_headers(endian, data).ok()? {
            // Data segments may share a page of the file with code.
            if segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0 {
                let (offset, bytes) = segment.file_range(endian);
                self.segments.push(Segment { offset, bytes, address: segment.p_vaddr(endian) });
            }
        }
        let sections = header.sections(endian, data).ok()?;
        let small = |section: &&object::elf::SectionHeader64<Endianness>| section.sh_size(endian) <= SECTION_MAX;
        let named = |name: &str| -> Option<Section> {
            let (_, section) = sections.section_by_name(endian, name.as_bytes())?;
            let start = section.sh_addr(endian);
            let bytes = Some(section).filter(small)?.data(endian, data).ok()?;
            Some((start..start.checked_add(bytes.len() as u64)?, bytes.into()))
        };
        if unwinding {
            self.eh_frame = named(".eh_frame");
            let frames = self.eh_frame.as_ref().map(|(range, _)| range.clone());
            self.eh_frame_hdr =
                named(".eh_frame_hdr").filter(|index| frames.is_some_and(|frames| is_index(index, &frames)));
            // Layout of the note: sizes of name and contents, type, "GNU\0", contents.
            self.build_id = named(".note.gnu.build-id").and_then(|(_, note)| Some(note.get(16..36)?.to_vec()));
        }
        // The debug symbol table has all functions; the dynamic one has only exported functions.
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            self.add_symbols(data, endian, &sections, kind);
            if !self.functions.is_empty() {
                break;
            }
        }
        Some(())
    }

    fn add_symbols<'a, R: ReadRef<'a>>(
        &mut self,
        data: R,
        endian: Endianness,
        sections: &SectionTable<'a, FileHeader64<Endianness>, R>,
        kind: u32,
    ) {
        let Ok(symbols) = sections.symbols(endian, data, kind) else { return };
        let strings =
            sections.section(symbols.string_section()).ok().filter(|section| section.sh_size(endian) <= SECTION_MAX);
        let Some(strings) = strings.and_then(|section| section.data(endian, data).ok()) else { return };
        // Of several names at an address, prefer the global one.
        let mut found: Vec<_> = symbols
            .iter()
            .filter(|symbol| {
                matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC) && symbol.st_shndx(endian) != SHN_UNDEF
            })
            .take(FUNCTIONS_MAX)
            .collect();
        found.sort_by_key(|symbol| symbol.st_bind() == STB_LOCAL);
        for symbol in found {
            let name = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            self.add(symbol.st_value(endian), symbol.st_size(endian), &name[..end]);
        }
    }

    fn add(&mut self, start: u64, bytes: u64, name: &[u8]) {
        let from = self.names.len();
        if let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(from + name.len())) {
            self.names.extend_from_slice(name);
            self.functions.push(Function { start, bytes, name: (from, to) });
        }
    }

    fn sort(&mut self) {
        self.functions.sort_by_key(|function| function.start);
        self.functions.dedup_by_key(|function| function.start);
    }

    /// Difference between addresses in memory and in the object if `offset` of its file is mapped at `start`.
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            // Mappings start at page boundaries.
            let from = segment.offset & !0xfff;
            (from..segment.offset.saturating_add(segment.bytes).max(from + 1)).contains(&offset)
        };
        let segment = self.segments.iter().find(holds)?;
        let address = segment.address.wrapping_add(offset).wrapping_sub(segment.offset);
        Some(start.wrapping_sub(address))
    }

    /// The function that contains an address of the object.
    pub(crate) fn function(&self, address: u64) -> Option<u32> {
        let behind = self.functions.partition_point(|function| function.start <= address);
        let at = behind.checked_sub(1)?;
        let function = self.functions.get(at)?;
        // Functions written in assembler may have no size.
        let inside = function.bytes == 0 || address - function.start < function.bytes;
        inside.then_some(at as u32)
    }

    /// Demangled name of a function.
    pub(crate) fn function_name(&self, nth: u32) -> String {
        let name =
            self.functions.get(nth as usize).and_then(|of| self.names.get(of.name.0 as usize..of.name.1 as usize));
        demangled(&String::from_utf8_lossy(name.unwrap_or_default()))
    }

    /// Number of known functions.
    pub(crate) fn functions(&self) -> u32 {
        self.functions.len() as u32
    }
}

/// The readable name of a function of Rust or C++; other names are unchanged.
#[must_use]
pub fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if !name.starts_with("_Z") {
        // Symbol versions are not relevant for a profile.
        return name.split('@').next().unwrap_or_default().to_owned();
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let parsed = cpp_demangle::BorrowedSymbol::new(name.as_bytes());
    parsed.ok().and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| name.to_owned())
}

/// Whether the index of the unwind tables has the usual format and refers to them. Otherwise it is not used, because the unwinder
/// trusts it.
fn is_index((range, bytes): &Section, frames: &Range<u64>) -> bool {
    // Version 1; address of the tables relative to its own position; plain count; rows relative to the index; all with 4 bytes.
    let Some((head, rows)) = bytes.split_at_checked(12).filter(|(head, _)| head[..4] == [1, 0x1b, 0x03, 0x3b]) else {
        return false;
    };
    let relative = |from: u64, at: &[u8]| {
        let offset = at.first_chunk::<4>().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        from.wrapping_add_signed(i64::from(offset))
    };
    let count = head[8..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
    let leads = |row: &[u8]| frames.contains(&relative(range.start, &row[4..]));
    relative(range.start.wrapping_add(4), &head[4..8]) == frames.start
        && rows.len() / 8 >= count
        && rows.chunks_exact(8).take(count).all(leads)
}

/// Linkage of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// Dynamically, with an interpreter that loads libraries.
    Dynamically,
    /// Statically.
    Statically,
    /// A script that names an interpreter (`#!`).
    Script,
    /// Not an executable file.
    Foreign,
}

/// Determines how the program in a file is linked.
#[must_use]
pub fn linked(mut from: impl Source) -> Linked {
    let mut mark = [0; 2];
    if from.read_exact(&mut mark).is_ok() && &mark == b"#!" {
        return Linked::Script;
    }
    let cache = ReadCache::new(from);
    let interpreted = |data| {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        Some(header.program_headers(endian, data).ok()?.iter().any(|of| of.p_type(endian) == PT_INTERP))
    };
    match interpreted(&cache) {
        Some(true) => Linked::Dynamically,
        Some(false) => Linked::Statically,
        None => Linked::Foreign,
    }
}
