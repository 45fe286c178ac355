//! `tahti pvlist`: lists servers, or the channels of servers.

use super::call::{answer, uri};
use super::options::{self, Options};
use super::{Args, open};
use crate::failure::Failure;
use pva::codec::{Array, Kind, Struct, Type, Value};
use pva::search::{Address, ServerReply};
use pvanet::session::Session;
use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::process::ExitCode;

const PVLIST: options::Tool = options::Tool {
    name: "pvlist",
    letters: "hViw:qd",
    anywhere: true,
    needs_name: false,
    timeout_secs: 3.0,
    usage: "
Usage: tahti pvlist [options] [<server address or GUID starting with '0x'>]...

options:
  -h: Help: Print this message
  -V: Print version and exit
  -i                 Print server info (when server address list/GUID is given)
  -w <sec>:          Wait time, specifies timeout, default is 3 second(s)
  -q:                Quiet mode, print only error messages
  -d: ignored

examples:
\ttahti pvlist
\ttahti pvlist ioc0001
\ttahti pvlist 10.5.1.205:10000
\ttahti pvlist 0x83DE3C540000000000BF351F
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let listed = options::parse(&PVLIST, &args.words).and_then(|options| {
        let mut session = open()?;
        let done = match options.words.is_empty() {
            true => servers(&mut session, &options, |_| false).map(|servers| print_servers(&options, &servers)),
            false => options.words.iter().try_for_each(|word| channels(&mut session, &options, word)),
        };
        done.map_err(|failure| {
            eprintln!("Error: {failure}");
            ExitCode::FAILURE
        })
    });
    listed.err().unwrap_or(ExitCode::SUCCESS)
}

/// Version and addresses of each server, by its GUID.
type Servers = BTreeMap<String, (u8, Vec<Address>)>;

/// Searches for servers until the time is over or `enough` has been found.
fn servers(session: &mut Session, options: &Options, enough: impl Fn(&Servers) -> bool) -> Result<Servers, Failure> {
    let until = options.until();
    let mut found = Servers::new();
    session.search_servers();
    while Session::now() < until && !enough(&found) {
        session.step(until)?;
        for (from, bytes) in session.take_datagrams() {
            for ServerReply { guid, mut server, version } in ServerReply::all(&bytes) {
                if server.ip.is_unspecified() {
                    server.ip = from.ip;
                }
                let (_, addresses) = found.entry(hex(&guid)).or_insert((version, Vec::new()));
                if !addresses.contains(&server) {
                    addresses.push(server);
                }
            }
        }
    }
    Ok(found)
}

fn hex(guid: &[u8; 12]) -> String {
    guid.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02X}"))
}

fn print_servers(options: &Options, servers: &Servers) {
    for (guid, (version, addresses)) in servers.iter().filter(|_| !options.quiet) {
        let addresses: String = addresses.iter().map(|address| format!("{address} ")).collect();
        println!("GUID {guid} version {version}: tcp@[ {addresses}]");
    }
}

/// Prints the channels of a server, or its description of itself.
fn channels(session: &mut Session, options: &Options, word: &str) -> Result<(), Failure> {
    let server = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(_) => {
            let guid = format!("0x{}", word[2..].to_uppercase());
            let found = servers(session, options, |found| found.contains_key(&guid))?;
            let known = found.get(&guid).and_then(|(_, addresses)| addresses.first().copied());
            known.ok_or_else(|| format!("no server has the GUID {guid}"))?
        }
        None => resolved(word)?,
    };
    let id = session.client.channel_at("server", server);
    let op = if options.info { "info" } else { "channels" };
    let query = ("op".to_owned(), Type::Scalar(Kind::Text), Value::Text(op.to_owned()));
    let (ty, argument) = uri("server", vec![query])?;
    let call = session.client.call(id, &options.request, ty, argument);
    match answer(session, options, call)? {
        (Type::Struct(fields), value) => {
            match value.field(&fields, "value") {
                Some((Value::Array(Array::Text(names)), _)) => names.iter().for_each(|name| println!("{name}")),
                _ => print_fields(&fields, &value),
            }
            Ok(())
        }
        _ => Err(format!("{server} returned no list of channels").into()),
    }
}

fn print_fields(fields: &Struct, value: &Value) {
    for (name, _) in fields.fields() {
        if let Some(text) = value.field(fields, name).and_then(|(value, _)| value.as_text()) {
            println!("{name}: {text}");
        }
    }
}

/// The address of a server with an optional port.
fn resolved(word: &str) -> Result<Address, Failure> {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    if let Ok(ip) = bare.parse::<std::net::IpAddr>() {
        return Ok(Address { ip, port: pva::wire::SERVER_PORT });
    }
    let named = if word.contains(':') { word.to_owned() } else { format!("{word}:{}", pva::wire::SERVER_PORT) };
    let found: Vec<_> = named.to_socket_addrs().map_err(|error| format!("{word}: {error}"))?.collect();
    // Servers of this host listen on IPv4 unless configured.
    let best = found.iter().find(|address| address.is_ipv4()).or_else(|| found.first());
    Ok(best.map(|address| Address::from(*address)).ok_or_else(|| format!("{word} has no address"))?)
}
