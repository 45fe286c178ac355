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
        /// What it should be.
        expected: String,
    },
    /// The measurement shields CPUs, and nobody said from whom.
    #[error(
        "this measurement shields CPUs from every task of this machine, again and again: say so with --whole-machine, or \
         name processes to be spared (PID alone, PID+ with its descendants; --spare 1+ spares everybody but this \
         measurement; TAHTI_SPARE)"
    )]
    Unsaid,
    /// This process may not use, or the machine does not have, what the measurement needs.
    #[error("this measurement needs {0}")]
    Needs(&'static str),
    /// A program to compare with cannot be started.
    #[error("{program} did not run ({source}): install {package} for the comparison")]
    NoPeer {
        /// The program.
        program: &'static str,
        /// The package of most distributions that has it.
        package: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// A program to compare with is of no use in this case.
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
        /// What the kernel says.
        source: io::Error,
    },
    /// A process cannot be started, written to or read.
    #[error("`{command}`: {source}")]
    Process {
        /// Its command.
        command: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// A process of the measurement failed.
    #[error("`{command}` ended with {status}: {output}")]
    Ended {
        /// Its command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed.
        output: String,
    },
    /// Somebody else of the measurement answered what is of no use, or nothing.
    #[error("{who}: expected {expected}, found {found}")]
    Answer {
        /// Who.
        who: String,
        /// What was wanted.
        expected: String,
        /// What came.
        found: String,
    },
    /// A socket of one of the clients failed.
    #[error("a client's socket: {0}")]
    Socket(io::Error),
    /// A thread of the measurement has panicked: a fault of this program.
    #[error("a thread of the measurement has panicked")]
    Thread,
    /// Somebody wants the measurement to end.
    #[error("interrupted; the machine is as it was")]
    Interrupted,
    /// A shield could not give everything back.
    #[error("the shield left something behind: see `tahti shield release`")]
    NotReleased,
    /// A file holds no reports.
    #[error("{}: {source}", file.display())]
    Report {
        /// The file, or the command that printed it.
        file: PathBuf,
        /// What is wrong.
        source: report::ReadError,
    },
    /// Two runs have no figure in common: why, in lines.
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
    /// An adaptive-optics loop cannot be had.
    #[error(transparent)]
    Adaptive(#[from] adaptive::Error),
    /// The kernel refused something.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// Scheduling class, memory or threads for a loop could not be had.
    #[error(transparent)]
    Arm(#[from] rt::ArmError),
    /// A loop's page cannot be made.
    #[error(transparent)]
    Page(#[from] rt::PageError),
    /// The oscilloscope does not open, or refuses.
    #[error(transparent)]
    Scope(#[from] rt::scope::ScopeError),
    /// Shared variables cannot be made.
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
    /// A shield cannot be applied, looked at or released.
    #[error(transparent)]
    Shield(#[from] keep::shield::Error),
    /// A partition cannot be had.
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
    /// The message server, or the way to it.
    #[error(transparent)]
    Message(#[from] broker::ClientError),
    /// A team of threads cannot be started, or does not come back.
    #[error(transparent)]
    Team(#[from] rt::team::TeamError),
    /// Shared memory does not hold what it should.
    #[error(transparent)]
    Layout(#[from] ring::LayoutError),
    /// The archive.
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
    /// For what the standard library says of a file.
    pub(crate) fn file(file: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::File { file: file.to_owned(), source }
    }

    /// For what the standard library says of a process.
    pub(crate) fn process(command: &str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Process { command: command.to_owned(), source }
    }

    pub(crate) fn argument(given: impl Display, expected: impl Display) -> Self {
        Self::Argument { given: given.to_string(), expected: expected.to_string() }
    }

    pub(crate) fn answer(who: impl Display, expected: impl Display, found: impl Display) -> Self {
        Self::Answer { who: who.to_string(), expected: expected.to_string(), found: found.to_string() }
    }
}

/// What a thread returned.
pub(crate) fn joined<T>(ended: std::thread::Result<Result<T, Failed>>) -> Result<T, Failed> {
    ended.unwrap_or(Err(Failed::Thread))
}
