//! The tahti binary: parses arguments and prints text. Each command is a module; the logic is in the library crates.

use crate::failure::Failure;
use clap::{FromArgMatches as _, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

#[macro_use]
extern crate sys;

mod out;

mod alarm;
mod archive;
mod attach;
mod carepeater;
mod catools;
mod check;
mod complete;
mod control;
mod dash;
mod demo;
mod docs;
mod doctor;
mod em;
mod explain;
mod failure;
mod frames;
mod getopt;
mod guarded;
mod guest;
mod help;
mod init;
mod ioc;
mod ioc_headers;
mod ioc_site;
#[cfg(feature = "fabric")]
mod link;
mod logs;
mod msg;
mod process;
mod profile;
mod progress;
mod ps;
mod pvatools;
mod report;
mod run;
mod scope;
mod settings;
mod shield;
mod tell;
mod top;
mod trace;
mod up;
mod words;

/// Counts each thread's allocations, so that a real-time loop can prove that it makes none.
#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// Real-time control on multi-core Linux: plants, CPU shields, EPICS, and measured deadlines
#[derive(Parser)]
#[command(name = "tahti", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One line per command, in alphabetical order.
#[derive(Subcommand)]
enum Command {
    #[command(after_help = "\
Examples:
  tahti alarm serve alarms.toml
  tahti alarm list --guidance
  tahti alarm ack 'RF:*'
  tahti alarm shelve BPM:7 --for 8h --why 'cable on order'")]
    Alarm(alarm::Args),
    #[command(after_help = "\
Examples:
  tahti archive serve archive.toml
  tahti archive list /var/lib/tahti/archive 'RF:*'
  tahti archive get /var/lib/tahti/archive RF:TEMP --from -1d --points 2000 --format csv")]
    Archive(archive::Args),
    /// Connect this terminal to a process; ^] disconnects
    #[command(visible_alias = "console")]
    Attach(attach::Args),
    Bench(bench::Args),
    /// Read records over Channel Access (as EPICS caget)
    Caget(catools::Args),
    /// Show the server and type of records (as EPICS cainfo)
    Cainfo(catools::Args),
    /// Print records when they change (as EPICS camonitor)
    Camonitor(catools::Args),
    /// Write a record (as EPICS caput)
    Caput(catools::Args),
    Carepeater(carepeater::Args),
    Check(check::Args),
    #[command(hide = true)]
    Complete(complete::Args),
    Completion(words::CompletionArgs),
    Dash(dash::Args),
    Demo(demo::Args),
    Docs(docs::Args),
    #[command(after_help = "\
Examples:
  tahti doctor                 problems, worst first
  tahti doctor --for loop-10khz --all
  tahti doctor --explain timer-migration")]
    Doctor(doctor::Args),
    Down(control::DownArgs),
    #[command(after_help = "\
Examples:
  tahti em check magnets.toml
  tahti em serve magnets.toml")]
    Em(em::Args),
    #[command(after_help = "\
Examples:
  tahti explain -- cyclictest -q -p80 -a1 -i1000 -D10
  tahti explain --name 'scan-*' --above 100us --for 60s
  tahti explain --tid 4711 --for 10s --json")]
    Explain(explain::Args),
    Frames(frames::Args),
    #[command(after_help = "\
Examples:
  tahti guest serve hmi --disk hmi.qcow2 --memory 2GiB --vcpus 2
  tahti guest status hmi --plant rf
  tahti guest stop hmi --plant rf")]
    Guest(guest::Args),
    Init(init::Args),
    #[command(after_help = "\
Examples:
  tahti ioc -m P=RF: -d rf.db
  tahti ioc --scan \".1 second=fifo:80@1\" st.cmd")]
    Ioc(ioc::Args),
    Logs(logs::Args),
    Man(words::ManArgs),
    #[command(after_help = "\
Examples:
  tahti msg list 'sr_mag_*'
  tahti msg send get/sr_mag_ps_b/current_adc put/sr_mag_ps_b/2.5A
  tahti msg watch 'put/*'")]
    Msg(msg::Args),
    Profile(profile::Args),
    Ps(ps::PsArgs),
    /// Read channels over PVAccess (as EPICS pvget)
    Pvget(pvatools::Args),
    /// Show the server and type of channels (as EPICS pvinfo)
    Pvinfo(pvatools::Args),
    /// Call a channel of PVAccess as a function (as EPICS pvcall)
    Pvcall(pvatools::Args),
    /// List servers of PVAccess, or their channels (as EPICS pvlist)
    Pvlist(pvatools::Args),
    /// Print channels of PVAccess when they change (as EPICS pvmonitor)
    Pvmonitor(pvatools::Args),
    /// Write a channel over PVAccess (as EPICS pvput)
    Pvput(pvatools::Args),
    Reload(control::ReloadArgs),
    #[command(after_help = "\
Examples:
  tahti bench all --quick --json > here.json
  tahti report here.json -o here.html
  tahti report before.json now.json -o both.html")]
    Report(report::Args),
    Restart(process::RestartArgs),
    Run(run::Args),
    Schema(words::SchemaArgs),
    #[command(after_help = "\
Examples:
  tahti scope                                              list the variables
  tahti scope llrf/amplitude --trigger 'amplitude < 0.95 falling' --pre 20%
  tahti scope llrf --trigger miss --normal --detach        in the background; later: tahti scope llrf --fetch
  tahti scope llrf/phase --fft --export phase.csv")]
    Scope(scope::Args),
    Settings(settings::Args),
    #[command(after_help = "\
Examples:
  tahti shield plan --cpus 2-3      list every change, make none
  tahti shield apply --cpus 2-3 --confirm-within 60s
  tahti shield status               tasks and interrupts on each CPU
  tahti shield release              restore the machine")]
    Shield(shield::Args),
    Signal(control::SignalArgs),
    Start(process::StartArgs),
    Status(process::StatusArgs),
    Stop(process::StopArgs),
    Top(top::Args),
    Trace(trace::Args),
    Up(up::Args),
}

impl Command {
    /// Whether the command only prints. It may then be ended by SIGPIPE as soon as its output has no reader.
    fn only_looks(&self) -> bool {
        match self {
            Self::Caget(_)
            | Self::Cainfo(_)
            | Self::Camonitor(_)
            | Self::Check(_)
            | Self::Doctor(_)
            | Self::Logs(_)
            | Self::Ps(_)
            | Self::Pvget(_)
            | Self::Pvinfo(_)
            | Self::Pvcall(_)
            | Self::Pvlist(_)
            | Self::Pvmonitor(_)
            | Self::Schema(_)
            | Self::Status(_) => true,
            Self::Alarm(args) => args.only_looks(),
            Self::Archive(args) => args.only_looks(),
            Self::Dash(args) => args.only_looks(),
            Self::Em(args) => args.only_looks(),
            Self::Frames(args) => args.only_looks(),
            Self::Guest(args) => args.only_looks(),
            Self::Settings(args) => args.only_looks(),
            Self::Shield(args) => args.only_looks(),
            _ => false,
        }
    }
}

/// Exit status for an invalid command line (`EX_USAGE` of sysexits.h). 1 and 2 have meanings defined by the commands.
const USAGE: u8 = 64;
/// Exit status if the command succeeded but its output could not be printed (`EX_IOERR`).
const NOT_PRINTED: u8 = 74;

/// The arguments as text. The Channel Access tools and the IOC accept bytes that are not UTF-8, since values may be
/// Latin-1; these are encoded as by [`base::raw`]. Texts of PVAccess are UTF-8, so `pvput` converts Latin-1.
fn arguments(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    use std::os::unix::ffi::OsStrExt as _;
    let words: Vec<OsString> = words.collect();
    if words.get(1).is_some_and(|word| word == "pvput") {
        return words.iter().map(|word| OsString::from(base::raw::readable(word.as_bytes()).into_owned())).collect();
    }
    let takes_any = words
        .get(1)
        .is_some_and(|word| ["caget", "cainfo", "camonitor", "caput", "ioc"].iter().any(|command| word == command));
    if !takes_any {
        return words;
    }
    words.iter().map(|word| OsString::from(base::raw::decode(word.as_bytes()).into_owned())).collect()
}

fn main() -> ExitCode {
    // Must precede every allocation of the command line parser, so that a keeper stays small.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == keep::keeper::SUBCOMMAND) {
        return keeper(words.collect());
    }
    let given = help::command().try_get_matches_from(arguments(std::env::args_os()));
    let cli = match given.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(answer) => {
            if answer.use_stderr() {
                // If standard error takes no output, nothing else can report that.
                let _ = answer.print();
                return ExitCode::from(USAGE);
            }
            // Help and version are not errors.
            print!("{}", answer.render());
            return printed(ExitCode::SUCCESS);
        }
    };
    if cli.command.only_looks() {
        sys::signal::end_at_closed_pipe();
    }
    printed(run(cli.command))
}

/// The exit status of a command. A successful command fails if standard output did not take all of its output.
fn printed(status: ExitCode) -> ExitCode {
    if status == ExitCode::SUCCESS && out::has_failed() { ExitCode::from(NOT_PRINTED) } else { status }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Caget(args) => catools::caget(args),
        Command::Cainfo(args) => catools::cainfo(args),
        Command::Camonitor(args) => catools::camonitor(args),
        Command::Caput(args) => catools::caput(args),
        Command::Pvget(args) => pvatools::pvget(args),
        Command::Pvinfo(args) => pvatools::pvinfo(args),
        Command::Pvcall(args) => pvatools::pvcall(args),
        Command::Pvlist(args) => pvatools::pvlist(args),
        Command::Pvmonitor(args) => pvatools::pvmonitor(args),
        Command::Pvput(args) => pvatools::pvput(args),
        Command::Alarm(args) => alarm::run(args),
        Command::Archive(args) => archive::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Bench(args) => failure::end(bench::run(&args).map(measured).map_err(Failure::from)),
        Command::Carepeater(args) => carepeater::run(args),
        Command::Check(args) => check::run(args),
        Command::Complete(args) => complete::run(&args),
        Command::Completion(args) => words::completion(args),
        Command::Dash(args) => dash::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Docs(args) => docs::run(args),
        Command::Em(args) => em::run(args),
        Command::Explain(args) => explain::run(&args),
        Command::Frames(args) => frames::run(args),
        Command::Guest(args) => guest::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Init(args) => init::run(args),
        Command::Man(args) => words::man(args),
        Command::Ioc(args) => ioc::run(args),
        Command::Down(args) => control::down(args),
        Command::Logs(args) => logs::run(args),
        Command::Msg(args) => msg::run(args),
        Command::Profile(args) => profile::run(&args),
        Command::Ps(args) => ps::ps(args),
        Command::Reload(args) => control::reload(args),
        Command::Report(args) => report::run(&args),
        Command::Restart(args) => process::restart(args),
        Command::Settings(args) => settings::run(&args),
        Command::Signal(args) => control::signal(args),
        Command::Start(args) => process::start(args),
        Command::Status(args) => process::show(args),
        Command::Stop(args) => process::stop(args),
        Command::Top(args) => top::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Up(args) => up::run(args),
        Command::Run(args) => run::run(args),
        Command::Schema(args) => words::schema(args),
        Command::Scope(args) => failure::end(scope::run(&args)),
        Command::Shield(args) => shield::run(args),
    }
}

/// The hidden subcommand that runs this binary as the keeper of one child (`keep::keeper`).
fn keeper(words: Vec<OsString>) -> ExitCode {
    match keep::keeper::run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tahti keeper: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the result of a measurement. Fails if the measurement found a regression.
fn measured(output: bench::Output) -> ExitCode {
    print!("{}", output.text);
    ExitCode::from(u8::from(!output.good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn arguments_in_latin_1_are_accepted_where_values_are_written() {
        let of = |command: &str| {
            let words = ["tahti".into(), command.into(), OsStr::from_bytes(b"m\xb2").to_owned()];
            arguments(words.into_iter()).pop().unwrap()
        };
        assert_eq!((of("pvput"), of("caput")), ("m²".into(), base::raw::decode(b"m\xb2").into_owned().into()));
        assert_eq!(of("up").as_bytes(), b"m\xb2");
    }
}
