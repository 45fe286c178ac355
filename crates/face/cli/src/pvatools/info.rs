//! `tahti pvinfo`: prints the server and the type of channels.

use super::{Args, Channels, format, options};
use pva::client::{Action, Event, OpId};
use pva::request::Request;
use std::process::ExitCode;

const PVINFO: options::Tool = options::Tool {
    name: "pvinfo",
    letters: "hVw:p:dc",
    anywhere: true,
    needs_name: true,
    timeout_secs: 5.0,
    usage: "
Usage: tahti pvinfo [options] <PV name>...

options:
  -h: Help: Print this message
  -V: Print version and exit
  -w <sec>:          Wait time, specifies timeout, default is 5 second(s)
  -p <provider>:     Only 'pva'
  -d, -c: ignored
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&PVINFO, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut channels = match Channels::open(&options) {
        Ok(channels) => channels,
        Err(code) => return code,
    };
    let session = &mut channels.session;
    let start = |id| session.client.start(id, Action::Describe, &Request::default());
    let mut waiting: Vec<OpId> = channels.all.iter().copied().map(start).collect();
    let channel_of: Vec<_> = waiting.iter().copied().zip(channels.all.iter().copied()).collect();
    let mut failed = false;
    let until = options.until();
    while !waiting.is_empty() {
        let event = match session.step(until) {
            Ok(Some(event)) => event,
            Ok(None) => {
                let names = waiting.iter().filter_map(|op| session.client.channel_of(*op));
                names.for_each(|id| eprintln!("{}: Timeout", session.client.name(id)));
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("Error: {error}");
                return ExitCode::FAILURE;
            }
        };
        match event {
            Event::Described(op, ty) => {
                if let Some((_, id)) = channel_of.iter().find(|(known, _)| *known == op) {
                    let server = session.client.server(*id).map(|server| server.to_string()).unwrap_or_default();
                    let name = session.client.name(*id);
                    println!("{name}\nServer: {server}\nType:\n{}", format::described(&ty, 1));
                }
                waiting.retain(|other| *other != op);
            }
            Event::Failed(op, status) => {
                eprintln!("{status}");
                waiting.retain(|other| *other != op);
                failed = true;
            }
            Event::Refused(id, status) => {
                eprintln!("{}: {status}", session.client.name(id));
                waiting.retain(|op| session.client.channel_of(*op) != Some(id));
                failed = true;
            }
            _ => {}
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
