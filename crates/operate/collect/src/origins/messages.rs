//! Messages as a source: the log of a message server.

use crate::origin::{Item, Origin};
use base::DurNs;
use broker::{Client, Sending};
use msg::{Band, Code, Verb};
use segment::Sample;
use segment::rows::Cause;
use sys::clock::mono_now;

/// Time for which events are batched.
const GATHER: DurNs = DurNs::from_ms(200);
/// Number of events per batch above which the queue may have overflowed; the server's counter is then checked.
const MANY: usize = 64;

pub(crate) struct Messages {
    server: String,
    /// The pattern being watched; also the signal's name.
    pattern: String,
    client: Option<Client>,
    /// Events that the server has dropped so far.
    unseen: u64,
}

/// The reason why a server's log cannot be watched.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    Client(#[from] broker::ClientError),
    #[error("{0}: {1}")]
    Refused(Code, String),
    #[error("the server describes itself as {0:?}")]
    NoCounter(String),
}

impl Messages {
    /// Parses `SERVER/VERBS/OBJECTS`.
    pub(crate) fn new(name: &str) -> Self {
        let (server, pattern) = name.split_once('/').unwrap_or((name, "*/*"));
        Self { server: server.to_owned(), pattern: pattern.to_owned(), client: None, unseen: 0 }
    }

    fn watch(&self) -> Result<(Client, u64), Lost> {
        let mut client = Client::connect(&self.server, "tahti-archive", Band::default())?;
        let unseen = unseen(&mut client)?;
        let answer = client.watch(&self.pattern, &Sending::default())?;
        if answer.code == Code::Ok { Ok((client, unseen)) } else { Err(Lost::Refused(answer.code, answer.text)) }
    }

    fn poll(&mut self, found: &mut Vec<Item>) -> Result<(), Lost> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let (client, unseen) = self.watch()?;
                self.unseen = unseen;
                client
            }
        };
        self.gather(&mut client, found)?;
        self.client = Some(client);
        Ok(())
    }

    fn gather(&mut self, client: &mut Client, found: &mut Vec<Item>) -> Result<(), Lost> {
        let (until, before) = (mono_now() + GATHER, found.len());
        loop {
            let left = until - mono_now();
            if left.0 <= 0 {
                break;
            }
            match client.next(left)? {
                Some(event) if event.event => {
                    found.push(Item::value(self.pattern.clone(), "", sample(&event.text)));
                }
                // An error reply that ends the watch.
                Some(other) if other.code != Code::Ok => return Err(Lost::Refused(other.code, other.text)),
                Some(_) | None => {}
            }
        }
        if found.len() - before >= MANY {
            let now = unseen(client)?;
            let lost = now.saturating_sub(self.unseen);
            if lost > 0 {
                found.push(Item::Gap { prefix: self.pattern.clone(), cause: Cause::Overflow, lost });
            }
            self.unseen = now;
        }
        Ok(())
    }
}

impl Origin for Messages {
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String> {
        self.poll(found).map_err(|error| error.to_string())
    }
}

/// Number of events the server dropped because a watcher's queue was full.
fn unseen(client: &mut Client) -> Result<u64, Lost> {
    let line = format!("{}/server", Verb::Describe);
    let answer = client.ask(&line, &Sending::default())?;
    let count = |word: &str| word.strip_prefix("unseen_events=")?.parse().ok();
    answer.text.split(' ').find_map(count).ok_or_else(|| Lost::NoCounter(answer.text.clone()))
}

/// Converts a log line to a sample, stamped on arrival; the line contains its own, slightly earlier time. A failed request gets
/// an alarm.
fn sample(line: &str) -> Sample {
    let is_good = line.rsplit_once(" -> ").is_none_or(|(_, reply)| reply.starts_with("OK/"));
    let (severity, status) = if is_good {
        (base::Severity::None, base::Status::default())
    } else {
        (base::Severity::Minor, base::Status::State)
    };
    Sample { severity: severity as u8, status: status as u16, ..Sample::new(crate::serve::wall(), line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_failed_is_a_sample_with_an_alarm() {
        let line = |reply: &str| format!("2026-11-22T06:19:12.565675Z a uid=0 pid=1 band=3 put/a/on -> {reply} 3.1us");
        assert_eq!(sample(&line("OK/")).severity, 0);
        let failed = sample(&line("NO_OBJECT/no manager has a"));
        assert_eq!((failed.severity, failed.datum), (1, line("NO_OBJECT/no manager has a").as_str().into()));
    }
}
