//! `tahti msg`: serves, sends and observes messages.

use crate::failure::{Failure, end};
use crate::shield;
use base::{CpuId, DurNs, Policy, RtLevel, Size};
use broker::server::{BandConfig, Config, Event, LogLimit};
use broker::{Client, ClientError, Received, Sending};
use clap::Subcommand;
use msg::{BATCH_LINES_MAX, BODY_BYTES_MAX, Band, Code, Flags, Reply, Verb, write_lines};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::mono_now;
use sys::notify::Supervisor;
use sys::signal::{SIGHUP, SignalFd, end_signals};

/// Send messages to equipment, watch them, run a message server
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: MsgCommand,
}

#[derive(Subcommand)]
enum MsgCommand {
    Serve(ServeArgs),
    Send(SendArgs),
    List(ListArgs),
    Ps(PsArgs),
    Watch(WatchArgs),
    Zmq(ZmqArgs),
    #[cfg(feature = "fabric")]
    Link(crate::link::Args),
    /// Pass messages between hosts; only in a build with the feature fabric
    #[cfg(not(feature = "fabric"))]
    #[command(disable_help_flag = true)]
    Link {
        #[arg(allow_hyphen_values = true, trailing_var_arg = true, hide = true)]
        _words: Vec<String>,
    },
}

/// Run a message server
#[derive(clap::Args)]
struct ServeArgs {
    /// Name for clients
    #[arg(long, default_value = "main")]
    name: String,
    /// Log file for all writes and errors
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Maximum size of the log file; then it is renamed to FILE.1
    #[arg(long, value_name = "SIZE", default_value_t = Size(LogLimit::default().bytes), value_parser = log_size)]
    log_size: Size,
    /// Number of old log files to keep
    #[arg(long, value_name = "COUNT", default_value_t = LogLimit::default().keep, value_parser = clap::value_parser!(u32).range(..=100))]
    log_keep: u32,
    /// Class and CPU of the thread of a band: 7=fifo:80@3; repeatable
    #[arg(long, value_name = "BAND=CLASS[@CPU]", value_parser = band_config)]
    band: Vec<BandConfig>,
    /// Access rule: "deny objects=sr_rf_* verbs=put,call bands=6,7 users=1000 hosts=other", or hosts=NAME,zmq; the
    /// first match decides
    #[arg(long, value_name = "RULE")]
    rule: Vec<msg::Rule>,
    /// Deadline of replies: "5ms hard objects=sr_rf_* verbs=put,call bands=6,7", "5ms soft linear 10ms"; the first
    /// match decides
    #[arg(long, value_name = "DEADLINE")]
    deadline: Vec<msg::DeadlineRule>,
    /// Exit if a class, CPU or memory lock is unavailable
    #[arg(long)]
    require_rt: bool,
    /// Do not limit real-time bands to 75 % of their CPUs
    #[arg(long)]
    no_allowance: bool,
}

/// Which server, how urgent.
#[derive(clap::Args)]
struct To {
    /// Name of the message server [default: main, else that of the only plant that is up]
    #[arg(long, env = "TAHTI_MESSAGES")]
    server: Option<String>,
    /// Band (priority), 0 to 7; 7 is the most urgent
    #[arg(long, default_value_t = Band::DEFAULT.number(), value_parser = clap::value_parser!(u8).range(..8))]
    band: u8,
    /// Deadline of each request; an expired one is not executed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive)]
    timeout: DurNs,
}

/// Send commands and print one reply line for each: get/sr_mag_ps_b/current_adc
///
/// Errors go to stderr as CODE: reason. Exit status: 0 success, 1 a command failed, 2 no message server.
#[derive(clap::Args)]
struct SendArgs {
    /// Commands, verb/object/complement; write a slash in the complement as %2F
    #[arg(required = true)]
    lines: Vec<String>,
    #[command(flatten)]
    to: To,
    /// Send up to 128 commands without waiting; print each reply after its command
    #[arg(long = "async")]
    at_once: bool,
    /// Send all commands as one batch to one manager; access is granted to all or to none
    #[arg(long, conflicts_with = "at_once")]
    batch: bool,
    /// Check the commands without executing them
    #[arg(long)]
    dry_run: bool,
    /// Send a command again if the server is lost; only for commands that may run twice
    #[arg(long)]
    idempotent: bool,
}

/// List the served objects
#[derive(clap::Args)]
struct ListArgs {
    /// Pattern; * and ? are wildcards
    #[arg(default_value = "*")]
    pattern: String,
    #[command(flatten)]
    to: To,
}

/// List the clients of the message server
#[derive(clap::Args)]
struct PsArgs {
    #[command(flatten)]
    to: To,
}

/// Print passing messages that match a pattern: put/sr_*
#[derive(clap::Args)]
struct WatchArgs {
    /// Pattern verb/object, or object; * and ? are wildcards
    #[arg(default_value = "*/*")]
    pattern: String,
    /// Exit after this number of messages
    #[arg(long)]
    count: Option<u64>,
    #[command(flatten)]
    to: To,
}

/// Accept messages from ZeroMQ clients
///
/// A separate process, so that network data never enters the message server. Its clients may only read, unless a rule
/// of the message server allows more.
#[derive(clap::Args)]
struct ZmqArgs {
    /// Address for clients; every client that reaches it can read all objects
    #[arg(long, value_name = "ADDRESS", default_value = "tcp://127.0.0.1:5555", value_parser = broker::zmq::address)]
    listen: std::net::SocketAddr,
    /// Name of the message server
    #[arg(long, default_value = "main", env = "TAHTI_MESSAGES")]
    server: String,
    /// Maximum body size in each direction. A client uses twice this per band, within the 512 MiB per user of the
    /// server
    #[arg(long, value_name = "SIZE", default_value_t = Size(broker::zmq::BODIES), value_parser = bodies)]
    bodies: Size,
}

/// Maximum body size of a link or an endpoint. It is half of a pool, because two bodies are under way at a time.
pub(crate) fn bodies(text: &str) -> Result<Size, String> {
    let most = Size(broker::POOL_BYTES_MAX / 2);
    let size: Size = text.parse().map_err(|error: base::ParseUnitError| error.to_string())?;
    if size <= most { Ok(size) } else { Err(format!("expected at most {most}")) }
}

/// The file size of a message log, with the limits of the plant file.
fn log_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: base::ParseUnitError| error.to_string())?;
    let fits = host::plant::messages::LOG_SIZES.contains(&size);
    if fits { Ok(size) } else { Err(format!("expected {}", host::plant::messages::LOG_SIZES_TEXT)) }
}

fn positive(text: &str) -> Result<DurNs, String> {
    let time: DurNs = text.parse().map_err(|error: base::ParseUnitError| error.to_string())?;
    if time > DurNs::ZERO { Ok(time) } else { Err("expected a time above 0".into()) }
}

fn band_config(text: &str) -> Result<BandConfig, String> {
    let form = || format!("{text:?}, expected BAND=CLASS[@CPU] such as 7=fifo:80@3");
    let (band, rest) = text.split_once('=').ok_or_else(form)?;
    let band = band.parse().ok().and_then(Band::new).ok_or_else(|| format!("band {band:?}, expected 0 to 7"))?;
    let (class, cpu) = rest.split_once('@').map_or((rest, None), |(class, cpu)| (class, Some(cpu)));
    let class: Policy = class.parse().map_err(|error: base::ParsePolicyError| error.to_string())?;
    let cpu = cpu.map(|cpu| cpu.parse::<CpuId>().map_err(|_| form())).transpose()?;
    Ok(BandConfig { band, class: Some(class), cpu, entry: None })
}

/// Exit status if no server could be reached.
const NO_SERVER: u8 = 2;

pub(crate) fn run(args: Args) -> ExitCode {
    let result = match args.what {
        MsgCommand::Serve(args) => return end(serve(args)),
        MsgCommand::Zmq(args) => return end(zmq(&args)),
        #[cfg(feature = "fabric")]
        MsgCommand::Link(args) => {
            return end(until_asked(None).and_then(|stop| crate::link::run(args, &stop)));
        }
        #[cfg(not(feature = "fabric"))]
        MsgCommand::Link { .. } => {
            let why = "this build has no link between hosts; build with `cargo build --release --features fabric`";
            return end::<()>(Err(why.into()));
        }
        MsgCommand::Send(args) => send(&args),
        MsgCommand::List(args) => list(&args),
        MsgCommand::Ps(args) => ps(&args),
        MsgCommand::Watch(args) => watch(&args),
    };
    end(result.map(|good| ExitCode::from(u8::from(!good))).map_err(|error| Failure::from(error).with_status(NO_SERVER)))
}

/// Returns a flag that is set when this process receives a signal to end. SIGHUP sets `on_hangup`, if given.
fn until_asked(on_hangup: Option<Arc<AtomicBool>>) -> Result<Arc<AtomicBool>, Failure> {
    let hangup = on_hangup.iter().map(|_| SIGHUP);
    let signals = SignalFd::new(&end_signals().into_iter().chain(hangup).collect::<Vec<_>>())?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    std::thread::spawn(move || {
        use std::os::fd::AsFd;
        loop {
            sys::poll::is_readable(signals.as_fd(), DurNs::from_secs(3600));
            match (signals.read(), &on_hangup) {
                (Ok(Some(arrived)), Some(mark)) if arrived.signal == SIGHUP => mark.store(true, Ordering::Relaxed),
                (Ok(Some(_)) | Err(_), _) => return asked.store(true, Ordering::Relaxed),
                (Ok(None), _) => {}
            }
        }
    });
    Ok(stop)
}

fn serve(args: ServeArgs) -> Result<(), Failure> {
    let reopen_log = Arc::<AtomicBool>::default();
    let stop = until_asked(args.log.is_some().then(|| reopen_log.clone()))?;
    let mut bands = args.band;
    match shield::home(bands.iter().filter_map(|band| band.cpu).collect()) {
        Ok(home) => {
            for band in &mut bands {
                band.entry = home
                    .as_ref()
                    .filter(|home| band.cpu.is_some_and(|cpu| home.cpus.contains(cpu)))
                    .map(|home| home.entry.clone());
            }
        }
        Err(error) => eprintln!("tahti msg: the active shield cannot be read, bands do not enter it: {error}"),
    }
    let log_limit = LogLimit { bytes: args.log_size.0, keep: args.log_keep };
    // In a plant, the supervisor's guard watches the process.
    let fixed = bands.iter().any(|band| band.class.is_some_and(|class| matches!(class.level(), RtLevel::Fixed(_))));
    if fixed
        && !args.no_allowance
        && std::env::var_os("TAHTI_PROCESS").is_none()
        && let Err(why) = crate::guarded::guard(bands.iter().filter_map(|band| band.cpu).collect())
    {
        eprintln!("tahti msg: no guard: {why}");
    }
    let (name, rules, unbounded) = (args.name, args.rule, args.no_allowance);
    let config = Config {
        name,
        bands,
        rules,
        deadlines: args.deadline,
        log: args.log,
        log_limit,
        reopen_log,
        unbounded,
        ..Config::default()
    };
    let mut supervisor = Supervisor::from_env();
    let name = config.name.clone();
    let mut lacking = false;
    let (require_rt, ending) = (args.require_rt, stop.clone());
    broker::server::serve(config, &stop, &mut |event| match event {
        Event::Ready(missing) => {
            missing.iter().for_each(|missing| eprintln!("tahti msg: {missing}"));
            if require_rt && !missing.is_empty() {
                lacking = true;
                ending.store(true, Ordering::Relaxed);
            } else {
                eprintln!("tahti msg: serving as {name}");
            }
        }
        Event::Joined(who) => eprintln!("tahti msg: {who} connected"),
        Event::Left(who) => eprintln!("tahti msg: {who} disconnected"),
        Event::CutOff(who) => eprintln!("tahti msg: cut off {who}"),
        Event::Trouble(what) | Event::Mended(what) => eprintln!("tahti msg: {what}"),
        Event::Value(tally, hard) => supervisor.send(crate::tell::value(&tally, hard)),
        Event::Round(hang) => supervisor.works(mono_now(), hang.as_deref()),
    })?;
    if lacking { Err("a real-time property was not obtained, and --require-rt was given".into()) } else { Ok(()) }
}

fn zmq(args: &ZmqArgs) -> Result<(), Failure> {
    use broker::zmq::Event;
    let stop = until_asked(None)?;
    broker::zmq::serve(&args.server, args.listen, args.bodies.0, &stop, &mut |event| match event {
        Event::Ready(at) => eprintln!("tahti msg: ZeroMQ at tcp://{at} for {}", args.server),
        Event::Joined(who) => eprintln!("tahti msg: {who} connected"),
        Event::Left(who) => eprintln!("tahti msg: {who} disconnected"),
        Event::CutOff(who, why) => eprintln!("tahti msg: cut off {who}: {why}"),
        Event::Trouble(what) => eprintln!("tahti msg: {what}"),
    })?;
    Ok(())
}

fn connect(to: &To, name: &str) -> Result<Client, ClientError> {
    let connect = |server: &str| Client::connect(server, name, Band::new(to.band).unwrap_or_default());
    let Some(server) = &to.server else {
        return connect("main").or_else(|error| match crate::control::of_only_plant("TAHTI_MESSAGES") {
            Some(server) if matches!(error, ClientError::System(_)) => connect(&server),
            _ => Err(error),
        });
    };
    connect(server)
}

/// Prints the reply to a command. Returns whether the command succeeded.
fn show(line: Option<&str>, received: &Received) -> bool {
    shown(line, "", received)
}

/// Prints the reply to the command `asked`, prefixed with `line`. Returns whether the command succeeded.
fn shown(line: Option<&str>, asked: &str, received: &Received) -> bool {
    let before = line.map_or(String::new(), |line| format!("{line} "));
    if received.code == Code::Ok {
        let pattern = asked.split_once('/').filter(|(verb, _)| *verb == Verb::List.word()).map(|(_, pattern)| pattern);
        if let Some(pattern) = pattern.filter(|_| received.words().is_empty()) {
            none_like(pattern);
            return true;
        }
        match received.lines().filter(|lines| !lines.is_empty() && received.text.is_empty()) {
            Some(lines) => lines.iter().for_each(|text| println!("{before}{text}")),
            None if received.text.is_empty() => println!("{before}{}", received.code),
            None => println!("{before}{}", received.text),
        }
        return true;
    }
    eprintln!("tahti: {before}{}: {}", received.code, received.text);
    false
}

/// Reports an empty list on standard error. An empty list is a success.
fn none_like(pattern: &str) {
    eprintln!("tahti: no served object matches {pattern:?}; `tahti msg list` lists what is served");
}

fn send(args: &SendArgs) -> Result<bool, ClientError> {
    let mut client = connect(&args.to, "tahti-msg-send")?;
    let flag = |set: bool, flag: Flags| if set { flag } else { Flags::NONE };
    let flags = flag(args.dry_run, Flags::DRY_RUN).with(flag(args.idempotent, Flags::IDEMPOTENT));
    let sending = Sending { limit: args.to.timeout, flags, ..Sending::default() };
    let mut fine = true;
    if args.batch {
        let object = args.lines[0].split('/').nth(1).unwrap_or_default();
        let mut body = Vec::new();
        write_lines(args.lines.iter().map(String::as_str), &mut body);
        let (lines, bytes) = (args.lines.len(), body.len());
        if lines > BATCH_LINES_MAX || bytes > BODY_BYTES_MAX {
            let why = format!(
                "{lines} lines with {bytes} bytes in one batch; expected at most {BATCH_LINES_MAX} and {BODY_BYTES_MAX}: make \
                 several batches, or send them with --async"
            );
            return Err(ClientError::Message(why));
        }
        let received = client.ask(&format!("{}/{object}", Verb::Batch), &Sending { body: &body, ..sending })?;
        let (true, Some(results)) = (received.code == Code::Ok, received.lines()) else {
            return Ok(show(None, &received));
        };
        for (line, result) in args.lines.iter().zip(results) {
            match Reply::parse(result) {
                Ok(Reply { code: Code::Ok, complement }) if complement.is_empty() => println!("{line} OK"),
                Ok(Reply { code: Code::Ok, complement }) => println!("{line} {complement}"),
                Ok(Reply { code, complement }) => {
                    eprintln!("tahti: {line} {code}: {complement}");
                    fine = false;
                }
                Err(error) => return Err(ClientError::Message(format!("{line}: invalid reply: {error}"))),
            }
        }
        return Ok(fine);
    }
    if !args.at_once {
        for line in &args.lines {
            match client.ask(line, &sending) {
                Ok(received) => fine &= shown(None, line, &received),
                Err(ClientError::Message(why)) => {
                    eprintln!("tahti: {why}");
                    fine = false;
                }
                Err(error) => return Err(error),
            }
        }
        return Ok(fine);
    }
    let (mut sent, mut lines) = (HashMap::new(), args.lines.iter());
    loop {
        while client.outstanding() < OUTSTANDING_MAX
            && let Some(line) = lines.next()
        {
            match client.send(line, &sending) {
                Ok(id) => drop(sent.insert(id, line.as_str())),
                Err(ClientError::Message(why)) => {
                    eprintln!("tahti: {why}");
                    fine = false;
                }
                Err(error) => return Err(error),
            }
        }
        if client.outstanding() == 0 {
            return Ok(fine);
        }
        if let Some(received) = client.next(args.to.timeout)? {
            let line = sent.remove(&received.id);
            fine &= shown(line, line.unwrap_or_default(), &received);
        }
    }
}

/// Maximum number of concurrent requests, below the server's limit per client.
const OUTSTANDING_MAX: usize = 128;

fn list(args: &ListArgs) -> Result<bool, ClientError> {
    let mut client = connect(&args.to, "tahti-msg-list")?;
    let sending = Sending { limit: args.to.timeout, ..Sending::default() };
    let served = client.served(&sending)?;
    for (manager, code, why) in &served.lacking {
        eprintln!("tahti: {manager} does not list its objects, its claims are shown: {code}: {why}");
    }
    let objects: Vec<_> = served.objects.iter().filter(|object| base::glob(&args.pattern, object)).collect();
    objects.iter().for_each(|object| println!("{object}"));
    if objects.is_empty() {
        none_like(&args.pattern);
    }
    Ok(served.lacking.is_empty())
}

fn ps(args: &PsArgs) -> Result<bool, ClientError> {
    let mut client = connect(&args.to, "tahti-msg-ps")?;
    let (lines, last) = client.list("server", &Sending { limit: args.to.timeout, ..Sending::default() })?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(last.code == Code::Ok || show(None, &last))
}

fn watch(args: &WatchArgs) -> Result<bool, ClientError> {
    let mut client = connect(&args.to, "tahti-msg-watch")?;
    let received = client.watch(&args.pattern, &Sending { limit: args.to.timeout, ..Sending::default() })?;
    if received.code != Code::Ok {
        return Ok(show(None, &received));
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        match client.next(DurNs::from_secs(3600))? {
            Some(event) if event.event => {
                println!("{}", event.text);
                left -= 1;
            }
            _ => {}
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plants_message_server_is_started_with_arguments_that_it_parses() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: ServeArgs,
        }
        let plant = r#"
[plant]
name = "ring"
[messages]
name = "main"
bands = [{ number = "7", class = "fifo:80", cpu = "1" }]
rules = [{ access = "deny", objects = "sr_rf_*", verbs = ["call"], users = ["1000"], hosts = "other" }]
deadlines = [{ objects = "sr_rf_*", verbs = ["put"], bands = ["7"], at = "5ms", kind = "soft", value = "half 2ms" }]
message_log = "messages.log"
message_log_size = "1MiB"
message_log_keep = 7
"#;
        let checked = host::plant::check(plant, &host::plant::Anywhere);
        let plant = checked.plant.unwrap_or_else(|| panic!("{:?}", checked.found));
        let command = &plant.processes[0].command;
        let line = Line::try_parse_from(&command[2..]).unwrap();
        assert_eq!(line.args.name, "main");
        let deadline = "5ms soft half 2ms objects=sr_rf_* verbs=put bands=7";
        assert_eq!(line.args.deadline, [deadline.parse().unwrap()]);
        assert_eq!(line.args.rule, ["deny objects=sr_rf_* verbs=call users=1000 hosts=other".parse().unwrap()]);
        assert_eq!((line.args.log_size, line.args.log_keep), (Size(1 << 20), 7));
        assert_eq!((line.args.band[0].band.number(), line.args.band[0].cpu), (7, Some(1)));
    }
}
