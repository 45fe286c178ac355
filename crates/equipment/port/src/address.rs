//! Addresses of equipment.

use base::DurNs;
use std::fmt;
use std::str::FromStr;

/// An address of equipment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP server.
    Tcp(Tcp),
    /// A UDP device: each message is one datagram.
    Udp(Udp),
    /// A serial line.
    Serial(Serial),
    /// A serial line behind a terminal server that sets it by Telnet (RFC 2217).
    Com(Com),
}

/// A serial line behind a terminal server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Com {
    /// The terminal server.
    pub server: Tcp,
    /// Settings of the line. Its path is empty.
    pub line: Serial,
}

/// A UDP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The port of this machine; `None`: any.
    pub local: Option<u16>,
}

/// A TCP server, and the supervision of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The port of this machine; `None`: any.
    pub local: Option<u16>,
    /// Time without an answer of the host after which the connection is closed, also an idle one; `None`: never.
    pub dead_after: Option<DurNs>,
}

/// A serial line and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serial {
    /// The device file.
    pub path: String,
    /// Bits per second.
    pub baud: u32,
    /// Bits of a character, 5 to 8.
    pub bits: u8,
    /// Parity.
    pub parity: Parity,
    /// Stop bits, 1 or 2.
    pub stop: u8,
    /// Flow control by RTS and CTS.
    pub crtscts: bool,
    /// Flow control by XON and XOFF.
    pub ixon: bool,
}

/// The parity bit of a serial line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parity {
    /// None.
    #[default]
    None,
    /// Even.
    Even,
    /// Odd.
    Odd,
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    found: String,
}

/// An option that a port does not have, or not with this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOption {
    key: String,
    value: String,
    expected: &'static str,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "address \"{}\"; expected HOST:PORT or HOST:PORT:LOCALPORT of a TCP server, HOST:PORT UDP, HOST:PORT COM of a \
             terminal server, or a serial line such as /dev/ttyS0",
            self.found
        )
    }
}

impl std::error::Error for BadAddress {}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {}={}; expected {}", self.key, self.value, self.expected)
    }
}

impl std::error::Error for BadOption {}

/// The value that an option takes.
struct Expected(&'static str);

impl Tcp {
    /// A server whose connection is closed after 20 s without an answer of its host.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, local: None, dead_after: Some(DurNs::from_secs(20)) }
    }

    fn keepalive(&self) -> String {
        self.dead_after.map_or_else(|| "N".to_owned(), |time| time.to_string())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Expected> {
        if key != "keepalive" {
            return Err(Expected("keepalive, which is all that a TCP port has"));
        }
        self.dead_after = match (value, value.parse::<DurNs>()) {
            ("N" | "n" | "no" | "0", _) => None,
            (_, Ok(time)) if (DurNs::from_secs(2)..=DurNs::from_secs(3_600)).contains(&time) => Some(time),
            _ => return Err(Expected("2s to 1h, such as 20s, or N")),
        };
        Ok(())
    }
}

impl Serial {
    /// A line with 9600 bits per second, 8 bits, no parity, one stop bit.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), baud: 9600, bits: 8, parity: Parity::None, stop: 1, crtscts: false, ixon: false }
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    /// `HOST:PORT`, also `HOST:PORT:LOCALPORT` and `[IPV6]:PORT`, alone or before `TCP`, `UDP` or `COM`; or a path that begins
    /// with `/`.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress { found: text.to_owned() };
        let text = text.trim();
        if text.starts_with('/') {
            return Ok(Self::Serial(Serial::new(text)));
        }
        let mut words = text.split_whitespace();
        let (place, protocol) = (words.next().ok_or_else(bad)?, words.next());
        let is = |wanted: &str| protocol.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
        let (udp, com) = (is("udp"), is("com"));
        if protocol.is_some() && !udp && !com && !is("tcp") || words.next().is_some() {
            return Err(bad());
        }
        let number = |port: &str| port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(bad);
        // An IPv6 address in brackets has colons of its own; without brackets it has more than these two.
        let ports = place.rsplit_once(']').map_or(place, |(_, ports)| ports);
        let (place, local) = match place.rsplit_once(':') {
            Some((rest, local)) if ports.matches(':').count() == 2 => (rest, Some(number(local)?)),
            _ => (place, None),
        };
        let (host, port) = place.rsplit_once(':').ok_or_else(bad)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
        let port = number(port)?;
        if host.is_empty() {
            return Err(bad());
        }
        if udp {
            return Ok(Self::Udp(Udp { host, port, local }));
        }
        let server = Tcp { local, ..Tcp::new(&host, port) };
        Ok(if com { Self::Com(Com { server, line: Serial::new("") }) } else { Self::Tcp(server) })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(Tcp { host, port, local, .. }) => host_and_ports(f, host, *port, *local),
            Self::Udp(Udp { host, port, local }) => {
                host_and_ports(f, host, *port, *local)?;
                f.write_str(" UDP")
            }
            Self::Serial(serial) => f.write_str(&serial.path),
            Self::Com(com) => write!(f, "{} COM", Self::Tcp(com.server.clone())),
        }
    }
}

fn host_and_ports(f: &mut fmt::Formatter<'_>, host: &str, port: u16, local: Option<u16>) -> fmt::Result {
    match host.contains(':') {
        true => write!(f, "[{host}]:{port}")?,
        false => write!(f, "{host}:{port}")?,
    }
    local.map_or(Ok(()), |local| write!(f, ":{local}"))
}

impl Address {
    /// Sets an option. A serial line's have asyn's names: `baud`, `bits`, `parity`, `stop`, `clocal`, `crtscts`, `ixon`. A TCP connection has
    /// `keepalive`: the time without an answer after which its connection is closed.
    ///
    /// # Errors
    /// An option that this kind of port does not have, or an invalid value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadOption> {
        let set = match self {
            Self::Serial(line) => line.set(key, value),
            Self::Com(com) if key == "keepalive" => com.server.set(key, value),
            Self::Com(com) => com.line.set(key, value),
            Self::Tcp(tcp) => tcp.set(key, value),
            Self::Udp(..) => Err(Expected("no option: datagrams have no options")),
        };
        set.map_err(|Expected(expected)| BadOption { key: key.to_owned(), value: value.to_owned(), expected })
    }

    /// The value of an option, as [`set`](Self::set) takes it; `None` if this kind of port does not have it.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<String> {
        match self {
            Self::Serial(line) => line.option(key),
            Self::Com(com) if key == "keepalive" => Some(com.server.keepalive()),
            Self::Com(com) => com.line.option(key),
            Self::Tcp(tcp) => (key == "keepalive").then(|| tcp.keepalive()),
            Self::Udp(..) => None,
        }
    }
}

impl Serial {
    fn option(&self, key: &str) -> Option<String> {
        let yes = |on: bool| if on { "Y" } else { "N" }.to_owned();
        Some(match key {
            "baud" => self.baud.to_string(),
            "bits" => self.bits.to_string(),
            "stop" => self.stop.to_string(),
            "parity" => match self.parity {
                Parity::None => "none",
                Parity::Even => "even",
                Parity::Odd => "odd",
            }
            .to_owned(),
            "crtscts" => yes(self.crtscts),
            "ixon" => yes(self.ixon),
            "clocal" => yes(true),
            _ => return None,
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Expected> {
        let yes = match value {
            "Y" | "y" | "yes" | "1" => Some(true),
            "N" | "n" | "no" | "0" => Some(false),
            _ => None,
        };
        match (key, yes) {
            ("baud", _) => match value.parse().ok().filter(|baud| (50..=4_000_000).contains(baud)) {
                Some(baud) => self.baud = baud,
                None => return Err(Expected("50 to 4000000 bits per second")),
            },
            ("bits", _) => match value.parse().ok().filter(|bits| (5..=8).contains(bits)) {
                Some(bits) => self.bits = bits,
                None => return Err(Expected("5, 6, 7 or 8")),
            },
            ("stop", _) => match value.parse().ok().filter(|stop| (1..=2).contains(stop)) {
                Some(stop) => self.stop = stop,
                None => return Err(Expected("1 or 2")),
            },
            ("parity", _) => match value {
                "none" => self.parity = Parity::None,
                "even" => self.parity = Parity::Even,
                "odd" => self.parity = Parity::Odd,
                _ => return Err(Expected("none, even or odd")),
            },
            ("crtscts", Some(yes)) => self.crtscts = yes,
            ("ixon", Some(yes)) => self.ixon = yes,
            // Modem lines are never waited for.
            ("clocal", Some(true)) => {}
            ("clocal", _) => return Err(Expected("Y: modem lines are not waited for")),
            ("crtscts" | "ixon", None) => return Err(Expected("Y or N")),
            _ => return Err(Expected("baud, bits, parity, stop, clocal, crtscts or ixon")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_in_their_common_forms() {
        let tcp = |host: &str, port| Ok(Address::Tcp(Tcp::new(host, port)));
        assert_eq!("10.0.0.7:502".parse::<Address>(), tcp("10.0.0.7", 502));
        assert_eq!("plc1:502 TCP".parse::<Address>(), tcp("plc1", 502));
        assert_eq!("[::1]:502".parse::<Address>(), tcp("::1", 502));
        assert_eq!("[::1]:502".parse::<Address>().unwrap().to_string(), "[::1]:502");
        assert_eq!("/dev/ttyS0".parse::<Address>(), Ok(Address::Serial(Serial::new("/dev/ttyS0"))));
        let udp = |local| Address::Udp(Udp { host: "plc1".to_owned(), port: 502, local });
        assert_eq!("plc1:502 udp".parse::<Address>(), Ok(udp(None)));
        assert_eq!("plc1:502:5000 UDP".parse::<Address>(), Ok(udp(Some(5_000))));
        assert_eq!(udp(Some(5_000)).to_string(), "plc1:502:5000 UDP");
        let from = |host: &str, local| Ok(Address::Tcp(Tcp { local: Some(local), ..Tcp::new(host, 502) }));
        assert_eq!("10.0.0.7:502:5000".parse::<Address>(), from("10.0.0.7", 5_000));
        assert_eq!("[::1]:502:5000".parse::<Address>(), from("::1", 5_000));
        assert_eq!("[::1]:502:5000".parse::<Address>().unwrap().to_string(), "[::1]:502:5000");
        assert_eq!("::1:502".parse::<Address>(), tcp("::1", 502));
        assert_eq!("[::1]:502 UDP".parse::<Address>().unwrap().to_string(), "[::1]:502 UDP");
        let com = Address::Com(Com { server: Tcp::new("moxa", 4001), line: Serial::new("") });
        assert_eq!("moxa:4001 COM".parse::<Address>(), Ok(com.clone()));
        assert_eq!(com.to_string(), "moxa:4001 COM");
        for bad in
            ["", "plc1", "plc1:0", "plc1:x", ":502", "plc1:502:x", "plc1:502:0", "plc1:502 SCTP", "plc1:502 UDP 3"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn options_of_a_serial_line_have_asyns_names() {
        let mut line: Address = "/dev/ttyS0".parse().unwrap();
        for (key, value) in [("baud", "19200"), ("bits", "7"), ("parity", "even"), ("stop", "2"), ("crtscts", "Y")] {
            line.set(key, value).unwrap();
            assert_eq!(line.option(key).as_deref(), Some(value));
        }
        let expected =
            Serial { baud: 19_200, bits: 7, parity: Parity::Even, stop: 2, crtscts: true, ..Serial::new("/dev/ttyS0") };
        assert_eq!(line, Address::Serial(expected));
        assert_eq!(
            line.set("parity", "space").unwrap_err().to_string(),
            "option parity=space; expected none, even or odd"
        );
        assert!("h:1".parse::<Address>().unwrap().set("baud", "9600").is_err());
        assert_eq!(
            ["ixon", "clocal", "keepalive"].map(|key| line.option(key)),
            [Some("N".into()), Some("Y".into()), None]
        );
        let mut com: Address = "h:1 COM".parse().unwrap();
        com.set("baud", "19200").unwrap();
        com.set("keepalive", "5s").unwrap();
        assert_eq!(com.option("keepalive").as_deref(), Some("5s"));
        let server = Tcp { dead_after: Some(DurNs::from_secs(5)), ..Tcp::new("h", 1) };
        assert_eq!(com, Address::Com(Com { server, line: Serial { baud: 19_200, ..Serial::new("") } }));
    }

    #[test]
    fn a_tcp_port_is_closed_after_20s_without_an_answer_unless_an_option_changes_that() {
        let dead_after = |value: &str| -> Result<Option<i64>, BadOption> {
            let mut address: Address = "plc1:502".parse().unwrap();
            address.set("keepalive", value)?;
            match address {
                Address::Tcp(tcp) => Ok(tcp.dead_after.map(|time| time.0 / 1_000_000_000)),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(Tcp::new("plc1", 502).dead_after, Some(DurNs::from_secs(20)));
        assert_eq!(["5s", "1h", "N", "0"].map(dead_after), [Some(5), Some(3_600), None, None].map(Ok));
        for bad in ["1s", "2h", "5", "", "Y"] {
            let why = dead_after(bad).unwrap_err().to_string();
            assert_eq!(why, format!("option keepalive={bad}; expected 2s to 1h, such as 20s, or N"));
        }
    }
}
