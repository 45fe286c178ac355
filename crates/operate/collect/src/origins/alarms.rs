//! Alarms as a source: the initial state of each, then every change.

use crate::origin::{Item, Origin};
use alarm::Severity;
use alarm::wire::{Look, Reply, Row};
use alarmd::Client;
use base::Scalar;
use segment::rows::About;
use segment::{Datum, Sample};

pub(crate) struct Alarms {
    name: String,
    client: Option<Client>,
}

impl Alarms {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), client: None }
    }

    fn row(&self, row: &Row, at: i64, found: &mut Vec<Item>) {
        let path = row.path.trim_start_matches('/');
        // Paths start with the server's name, which is already in the prefix.
        let path = path.strip_prefix(&self.name).and_then(|path| path.strip_prefix('/')).unwrap_or(path);
        let alarm = &row.state.alarm;
        let state = Severity::ALL.iter().position(|one| *one == alarm.severity).unwrap_or(0) as u16;
        let (severity, status) = match alarm.severity.level() {
            0 => (0, base::Status::default()),
            level => (level.min(3), base::Status::State),
        };
        let sample = |datum: Datum| Sample { severity, status: status as u16, ..Sample::new(at, datum) };
        let labels = Severity::ALL.iter().map(|severity| severity.name().to_owned()).collect();
        found.push(Item::Sample {
            name: format!("{path}/state"),
            about: About { labels, ..About::default() },
            sample: sample(Datum::Number(Scalar::Enum(state))),
        });
        for (what, text) in [("message", &alarm.message), ("value", &alarm.value)] {
            found.push(Item::value(format!("{path}/{what}"), "", sample(Datum::from(text.as_str()))));
        }
    }
}

impl Origin for Alarms {
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String> {
        let lost = |error: std::io::Error| error.to_string();
        let (client, heard) = match self.client.take() {
            Some(mut client) => {
                let heard = client.hear().map_err(lost)?;
                (client, heard.ok_or("they closed the connection")?)
            }
            None => {
                let mut client = Client::find(&self.name).map_err(lost)?;
                let heard = client.look(&Look::Watch).map_err(lost)?;
                (client, heard)
            }
        };
        let at = crate::serve::wall();
        match heard {
            Reply::List(list) => list.rows.iter().for_each(|row| self.row(row, at, found)),
            Reply::Change(row) => self.row(&row, at, found),
            Reply::Refused(why) => return Err(why),
            Reply::Done { .. } => {}
        }
        self.client = Some(client);
        Ok(())
    }

    /// It waits for the next change of an alarm.
    fn goes_round(&self) -> bool {
        false
    }
}
