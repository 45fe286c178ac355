// Layout of the file shared by the library and its reader: native words of eight bytes, mapped by the program whose allocations are counted.
// Both include this file, so it uses no names from outside.

/// The first word: "tahtiHP2".
pub const MAGIC: u64 = u64::from_be_bytes(*b"2PHithat");

/// Indices of the words of the header.
pub mod head {
    /// Magic number.
    pub const MAGIC: usize = 0;
    /// Process id.
    pub const PID: usize = 1;
    /// Number of allocations of all threads.
    pub const ALLOCATIONS: usize = 2;
    /// Bytes of these allocations.
    pub const BYTES: usize = 3;
    /// Number of freed blocks.
    pub const FREES: usize = 4;
    /// Bytes of these blocks.
    pub const FREED_BYTES: usize = 5;
    /// Peak of the bytes in use.
    pub const PEAK_BYTES: usize = 6;
    /// Allocations and frees by threads in real-time scheduling classes.
    pub const RT_CALLS: usize = 7;
    /// Allocations without a site, because the table of sites was full.
    pub const SITES_LOST: usize = 8;
    /// Allocations without a block, because the table of blocks was full. It is unknown whether they were freed.
    pub const BLOCKS_LOST: usize = 9;
    /// Number of modules.
    pub const MODULES: usize = 10;
    /// Modules not recorded, because the table was full.
    pub const MODULES_LOST: usize = 11;
    /// Frees of unknown blocks: allocated before the library was loaded, or lost.
    pub const FREES_UNKNOWN: usize = 13;
}

/// Words before the modules.
pub const HEAD_WORDS: usize = 64;
/// Maximum number of modules (programs and libraries).
pub const MODULES_MAX: usize = 256;
/// Words per module: offset in its file, start, end, length of its path, path. The first module is the program.
pub const MODULE_WORDS: usize = 32;
/// Maximum length of a path, in bytes.
pub const PATH_MAX: usize = (MODULE_WORDS - 4) * 8;
/// Maximum number of allocation sites.
pub const SITES_MAX: usize = 1 << 14;
/// Words per site: hash (0: unused), the words below, then callers.
pub const SITE_WORDS: usize = 40;
/// Indices of the words of a site.
pub mod site {
    /// Hash by which the site is found; 0 if unused. Written last.
    pub const HASH: usize = 0;
    /// Number of allocations.
    pub const ALLOCATIONS: usize = 1;
    /// Bytes of these allocations.
    pub const BYTES: usize = 2;
    /// Number of freed blocks.
    pub const FREES: usize = 3;
    /// Bytes of these blocks.
    pub const FREED_BYTES: usize = 4;
    /// Allocations by threads in real-time scheduling classes.
    pub const RT_ALLOCATIONS: usize = 5;
    /// Frees by threads in real-time scheduling classes.
    pub const RT_FREES: usize = 6;
    /// Number of callers that follow. Written before the hash is readable.
    pub const CALLERS: usize = 7;
    /// Return addresses, innermost first.
    pub const FIRST: usize = 8;
}
/// Maximum callers per site.
pub const CALLERS_MAX: usize = SITE_WORDS - site::FIRST;
/// Maximum number of blocks in use.
pub const BLOCKS_MAX: usize = 1 << 21;
/// Words per block: address (0: never used, 1: freed), then size, with the index of the site in the upper bits.
pub const BLOCK_WORDS: usize = 2;
/// Bits of a block's second word that hold its size.
pub const SIZE_BITS: u32 = 48;

/// Offset of the modules, in words.
pub const MODULES_AT: usize = HEAD_WORDS;
/// Offset of the sites, in words.
pub const SITES_AT: usize = MODULES_AT + MODULES_MAX * MODULE_WORDS;
/// Offset of the blocks, in words.
pub const BLOCKS_AT: usize = SITES_AT + SITES_MAX * SITE_WORDS;
/// Size of the file, in words.
pub const WORDS: usize = BLOCKS_AT + BLOCKS_MAX * BLOCK_WORDS;
