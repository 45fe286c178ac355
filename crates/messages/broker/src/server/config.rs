//! Configuration of a message server.

use super::log_file::LogLimit;
use base::{CpuId, Policy};
use msg::{Band, DeadlineRule, Limits, Rule};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Scheduling of one band's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandConfig {
    /// The band.
    pub band: Band,
    /// Its scheduling class; `None`: the class of the process.
    pub class: Option<Policy>,
    /// The CPU to which it is bound; `None`: the CPUs of the process.
    pub cpu: Option<CpuId>,
    /// File through which the thread joins the shield that owns this CPU, if the kernel refuses to bind it directly.
    pub entry: Option<String>,
}

/// Configuration of a message server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Its name, which clients use to connect. Usually `main`.
    pub name: String,
    /// Bands whose threads need a class or CPU other than that of the process. All eight bands are always served.
    pub bands: Vec<BandConfig>,
    /// Whether bands in real-time classes may use all of their CPU. Otherwise the limit is 75 %.
    pub unbounded: bool,
    /// Access rules. The first match decides.
    pub rules: Vec<Rule>,
    /// Deadlines of answers. The first rule that matches a request applies.
    pub deadlines: Vec<DeadlineRule>,
    /// File for the message log, which records every write and every error. Refused requests of one user beyond 20 at once and one a
    /// second are summarised.
    pub log: Option<PathBuf>,
    /// Size limit of the message log.
    pub log_limit: LogLimit,
    /// Set to make the server reopen the log after another program has moved it. The server clears the flag.
    pub reopen_log: Arc<AtomicBool>,
    /// Limits of each band.
    pub limits: Limits,
}
