//! `tahti pvmonitor`: prints updates of channels.

use super::options::{self, FOREVER};
use super::{Args, Channels};
use pva::client::{Action, ChannelId, Event};
use pvanet::session::Session;
use std::process::ExitCode;

const PVMONITOR: options::Tool = options::Tool {
    name: "pvmonitor",
    letters: "hVr:w:p:M:vqdtinF:f:",
    anywhere: true,
    needs_name: true,
    timeout_secs: 5.0,
    usage: "
Usage: tahti pvmonitor [options] <PV name>...

options:
  -h: Help: Print this message
  -V: Print version and exit
  -r <pv request>:   Request, specifies what fields to return and options, default is all fields
  -w <sec>:          Report channels without a server after this time, default is 5 second(s)
  -p <provider>:     Only 'pva'
  -M <raw|nt|json>:  Output mode, default is 'nt'
  -v:                Print changed fields (implies Raw mode); -vv all fields
  -q:                Quiet mode, print only error messages
  -d, -t, -i, -n, -F: ignored
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&PVMONITOR, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut channels = match Channels::open(&options) {
        Ok(channels) => channels,
        Err(code) => return code,
    };
    let client = &mut channels.session.client;
    for id in &channels.all {
        client.start(*id, Action::Monitor, &options.request);
    }
    let mut waiting: Vec<ChannelId> = channels.all.clone();
    let patience = options.until();
    loop {
        let until = if waiting.is_empty() || patience <= Session::now() { FOREVER } else { patience };
        let event = match channels.session.step(until) {
            Ok(Some(event)) => event,
            Ok(None) => {
                let names = waiting.drain(..).map(|id| channels.session.client.name(id).to_owned());
                names.for_each(|name| eprintln!("{name}: not found yet"));
                continue;
            }
            Err(error) => {
                eprintln!("Error: {error}");
                return ExitCode::FAILURE;
            }
        };
        let line = match event {
            Event::Connected(id) => {
                waiting.retain(|other| *other != id);
                continue;
            }
            Event::Value { op, changed, .. } => channels.line(&options, op, &changed),
            Event::Disconnected(id) => {
                Some(format!("{:<width$} <Disconnect>\n", channels.session.client.name(id), width = channels.width))
            }
            Event::Failed(_, status) | Event::Refused(_, status) => {
                eprintln!("{status}");
                continue;
            }
            Event::Message(_, text) => {
                eprintln!("{text}");
                continue;
            }
            _ => continue,
        };
        if let Some(line) = line
            && crate::out::tell(format_args!("{line}")).is_err()
        {
            // Standard output was closed by its reader.
            return ExitCode::SUCCESS;
        }
    }
}
