//! `tahti alarm`: serves, lists, acknowledges, shelves and reports alarms.

mod acts;
mod history;
mod list;
mod report;
mod xml;

use crate::failure::{Failure, end, text_of};
use alarmd::Client;
use std::path::PathBuf;
use std::process::ExitCode;

/// List, acknowledge, shelve and serve alarms
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: AlarmCommand,
}

#[derive(clap::Subcommand)]
enum AlarmCommand {
    /// Acknowledge alarms
    Ack(acts::NamesArgs),
    /// Stop evaluating alarms, for a time or until they are enabled
    Disable(acts::DisableArgs),
    /// Evaluate alarms again
    Enable(acts::NamesArgs),
    Export(xml::ExportArgs),
    History(history::Args),
    Import(xml::ImportArgs),
    /// Return alarms to service
    InService(acts::NamesArgs),
    List(list::Args),
    /// Acknowledge invalid and disconnected channels automatically, on or off
    Maintenance(acts::MaintenanceArgs),
    /// Take alarms out of service: evaluated and logged, but not displayed
    OutOfService(acts::WhyArgs),
    Report(report::Args),
    /// Serve the alarms of a file until SIGTERM
    Serve(ServeArgs),
    /// Shelve alarms for a time: evaluated and logged, but not displayed or announced
    Shelve(acts::ShelveArgs),
    /// Remove acknowledgements
    Unack(acts::NamesArgs),
    /// Unshelve alarms
    Unshelve(acts::NamesArgs),
    /// Print alarm changes until Ctrl-C
    Watch(list::WatchArgs),
}

/// Which alarms are meant as a whole.
#[derive(clap::Args)]
struct ServerArgs {
    /// Name of the alarm server: `tree` of `[alarms]` in the plant file, or `name` in an alarm file, or the plant's name if it has neither. Not
    /// needed if only one runs
    #[arg(long, value_name = "NAME", default_value = "alarms", env = "TAHTI_ALARMS")]
    server: String,
}

impl ServerArgs {
    fn connect(&self) -> Result<Client, Failure> {
        Client::find(&self.server).map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => format!(
                "no alarm server has the name {:?}: start one with `tahti alarm serve FILE`, or set its name with --server",
                self.server
            )
            .into(),
            _ => self.lost(&error),
        })
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        format!("alarm server {:?}: {error}", self.server).into()
    }
}

#[derive(clap::Args)]
struct ServeArgs {
    /// Alarm file, or a plant file with [[alarm]] tables
    #[arg(required_unless_present_any = ["document", "table"])]
    file: Option<PathBuf>,
    /// A table of an alarm file, instead of a file (used by `tahti up`)
    #[arg(long, value_name = "TEXT", conflicts_with = "file", requires = "plant")]
    table: Vec<String>,
    /// Add an alarm for each process of this running plant
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// Report every error in the file and exit
    #[arg(long)]
    check: bool,
    /// Print the reference of all keys (Markdown)
    #[arg(long)]
    document: bool,
}

impl Args {
    pub(crate) const fn only_looks(&self) -> bool {
        matches!(
            self.what,
            AlarmCommand::List(_) | AlarmCommand::History(_) | AlarmCommand::Report(_) | AlarmCommand::Watch(_)
        )
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(match args.what {
        AlarmCommand::Serve(args) => return end(serve(&args)),
        AlarmCommand::List(args) => list::run(&args),
        AlarmCommand::Watch(args) => list::watch(&args),
        AlarmCommand::History(args) => history::run(&args),
        AlarmCommand::Import(args) => xml::import(&args),
        AlarmCommand::Export(args) => xml::export(&args),
        AlarmCommand::Report(args) => report::run(&args),
        AlarmCommand::Ack(args) => acts::acknowledge(args),
        AlarmCommand::Unack(args) => acts::unacknowledge(args),
        AlarmCommand::Shelve(args) => acts::shelve(args),
        AlarmCommand::Unshelve(args) => acts::unshelve(args),
        AlarmCommand::Disable(args) => acts::disable(args),
        AlarmCommand::Enable(args) => acts::enable(args),
        AlarmCommand::OutOfService(args) => acts::out_of_service(args),
        AlarmCommand::InService(args) => acts::in_service(args),
        AlarmCommand::Maintenance(args) => acts::maintenance(&args),
    })
}

/// Escapes control characters, so that text from another program cannot control the terminal.
const fn visible(text: &str) -> base::Visible<'_> {
    base::Visible { text, colours: false }
}

fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    if args.document {
        alarm::DOCUMENT.iter().for_each(|table| print!("{}", table::rows(table, "must be given")));
        return Ok(ExitCode::SUCCESS);
    }
    let (text, called) = match &args.file {
        Some(file) => (text_of(file)?, file.display().to_string()),
        None => (args.table.join("\n"), "[alarms] of the plant file".to_owned()),
    };
    let (config, found) = if args.file.is_some() { alarm::read(&text) } else { alarm::read_told(&text) };
    if !found.is_empty() || args.check {
        eprint!("{}", table::render_all(&found, &called, &text));
    }
    let Some(config) = config else { return Ok(ExitCode::FAILURE) };
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    alarmd::serve(&config, args.plant.as_deref(), &mut |line| println!("tahti alarm: {}", visible(line)))?;
    Ok(ExitCode::SUCCESS)
}
