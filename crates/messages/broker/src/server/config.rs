//! What a message server is told.

use super::log_file::LogLimit;
use base::{CpuId, Policy};
use msg::{Band, DeadlineRule, Limits, Rule};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How the thread of one band runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandConfig {
    /// Which band.
    pub band: Band,
    /// Its class; `None`: that of the process.
    pub class: Option<Policy>,
    /// The CPU to which it is bound; `None`: those of the process.
    pub cpu: Option<CpuId>,
    /// The file by which its thread enters the shield that has this CPU, where binding it alone is refused.
    pub entry: Option<String>,
}

/// A message server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Its name, by which clients find it: mostly `main`.
    pub name: String,
    /// Bands whose threads run otherwise than the process; all eight are served.
    pub bands: Vec<BandConfig>,
    /// Whether bands in real-time classes may burn all of their CPUs: they have an allowance of 75 % otherwise.
    pub unbounded: bool,
    /// Access rules, the first that fits decides.
    pub rules: Vec<Rule>,
    /// Until when answers count, the first that fits a request.
    pub deadlines: Vec<DeadlineRule>,
    /// Where every write and every error is written.
    pub log: Option<PathBuf>,
    /// How large that may grow.
    pub log_limit: LogLimit,
    /// Set to have the log opened anew: another program has moved it aside. The server clears it.
    pub reopen_log: Arc<AtomicBool>,
    /// What each band may hold.
    pub limits: Limits,
}
