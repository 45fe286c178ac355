//! The commands of `tahti alarm` that change the state of alarms, such as acknowledge, shelve and disable.

use super::ServerArgs;
use crate::failure::Failure;
use alarm::Act;
use alarm::wire::Reply;

#[derive(clap::Args)]
pub(super) struct NamesArgs {
    /// Channels, paths or areas such as /ring/RF; * and ? are wildcards
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    which: ServerArgs,
}

#[derive(clap::Args)]
pub(super) struct WhyArgs {
    #[command(flatten)]
    of: NamesArgs,
    /// Reason, for the journal
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
}

#[derive(clap::Args)]
pub(super) struct ShelveArgs {
    #[command(flatten)]
    of: WhyArgs,
    /// Duration
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    time: String,
    /// Unshelve each alarm as soon as its channel is OK
    #[arg(long)]
    once: bool,
}

#[derive(clap::Args)]
pub(super) struct DisableArgs {
    #[command(flatten)]
    of: WhyArgs,
    /// Duration [default: until enabled]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct MaintenanceArgs {
    /// New state
    #[arg(value_parser = ["on", "off"])]
    state: String,
    #[command(flatten)]
    which: ServerArgs,
}

/// Sends the act to the alarm server and prints how many alarms it changed.
fn act(which: &ServerArgs, act: &Act) -> Result<(), Failure> {
    match which.connect()?.act(act, "").map_err(|error| which.lost(&error))? {
        Reply::Done { changed: 0 } => println!("nothing changes"),
        Reply::Done { changed } => println!("{}", base::text::Counted(changed, "alarm")),
        Reply::Refused(why) => return Err(why.into()),
        other => return Err(format!("alarm server {:?} answered {other:?} to {act:?}", which.server).into()),
    }
    Ok(())
}

pub(super) fn acknowledge(args: NamesArgs) -> Result<(), Failure> {
    act(&args.which, &Act::Acknowledge { names: args.names })
}

pub(super) fn unacknowledge(args: NamesArgs) -> Result<(), Failure> {
    act(&args.which, &Act::Unacknowledge { names: args.names })
}

pub(super) fn unshelve(args: NamesArgs) -> Result<(), Failure> {
    act(&args.which, &Act::Unshelve { names: args.names })
}

pub(super) fn enable(args: NamesArgs) -> Result<(), Failure> {
    act(&args.which, &Act::Enable { names: args.names })
}

pub(super) fn in_service(args: NamesArgs) -> Result<(), Failure> {
    act(&args.which, &Act::InService { names: args.names })
}

pub(super) fn out_of_service(args: WhyArgs) -> Result<(), Failure> {
    act(&args.of.which, &Act::OutOfService { names: args.of.names, why: args.why })
}

pub(super) fn shelve(args: ShelveArgs) -> Result<(), Failure> {
    let WhyArgs { of, why } = args.of;
    act(&of.which, &Act::Shelve { names: of.names, time: args.time, once: args.once, why })
}

pub(super) fn disable(args: DisableArgs) -> Result<(), Failure> {
    let WhyArgs { of, why } = args.of;
    act(&of.which, &Act::Disable { names: of.names, time: args.time, why })
}

pub(super) fn maintenance(args: &MaintenanceArgs) -> Result<(), Failure> {
    act(&args.which, &Act::Maintenance { on: args.state == "on" })
}
