//! Why a measurement failed.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The command line is not understood.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// An argument does not fit this machine or the others.
    #[error("{given}: expected {expected}")]
    Argument {
        /// The argument as given.
        given: String,
        /// The expected argument.
        expected: String,
    },
    /// The measurement shields CPUs, and neither `--spare` nor `--whole-machine` is given.
    #[error(
        "this measurement repeatedly shields CPUs from every task of this machine: confirm with --whole-machine, or name \
         the processes that the shield must not touch with --spare or TAHTI_SPARE (PID alone, PID+ with its descendants; \
         --spare 1+ spares every process except this measurement)"
    )]
    NotConfirmed,
    /// The machine lacks what the measurement needs, or this process may not use it.
    #[error("this measurement needs {0}")]
    Needs(&'static str),
    /// A program to compare with cannot be started.
    #[error("{program} did not run ({source}): install {package} for the comparison")]
    NoPeer {
        /// The program.
        program: &'static str,
        /// The package of most distributions that has it.
        package: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A program to compare with does not support this case.
    #[error("{program} did not run: {why}")]
    UselessPeer {
        /// The program.
        program: &'static str,
        /// The reason, with its remedy where there is one.
        why: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A process cannot be started, written to or read.
    #[error("`{command}`: {source}")]
    Process {
        /// Its command.
        command: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A process of the measurement failed.
    #[error("`{command}` ended with {status}: {output}")]
    Ended {
        /// Its command.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its output.
        output: String,
    },
    /// A process or peer of the measurement gave a wrong answer, or none.
    #[error("{peer}: expected {expected}, found {found}")]
    Answer {
        /// The process or peer.
        peer: String,
        /// The expected answer.
        expected: String,
        /// The received answer.
        found: String,
    },
    /// A socket of one of the clients failed.
    #[error("a client's socket: {0}")]
    Socket(io::Error),
    /// A thread of the measurement has panicked: a fault of this program.
    #[error("a thread of the measurement has panicked")]
    Thread,
    /// A signal ended the measurement.
    #[error("interrupted; all settings of the machine are restored")]
    Interrupted,
    /// A shield could not restore everything.
    #[error("the shield did not restore everything: run `tahti shield release`")]
    NotReleased,
    /// A file contains no reports.
    #[error("{}: {source}", file.display())]
    Report {
        /// The file, or the command that printed it.
        file: PathBuf,
        /// The error.
        source: report::ReadError,
    },
    /// Two runs have no figure in common, with the reasons.
    #[error("nothing to compare:\n{0}")]
    Incomparable(String),
    /// One part of a measurement failed.
    #[error("{part}: {source}")]
    Part {
        /// Which.
        part: String,
        /// Why.
        source: Box<Self>,
    },
    /// An adaptive-optics loop cannot be set up.
    #[error(transparent)]
    Adaptive(#[from] adaptive::Error),
    /// The kernel refused something.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// Scheduling class, memory or threads of a loop are unavailable.
    #[error(transparent)]
    Arm(#[from] rt::ArmError),
    /// A loop's page cannot be created.
    #[error(transparent)]
    Page(#[from] rt::PageError),
    /// The oscilloscope does not open, or refuses.
    #[error(transparent)]
    Scope(#[from] rt::scope::ScopeError),
    /// Shared variables cannot be created.
    #[error(transparent)]
    Share(#[from] rt::ShareError),
    /// A quiet section could not be measured.
    #[error(transparent)]
    Quiet(#[from] rt::QuietError),
    /// A frame cannot run.
    #[error(transparent)]
    Frame(#[from] rt::frames::RunError),
    /// An activity cannot join its frame.
    #[error(transparent)]
    Join(#[from] rt::frames::JoinError),
    /// A shield cannot be applied, read or released.
    #[error(transparent)]
    Shield(#[from] keep::shield::Error),
    /// A partition cannot be created.
    #[error(transparent)]
    Partition(#[from] keep::partition::PartitionError),
    /// A plan of a shield cannot be made.
    #[error(transparent)]
    Plan(#[from] host::plan::PlanErrors),
    /// A process cannot be started as the supervisor does.
    #[error(transparent)]
    Launch(#[from] keep::launch::LaunchError),
    /// A plant file cannot be read.
    #[error(transparent)]
    Plant(#[from] keep::supervisor::PlantError),
    /// The message server or the connection to it failed.
    #[error(transparent)]
    Message(#[from] broker::ClientError),
    /// A team of threads cannot be started, or does not finish.
    #[error(transparent)]
    Team(#[from] rt::team::TeamError),
    /// Shared memory has an unexpected layout.
    #[error(transparent)]
    Layout(#[from] ring::LayoutError),
    /// The archive failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The kernel cannot be recorded.
    #[error(transparent)]
    Record(#[from] recorder::RecordError),
    /// JSON cannot be written.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Failed {
    /// Converts an I/O error of a file.
    pub(crate) fn file(file: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::File { file: file.to_owned(), source }
    }

    /// Converts an I/O error of a process.
    pub(crate) fn process(command: &str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Process { command: command.to_owned(), source }
    }

    pub(crate) fn argument(given: impl Display, expected: impl Display) -> Self {
        Self::Argument { given: given.to_string(), expected: expected.to_string() }
    }

    pub(crate) fn answer(peer: impl Display, expected: impl Display, found: impl Display) -> Self {
        Self::Answer { peer: peer.to_string(), expected: expected.to_string(), found: found.to_string() }
    }
}

/// The result of a joined thread.
pub(crate) fn joined<T>(ended: std::thread::Result<Result<T, Failed>>) -> Result<T, Failed> {
    ended.unwrap_or(Err(Failed::Thread))
}
