//! `tahti pvget`: reads and prints channels.

use super::options::{self, Options};
use super::{Args, Channels, format};
use pva::client::{Action, Event, OpId};
use std::process::ExitCode;

const PVGET: options::Tool = options::Tool {
    name: "pvget",
    letters: "hVr:w:p:M:vqdtinF:f:",
    anywhere: true,
    needs_name: true,
    timeout_secs: 5.0,
    usage: "
Usage: tahti pvget [options] <PV name>...

options:
  -h: Help: Print this message
  -V: Print version and exit
  -r <pv request>:   Request, specifies what fields to return and options, default is all fields
  -w <sec>:          Wait time, specifies timeout, default is 5 second(s)
  -p <provider>:     Only 'pva'
  -M <raw|nt|json>:  Output mode, default is 'nt'
  -v:                Show entire structure (implies Raw mode); -vv also fields that were not sent
  -q:                Quiet mode, print only error messages
  -d, -t, -i, -n, -F: ignored
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&PVGET, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut channels = match Channels::open(&options) {
        Ok(channels) => channels,
        Err(code) => return code,
    };
    let client = &mut channels.session.client;
    let start = |id| client.start(id, Action::Get, &options.request);
    let mut waiting: Vec<OpId> = channels.all.iter().copied().map(start).collect();
    let mut failed = false;
    let until = options.until();
    while !waiting.is_empty() {
        match channels.session.step(until) {
            Ok(Some(event)) => failed |= channels.take(&options, event, &mut waiting),
            Ok(None) => {
                let client = &channels.session.client;
                let names = waiting.iter().filter_map(|op| client.channel_of(*op)).map(|id| client.name(id));
                names.for_each(|name| eprintln!("{name}: Timeout"));
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("Error: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Channels {
    /// Takes an event of reads. Returns whether one has failed.
    fn take(&mut self, options: &Options, event: Event, waiting: &mut Vec<OpId>) -> bool {
        match event {
            Event::Value { op, changed, .. } => {
                if let Some(line) = self.line(options, op, &changed) {
                    print!("{line}");
                }
                waiting.retain(|other| *other != op);
                self.session.client.end(op);
                false
            }
            Event::Failed(op, status) => {
                eprintln!("{status}");
                waiting.retain(|other| *other != op);
                true
            }
            Event::Refused(id, status) => {
                eprintln!("{}: {status}", self.session.client.name(id));
                let client = &self.session.client;
                waiting.retain(|op| client.channel_of(*op) != Some(id));
                true
            }
            Event::Message(_, text) => {
                eprintln!("{text}");
                false
            }
            _ => false,
        }
    }

    /// The newest value of an operation as text; `None` if the tool is quiet.
    pub(super) fn line(&self, options: &Options, op: OpId, changed: &pva::codec::Mask) -> Option<String> {
        let client = &self.session.client;
        let name = client.channel_of(op).map_or("", |id| client.name(id));
        let (ty, value) = (client.ty(op)?, client.value(op)?);
        (!options.quiet).then(|| format::line(options.mode, name, self.width, ty, changed, value))
    }
}
