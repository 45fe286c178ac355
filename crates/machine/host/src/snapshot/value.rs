//! Targets of steps, and their values. Values are normalised, so that texts with the same meaning are equal.

use super::{Cache, IrqKey, Placement, Share, TaskKey};
use crate::partition::Controller;
use base::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An item of the machine that a step sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Target {
    /// A directory (a cgroup or a resctrl group), created or removed.
    Dir {
        /// Its absolute path.
        path: String,
    },
    /// A kernel file.
    File {
        /// Its absolute path.
        path: String,
        /// Format of the file.
        form: Form,
    },
    /// The requested CPUs of an interrupt.
    Irq {
        /// The interrupt.
        key: IrqKey,
    },
    /// Placement of a thread.
    Task {
        /// The thread.
        key: TaskKey,
    },
    /// Scheduling class and priority of a thread.
    Class {
        /// The thread.
        key: TaskKey,
    },
    /// The CPUs that irqbalance excludes.
    Irqbalance,
    /// A queueing discipline of a network device.
    Traffic {
        /// The device.
        device: String,
        /// Handle of the discipline.
        handle: u32,
    },
    /// A traffic class of a network device.
    TrafficClass {
        /// The device.
        device: String,
        /// ID of the class.
        id: u32,
    },
    /// The traffic class of packets that processes of a cgroup of version 2 send.
    Sender {
        /// Directory of the cgroup.
        path: String,
    },
}

/// Format of a kernel file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Plain text.
    Text,
    /// CPUs as a list (`0-3,6`).
    List,
    /// CPUs as a hexadecimal mask (`4f`).
    Mask,
    /// Words of which one is selected (`always [madvise] never`, `none (full) lazy`).
    Choice,
    /// Ways of the last-level cache, in a `schemata` file of resctrl.
    Cache,
    /// Shares of the memory bandwidth, in the same file.
    Bandwidth,
    /// Whether a cgroup enables the `cpuset` controller for its children: `+cpuset` or `-cpuset`, in a list of
    /// controllers.
    Controller,
    /// Whether a cgroup enables this controller for its children: `+memory` or `-memory`, in a list of controllers.
    Passes {
        /// The controller.
        controller: Controller,
    },
    /// The rest of the line that begins with the numbers of a block device (`8:0 1048576`); empty if there is no such
    /// line.
    Device {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
}

/// Value of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Does not exist: a missing directory, an ended task.
    Absent,
    /// Exists: a directory.
    Present,
    /// Text without leading and trailing blanks.
    Text(String),
    /// CPUs, in any notation.
    Cpus(CpuSet),
    /// Placement of a task.
    Place(Placement),
}

impl Form {
    /// Parses the text of a file. A text that does not have this format is kept unchanged.
    #[must_use]
    pub fn read(self, text: &str) -> Value {
        let text = text.trim();
        let cpus = match self {
            Self::Text => None,
            Self::List => text.parse().ok(),
            Self::Mask => CpuSet::from_mask(text).ok(),
            Self::Cache => {
                return Value::Text(Cache::parse(text).map_or_else(|| text.to_owned(), |ways| ways.to_string()));
            }
            Self::Bandwidth => {
                return Value::Text(Share::parse(text).map_or_else(|| text.to_owned(), |share| share.to_string()));
            }
            Self::Controller => {
                let on = text.split_whitespace().any(|word| word == "cpuset" || word == "+cpuset");
                return Value::Text(if on { "+cpuset" } else { "-cpuset" }.to_owned());
            }
            Self::Passes { controller } => {
                let on = text.split_whitespace().any(|word| word.trim_start_matches('+').parse() == Ok(controller));
                return Value::Text(format!("{}{controller}", if on { "+" } else { "-" }));
            }
            Self::Device { major, minor } => {
                let rest = |line: &str| Some(line.trim().strip_prefix(&format!("{major}:{minor} "))?.trim().to_owned());
                return Value::Text(text.lines().find_map(rest).unwrap_or_default());
            }
            Self::Choice => {
                let inner = |word: &'_ str, [open, close]: [char; 2]| {
                    Some(word.strip_prefix(open)?.strip_suffix(close)?.to_owned())
                };
                let chosen = text
                    .split_whitespace()
                    .find_map(|word| inner(word, ['[', ']']).or_else(|| inner(word, ['(', ')'])));
                return Value::Text(chosen.unwrap_or_else(|| text.to_owned()));
            }
        };
        cpus.map_or_else(|| Value::Text(text.to_owned()), Value::Cpus)
    }

    /// The text to write for `value`; `None` if no file can contain the value.
    #[must_use]
    pub fn write(self, value: &Value) -> Option<String> {
        match value {
            Value::Text(text) if matches!(self, Self::Cache | Self::Bandwidth) => Some(format!("{text}\n")),
            Value::Text(text) => match self {
                Self::Device { major, minor } => Some(format!("{major}:{minor} {text}")),
                _ => Some(text.clone()),
            },
            Value::Cpus(cpus) if self == Self::Mask => {
                let mut mask = String::new();
                // Writing to a string cannot fail.
                let _ = cpus.write_mask(&mut mask);
                Some(mask)
            }
            // A list ends with a newline, because an empty write would not reach the kernel at all.
            Value::Cpus(cpus) => Some(format!("{cpus}\n")),
            Value::Absent | Value::Present | Value::Place(_) => None,
        }
    }
}

impl Value {
    /// The CPUs, if the value is a set of CPUs.
    #[must_use]
    pub fn cpus(&self) -> Option<CpuSet> {
        match self {
            Self::Cpus(cpus) => Some(*cpus),
            _ => None,
        }
    }

    /// Whether two values are equal, as far as the kernel reports them.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Place(a), Self::Place(b)) => a.agrees(b),
            _ => self == other,
        }
    }

    /// The text, if the value is a text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Present => f.write_str("present"),
            Self::Text(text) if text.is_empty() => f.write_str("empty"),
            Self::Text(text) => f.write_str(text),
            Self::Cpus(cpus) if cpus.is_empty() => f.write_str("none"),
            Self::Cpus(cpus) => cpus.fmt(f),
            Self::Place(Placement { cpuset: Some(cpuset), cpus, .. }) => write!(f, "{cpuset} on {cpus}"),
            Self::Place(Placement { cpuset: None, cpus, .. }) => cpus.fmt(f),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir { path } | Self::File { path, .. } => f.write_str(path),
            Self::Irq { key } => write!(f, "interrupt {key}"),
            Self::Task { key } => write!(f, "task {}", key.tid),
            Self::Class { key } => write!(f, "class of task {}", key.tid),
            Self::Irqbalance => f.write_str("irqbalance's banned CPUs"),
            Self::Traffic { device, handle } => write!(f, "traffic of {device}, discipline {:x}:", handle >> 16),
            Self::TrafficClass { device, id } => {
                write!(f, "traffic of {device}, class {:x}:{:x}", id >> 16, id & 0xffff)
            }
            Self::Sender { path } => write!(f, "what {path} sends"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_the_same_meaning_are_equal() {
        for (form, a, b) in [
            (Form::List, "0-3\n", "0,1,2,3"),
            (Form::Mask, "00000000,0000000f\n", "f"),
            (Form::Choice, "always [madvise] never\n", "madvise"),
            (Form::Choice, "none voluntary (full) lazy\n", "full"),
            (Form::Cache, "    MB:0=100\n    L3:0=0ff;1=fff\n", "L3:0=ff;1=fff"),
            (Form::Text, "10\n", "10"),
            (Form::Controller, "memory cpuset pids\n", "+cpuset"),
            (Form::Controller, "memory pids\n", "-cpuset"),
        ] {
            assert_eq!(form.read(a), form.read(b), "{form:?}");
        }
    }

    #[test]
    fn written_values_are_read_back_equal() {
        for (form, text) in
            [(Form::List, "0-1,4"), (Form::Mask, "3"), (Form::Choice, "never"), (Form::Text, "n/a"), (Form::List, "")]
        {
            let value = form.read(text);
            assert_eq!(form.read(&form.write(&value).unwrap()), value, "{form:?}");
        }
    }
}
