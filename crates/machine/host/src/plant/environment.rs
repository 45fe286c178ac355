//! Environment variables that the processes of a plant get in addition to their `env`: those of `[plant]`, and those by
//! which parts of the plant find each other.

use super::model::Process;
use core::net::Ipv4Addr;
use std::collections::BTreeMap;

/// Addresses that clients of Channel Access search.
const ADDRESSES: &str = "EPICS_CA_ADDR_LIST";
/// Name servers that they query without broadcasts.
const NAME_SERVERS: &str = "EPICS_CA_NAME_SERVERS";
/// The port at which clients search, and at which a server listens.
const PORT: &str = "EPICS_CA_SERVER_PORT";
/// The port at which a server listens.
const SERVER_PORT: &str = "EPICS_CAS_SERVER_PORT";
/// The addresses at which a server listens.
const INTERFACES: &str = "EPICS_CAS_INTF_ADDR_LIST";
const PORT_DEFAULT: u16 = 5064;
/// The name of the message server.
const MESSAGES: &str = "TAHTI_MESSAGES";
/// The name of the alarm server.
const ALARMS: &str = "TAHTI_ALARMS";

type Variables = BTreeMap<String, String>;

/// Gives each process the variables of `[plant]` that it does not set. Also sets `Process::automatic`: the variables by
/// which a process finds the plant's IOCs, message server and alarm server. `alarms` is the name of the alarm server.
pub(super) fn complete(plant: &Variables, alarms: Option<&str>, processes: &mut [&mut Process]) {
    for process in processes.iter_mut() {
        for (name, value) in plant {
            process.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    let searched = port(plant, &[PORT]).unwrap_or(PORT_DEFAULT);
    let servers: Vec<Option<String>> = processes.iter().map(|process| address(process, searched)).collect();
    let messages = processes.iter().find_map(|process| messages(process));
    for (own, process) in processes.iter_mut().enumerate() {
        let others =
            servers.iter().enumerate().filter(|(at, _)| *at != own).filter_map(|(_, server)| server.as_deref());
        let addresses = others.collect::<Vec<_>>().join(" ");
        // A client with a different port searches at that port. In an IOC the variable may be the port of its server.
        let searches_elsewhere = process.env.contains_key(NAME_SERVERS)
            || (servers[own].is_none() && process.env.get(PORT) != plant.get(PORT));
        let found = [
            (ADDRESSES, (!addresses.is_empty() && !searches_elsewhere).then_some(addresses)),
            (MESSAGES, messages.clone()),
            (ALARMS, alarms.map(str::to_owned)),
        ];
        let missing = found.into_iter().filter(|(name, _)| !process.env.contains_key(*name));
        process.automatic = missing.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    }
}

fn port(env: &Variables, names: &[&str]) -> Option<u16> {
    names.iter().find_map(|name| env.get(*name)?.trim().parse().ok())
}

/// Address of an IOC, if clients that search this host at port `searched` do not find it.
fn address(process: &Process, searched: u16) -> Option<String> {
    if !process.command.iter().take(2).eq(["tahti", "ioc"]) {
        return None;
    }
    let port = port(&process.env, &[SERVER_PORT, PORT]).unwrap_or(PORT_DEFAULT);
    let listed = process.env.get(INTERFACES).map_or("", String::as_str);
    let listed: Vec<Ipv4Addr> = listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let local = listed.is_empty() || listed.iter().any(|ip| ip.is_unspecified() || ip.is_loopback());
    let ip = listed.into_iter().find(|ip| !local && !ip.is_multicast()).unwrap_or(Ipv4Addr::LOCALHOST);
    (port != searched || ip != Ipv4Addr::LOCALHOST).then(|| format!("{ip}:{port}"))
}

/// Name of the message server that a process runs, if it is not the default.
fn messages(process: &Process) -> Option<String> {
    if !process.command.iter().take(3).eq(["tahti", "msg", "serve"]) {
        return None;
    }
    let named = process.command.iter().skip_while(|word| *word != "--name").nth(1);
    named.or_else(|| process.env.get(MESSAGES)).cloned()
}
