//! Parsers for the texts of `/proc`, `/sys` and clock tools. One file per format.
//!
//! Pure: the caller reads the files. No text causes a panic, and the allocated memory is at most a small multiple of
//! the text.
//!
//! ```
//! let text = "           CPU0       CPU1\n 36:       12        345  PCI-MSI 0-edge  virtio1-req.0\nLOC:      100        200   Local timer interrupts\n";
//! let table = proc::interrupts::Interrupts::parse(text).unwrap();
//! let row = table.row("36").unwrap();
//! assert_eq!((row.number(), table.count(row, 1)), (Some(36), 345));
//! ```
#![forbid(unsafe_code)]

pub mod boot_line;
pub mod cgroup;
pub mod chrony;
pub mod cpuinfo;
pub mod interrupts;
pub mod kconfig;
pub mod limits;
pub mod mountinfo;
pub mod ptp;
pub mod stat;
pub mod status;
pub mod task_stat;
pub mod timer_list;
pub mod version;

/// A text of the kernel that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A missing line.
    #[error("no line {0}")]
    NoLine(String),
    /// A line with another content.
    #[error("{line}: expected {expected}, found {found:.40?}")]
    Value {
        /// The line.
        line: String,
        /// The expected content.
        expected: &'static str,
        /// The found content.
        found: String,
    },
}

impl FormatError {
    fn value(line: &str, expected: &'static str, found: &str) -> Self {
        Self::Value { line: line.to_owned(), expected, found: found.to_owned() }
    }
}
