//! Destinations that a guest may reach, as configured in the plant file.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A port in the guest's network and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether the rule is for datagrams; otherwise for connections.
    pub udp: bool,
    /// The port at the guest's gateway.
    pub port: u16,
    /// The destination.
    pub to: SocketAddr,
}

impl FromStr for Rule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "[udp:][PORT=]ADDRESS:PORT, such as 127.0.0.1:8765";
        let (udp, rest) = text.strip_prefix("udp:").map_or((false, text), |rest| (true, rest));
        let (port, to) = rest.split_once('=').map_or((None, rest), |(port, to)| (Some(port), to));
        let to: SocketAddr = to.parse().map_err(|_| FORM)?;
        let port = port.map_or(Ok(to.port()), str::parse).map_err(|_| FORM)?;
        if port == 0 || to.port() == 0 || (udp && port == 67) { Err(FORM) } else { Ok(Self { udp, port, to }) }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}={}", if self.udp { "udp:" } else { "" }, self.port, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_survives_a_round_trip_and_its_guest_port_may_differ() {
        for (text, shown) in [
            ("127.0.0.1:8765", "8765=127.0.0.1:8765"),
            ("80=127.0.0.1:8765", "80=127.0.0.1:8765"),
            ("udp:5064=[::1]:5064", "udp:5064=[::1]:5064"),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rule));
        }
        for wrong in
            ["", "dashboard", "1", "127.0.0.1", "0=127.0.0.1:1", "x=127.0.0.1:1", "127.0.0.1:0", "udp:67=127.0.0.1:1"]
        {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }
}
