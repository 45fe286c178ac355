//! `tahti camonitor`: prints updates of variables.

use super::format::{lead, stamp, wide};
use super::options::{self, FOREVER, Options, Times};
use super::{Args, Tool};
use base::{EventMask, Stamp};
use ca::Eca;
use ca::client::{ChannelId, Event};
use ca::encode::Reading;
use std::collections::HashMap;
use std::process::ExitCode;

const CAMONITOR: options::Tool = options::Tool {
    name: "camonitor",
    letters: "nhVm:sSe:f:g:l:#:0:w:t:p:F:",
    anywhere: true,
    usage: "
Usage: tahti camonitor [options] <PV name> ...

  -h:       Help: Print this message
  -V:       Version
Channel Access options:
  -w <sec>: Wait time, specifies CA timeout, default is 1.0 second(s)
  -m <msk>: CA event mask: any combination of
            'v' (value), 'a' (alarm), 'l' (log/archive), 'p' (property); default 'va'
  -p <pri>: CA priority (0-99, default 0=lowest)
Timestamps:
  -t <key>: 's' = server, 'c' = client, 'n' = none, 'r' = relative, 'i' = incremental,
            'I' = incremental by channel
Format:
  -n:       Print DBF_ENUM values as number (default is enum string)
  -# <num>: Request and print up to <num> elements
  -S:       Print arrays of char as a string (long string)
  -e <num>, -f <num>, -g <num>: Use %e, %f, %g format, with a precision of <num> digits
  -s:       Get value as string (honors server-side precision)
  -lx, -lo, -lb: Round to long integer and print as hex, octal, binary number
  -0x, -0o, -0b: Print integers as hex, octal, binary number
  -F <ofs>: Use <ofs> to separate fields in output
",
};

/// Reference times for relative time stamps. Each pair is the server's time stamp and the client's receive time.
#[derive(Default)]
struct Clocks {
    first: Option<(Stamp, Stamp)>,
    previous: (Stamp, Stamp),
    by_channel: HashMap<ChannelId, (Stamp, Stamp)>,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&CAMONITOR, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut tool = match Tool::open(&options.words, &options) {
        Ok(tool) => tool,
        Err(code) => return code,
    };
    // Beacons shorten the time until a restarted server is found again.
    if let Err(error) = canet::repeater::start(|name| std::env::var(name).ok()) {
        eprintln!("the repeater of beacons cannot be started: {error}");
    }
    let names: HashMap<ChannelId, String> = tool.pvs.iter().map(|pv| (pv.id, pv.name.clone())).collect();
    let mut waiting: Vec<ChannelId> = tool.pvs.iter().map(|pv| pv.id).collect();
    let mut subscribed: Vec<ChannelId> = Vec::new();
    let mut clocks = Clocks::default();
    let patience = options.until();
    loop {
        let until = if waiting.is_empty() { FOREVER } else { patience };
        let event = match tool.step(until) {
            Ok(event) => event,
            Err(error) => {
                eprintln!("tahti camonitor: {error}");
                return ExitCode::FAILURE;
            }
        };
        let line = match event {
            None => {
                for id in std::mem::take(&mut waiting) {
                    println!("{}*** Not connected (PV not found)", lead(&options, &names[&id], 1));
                }
                continue;
            }
            Some(Event::Connected(id)) => {
                waiting.retain(|other| *other != id);
                if let (Some(info), false) = (tool.session.client.info(id), subscribed.contains(&id)) {
                    subscribed.push(id);
                    let count = options.count.min(info.count);
                    tool.session.client.subscribe(id, options.type_for(&info), count, EventMask(options.mask));
                }
                continue;
            }
            Some(Event::Disconnected(id)) => {
                format!("{}{} *** disconnected", lead(&options, &names[&id], 1), stamp(iocd::engine::wall()))
            }
            Some(Event::Update { channel, result: Ok((dbr, reading)), .. }) => {
                let times = clocks.shown(&options, channel, &reading);
                wide(&options, &names[&channel], &times, dbr, &reading)
            }
            Some(Event::Update { result: Err(Eca::DISCONN), .. }) => continue,
            Some(Event::Update { channel, result: Err(status), .. }) => {
                let what =
                    if status == Eca::NORDACCESS { "no read access".to_owned() } else { format!("CA error {status}") };
                format!("{}{} *** {what}", lead(&options, &names[&channel], 1), stamp(iocd::engine::wall()))
            }
            Some(_) => continue,
        };
        if crate::out::tell(format_args!("{line}\n")).is_err() {
            // Standard output was closed by its reader.
            return ExitCode::SUCCESS;
        }
    }
}

impl Clocks {
    /// The time column of an update.
    fn shown(&mut self, options: &Options, channel: ChannelId, reading: &Reading) -> String {
        let new = (reading.stamp, iocd::engine::wall());
        let first = *self.first.get_or_insert(new);
        let known = self.by_channel.insert(channel, new);
        let reference = match options.times {
            Times::Absolute => None,
            Times::Relative => known.map(|_| first),
            Times::Incremental => known.map(|_| self.previous),
            Times::ByChannel => known,
        };
        self.previous = new;
        let mut out = String::new();
        for (wanted, now, then, brackets) in [
            (options.server_time, new.0, reference.map(|then| then.0), false),
            (options.client_time, new.1, reference.map(|then| then.1), true),
        ] {
            if !wanted {
                continue;
            }
            out.push_str(&match (then, brackets) {
                (None, false) => stamp(now),
                (None, true) => format!("({})", stamp(now)),
                (Some(then), false) => format!("              {:>+12.6}", now.secs_since(then)),
                (Some(then), true) => format!("              ({:>+12.6})", now.secs_since(then)),
            });
        }
        out
    }
}
