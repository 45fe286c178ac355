//! `tahti carepeater`: hands servers' beacons to the clients of this host, as EPICS' `caRepeater` does.

use crate::failure::end;
use std::process::ExitCode;

/// Hands the beacons of servers to the clients of this host (EPICS' caRepeater)
///
/// One is enough for a host; a second one ends at once. Clients that live long start it where none runs, and it ends
/// when it has had no client for a minute. EPICS_CA_REPEATER_PORT names its port.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    let ran = canet::repeater::run(canet::repeater::port(variable), &canet::repeater::groups(variable));
    end(ran.map_err(|error| format!("carepeater: {error}").into()))
}
