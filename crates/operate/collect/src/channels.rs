//! Channel Access variables as a source: metadata, values, and connection state.

use crate::gate::Gate;
use crate::kept;
use crate::serve::{CollectError, wall};
use base::{EventMask, MonoNs, Stamp};
use ca::client::{Address, ChannelId, Event, IoId, RequestError};
use ca::encode::Reading;
use ca::server::Access;
use ca::{Basic, Class, Dbr, Eca};
use canet::session::Session;
use host::plant::archive::{Signal, Source};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use store::{Folder, Logger, SignalId, StoreError};
use sys::notify::Supervisor;

/// Receives messages for the log.
type Tell<'a> = &'a mut dyn FnMut(&str);

/// All Channel Access variables to archive.
pub(crate) struct Channels {
    session: Session,
    channels: Vec<Channel>,
    by_id: HashMap<ChannelId, usize>,
    /// Number of times that a second server had a variable.
    duplicates: u64,
}

/// A variable.
struct Channel {
    name: String,
    gate: Gate,
    /// Registered with the first value.
    signal: Option<SignalId>,
    /// Metadata received since the connection was made; taken by the first value.
    about: Option<About>,
    is_connected: bool,
    /// Subscriptions to values and to metadata. They end with the connection, because the variable may have another type after a
    /// reconnect.
    values: Option<IoId>,
    meaning: Option<IoId>,
    /// Wall clock time of the connection, until the first value arrives.
    connected_at: Option<i64>,
    /// The server is connected but refuses to send values.
    is_refused: bool,
}

impl Channels {
    /// Opens channels for all wanted variables; `None` if there are none. `get` reads EPICS' variables.
    pub(crate) fn open(
        wanted: &[Signal],
        get: impl Fn(&str) -> Option<String>,
        now: i64,
        tell: Tell<'_>,
    ) -> io::Result<Option<Self>> {
        let mut wanted = wanted.iter().filter(|wanted| wanted.source == Source::ChannelAccess).peekable();
        if wanted.peek().is_none() {
            return Ok(None);
        }
        let mut session = Session::open(get)?;
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
        Ok(Some(Self { session, channels, by_id, duplicates: 0 }))
    }

    /// Processes one network event, waiting for it at most until `until`. Returns true if a new signal was registered.
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

    /// Stores the values that are due for a scan. Returns the time of the next scan.
    pub(crate) fn scan(&mut self, now: i64, logger: &mut Logger<Folder>) -> Option<i64> {
        let due = |channel: &mut Channel| {
            // A variable that is not known yet has no value to store, but keeps its scan times.
            if let (Some(sample), Some(signal)) = (channel.gate.scan(now), channel.signal) {
                logger.push(signal, &sample);
            }
            channel.gate.due()
        };
        self.channels.iter_mut().filter_map(due).min()
    }

    /// Number of channels, and number of connected channels.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.channels.len(), self.channels.iter().filter(|channel| channel.is_connected).count())
    }

    /// The channels that are not connected or not readable, for users.
    pub(crate) fn unusable(&self) -> String {
        self.session.client.unusable(|_| Access::READ)
    }

    /// Whether all channels are registered as signals.
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
            // With the same port, it may be another address of the same server.
            Event::Duplicate { channel, used, other } if used.port != other.port => {
                self.duplicate(channel, [used, other], tell);
            }
            Event::Update { io, channel, result } => return self.update(io, channel, result, logger, tell),
            _ => {}
        }
        Ok(false)
    }

    /// Reports that two servers have a variable. Which one is used depends on chance, so the first report degrades the plant.
    fn duplicate(&mut self, id: ChannelId, servers: [Address; 2], tell: Tell<'_>) {
        let [used, other] = servers.map(|at| SocketAddrV4::new(Ipv4Addr::from(at.ip), at.port));
        let name = self.session.client.name(id);
        let text = format!("two servers have {name}: {used}, and {other}, which is not used");
        tell(&text);
        self.duplicates += 1;
        if self.duplicates == 1 && !Supervisor::from_env().shortfall(&text) {
            tell("the supervisor does not get the previous line");
        }
    }

    /// Requests the metadata first, then the values.
    fn connected(&mut self, id: ChannelId, tell: Tell<'_>) {
        let Some(channel) = self.by_id.get(&id).map(|index| &mut self.channels[*index]) else { return };
        let Some(info) = self.session.client.info(id) else { return };
        channel.is_connected = true;
        channel.connected_at = Some(wall());
        if self.session.client.read(id, meaning_of(info.native), 1) == Err(RequestError::NoAccess) {
            // The server answers the subscription with its reason, and with values and metadata once it grants access.
            self.known(id, None);
        }
        let (count, connected) = self.count();
        if connected == count {
            tell(&format!("all {connected} variables are connected"));
        }
    }

    /// Handles the metadata. If the server sent none, the previous metadata remain valid. Then subscribes to the values.
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
        // Without a signal there were no values, so there is no gap to record.
        if let Some(signal) = channel.signal {
            kept::gap(&mut channel.gate, signal, (wall(), Cause::Disconnected, 0), logger);
        }
        tell(&format!("{} is disconnected", channel.name));
    }

    /// Handles a value or new metadata. Returns true if a new signal was registered.
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
        // A record that was never processed has no time stamp. Its value was valid before the next one, whose stamp may precede
        // the arrival of this one: use the time of connection.
        let info = self.session.client.info(id);
        let connected_at = channel.connected_at.take().unwrap_or_else(wall);
        let sample = result.map(|(_, reading)| sample(reading, connected_at, info.is_some_and(|info| info.count == 1)));
        // The metadata also hold for the first value, whose stamp may precede the request.
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
            // The disconnection has its own event; the server did not refuse anything.
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

/// Request type for the metadata of a native type.
fn meaning_of(native: Basic) -> Dbr {
    Dbr::new(if native == Basic::String { Class::Sts } else { Class::Ctrl }, native)
}

/// Metadata of a reading.
fn about(reading: &Reading) -> About {
    let meta = &reading.meta;
    let labels = meta.labels.iter().map(|label| label.readable().into_owned()).collect();
    // Only floating-point values have a precision; 0 is a valid precision.
    let has_point = matches!(reading.value.get(0), Some(base::Scalar::F32(_) | base::Scalar::F64(_)));
    let precision = u16::try_from(meta.precision).ok().filter(|_| has_point);
    About { units: meta.units.readable().into_owned(), precision, labels }
}

/// Converts a reading to a sample. A reading without a time stamp gets `unstamped_at`.
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
#[path = "channels_tests.rs"]
mod tests;
