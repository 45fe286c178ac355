//! What supervisor, console and keeper say to each other: one JSON object per line over the keeper's
//! Unix socket (`SOCK_STREAM`, mode 0600; the peer must be the keeper's user or root. Where the plant has operators: mode
//! 0660 of their group, and who is let in by that alone gets what [`Operators::refuse`] leaves).
//!
//! A connection starts as a control connection: each [`Request`] gets exactly one [`Reply`], in order.
//! After [`Request::Follow`] events are mixed in between; after [`Request::Attach`] the connection is the
//! child's console and carries raw bytes both ways.

use crate::launch::{LaunchSpec, Shortfall};
use base::{DurNs, MonoNs, Size};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A longer line is refused and the connection closed.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A keeper is reached at this name in its directory.
pub const SOCKET_NAME: &str = "socket";

/// One [`ExitRecord`] a line, newest last, in the keeper's directory.
pub const EXITS_NAME: &str = "exits.jsonl";

/// What a keeper is told at its start, through `spec.json` in its directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeeperSpec {
    /// The keeper's own directory: socket and exit records. Made if it is missing.
    pub dir: PathBuf,
    /// The child.
    pub launch: LaunchSpec,
    /// Bounds on the child and everything that it starts, together.
    #[serde(default)]
    pub bounds: host::plant::Bounds,
    /// The directories of its partition.
    #[serde(default)]
    pub within: Vec<PathBuf>,
    /// The child's log; `None` discards its output (consoles still see it).
    pub log: Option<LogSpec>,
    /// The child is ready at the first line of output that contains this.
    #[serde(default)]
    pub ready_line: Option<String>,
    /// Whether to give the child a `NOTIFY_SOCKET` (`sd_notify(3)`).
    #[serde(default)]
    pub notify: bool,
    /// Whether the child waits before its class and its program until a supervisor, which has it watched by
    /// then, says [`Request::Go`]. Without a supervisor it waits for the next.
    #[serde(default)]
    pub held: bool,
    /// Who may connect beside root and the keeper's own user.
    #[serde(default)]
    pub operators: Option<Operators>,
}

/// A group whose members may ask how things stand and open a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operators {
    /// Its number.
    pub group: u32,
    /// Whether they may type.
    pub may_type: bool,
}

impl Operators {
    /// Why an operator may not ask this; `None`: he may.
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
    /// The file; rotated ones get `.1`, `.2`, … appended, `.1` the youngest.
    pub path: PathBuf,
    /// Size at which it is rotated.
    pub size: Size,
    /// Rotated files kept.
    pub keep: u32,
    /// The journal of the machine that gets each line, too, and the plant's name there.
    #[serde(default)]
    pub also: Option<(host::plant::Also, String)>,
}

/// What a control connection may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Tell how things stand: [`Reply::Status`].
    Status,
    /// Push [`Event`]s on this connection from now on. The reply is a [`Reply::Status`], so that nothing is
    /// missed between the two.
    Follow,
    /// Send a signal.
    Signal {
        /// Its number.
        signal: i32,
        /// To whom.
        to: Target,
    },
    /// Start the child again after its exit, with the same spec.
    Start,
    /// Let the child go that waits ([`Event::Held`]): [`Event::Started`] or [`Event::LaunchFailed`] follows.
    Go,
    /// Open the log file anew, or make it: another program has moved it aside.
    ReopenLog,
    /// Remember whether the supervisor restarts the child (consoles toggle it with `^T`).
    AutoRestart {
        /// The new setting.
        on: bool,
    },
    /// Become a console.
    Attach {
        /// See, but not type.
        read_only: bool,
        /// Size of the user's terminal, if known.
        size: Option<WindowSize>,
    },
    /// The user's terminal has another size: for one whose console may type.
    Resize {
        /// The size.
        size: WindowSize,
    },
    /// End the keeper; refused while the child runs.
    Quit,
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The child itself.
    Child,
    /// The child's process group.
    Group,
    /// The child and every descendant, also those that made themselves daemons.
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

/// A keeper's answer or news; one type, because both share the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Done.
    Done,
    /// Not done, and why.
    Refused(String),
    /// How things stand.
    Status(Box<Status>),
    /// News for a follower.
    Event(Event),
}

/// News.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The child exists, and waits for [`Request::Go`].
    Held(ChildId),
    /// The child runs.
    Started(ChildId),
    /// The child could not be started; the text names object, finding and remedy.
    LaunchFailed(String),
    /// The ready line was seen, or `READY=1` received.
    Ready,
    /// A message of the child to its notify socket, such as `WATCHDOG=1` (at most 4 KiB).
    Notify(String),
    /// The child has named its main process (`MAINPID=`): that one is the child from now on.
    Main(ChildId),
    /// The child ended, and so did whatever it left behind. Without [`Event::Started`] before it: it ended before its first
    /// instruction.
    Exited(ExitRecord),
    /// Somebody at a console asked for the child's end (`^X`); the keeper has sent SIGKILL.
    ConsoleKill,
    /// Somebody at a console asked for a start (`^R` while the child is down).
    ConsoleStart,
    /// Somebody at a console toggled the automatic restart (`^T`).
    AutoRestart {
        /// The new setting.
        on: bool,
    },
}

/// A process that cannot be confused with a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildId {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

/// How a keeper and its child stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The child's name.
    pub name: String,
    /// The keeper itself.
    pub keeper: ChildId,
    /// The child, while it or something that it left behind runs.
    pub child: Option<ChildId>,
    /// The child, while it waits for [`Request::Go`].
    #[serde(default)]
    pub held: Option<ChildId>,
    /// When the child was started last.
    pub started: Option<MonoNs>,
    /// How the child ended last; also in the keeper's directory.
    pub last_exit: Option<ExitRecord>,
    /// Why the child could not be started, if that was the last attempt's end.
    pub launch_error: Option<String>,
    /// What the running child wanted and could not have.
    pub shortfalls: Vec<Shortfall>,
    /// Starts so far.
    pub starts: u32,
    /// Whether the running child said that it is ready.
    pub ready: bool,
    /// The last status text of the child (`STATUS=` of `sd_notify`).
    pub said: Option<String>,
    /// Whether the supervisor should restart the child.
    pub auto_restart: bool,
    /// Consoles attached.
    pub consoles: u32,
    /// Bytes of output that could not be written to the log.
    pub log_bytes_lost: u64,
    /// Bytes that slow consoles did not get.
    pub console_bytes_lost: u64,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitRecord {
    /// The child.
    pub child: ChildId,
    /// How.
    pub end: End,
    /// When it was started.
    pub started: MonoNs,
    /// When its end was seen.
    pub ended: MonoNs,
    /// The same on the wall clock, seconds since 1970.
    pub ended_unix_s: u64,
    /// What it used.
    pub used: Used,
    /// Descendants that it left behind, which were ended after it.
    #[serde(default)]
    pub left_behind: u32,
    /// The last line that it wrote: on its terminal, or to standard error. At most 200 letters, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
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
    /// It is gone; another process has reaped it, so that its status is not known.
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
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Times it gave up its CPU.
    pub voluntary_switches: u64,
    /// Times its CPU was taken.
    pub involuntary_switches: u64,
}

impl Used {
    /// What the kernel says of a child that it reaped.
    #[must_use]
    pub fn of(ended: &sys::child::Ended) -> Self {
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

/// A line that is no message.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is too long.
    #[error("a line of {0} bytes; at most {LINE_BYTES_MAX} are read")]
    TooLong(usize),
    /// It says something else.
    #[error("not a message of the keeper's protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Reads one line as a message.
///
/// # Errors
/// What is wrong with the line, for the peer.
pub fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, ParseError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(ParseError::TooLong(line.len()));
    }
    Ok(serde_json::from_slice(line)?)
}

/// Writes a message as one line, with its end.
#[must_use]
pub fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // Serialising to a Vec fails only for maps with keys that are no text, which no message has.
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_look_as_documented() {
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
