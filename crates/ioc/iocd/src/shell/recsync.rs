//! Commands and variables of C's module reccaster: addReccasterEnvVars, addReccasterExcludePattern.

use super::commands::{Command, CommandResult, command};
use super::{Failed, IocState, Shell};
use crate::recsync::{ANNOUNCE_PORT, Contents, Running, Servers, Settings};
use base::DurNs;
use canet::config::{addresses, port_of};
use std::collections::BTreeSet;

/// Variable with the RecCeivers that may receive the list: addresses, or `*`. Default: those of this host.
const SERVERS: &str = "TAHTI_RECCEIVERS";
/// Variable with the UDP port of announcements.
const PORT: &str = "TAHTI_RECCEIVER_PORT";

/// Variables of the environment that are sent if they are set.
const PROPERTIES: [&str; 15] = [
    "HOSTNAME",
    "EPICS_BASE",
    "TOP",
    "ARCH",
    "IOC",
    "EPICS_CA_ADDR_LIST",
    "EPICS_CA_AUTO_ADDR_LIST",
    "EPICS_CA_MAX_ARRAY_BYTES",
    "RSRV_SERVER_PORT",
    "PVAS_SERVER_PORT",
    "PWD",
    "EPICS_HOST_ARCH",
    "IOCNAME",
    "ENGINEER",
    "LOCATION",
];

pub(super) const COMMANDS: &[Command] = &[
    command!(
        "addReccasterEnvVars",
        "name…",
        "sends further variables to RecCeiver; before iocInit",
        |shell, args| { shell.add_to_caster("addReccasterEnvVars", args, |setup| &mut setup.variables) }
    ),
    command!(
        "addReccasterExcludePattern",
        "pattern…",
        "does not send records with such names to RecCeiver; before iocInit",
        |shell, args| shell.add_to_caster("addReccasterExcludePattern", args, |setup| &mut setup.excluded)
    ),
];

/// Settings of the client of RecCeiver, and the client.
#[derive(Default)]
pub(super) struct Setup {
    variables: BTreeSet<String>,
    excluded: BTreeSet<String>,
    /// Whether a script uses the module.
    pub(super) is_used: bool,
    pub(super) running: Option<Running>,
}

/// TCP ports of the servers.
#[derive(Clone, Copy)]
pub(super) struct TcpPorts {
    pub(super) channel_access: u16,
    pub(super) pvaccess: Option<u16>,
}

impl Shell {
    fn add_to_caster(
        &mut self,
        command: &str,
        words: &[String],
        list: fn(&mut Setup) -> &mut BTreeSet<String>,
    ) -> CommandResult {
        if !matches!(self.state, IocState::Building(_)) {
            return Err(Failed(format!("{command}: the IOC is running, expected before iocInit")));
        }
        if words.iter().all(String::is_empty) {
            return Err(Failed(format!("At least one argument expected for {command}")));
        }
        self.caster.is_used = true;
        list(&mut self.caster).extend(words.iter().filter(|word| !word.is_empty()).cloned());
        Ok(None)
    }

    /// Starts the client of RecCeiver, if the script, a record or the environment uses it.
    pub(super) fn start_caster(&mut self, ports: TcpPorts) -> Result<(), Failed> {
        let IocState::Running(mailbox, ..) = &self.state else { return Ok(()) };
        let env = |name: &str| self.env.get(name).map(|text| text.trim().to_owned());
        let mut complaints = Vec::new();
        let servers = match env(SERVERS).as_deref() {
            None if !self.caster.is_used && !self.devices.caster.is_used() => return Ok(()),
            None => Servers::ThisHost,
            Some("" | "NO") => return Ok(()),
            Some("*") => Servers::Any,
            Some(list) => {
                let list = addresses(SERVERS, list, 0, &mut complaints);
                Servers::Listed(list.iter().map(|address| *address.ip()).collect())
            }
        };
        let port = port_of(env, &[PORT], ANNOUNCE_PORT, &mut complaints);
        complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
        let seconds = |name: &str| {
            let seconds = self.vars.get(name).copied().unwrap_or_default();
            DurNs((seconds.clamp(0.0, 1e6) * 1e9) as i64)
        };
        let timeout = seconds("reccastTimeout").max(DurNs::from_ms(100));
        let settings = Settings { servers, port, timeout, holdoff_max: seconds("reccastMaxHoldoff") };
        let contents =
            Contents { properties: self.properties(ports), excluded: self.caster.excluded.iter().cloned().collect() };
        self.caster.running = Some(Running::start(mailbox.clone(), settings, contents, self.devices.caster.clone())?);
        Ok(())
    }

    /// Properties of the IOC: its version, and variables.
    fn properties(&self, ports: TcpPorts) -> Vec<(String, String)> {
        let own = |name: &str| match name {
            "HOSTNAME" => Some(rustix::system::uname().nodename().to_string_lossy().into_owned()),
            "RSRV_SERVER_PORT" => Some(ports.channel_access.to_string()),
            "PVAS_SERVER_PORT" => ports.pvaccess.map(|port| port.to_string()),
            "PWD" => std::env::current_dir().ok().map(|folder| folder.display().to_string()),
            _ => None,
        };
        let version = concat!("tahti ", env!("CARGO_PKG_VERSION"));
        let further = self.caster.variables.iter().map(String::as_str).filter(|name| !PROPERTIES.contains(name));
        let named = PROPERTIES.into_iter().chain(further);
        let set = named.filter_map(|name| {
            let value = self.env.get(name).cloned().or_else(|| own(name))?;
            Some((name.to_owned(), value))
        });
        std::iter::once(("EPICS_VERSION".to_owned(), version.to_owned())).chain(set).collect()
    }
}
