//! Forwards log lines to the system's journal: journald's socket or syslog's.

use host::plant::Also;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// journald's socket, which accepts `NAME=value` lines.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// syslog's socket.
const SYSLOG: &str = "/dev/log";

/// `daemon.info` as a syslog priority; journald gets only the level.
const PRIORITY: u8 = 30;
const LEVEL: u8 = 6;

/// Longer lines are sent in pieces.
pub(crate) const LINE_BYTES_MAX: usize = 2048;

/// Sends log lines of one process of a plant to the journal. Never blocks: a line that the journal does not accept is
/// lost and counted.
#[derive(Debug)]
pub(crate) struct Forward {
    also: Also,
    to: PathBuf,
    socket: Option<UnixDatagram>,
    plant: String,
    process: String,
    pub(crate) lost: u64,
}

impl Forward {
    /// For the output of `process` of `plant`.
    pub(crate) fn new(also: Also, plant: &str, process: &str) -> Self {
        let to = match also {
            Also::Journal => JOURNAL,
            Also::Syslog => SYSLOG,
        };
        Self::at(Path::new(to), also, plant, process)
    }

    fn at(to: &Path, also: Also, plant: &str, process: &str) -> Self {
        let open = || -> std::io::Result<UnixDatagram> {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let (plant, process) = (plant.to_owned(), process.to_owned());
        // Without a socket every line counts as lost.
        Self { also, to: to.to_owned(), socket: open().ok(), plant, process, lost: 0 }
    }

    /// Why no line can be sent at present, with the remedy.
    pub(crate) fn fault(&self) -> Option<String> {
        let reached = UnixDatagram::unbound().and_then(|socket| socket.connect(&self.to));
        let (name, start) = match self.also {
            Also::Journal => ("journal", "systemd-journald"),
            Also::Syslog => ("syslog", "a syslog daemon"),
        };
        let error = reached.err()?;
        let to = self.to.display();
        Some(format!("also = {name:?}: {to}: {error}; start {start}, or remove `also` from [records]"))
    }

    /// Sends a line without its line end.
    pub(crate) fn line(&mut self, text: &[u8]) {
        let mut message = Vec::with_capacity(text.len() + 128);
        match self.also {
            Also::Journal => {
                let Self { plant, process, .. } = self;
                let head = format!(
                    "PRIORITY={LEVEL}\nSYSLOG_IDENTIFIER=tahti-{plant}\nTAHTI_PLANT={plant}\nTAHTI_PROCESS={process}\nMESSAGE="
                );
                message.extend_from_slice(head.as_bytes());
            }
            // The receiver adds the time if the message has none.
            Also::Syslog => {
                message.extend_from_slice(format!("<{PRIORITY}>tahti-{}: {}: ", self.plant, self.process).as_bytes());
            }
        }
        // A line end would begin another field; a zero byte would end the message.
        message.extend(text.iter().map(|byte| if matches!(byte, b'\n' | 0) { b' ' } else { *byte }));
        if self.also == Also::Journal {
            message.push(b'\n');
        }
        let sent = self.socket.as_ref().is_some_and(|socket| socket.send_to(&message, &self.to).is_ok());
        self.lost += u64::from(!sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journald_and_syslog_get_lines_in_their_format_and_rejected_ones_are_counted() {
        let path = std::env::temp_dir().join(format!("tahti-forward-{}", std::process::id()));
        let journal = UnixDatagram::bind(&path).unwrap();
        let heard = || {
            let mut bytes = [0; 1000];
            let got = journal.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..got].to_vec()).unwrap()
        };
        let mut forward = Forward::at(&path, Also::Journal, "rf", "loop");
        forward.line(b"one\nPRIORITY=0");
        assert_eq!(
            heard(),
            "PRIORITY=6\nSYSLOG_IDENTIFIER=tahti-rf\nTAHTI_PLANT=rf\nTAHTI_PROCESS=loop\nMESSAGE=one PRIORITY=0\n"
        );
        let mut forward = Forward::at(&path, Also::Syslog, "rf", "loop");
        forward.line(b"two");
        assert_eq!((heard().as_str(), forward.lost, forward.fault()), ("<30>tahti-rf: loop: two", 0, None));
        std::fs::remove_file(&path).unwrap();
        forward.line(b"three");
        assert_eq!(forward.lost, 1);
        let (path, why) = (path.display(), "No such file or directory (os error 2)");
        let remedy = "start a syslog daemon, or remove `also` from [records]";
        assert_eq!(forward.fault(), Some(format!("also = \"syslog\": {path}: {why}; {remedy}")));
    }
}
