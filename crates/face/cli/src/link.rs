//! `tahti msg link`: forwards messages between hosts.

use crate::failure::Failure;
use fabric::{Config, Event, HostName};
use msg::Pattern;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Pass messages between this host's server and other hosts'
///
/// Clients here send requests to objects of other hosts as if this host served them. The link listens and connects only
/// as set by the options. Other hosts may only read unless a rule of the message server allows more.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of this host for the others [default: its host name]
    #[arg(long)]
    host: Option<HostName>,
    /// Name of the message server
    #[arg(long, default_value = "main", env = "TAHTI_MESSAGES")]
    server: String,
    /// Let others connect here: tcp/192.168.1.5:7447, tls/…; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Connect there; one host of each group is enough; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    connect: Vec<String>,
    /// Find hosts of the same network by multicast
    #[arg(long)]
    discover: bool,
    /// Let others see these objects only: sr_*; may be repeated
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    serve: Vec<Pattern>,
    /// Maximum body size in each direction. A host uses twice this per band, within the 512 MiB per user of the server
    #[arg(long, value_name = "SIZE", default_value_t = base::Size(fabric::BODIES), value_parser = crate::msg::bodies)]
    bodies: base::Size,
    /// Zenoh's own configuration: certificates, access control
    #[arg(long, value_name = "FILE")]
    zenoh: Option<PathBuf>,
}

/// Maximum number of a host's objects that are printed by name.
const NAMES_MAX: usize = 8;

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: Args, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let Args { host, server, listen, connect, discover, serve, bodies, zenoh } = args;
    if listen.is_empty() && connect.is_empty() && !discover && zenoh.is_none() {
        return Err("no other host can be reached: give --listen, --connect, --discover or --zenoh".into());
    }
    let host = match host {
        Some(host) => host,
        None => this_host()?.parse().map_err(|error: fabric::HostError| format!("{error}; give --host"))?,
    };
    let config = Config { host, server, listen, connect, discover, serve, bodies: bodies.0, zenoh };
    fabric::run(&config, stop, &mut |event| match event {
        Event::Ready => eprintln!("tahti msg: linking {} as {}", config.server, config.host),
        Event::Serves(host, serves) if serves.is_empty() => eprintln!("tahti msg: host {host} disconnected"),
        Event::Serves(host, serves) => match serves.split_at_checked(NAMES_MAX) {
            Some((some, rest)) if !rest.is_empty() => {
                eprintln!("tahti msg: host {host} serves {} and {} more", some.join(" "), rest.len());
            }
            _ => eprintln!("tahti msg: host {host} serves {}", serves.join(" ")),
        },
        Event::Asks(host) => eprintln!("tahti msg: host {host} sends requests"),
        Event::Trouble(what) => eprintln!("tahti msg: {what}"),
    })?;
    Ok(())
}

fn this_host() -> Result<String, Failure> {
    let file = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}; give --host"))?;
    Ok(name.trim().to_owned())
}
