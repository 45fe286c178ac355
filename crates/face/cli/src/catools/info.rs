//! `tahti cainfo`: prints the properties of channels.

use super::get::field_type;
use super::{Args, Tool, options};
use ca::Dbr;
use std::process::ExitCode;

const CAINFO: options::Tool = options::Tool {
    name: "cainfo",
    letters: "hVw:s:p:",
    anywhere: true,
    usage: "
Usage: tahti cainfo [options] <PV name> ...

  -h: Help: Print this message
  -V: Version
  -w <sec>:   Wait time, specifies CA timeout, default is 1.0 second(s)
  -p <prio>:  CA priority (0-99, default 0=lowest)
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&CAINFO, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut tool = match Tool::open(&options.words, &options) {
        Ok(tool) => tool,
        Err(code) => return code,
    };
    if !tool.connect(&options) {
        return ExitCode::FAILURE;
    }
    for pv in &tool.pvs {
        let Some(info) = tool.session.client.info(pv.id) else { continue };
        let word = |may: bool| if may { "" } else { "no " };
        println!("{}\n    State:            connected\n    Host:             {}", pv.name, host(info.server));
        println!("    Access:           {}read, {}write", word(info.access.read), word(info.access.write));
        println!("    Native data type: {}", field_type(info.native));
        println!("    Request type:     {}\n    Element count:    {}", Dbr::plain(info.native).name(), info.count);
    }
    ExitCode::SUCCESS
}

/// An address in the format of EPICS: loopback is printed as `localhost`.
fn host(address: ca::client::Address) -> String {
    let ip = std::net::Ipv4Addr::from(address.ip);
    if ip.is_loopback() { format!("localhost:{}", address.port) } else { format!("{ip}:{}", address.port) }
}
