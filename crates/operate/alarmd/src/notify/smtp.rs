//! Sends a mail by SMTP (RFC 5321), without login.

use super::clipped;
use super::connection::Stream;
use alarm::notify::Delivery;
use std::io;

/// Maximum bytes and lines of a reply.
const LINE_BYTES_MAX: usize = 1000;
const LINES_MAX: usize = 100;

/// A mail.
pub(super) struct Mail<'a> {
    /// Address of the sender.
    pub(super) from: &'a str,
    /// Addresses of the receivers.
    pub(super) to: &'a [String],
    /// Headers and body; no line begins with a dot.
    pub(super) text: &'a str,
}

/// Why a dialogue ended.
enum Fault {
    /// The connection.
    Lost(io::Error),
    /// A reply with another code than expected.
    Reply { command: String, code: u16, text: String },
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl Fault {
    /// Codes 5xx are final; the others may pass.
    fn into_delivery(self) -> Delivery {
        match self {
            Self::Lost(error) => Delivery::Failed(clipped(&format!("mail server: {error}")), None),
            Self::Reply { command, code, text } => {
                let why = clipped(&format!("mail server answers {code} {text} to {command}"));
                if code >= 500 { Delivery::Refused(why) } else { Delivery::Failed(why, None) }
            }
        }
    }
}

/// Sends a mail to all receivers that the server accepts. `here` is our address as a literal.
pub(super) fn send(stream: &mut dyn Stream, here: &str, mail: &Mail<'_>) -> Delivery {
    dialogue(stream, here, mail).unwrap_or_else(Fault::into_delivery)
}

fn dialogue(stream: &mut dyn Stream, here: &str, mail: &Mail<'_>) -> Result<Delivery, Fault> {
    let mut server = Server { stream, unread: Vec::new() };
    server.expect("the connection", 220)?;
    server.command(&format!("EHLO {here}"), 250)?;
    server.command(&format!("MAIL FROM:<{}>", mail.from), 250)?;
    let (mut refused, mut first) = (Vec::new(), None);
    for address in mail.to {
        match server.command(&format!("RCPT TO:<{address}>"), 250) {
            Ok(()) => {}
            Err(fault @ Fault::Lost(_)) => return Err(fault),
            // 251: the server forwards the mail.
            Err(Fault::Reply { code: 251 | 252, .. }) => {}
            Err(Fault::Reply { command, code, text }) => {
                refused.push(format!("{address}: {code} {text}"));
                first = first.or(Some(Fault::Reply { command, code, text }));
            }
        }
    }
    if let Some(fault) = first.filter(|_| refused.len() == mail.to.len()) {
        return Err(fault);
    }
    server.command("DATA", 354)?;
    server.stream.write_all(mail.text.as_bytes())?;
    server.command("\r\n.", 250)?;
    // The mail is accepted, whatever the answer.
    let _ = server.command("QUIT", 221);
    Ok(Delivery::Delivered((!refused.is_empty()).then(|| clipped(&refused.join(", ")))))
}

struct Server<'a> {
    stream: &'a mut dyn Stream,
    unread: Vec<u8>,
}

impl Server<'_> {
    fn command(&mut self, command: &str, expected: u16) -> Result<(), Fault> {
        self.stream.write_all(format!("{command}\r\n").as_bytes())?;
        self.stream.flush()?;
        self.expect(command, expected)
    }

    /// Reads a reply, of one or several lines.
    fn expect(&mut self, command: &str, expected: u16) -> Result<(), Fault> {
        for _ in 0..LINES_MAX {
            let line = self.line()?;
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok()).filter(|code| *code >= 200);
            let Some(code) = code else {
                return Err(invalid(&format!("{:?} is no reply of SMTP", clipped(&line))).into());
            };
            if line.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            let text = line.get(4..).unwrap_or_default().to_owned();
            let command = if command == "\r\n." { "the mail" } else { command }.to_owned();
            return if code == expected { Ok(()) } else { Err(Fault::Reply { command, code, text }) };
        }
        Err(invalid(&format!("a reply has more than {LINES_MAX} lines")).into())
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.unread.len() > LINE_BYTES_MAX {
                return Err(invalid(&format!("a line of a reply has more than {LINE_BYTES_MAX} bytes")));
            }
            let mut part = [0; 512];
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
                Ok(length) => self.unread.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
