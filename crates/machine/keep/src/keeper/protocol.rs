//! Protocol between supervisor, console and keeper: one JSON object per line over the keeper's Unix socket (`SOCK_STREAM`,
//! mode 0600; the peer must be root or the keeper's user). If the plant has operators, the mode is 0660 with their group; a
//! peer admitted only by the group is limited by [`Operators::refuse`].
//!
//! A connection starts as a control connection: each [`Request`] gets exactly one [`Reply`], in order. After
//! [`Request::Follow`], events arrive between the replies. After [`Request::Attach`], the connection is the child's console
//! and carries raw bytes both ways.

use crate::launch::{LaunchSpec, Shortfall};
use base::{DurNs, MonoNs, Size};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Maximum length of a line. A longer line is refused and the connection closed.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Name of the keeper's socket in its directory.
pub const SOCKET_NAME: &str = "socket";

/// File of exit records in the keeper's directory: one [`ExitRecord`] per line, newest last.
pub const EXITS_NAME: &str = "exits.jsonl";

/// Configuration of a keeper, passed at its start as `spec.json` in its directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeeperSpec {
    /// The keeper's directory, with its socket and exit records. Created if missing.
    pub dir: PathBuf,
    /// The child.
    pub launch: LaunchSpec,
    /// Resource limits for the child and its descendants together.
    #[serde(default)]
    pub bounds: host::plant::Bounds,
    /// The control group directories of its partition.
    #[serde(default)]
    pub within: Vec<PathBuf>,
    /// The child's log. `None` discards its output; consoles still receive it.
    pub log: Option<LogSpec>,
    /// The child is ready at the first line of output that contains this text.
    #[serde(default)]
    pub ready_line: Option<String>,
    /// Whether to give the child a `NOTIFY_SOCKET` (`sd_notify(3)`).
    #[serde(default)]
    pub notify: bool,
    /// Whether the child waits before setting its class and starting its program until a supervisor sends [`Request::Go`].
    /// The supervisor first has the child watched. Without a supervisor the child waits for the next one.
    #[serde(default)]
    pub held: bool,
    /// Users who may connect in addition to root and the keeper's own user.
    #[serde(default)]
    pub operators: Option<Operators>,
    /// The supervisor's lock file, by which the keeper checks that the supervisor observes its child.
    #[serde(default)]
    pub supervisor: Option<PathBuf>,
}

/// A group whose members may request the status and open a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operators {
    /// Group ID.
    pub group: u32,
    /// Whether they may type into the console.
    pub may_type: bool,
}

impl Operators {
    /// The reason why an operator may not send this request; `None` if it is allowed.
    #[must_use]
    pub fn refuse(self, request: &Request) -> Option<&'static str> {
        match request {
            Request::Status | Request::Attach { read_only: true, .. } => None,
            Request::Attach { .. } | Request::Resize { .. } if self.may_type => None,
            Request::Attach { .. } => {
                Some("operators of this plant may read, not type (operators_may_type): use --read-only")
            }
            _ => Some("operators may only read here: this needs root or the plant's own user"),
        }
    }
}

/// A log file and its rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSpec {
    /// Path of the file. Rotated files get `.1`, `.2`, … appended; `.1` is the newest.
    pub path: PathBuf,
    /// Size at which the file is rotated.
    pub size: Size,
    /// Number of rotated files kept.
    pub keep: u32,
    /// A system journal that also receives each line, and the plant's name in it.
    #[serde(default)]
    pub also: Option<(host::plant::Also, String)>,
}

/// Requests on a control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Return the status: [`Reply::Status`].
    Status,
    /// Send [`Event`]s on this connection from now on. The reply is a [`Reply::Status`], so that no event is missed between
    /// status and events.
    Follow,
    /// Send a signal to the child.
    Signal {
        /// Signal number.
        signal: i32,
        /// Recipients.
        to: Target,
    },
    /// Start the child again after its exit, with the same spec.
    Start,
    /// Release the waiting child ([`Event::Held`]). [`Event::Started`] or [`Event::LaunchFailed`] follows.
    Go,
    /// Reopen or create the log file, after another program has moved it.
    ReopenLog,
    /// Store whether the supervisor restarts the child (consoles toggle this with `^T`).
    AutoRestart {
        /// The new setting.
        on: bool,
    },
    /// Turn the connection into a console.
    Attach {
        /// Output only, no input.
        read_only: bool,
        /// Size of the user's terminal, if known.
        size: Option<WindowSize>,
    },
    /// The user's terminal has a new size. Applies to consoles that may type.
    Resize {
        /// The size.
        size: WindowSize,
    },
    /// End the keeper; refused while the child runs.
    Quit,
}

/// Recipients of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The child itself.
    Child,
    /// The child's process group.
    Group,
    /// The child and every descendant, including daemonised ones.
    All,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// An answer or event from a keeper. One type, because both share the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The request was not carried out, for this reason.
    Refused(String),
    /// Status of keeper and child.
    Status(Box<Status>),
    /// An event, for a follower.
    Event(Event),
}

/// An event at a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The child exists and waits for [`Request::Go`].
    Held(ChildId),
    /// The child is running.
    Started(ChildId),
    /// The child cannot be started. The text gives object, cause and remedy.
    LaunchFailed(String),
    /// The ready line was seen, or `READY=1` received.
    Ready,
    /// A message of the child to its notify socket, such as `WATCHDOG=1` (at most 4 KiB).
    Notify(String),
    /// The child has announced its main process (`MAINPID=`), which is treated as the child from now on.
    Main(ChildId),
    /// The child and its remaining descendants have ended. Without a preceding [`Event::Started`], the child ended before
    /// its first instruction.
    Exited(ExitRecord),
    /// A console user killed the child (`^X`). The keeper has sent SIGKILL.
    ConsoleKill,
    /// A console user requested a start (`^R` while the child is down).
    ConsoleStart,
    /// A console user toggled the automatic restart (`^T`).
    AutoRestart {
        /// The new setting.
        on: bool,
    },
}

/// Identifies a process, even if its PID is reused later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildId {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

/// Status of a keeper and its child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The child's name.
    pub name: String,
    /// The keeper itself.
    pub keeper: ChildId,
    /// The child, while it or one of its descendants is running.
    pub child: Option<ChildId>,
    /// The child while it waits for [`Request::Go`].
    #[serde(default)]
    pub held: Option<ChildId>,
    /// Time of the child's last start.
    pub started: Option<MonoNs>,
    /// The child's last exit record; also in the keeper's directory.
    pub last_exit: Option<ExitRecord>,
    /// The reason why the child could not be started, if the last attempt failed.
    pub launch_error: Option<String>,
    /// Settings that the running child requested but did not get.
    pub shortfalls: Vec<Shortfall>,
    /// Number of starts so far.
    pub starts: u32,
    /// Whether the running child has reported that it is ready.
    pub ready: bool,
    /// The last status text of the child (`STATUS=` of `sd_notify`).
    pub said: Option<String>,
    /// The heartbeat interval that the child has set (`WATCHDOG_USEC=` of `sd_notify`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurNs>,
    /// Whether the supervisor should restart the child.
    pub auto_restart: bool,
    /// Number of attached consoles.
    pub consoles: u32,
    /// Bytes of output that could not be written to the log.
    pub log_bytes_lost: u64,
    /// Bytes that were dropped for slow consoles.
    pub console_bytes_lost: u64,
}

/// Record of the end of a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitRecord {
    /// The child.
    pub child: ChildId,
    /// Exit status or signal.
    pub end: End,
    /// Time of its start.
    pub started: MonoNs,
    /// Time at which its end was detected.
    pub ended: MonoNs,
    /// The same on the wall clock, seconds since 1970.
    pub ended_unix_s: u64,
    /// Resources used.
    pub used: Used,
    /// Number of remaining descendants that were ended after the child.
    #[serde(default)]
    pub left_behind: u32,
    /// The last line the child wrote to its terminal or to standard error. At most 200 characters, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// Bytes of output that its keeper could not write to the log so far, with those of earlier starts.
    #[serde(default)]
    pub log_bytes_lost: u64,
}

/// Exit status or signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It exited with this status.
    Exit(i32),
    /// A signal ended it.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether a core file was written.
        core: bool,
    },
    /// The process is gone. Another process has reaped it, so its status is unknown.
    Unseen,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit status {code}"),
            Self::Signal { signal, core } => {
                write!(f, "signal {signal}{}", if *core { ", core file written" } else { "" })
            }
            Self::Unseen => f.write_str("status unknown: another process has reaped it"),
        }
    }
}

impl End {
    /// Reads a wait status, as `wait(2)` encodes it.
    #[must_use]
    pub fn of(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exit(status >> 8 & 0xff),
            signal => Self::Signal { signal, core: status & 0x80 != 0 },
        }
    }

    /// The exit status with which a shell would report it: 128 + signal.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Exit(code) => code as u8,
            Self::Signal { signal, .. } => (128 + signal) as u8,
            Self::Unseen => 1,
        }
    }
}

/// Resources used by a child and its reaped children (`getrusage(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Used {
    /// Processor time in user mode.
    pub user: DurNs,
    /// Processor time in the kernel.
    pub system: DurNs,
    /// Largest resident set.
    pub resident_max: Size,
    /// Page faults that needed the disk.
    pub major_faults: u64,
    /// Page faults that did not need the disk.
    pub minor_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

impl Used {
    /// The resources that the kernel reported for a reaped child.
    #[must_use]
    pub fn of(ended: &sys::child::ChildExit) -> Self {
        Self {
            user: ended.user,
            system: ended.system,
            resident_max: ended.resident_max,
            major_faults: ended.faults.0,
            minor_faults: ended.faults.1,
            voluntary_switches: ended.switches.0,
            involuntary_switches: ended.switches.1,
        }
    }
}

/// A line that is not a message.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is too long.
    #[error("a line of {0} bytes; at most {LINE_BYTES_MAX} are read")]
    TooLong(usize),
    /// It is not a message of this protocol.
    #[error("not a message of the keeper's protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Reads one line as a message.
///
/// # Errors
/// The line is too long or malformed; the error is meant for the peer.
pub fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, ParseError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(ParseError::TooLong(line.len()));
    }
    Ok(serde_json::from_slice(line)?)
}

/// Encodes a message as one line, including the newline.
#[must_use]
pub fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // Serialising to a Vec fails only for maps with non-string keys, which no message has.
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip_in_the_documented_format() {
        let request = Request::Signal { signal: 15, to: Target::All };
        let text = line(&request);
        assert_eq!(text, b"{\"do\":\"signal\",\"signal\":15,\"to\":\"all\"}\n");
        assert_eq!(parse::<Request>(&text).unwrap(), request);
        assert_eq!(parse::<Request>(br#"{"do":"follow"}"#).unwrap(), Request::Follow);
        let event = Reply::Event(Event::Exited(ExitRecord {
            child: ChildId { pid: 7, start_ticks: 9 },
            end: End::Signal { signal: 11, core: true },
            started: MonoNs(1),
            ended: MonoNs(2),
            ended_unix_s: 3,
            used: Used::default(),
            left_behind: 0,
            last_line: Some("no such file".to_owned()),
            log_bytes_lost: 0,
        }));
        assert_eq!(parse::<Reply>(&line(&event)).unwrap(), event);
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in ["", "{}", "status", r#"{"do":"jump"}"#, r#"{"do":"signal","signal":"x"}"#] {
            let why = parse::<Request>(text.as_bytes()).unwrap_err().to_string();
            assert!(why.contains("protocol"), "{text}");
        }
        assert!(parse::<Request>(&vec![b' '; LINE_BYTES_MAX + 1]).unwrap_err().to_string().contains("at most"));
    }

    #[test]
    fn an_end_becomes_the_status_that_a_shell_would_give() {
        assert_eq!(End::Exit(3).code(), 3);
        assert_eq!(End::Signal { signal: 9, core: false }.code(), 137);
        assert_eq!(End::of(3 << 8), End::Exit(3));
        assert_eq!(End::of(11 | 0x80), End::Signal { signal: 11, core: true });
    }
}
