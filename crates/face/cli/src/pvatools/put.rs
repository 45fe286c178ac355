//! `tahti pvput`: writes a channel, and prints its value before and after.

use super::options::{self, Options};
use super::{Args, Channels, format, parse};
use crate::failure::Failure;
use pva::client::{Action, ChannelId, Event, OpId};
use pva::codec::{Mask, Type};
use std::process::ExitCode;

const PVPUT: options::Tool = options::Tool {
    name: "pvput",
    letters: "hVr:w:p:M:vqdtnsF:f:",
    anywhere: false,
    needs_name: true,
    timeout_secs: 5.0,
    usage: "
Usage: tahti pvput [options] <PV name> <value>
       tahti pvput [options] <PV name> <size/ignored> <value> [<value> ...]
       tahti pvput [options] <PV name> <field>=<value> ...
       tahti pvput [options] <PV name> <json_array>
       tahti pvput [options] <PV name> <json_map>

options:
  -h: Help: Print this message
  -V: Print version and exit
  -r <pv request>:   Request, e.g. 'record[block=true]' to wait for the end of processing
  -w <sec>:          Wait time, specifies timeout, default is 5 second(s)
  -p <provider>:     Only 'pva'
  -M <raw|nt|json>:  Output mode, default is 'nt'
  -v:                Show entire structure (implies Raw mode)
  -q:                Quiet mode, print only error messages
  -d, -n, -s, -F, -t: ignored
A value of an enumeration is the name of a state, or else its number.
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let mut options = match options::parse(&PVPUT, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let values = options.words.split_off(1);
    if values.is_empty() {
        eprintln!("No value(s) specified. ('pvput -h' for help.)");
        return ExitCode::FAILURE;
    }
    let mut channels = match Channels::open(&options) {
        Ok(channels) => channels,
        Err(code) => return code,
    };
    let Some(&id) = channels.all.first() else { return ExitCode::FAILURE };
    match channels.put(&options, id, &values) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

impl Channels {
    fn put(&mut self, options: &Options, id: ChannelId, values: &[String]) -> Result<(), Failure> {
        let put = self.session.client.start(id, Action::Put, &options.request);
        self.wait(options, id, |event| *event == Event::Ready(put))?;
        self.session.client.read(put);
        self.wait(options, id, |event| matches!(event, Event::Value { op, .. } if *op == put))?;
        self.show(options, "Old : ", put);
        let result = self.write(options, id, put, values);
        // Also after an error, so that the user sees what the channel has now.
        let get = self.session.client.start(id, Action::Get, &options.request);
        let read = self.wait(options, id, |event| matches!(event, Event::Value { op, .. } if *op == get));
        if read.is_ok() {
            self.show(options, "New : ", get);
        }
        result.and(read)
    }

    fn write(&mut self, options: &Options, id: ChannelId, put: OpId, values: &[String]) -> Result<(), Failure> {
        let client = &mut self.session.client;
        let (Some(Type::Struct(fields)), Some(value)) = (client.ty(put).cloned(), client.value(put).cloned()) else {
            return Err(format!("Error: {} is not a structure", client.name(id)).into());
        };
        let (mask, value) = parse::assign(&fields, value, values).map_err(|error| format!("Error: {error}"))?;
        client.write(put, &mask, &value);
        self.wait(options, id, |event| *event == Event::Done(put))
    }

    /// Prints the value of an operation.
    fn show(&self, options: &Options, lead: &str, op: OpId) {
        let client = &self.session.client;
        let (Some(ty), Some(value)) = (client.ty(op), client.value(op)) else { return };
        let plain = ty.fields().and_then(|fields| format::plain(fields, value));
        match plain.filter(|_| options.mode == format::Mode::Plain) {
            Some(text) if options.quiet => println!("{text}"),
            Some(text) => println!("{lead}{text}"),
            None => {
                let name = client.channel_of(op).map_or("", |id| client.name(id));
                print!("{lead}{}", format::line(options.mode, name, self.width, ty, &Mask::of([0]), value));
            }
        }
    }

    /// Waits for an event.
    fn wait(&mut self, options: &Options, id: ChannelId, wanted: impl Fn(&Event) -> bool) -> Result<(), Failure> {
        let until = options.until();
        loop {
            match self.session.step(until).map_err(|error| format!("Error: {error}"))? {
                Some(event) if wanted(&event) => return Ok(()),
                Some(Event::Failed(_, status) | Event::Refused(_, status)) => return Err(status.to_string().into()),
                Some(Event::Message(_, text)) => eprintln!("{text}"),
                Some(_) => {}
                None => return Err(format!("{}: Put timeout", self.session.client.name(id)).into()),
            }
        }
    }
}
