//! Configuration of PVAccess from EPICS' environment variables.

use base::DurNs;
use canet::config::{Complaint, ServerConfig, Variables, addresses_of_both, port_of};
use pva::search::Address;
use pva::server::Limits;
use pva::wire;
use std::net::Ipv4Addr;

/// The variables of PVAccess servers.
const SERVER: Variables = Variables {
    interfaces: "EPICS_PVAS_INTF_ADDR_LIST",
    has_v6: true,
    ports: &["EPICS_PVAS_SERVER_PORT", "EPICS_PVA_SERVER_PORT"],
    port: wire::SERVER_PORT,
    search_ports: (&["EPICS_PVAS_BROADCAST_PORT", "EPICS_PVA_BROADCAST_PORT"], wire::BROADCAST_PORT),
    beacon_ports: (&[], 0),
    beacons: "EPICS_PVAS_BEACON_ADDR_LIST",
    searched: "EPICS_PVA_ADDR_LIST",
    automatic: &["EPICS_PVAS_AUTO_BEACON_ADDR_LIST", "EPICS_PVA_AUTO_ADDR_LIST"],
    periods: &["EPICS_PVAS_BEACON_PERIOD"],
    ignored: "EPICS_PVAS_IGNORE_ADDR_LIST",
    local_group: Some(LOCAL_GROUP),
};

const LOCAL_GROUP: Ipv4Addr = {
    let [a, b, c, d] = wire::LOCAL_GROUP;
    Ipv4Addr::new(a, b, c, d)
};

/// Default of `EPICS_PVA_CONN_TMO` in seconds.
const TIMEOUT: f64 = 30.0;

/// The configuration of a server. Invalid values are reported and replaced by their defaults.
pub fn server(get: impl Fn(&str) -> Option<String>) -> (ServerConfig, Limits, Vec<Complaint>) {
    let (config, mut complaints) = ServerConfig::read(&SERVER, &get);
    let limits = Limits { quiet_max: quiet_max(&get, &mut complaints), ..Limits::default() };
    (config, limits, complaints)
}

/// The time after which a silent connection is closed: 4/3 of `EPICS_PVA_CONN_TMO`, as in other servers and clients.
pub fn quiet_max(get: impl Fn(&str) -> Option<String>, complaints: &mut Vec<Complaint>) -> DurNs {
    let name = "EPICS_PVA_CONN_TMO";
    let seconds = match get(name).filter(|text| !text.trim().is_empty()) {
        None => TIMEOUT,
        Some(text) => {
            text.trim().parse::<f64>().ok().filter(|seconds| (0.1..1e6).contains(seconds)).unwrap_or_else(|| {
                complaints.push(Complaint(format!("{name}={text}: expected seconds from 0.1 up, using {TIMEOUT}")));
                TIMEOUT
            })
        }
    };
    DurNs((seconds * 4.0 / 3.0 * 1e9) as i64)
}

/// The servers of `EPICS_PVA_NAME_SERVERS`, which are searched over TCP. Without a port, theirs is that of
/// `EPICS_PVA_SERVER_PORT`.
pub fn name_servers(get: impl Fn(&str) -> Option<String>, complaints: &mut Vec<Complaint>) -> Vec<Address> {
    let name = "EPICS_PVA_NAME_SERVERS";
    let Some(text) = get(name) else { return Vec::new() };
    let port = port_of(&get, &["EPICS_PVA_SERVER_PORT"], wire::SERVER_PORT, complaints);
    addresses_of_both(name, &text, port, complaints).into_iter().map(Address::from).collect()
}

/// Whether the variables of other servers disable PVAccess: `PVXS_QSRV_ENABLE=NO`, or `qsrv` or `qsrv2` in
/// `EPICS_IOC_IGNORE_SERVERS`.
pub fn is_disabled(get: impl Fn(&str) -> Option<String>) -> bool {
    let ignored = get("EPICS_IOC_IGNORE_SERVERS").unwrap_or_default();
    get("PVXS_QSRV_ENABLE").is_some_and(|text| text.trim().eq_ignore_ascii_case("no"))
        || ignored.split_whitespace().any(|server| matches!(server, "qsrv" | "qsrv2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| vars.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn without_variables_only_this_host_is_served() {
        let (config, limits, complaints) = server(of(&[]));
        assert_eq!((config.interfaces, config.port, config.search_port), (vec![Ipv4Addr::LOCALHOST], 5075, 5076));
        assert_eq!(config.local_group, Some(Ipv4Addr::new(224, 0, 0, 128)));
        assert_eq!(config.beacons, ["127.0.0.1:5076".parse().unwrap()]);
        assert_eq!((limits.quiet_max, complaints), (DurNs::from_secs(40), vec![]));
    }

    #[test]
    fn variables_of_the_server_override_the_general_ones() {
        let (config, limits, _) = server(of(&[
            ("EPICS_PVA_SERVER_PORT", "6000"),
            ("EPICS_PVAS_SERVER_PORT", "7000"),
            ("EPICS_PVA_BROADCAST_PORT", "7001"),
            ("EPICS_PVAS_INTF_ADDR_LIST", "0.0.0.0"),
            ("EPICS_PVA_ADDR_LIST", "10.0.0.255"),
            ("EPICS_PVA_AUTO_ADDR_LIST", "NO"),
            ("EPICS_PVA_CONN_TMO", "3"),
        ]));
        assert_eq!((config.port, config.search_port), (7000, 7001));
        assert_eq!(config.interfaces, [Ipv4Addr::UNSPECIFIED]);
        assert_eq!(config.beacons, ["10.0.0.255:7001".parse().unwrap()]);
        assert_eq!(limits.quiet_max, DurNs::from_secs(4));
    }

    #[test]
    fn a_server_listens_on_the_addresses_of_both_versions_of_ip() {
        for (list, v4, v6) in [
            ("::1", vec![], vec!["::1"]),
            ("127.0.0.1 [::1]", vec!["127.0.0.1"], vec!["::1"]),
            ("0.0.0.0 ::", vec!["0.0.0.0"], vec!["::"]),
        ] {
            let vars = |name: &str| (name == "EPICS_PVAS_INTF_ADDR_LIST").then(|| list.to_owned());
            let (config, _, complaints) = server(vars);
            let v4: Vec<Ipv4Addr> = v4.iter().map(|address| address.parse().unwrap()).collect();
            let v6: Vec<std::net::Ipv6Addr> = v6.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!((config.interfaces, config.interfaces_v6, complaints), (v4, v6, vec![]), "{list}");
        }
    }

    #[test]
    fn unusable_variables_are_reported_by_name() {
        let (_, limits, complaints) = server(of(&[("EPICS_PVAS_SERVER_PORT", "80"), ("EPICS_PVA_CONN_TMO", "soon")]));
        assert_eq!(limits.quiet_max, DurNs::from_secs(40));
        assert!(complaints[0].0.contains("EPICS_PVAS_SERVER_PORT=80"), "{complaints:?}");
        assert!(complaints[1].0.contains("EPICS_PVA_CONN_TMO=soon"), "{complaints:?}");
    }

    #[test]
    fn name_servers_have_the_port_of_servers() {
        let mut complaints = Vec::new();
        const LIST: &str = "10.0.0.1 10.0.0.2:7 ::1 [::1]:7 [fe80::1]";
        let vars = of(&[("EPICS_PVA_NAME_SERVERS", LIST), ("EPICS_PVA_SERVER_PORT", "6000")]);
        let found: Vec<String> = name_servers(vars, &mut complaints).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1:6000", "10.0.0.2:7", "[::1]:6000", "[::1]:7", "[fe80::1]:6000"]);
        assert_eq!(complaints, []);
        assert!(name_servers(of(&[]), &mut Vec::new()).is_empty());
    }

    #[test]
    fn the_variables_of_other_servers_disable_pvaccess() {
        assert!(!is_disabled(of(&[])) && !is_disabled(of(&[("PVXS_QSRV_ENABLE", "YES")])));
        assert!(is_disabled(of(&[("PVXS_QSRV_ENABLE", "no")])));
        assert!(is_disabled(of(&[("EPICS_IOC_IGNORE_SERVERS", "rsrv qsrv2")])));
    }
}
