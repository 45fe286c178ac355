//! `tahti carepeater`: forwards server beacons to the clients on this host, like EPICS' `caRepeater`.

use crate::failure::end;
use std::process::ExitCode;

/// Forward server beacons to the clients of this host (as EPICS caRepeater)
///
/// One repeater per host is enough; a second one exits at once. Long-running clients start it if none runs. It exits
/// after one minute without a client. EPICS_CA_REPEATER_PORT sets its port.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    let ran = canet::repeater::run(canet::repeater::port(variable), &canet::repeater::groups(variable));
    end(ran.map_err(|error| format!("carepeater: {error}").into()))
}
