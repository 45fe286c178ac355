//! `tahti pvget`, `pvput`, `pvmonitor`, `pvinfo`, `pvlist`, `pvcall`: compatible with the options and output of EPICS' PVAccess tools.

mod call;
mod format;
mod get;
mod info;
mod list;
mod monitor;
mod options;
mod parse;
mod put;

pub(crate) use call::run as pvcall;
pub(crate) use get::run as pvget;
pub(crate) use info::run as pvinfo;
pub(crate) use list::run as pvlist;
pub(crate) use monitor::run as pvmonitor;
pub(crate) use put::run as pvput;

use options::Options;
use pva::client::ChannelId;
use pvanet::session::Session;
use std::process::ExitCode;

/// The options and names of EPICS' tool of the same name; -h lists them
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// As EPICS' own
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS AND NAMES")]
    words: Vec<String>,
}

/// Opens a session, and reports invalid variables.
fn open() -> Result<Session, ExitCode> {
    let session = Session::open(|name| std::env::var(name).ok()).map_err(|error| {
        eprintln!("Error: no socket for PVAccess: {error}");
        ExitCode::FAILURE
    })?;
    session.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
    Ok(session)
}

/// The session with the channels of the command line, and the width of the longest name.
struct Channels {
    session: Session,
    all: Vec<ChannelId>,
    width: usize,
}

impl Channels {
    fn open(options: &Options) -> Result<Self, ExitCode> {
        let mut session = open()?;
        let now = Session::now();
        let all = options.words.iter().map(|name| session.client.channel(now, name)).collect();
        let width = options.words.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        Ok(Self { session, all, width })
    }
}
