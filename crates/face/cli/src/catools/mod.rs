//! `tahti caget`, `caput`, `camonitor`, `cainfo`: compatible with the options and output of the EPICS tools.

mod format;
mod get;
mod info;
mod monitor;
mod options;
mod put;

pub(crate) use get::run as caget;
pub(crate) use info::run as cainfo;
pub(crate) use monitor::run as camonitor;
pub(crate) use put::run as caput;

use ca::client::{ChannelId, Event};
use ca::wire::command;
use ca::{Dbr, Eca};
use canet::session::Session;
use options::Options;
use std::process::ExitCode;

/// The options and names of EPICS' tool of the same name; -h lists them
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// As EPICS' own
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS AND NAMES")]
    words: Vec<String>,
}

/// A process variable named on the command line.
struct Pv {
    name: String,
    id: ChannelId,
}

/// The Channel Access session and the variables of the command line.
struct Tool {
    session: Session,
    pvs: Vec<Pv>,
}

impl Tool {
    /// Opens a session and starts to search for the names.
    fn open(names: &[String], options: &Options) -> Result<Self, ExitCode> {
        let mut session = Session::open(|name| std::env::var(name).ok()).map_err(|error| {
            eprintln!("CA error {error} occurred while trying to start channel access.");
            ExitCode::FAILURE
        })?;
        if names.iter().any(String::is_empty) {
            eprintln!("CA error {} occurred while trying to create channel ''.", Eca::BADSTR);
            return Err(ExitCode::FAILURE);
        }
        session.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
        let now = Session::now();
        let channel =
            |name: &String| Pv { name: name.clone(), id: session.client.channel(now, name, options.priority) };
        let pvs = names.iter().map(channel).collect();
        Ok(Self { session, pvs })
    }

    /// Waits until all variables are connected. Reports a timeout and returns false if some are missing.
    fn connect(&mut self, options: &Options) -> bool {
        let until = options.until();
        while self.pvs.iter().any(|pv| self.session.client.info(pv.id).is_none()) {
            if !matches!(self.step(until), Ok(Some(_))) {
                match &self.pvs[..] {
                    [one] => eprintln!("Channel connect timed out: '{}' not found.", one.name),
                    _ => eprintln!("Channel connect timed out: some PV(s) not found."),
                }
                return false;
            }
        }
        true
    }

    /// Returns the next event. Prints server complaints and duplicate-name warnings.
    fn step(&mut self, until: base::MonoNs) -> std::io::Result<Option<Event>> {
        let event = self.session.step(until)?;
        match &event {
            Some(Event::Complaint { channel, request, status, text }) => {
                let name = channel.map_or("", |id| self.session.client.name(id));
                let dbr = Dbr::from_wire(request.kind).map_or("", Dbr::name);
                eprintln!("CA.Client.Exception...............................................");
                eprintln!("    Warning: \"{status}\"");
                eprintln!(
                    "    Context: \"op={}, channel={name}, type={dbr}, count={}, ctx=\"{text}\"\"",
                    operation(request.command),
                    request.count
                );
                eprintln!("..................................................................");
            }
            Some(Event::Duplicate { channel, used, other }) => {
                let shown = |address: &ca::client::Address| {
                    format!("{}:{}", std::net::Ipv4Addr::from(address.ip), address.port)
                };
                let name = self.session.client.name(*channel);
                eprintln!(
                    "Identical process variable names on multiple servers: \"{name}\" on {}, also on {}",
                    shown(used),
                    shown(other)
                );
            }
            _ => {}
        }
        Ok(event)
    }
}

/// The operation code that EPICS clients print for a failed request.
const fn operation(request: u16) -> u8 {
    match request {
        command::READ | command::READ_NOTIFY => 0,
        command::WRITE | command::WRITE_NOTIFY => 1,
        command::CREATE_CHAN => 2,
        command::EVENT_ADD => 3,
        command::EVENT_CANCEL => 4,
        _ => 5,
    }
}
