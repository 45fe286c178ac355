//! Programs and libraries: where their functions begin, and how their stacks are unwound.

use crate::sampled::Files;
use object::elf::{
    FileHeader64, PF_X, PT_INTERP, PT_LOAD, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _};
use object::{Endianness, ReadCache, ReadRef};
use std::io::{Read, Seek};
use std::ops::Range;
use std::sync::Arc;

/// What an object is read from: its bytes in memory, or its file.
pub trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// As many functions as are kept of one object; the largest known programs have a third of that.
const FUNCTIONS_MAX: usize = 1 << 21;
/// No section that is looked at may be larger.
const SECTION_MAX: u64 = 1 << 29;

/// A function of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its address, as the object states it.
    start: u64,
    bytes: u64,
    /// Where its name stands in `names`.
    name: (u32, u32),
}

/// A part of a file that is loaded to be executed.
#[derive(Clone, Debug)]
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// A section with the addresses that the object states for it.
pub(crate) type Section = (Range<u64>, Arc<[u8]>);

/// What is known of a program, a library, or code that was made at run time.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// Its path, or what stands for one.
    pub(crate) name: String,
    segments: Vec<Segment>,
    functions: Vec<Function>,
    names: Vec<u8>,
    pub(crate) eh_frame: Option<Section>,
    pub(crate) eh_frame_hdr: Option<Section>,
    build_id: Option<Vec<u8>>,
}

impl Object {
    /// One of which nothing is known but its name.
    pub(crate) fn unknown(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The one that process `pid` knows as `path`, with the names that were split off from it; unknown where it cannot be read.
    pub(crate) fn of(files: &mut dyn Files, pid: i32, path: &str, file: (u32, u32, u64)) -> Self {
        let opened = files.open(pid, path, file);
        let mut object = opened.and_then(|source| Self::read(path, source)).unwrap_or_else(|| Self::unknown(path));
        if let Some(source) = object.build_id.as_deref().and_then(|id| files.debug(id)) {
            object.add_debug_file(source);
        }
        object
    }

    /// Reads an ELF file of 64 bits.
    fn read(name: &str, from: impl Source) -> Option<Self> {
        let mut object = Self::unknown(name);
        let cache = ReadCache::new(from);
        object.fill(&cache, true)?;
        object.sort();
        Some(object)
    }

    /// Takes the functions of the file that debugging information was split off into, where it has more.
    fn add_debug_file(&mut self, from: impl Source) {
        let mut other = Self::default();
        if other.fill(&ReadCache::new(from), false).is_some() && other.functions.len() > self.functions.len() {
            other.sort();
            (self.functions, self.names) = (other.functions, other.names);
        }
    }

    /// Functions by address as text has them: START SIZE NAME, hexadecimal, a line each (`/tmp/perf-PID.map` of programs that compile
    /// while they run). Of one place the newest, which stands last, is right.
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
            // Those for data may lie in the same page of the file.
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
            // A note: sizes of name and content, type, "GNU\0", content.
            self.build_id = named(".note.gnu.build-id").and_then(|(_, note)| Some(note.get(16..36)?.to_vec()));
        }
        // The table for debuggers has all functions, the one for the linker those that are called from elsewhere.
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
        // Of several names of one place the one that others may call stands first.
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

    /// What lies between addresses in memory and in the object where `offset` of its file is mapped at `start`.
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            // Mappings begin at pages.
            let from = segment.offset & !0xfff;
            (from..segment.offset.saturating_add(segment.bytes).max(from + 1)).contains(&offset)
        };
        let segment = self.segments.iter().find(holds)?;
        let address = segment.address.wrapping_add(offset).wrapping_sub(segment.offset);
        Some(start.wrapping_sub(address))
    }

    /// The function that holds an address of the object.
    pub(crate) fn function(&self, address: u64) -> Option<u32> {
        let behind = self.functions.partition_point(|function| function.start <= address);
        let at = behind.checked_sub(1)?;
        let function = self.functions.get(at)?;
        // Those written in assembler may have no size.
        let inside = function.bytes == 0 || address - function.start < function.bytes;
        inside.then_some(at as u32)
    }

    /// A function's name as compilers wrote it, in the words of its language.
    pub(crate) fn function_name(&self, nth: u32) -> String {
        let name =
            self.functions.get(nth as usize).and_then(|of| self.names.get(of.name.0 as usize..of.name.1 as usize));
        demangled(&String::from_utf8_lossy(name.unwrap_or_default()))
    }

    /// How many functions are known.
    pub(crate) fn functions(&self) -> u32 {
        self.functions.len() as u32
    }
}

/// A name of Rust or C++ as its source has it.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if !name.starts_with("_Z") {
        // Versions of library functions say nothing of where time goes.
        return name.split('@').next().unwrap_or_default().to_owned();
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let parsed = cpp_demangle::BorrowedSymbol::new(name.as_bytes());
    parsed.ok().and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| name.to_owned())
}

/// Whether the index of the unwind tables is as linkers write it and leads into them; else it is done without, as what uses it trusts it.
fn is_index((range, bytes): &Section, frames: &Range<u64>) -> bool {
    // Version 1; the tables' address relative to its own place, the count as it is, rows relative to the index, all in four bytes.
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

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// With an interpreter, which loads libraries.
    Dynamically,
    /// Without.
    Statically,
    /// It is no program itself, but names one (`#!`).
    Script,
    /// Neither.
    Foreign,
}

/// Says how the program in a file is linked.
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
