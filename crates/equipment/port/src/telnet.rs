//! Telnet with the COM port option (RFC 2217): a serial line behind a terminal server, and its settings.

use crate::address::{Parity, Serial};

const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;
const SB: u8 = 250;
const SE: u8 = 240;
/// Options that both ends use: binary transmission, no go-ahead, COM port.
const BINARY: u8 = 0;
const NO_GO_AHEAD: u8 = 3;
const COM_PORT: u8 = 44;
/// The server's confirmation of a setting has the setting's code plus this.
const CONFIRMED: u8 = 100;
/// Maximum length of a subnegotiation. The rest is skipped.
const SUB_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Data,
    Command,
    Option(u8),
    Sub,
    SubCommand,
}

/// The reason why a terminal server cannot serve the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the server has no COM port option (RFC 2217)")]
    NoOption,
    #[error("the server has set {name} to {found}; expected {expected} (RFC 2217)")]
    Setting { name: &'static str, found: u64, expected: u64 },
}

/// A decoder of one connection, and the negotiation of its settings.
#[derive(Debug, Default)]
pub(crate) struct Telnet {
    state: State,
    sub: Vec<u8>,
    /// Settings to be sent when the server accepts the COM port option.
    settings: Vec<(&'static str, u8, Vec<u8>)>,
    /// Settings that the server has not confirmed yet.
    unconfirmed: Vec<(&'static str, u8, Vec<u8>)>,
    refused: Option<Refused>,
}

impl Telnet {
    /// A connection to a line with these settings. Send `out` first.
    pub(crate) fn begin(line: &Serial, out: &mut Vec<u8>) -> Self {
        for option in [BINARY, NO_GO_AHEAD] {
            out.extend([IAC, WILL, option, IAC, DO, option]);
        }
        out.extend([IAC, WILL, COM_PORT]);
        let parity = match line.parity {
            Parity::None => 1,
            Parity::Odd => 2,
            Parity::Even => 3,
        };
        let flow = match (line.crtscts, line.ixon) {
            (true, _) => 3,
            (false, true) => 2,
            (false, false) => 1,
        };
        let settings = vec![
            ("baud", 1, line.baud.to_be_bytes().to_vec()),
            ("bits", 2, vec![line.bits]),
            ("parity", 3, vec![parity]),
            ("stop", 4, vec![line.stop]),
            ("flow control", 5, vec![flow]),
        ];
        Self { unconfirmed: settings.clone(), settings, ..Self::default() }
    }

    /// Whether all settings are in force, or why the server refuses one.
    pub(crate) fn is_set(&self) -> Result<bool, Refused> {
        self.refused.map_or(Ok(self.unconfirmed.is_empty()), Err)
    }

    /// Appends data in the form in which they are sent.
    pub(crate) fn encode(data: &[u8], out: &mut Vec<u8>) {
        for byte in data {
            out.push(*byte);
            if *byte == IAC {
                out.push(IAC);
            }
        }
    }

    /// Separates received bytes into data and answers to the server's commands.
    pub(crate) fn decode(&mut self, bytes: &[u8], data: &mut Vec<u8>, answers: &mut Vec<u8>) {
        for byte in bytes {
            self.state = match (self.state, *byte) {
                (State::Data, IAC) => State::Command,
                (State::Data, byte) => {
                    data.push(byte);
                    State::Data
                }
                (State::Command, IAC) => {
                    data.push(IAC);
                    State::Data
                }
                (State::Command, verb @ WILL..=DONT) => State::Option(verb),
                (State::Command, SB) => {
                    self.sub.clear();
                    State::Sub
                }
                (State::Command, _) => State::Data,
                (State::Option(verb), option) => {
                    self.option(verb, option, answers);
                    State::Data
                }
                (State::Sub, IAC) => State::SubCommand,
                (State::SubCommand, SE) => {
                    self.confirmed();
                    State::Data
                }
                (State::Sub | State::SubCommand, byte) => {
                    if self.sub.len() < SUB_MAX {
                        self.sub.push(byte);
                    }
                    State::Sub
                }
            };
        }
    }

    fn option(&mut self, verb: u8, option: u8, answers: &mut Vec<u8>) {
        match (verb, option) {
            (DO, COM_PORT) => {
                for (_, code, value) in std::mem::take(&mut self.settings) {
                    answers.extend([IAC, SB, COM_PORT, code]);
                    Self::encode(&value, answers);
                    answers.extend([IAC, SE]);
                }
            }
            (DONT, COM_PORT) => self.refused = Some(Refused::NoOption),
            // Offered and requested at the beginning.
            (DO | WILL, BINARY | NO_GO_AHEAD) => {}
            (DO, _) => answers.extend([IAC, WONT, option]),
            (WILL, _) => answers.extend([IAC, DONT, option]),
            _ => {}
        }
    }

    /// Takes the server's confirmation of a setting. Other notifications, such as modem lines, are ignored.
    fn confirmed(&mut self) {
        let [COM_PORT, code, value @ ..] = &self.sub[..] else { return };
        let is_it = |(_, own, _): &(&str, u8, Vec<u8>)| own + CONFIRMED == *code;
        let Some(place) = self.unconfirmed.iter().position(is_it) else { return };
        let (name, _, wanted) = self.unconfirmed.remove(place);
        if *value != wanted {
            let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            let (found, expected) = (number(value), number(&wanted));
            self.refused = Some(Refused::Setting { name, found, expected });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(telnet: &mut Telnet, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut data, mut answers) = (Vec::new(), Vec::new());
        bytes.chunks(1).for_each(|bytes| telnet.decode(bytes, &mut data, &mut answers));
        (data, answers)
    }

    #[test]
    fn settings_are_sent_when_the_server_accepts_the_option_and_are_in_force_when_it_has_confirmed_each() {
        let line = Serial { baud: 0x0001_ff00, parity: Parity::Even, ixon: true, ..Serial::new("") };
        let mut out = Vec::new();
        let mut telnet = Telnet::begin(&line, &mut out);
        assert!(out.ends_with(&[IAC, WILL, COM_PORT]));
        let (data, answers) = decoded(&mut telnet, &[b'a', IAC, DO, COM_PORT, b'b']);
        let expected = [
            &[IAC, SB, COM_PORT, 1, 0, 1, IAC, IAC, 0, IAC, SE][..],
            &[IAC, SB, COM_PORT, 2, 8, IAC, SE],
            &[IAC, SB, COM_PORT, 3, 3, IAC, SE],
            &[IAC, SB, COM_PORT, 4, 1, IAC, SE],
            &[IAC, SB, COM_PORT, 5, 2, IAC, SE],
        ];
        assert_eq!((&data[..], answers), (&b"ab"[..], expected.concat()));
        assert_eq!(decoded(&mut telnet, &[IAC, DO, COM_PORT]).1, b"", "once");
        let confirmed: Vec<u8> = expected.concat();
        let confirmed: Vec<u8> = confirmed
            .split_inclusive(|byte| *byte == SE)
            .flat_map(|sub| {
                let mut sub = sub.to_vec();
                sub[3] += CONFIRMED;
                sub
            })
            .collect();
        assert_eq!(telnet.is_set(), Ok(false));
        assert_eq!(decoded(&mut telnet, &confirmed), (Vec::new(), Vec::new()));
        assert_eq!(telnet.is_set(), Ok(true));
    }

    #[test]
    fn a_server_that_sets_something_else_or_lacks_the_option_is_refused_with_the_reason() {
        let mut other = Telnet::begin(&Serial::new(""), &mut Vec::new());
        decoded(&mut other, &[IAC, SB, COM_PORT, 101, 0, 0, 0x12, 0xc0, IAC, SE]);
        let refused = other.is_set().unwrap_err();
        assert_eq!(refused.to_string(), "the server has set baud to 4800; expected 9600 (RFC 2217)");
        let mut without = Telnet::begin(&Serial::new(""), &mut Vec::new());
        decoded(&mut without, &[IAC, DONT, COM_PORT]);
        assert_eq!(without.is_set(), Err(Refused::NoOption));
    }

    #[test]
    fn data_pass_unchanged_and_unknown_options_are_declined() {
        let mut telnet = Telnet::begin(&Serial::new(""), &mut Vec::new());
        let all: Vec<u8> = (0..=255).collect();
        let mut sent = Vec::new();
        Telnet::encode(&all, &mut sent);
        assert_eq!(sent.len(), 257);
        assert_eq!(decoded(&mut telnet, &sent), (all, Vec::new()));
        let (data, answers) = decoded(&mut telnet, &[IAC, DO, 31, IAC, WILL, 1, IAC, WONT, 1, IAC, 241, b'x']);
        assert_eq!((&data[..], &answers[..]), (&b"x"[..], &[IAC, WONT, 31, IAC, DONT, 1][..]));
        let endless: Vec<u8> = [IAC, SB, COM_PORT].into_iter().chain([107; 1_000]).collect();
        decoded(&mut telnet, &endless);
        assert_eq!(telnet.sub.len(), SUB_MAX);
    }
}
