// What the library and its reader share: a file of words (native, eight bytes), mapped by the program whose allocations are counted.
// Included by both, so it names nothing.

/// The first word: "tahtiHP2".
pub const MAGIC: u64 = u64::from_be_bytes(*b"2PHithat");

/// Words at the front, by number.
pub mod head {
    /// What the file is.
    pub const MAGIC: usize = 0;
    /// The process.
    pub const PID: usize = 1;
    /// Allocations, all threads.
    pub const ALLOCATIONS: usize = 2;
    /// Their bytes.
    pub const BYTES: usize = 3;
    /// Blocks that were given back.
    pub const FREES: usize = 4;
    /// Their bytes.
    pub const FREED_BYTES: usize = 5;
    /// The most bytes that were in use at a time.
    pub const PEAK_BYTES: usize = 6;
    /// Allocations and blocks given back by threads in real-time classes.
    pub const RT_CALLS: usize = 7;
    /// Allocations whose site found no room.
    pub const SITES_LOST: usize = 8;
    /// Allocations whose block found no room: whether they were given back is not known.
    pub const BLOCKS_LOST: usize = 9;
    /// How many modules there are.
    pub const MODULES: usize = 10;
    /// Modules that found no room.
    pub const MODULES_LOST: usize = 11;
    /// Blocks given back that were not known: made before the library was, or lost.
    pub const FREES_UNKNOWN: usize = 13;
}

/// Words before the modules.
pub const HEAD_WORDS: usize = 64;
/// Programs and libraries that are kept.
pub const MODULES_MAX: usize = 256;
/// Words of each: the offset in its file, start, end, bytes of its path, path. The first one is the program's.
pub const MODULE_WORDS: usize = 32;
/// Bytes of a path that are kept.
pub const PATH_MAX: usize = (MODULE_WORDS - 4) * 8;
/// Places that allocate.
pub const SITES_MAX: usize = 1 << 14;
/// Words of each: hash (0: free), then as below, then callers.
pub const SITE_WORDS: usize = 40;
/// Words of a site, by number.
pub mod site {
    /// What it is found by; 0 where there is none. Written last.
    pub const HASH: usize = 0;
    /// Allocations.
    pub const ALLOCATIONS: usize = 1;
    /// Their bytes.
    pub const BYTES: usize = 2;
    /// Blocks that were given back.
    pub const FREES: usize = 3;
    /// Their bytes.
    pub const FREED_BYTES: usize = 4;
    /// Allocations by threads in real-time classes.
    pub const RT_ALLOCATIONS: usize = 5;
    /// Blocks given back by threads in real-time classes.
    pub const RT_FREES: usize = 6;
    /// How many callers follow. Written before the hash is readable.
    pub const CALLERS: usize = 7;
    /// Return addresses, the innermost first.
    pub const FIRST: usize = 8;
}
/// Callers that are kept of each.
pub const CALLERS_MAX: usize = SITE_WORDS - site::FIRST;
/// Blocks in use that are kept.
pub const BLOCKS_MAX: usize = 1 << 21;
/// Words of each: address (0: never used, 1: free again), then bytes and, above, the number of the site.
pub const BLOCK_WORDS: usize = 2;
/// Bits of a block's second word that are its bytes.
pub const SIZE_BITS: u32 = 48;

/// Where modules, sites and blocks begin, and the end, in words.
pub const MODULES_AT: usize = HEAD_WORDS;
/// See above.
pub const SITES_AT: usize = MODULES_AT + MODULES_MAX * MODULE_WORDS;
/// See above.
pub const BLOCKS_AT: usize = SITES_AT + SITES_MAX * SITE_WORDS;
/// See above.
pub const WORDS: usize = BLOCKS_AT + BLOCKS_MAX * BLOCK_WORDS;
