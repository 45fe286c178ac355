//! From Channel Access servers to the archive: what variables are, their values, and that they are away.

use crate::gate::Gate;
use crate::kept;
use crate::serve::{CollectError, wall};
use base::{EventMask, MonoNs, Stamp};
use ca::client::{ChannelId, Event, IoId};
use ca::encode::Reading;
use ca::{Basic, Class, Dbr, Eca};
use canet::session::Session;
use host::plant::archive::{Signal, Source};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::HashMap;
use std::io;
use store::{Folder, Logger, SignalId, StoreError};

/// What is told of while variables are read.
type Tell<'a> = &'a mut dyn FnMut(&str);

/// All variables of Channel Access servers.
pub(crate) struct Channels {
    session: Session,
    channels: Vec<Channel>,
    by_id: HashMap<ChannelId, usize>,
}

/// A variable.
struct Channel {
    name: String,
    gate: Gate,
    /// Known with its first value.
    signal: Option<SignalId>,
    /// What its values mean since it was connected, until one has come.
    about: Option<About>,
    is_connected: bool,
    /// To its values, and to what they mean. They end with the connection: behind the next one the variable may have another type.
    values: Option<IoId>,
    meaning: Option<IoId>,
    /// When it was connected, until a value has come.
    connected_at: Option<i64>,
    /// Whether its server gives no values though it is connected.
    is_refused: bool,
}

impl Channels {
    /// Asks for all of them; `None` where there are none.
    pub(crate) fn open(wanted: &[Signal], now: i64, tell: Tell<'_>) -> io::Result<Option<Self>> {
        let mut wanted = wanted.iter().filter(|wanted| wanted.source == Source::ChannelAccess).peekable();
        if wanted.peek().is_none() {
            return Ok(None);
        }
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        session.complaints.iter().for_each(|complaint| tell(&complaint.0));
        let (mut channels, mut by_id) = (Vec::new(), HashMap::new());
        for wanted in wanted {
            by_id.insert(session.client.channel(Session::now(), &wanted.name, 0), channels.len());
            channels.push(Channel {
                name: wanted.name.clone(),
                gate: Gate::new(wanted.policy, now),
                signal: None,
                about: None,
                is_connected: false,
                values: None,
                meaning: None,
                connected_at: None,
                is_refused: false,
            });
        }
        Ok(Some(Self { session, channels, by_id }))
    }

    /// Waits for what comes next, until an instant at most; whether it told what a variable is.
    pub(crate) fn step(
        &mut self,
        until: MonoNs,
        logger: &mut Logger<Folder>,
        tell: Tell<'_>,
    ) -> Result<bool, CollectError> {
        match self.session.step(until).map_err(CollectError::Network)? {
            Some(event) => Ok(self.event(event, logger, tell)?),
            None => Ok(false),
        }
    }

    /// Keeps the values that wait for a scan; when the next one is due.
    pub(crate) fn scan(&mut self, now: i64, logger: &mut Logger<Folder>) -> Option<i64> {
        let due = |channel: &mut Channel| {
            // One that is not known yet has nothing, and is due again all the same.
            if let (Some(sample), Some(signal)) = (channel.gate.scan(now), channel.signal) {
                logger.push(signal, &sample);
            }
            channel.gate.due()
        };
        self.channels.iter_mut().filter_map(due).min()
    }

    /// How many there are, and how many of them are connected.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.channels.len(), self.channels.iter().filter(|channel| channel.is_connected).count())
    }

    /// Whether of all of them it is known what they are.
    pub(crate) fn are_known(&self) -> bool {
        self.channels.iter().all(|channel| channel.signal.is_some())
    }

    fn event(&mut self, event: Event, logger: &mut Logger<Folder>, tell: Tell<'_>) -> Result<bool, StoreError> {
        match event {
            Event::Connected(id) => self.connected(id, tell),
            Event::Disconnected(id) => self.disconnected(id, logger, tell),
            Event::Read { channel, result, .. } => {
                self.known(channel, result.ok().map(|(_, reading)| about(&reading)));
            }
            Event::Update { io, channel, result } => return self.update(io, channel, result, logger, tell),
            _ => {}
        }
        Ok(false)
    }

    /// First it is asked what the variable is, then for its values.
    fn connected(&mut self, id: ChannelId, tell: Tell<'_>) {
        let Some(channel) = self.by_id.get(&id).map(|index| &mut self.channels[*index]) else { return };
        let Some(info) = self.session.client.info(id) else { return };
        channel.is_connected = true;
        channel.connected_at = Some(wall());
        // Refused only where the channel is gone again, which is an event of its own.
        let _ = self.session.client.read(id, meaning_of(info.native), 1);
        let (count, connected) = self.count();
        if connected == count {
            tell(&format!("all {connected} variables are connected"));
        }
    }

    /// What a variable is; where its server does not say, what it was holds on. Now its values are asked for.
    fn known(&mut self, id: ChannelId, about: Option<About>) {
        let Some(channel) = self.by_id.get(&id).map(|index| &mut self.channels[*index]) else { return };
        channel.about = about.or_else(|| channel.signal.is_none().then(About::default));
        let client = &mut self.session.client;
        if let (None, Some(info)) = (channel.values, client.info(id)) {
            let mask = EventMask(EventMask::LOG.0 | EventMask::ALARM.0);
            channel.values = Some(client.subscribe(id, Dbr::new(Class::Time, info.native), 0, mask));
            if info.native != Basic::String {
                channel.meaning = Some(client.subscribe(id, meaning_of(info.native), 1, EventMask::PROPERTY));
            }
        }
    }

    fn disconnected(&mut self, id: ChannelId, logger: &mut Logger<Folder>, tell: Tell<'_>) {
        let Some(channel) = self.by_id.get(&id).map(|index| &mut self.channels[*index]) else { return };
        channel.is_connected = false;
        channel.is_refused = false;
        let ends = [channel.values.take(), channel.meaning.take()];
        ends.into_iter().flatten().for_each(|io| self.session.client.unsubscribe(io));
        // Before it is known it has no values, and its gate nothing to forget.
        if let Some(signal) = channel.signal {
            kept::gap(&mut channel.gate, signal, (wall(), Cause::Disconnected, 0), logger);
        }
        tell(&format!("{} is disconnected", channel.name));
    }

    /// Whether it told what the variable is.
    fn update(
        &mut self,
        io: IoId,
        id: ChannelId,
        result: Result<(Dbr, Reading), Eca>,
        logger: &mut Logger<Folder>,
        tell: Tell<'_>,
    ) -> Result<bool, StoreError> {
        let Some(channel) = self.by_id.get(&id).map(|index| &mut self.channels[*index]) else { return Ok(false) };
        if channel.meaning == Some(io) {
            if let (Ok((_, reading)), Some(_), None) = (result, channel.signal, &channel.about) {
                logger.signal(&channel.name, about(&reading), wall())?;
            }
            return Ok(false);
        }
        // A record that was never processed has no stamp. Its first value was there before the next one got its stamp, which may be earlier
        // than the moment at which this one arrives.
        let info = self.session.client.info(id);
        let connected_at = channel.connected_at.take().unwrap_or_else(wall);
        let sample = result.map(|(_, reading)| sample(reading, connected_at, info.is_some_and(|info| info.count == 1)));
        // What values mean holds for the first one, too, whose stamp may be from before it was asked.
        let is_new = channel.signal.is_none();
        if let Some(about) = channel.about.take() {
            let since = sample.as_ref().map_or(connected_at, |sample| sample.at.min(connected_at));
            channel.signal = Some(logger.signal(&channel.name, about, since)?);
        }
        let Some(signal) = channel.signal else { return Ok(false) };
        match sample {
            Ok(sample) => {
                channel.is_refused = false;
                kept::update(&mut channel.gate, signal, sample, logger);
            }
            // Another event tells of that; the server has refused nothing.
            Err(Eca::DISCONN) => {}
            Err(why) => {
                if !std::mem::replace(&mut channel.is_refused, true) {
                    kept::gap(&mut channel.gate, signal, (wall(), Cause::Refused, 0), logger);
                    let name = &channel.name;
                    tell(&format!("{name}: its server sends no value: {why}; check the server's access rules"));
                }
            }
        }
        Ok(is_new)
    }
}

/// As what it is asked what values of a type mean.
fn meaning_of(native: Basic) -> Dbr {
    Dbr::new(if native == Basic::String { Class::Sts } else { Class::Ctrl }, native)
}

/// What a variable's values mean.
fn about(reading: &Reading) -> About {
    let meta = &reading.meta;
    let labels = meta.labels.iter().map(|label| label.readable().into_owned()).collect();
    // Only numbers with a point have one, and 0 is one of them.
    let has_point = matches!(reading.value.get(0), Some(base::Scalar::F32(_) | base::Scalar::F64(_)));
    let precision = u16::try_from(meta.precision).ok().filter(|_| has_point);
    About { units: meta.units.readable().into_owned(), precision, labels }
}

/// A sample of a reading; one without a stamp gets `unstamped_at`.
fn sample(reading: Reading, unstamped_at: i64, is_one: bool) -> Sample {
    let at = if reading.stamp == Stamp::EPOCH {
        unstamped_at
    } else {
        let (secs, nanos) = reading.stamp.to_unix();
        (secs as i64).saturating_mul(1_000_000_000).saturating_add(nanos.into())
    };
    let datum = match (Datum::from(reading.value), is_one) {
        (Datum::Array(array), true) => match array.get(0) {
            Some(scalar) => Datum::from(base::Value::Scalar(scalar)),
            None => Datum::Array(array),
        },
        (datum, _) => datum,
    };
    let (severity, status) = (reading.alarm.severity as u8, reading.alarm.status as u16);
    Sample { at, datum, severity, status, pulse: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Scalar, Value};

    #[test]
    fn a_precision_of_0_is_a_precision_and_whole_numbers_have_none() {
        let of = |scalar: Scalar, digits: i16| {
            let mut reading = Reading { value: Value::Scalar(scalar), ..Reading::default() };
            reading.meta.precision = digits;
            about(&reading).precision
        };
        assert_eq!(
            [of(Scalar::F64(1.0), 0), of(Scalar::F32(1.0), 3), of(Scalar::F64(1.0), -1)],
            [Some(0), Some(3), None]
        );
        assert_eq!(of(Scalar::I32(1), 0), None);
    }
}
