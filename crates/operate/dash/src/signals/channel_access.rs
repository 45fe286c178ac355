//! Signals over Channel Access.

use super::{
    Callback, Command, LOOK_EVERY, Once, Orders, Outcome, PATIENCE, Sample, Series, about, cut, description, unix_ns,
};
use base::{Array, EventMask, MonoNs, Scalar, Str40, Value};
use ca::client::{ChannelId, Event, IoId};
use ca::encode::Reading;
use ca::{Basic, Class, Dbr};
use canet::Waker;
use canet::session::Session;
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use sys::clock::mono_now;
use sys::rounds::Rounds;

/// A channel with its users.
struct Channel {
    name: String,
    series: Option<Arc<Series>>,
    is_subscribed: bool,
    once: Vec<Waiting>,
}

struct Waiting {
    what: Once,
    until: MonoNs,
    /// The pending request to the server.
    io: Option<IoId>,
    done: Callback,
}

pub(super) struct Thread {
    session: Session,
    orders: Orders,
    channels: HashMap<ChannelId, Channel>,
    names: HashMap<String, ChannelId>,
}

impl Thread {
    pub(super) fn new(bell: Waker, orders: Orders) -> io::Result<Self> {
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        session.listen_to(bell);
        Ok(Self { session, orders, channels: HashMap::new(), names: HashMap::new() })
    }

    pub(super) fn run(&mut self, rounds: &Rounds) {
        loop {
            rounds.count();
            while let Some(command) = self.orders.next() {
                self.command(command);
            }
            match self.session.step(mono_now() + LOOK_EVERY) {
                Ok(Some(event)) => self.event(event),
                Ok(None) => self.give_up(),
                Err(error) => {
                    eprintln!("tahti dash: signals have stopped: Channel Access: {error}");
                    return;
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Watch(name, series) => {
                let id = self.channel(&name);
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.series = Some(series);
                }
                self.connected(id);
            }
            Command::Leave(name) => {
                let Some(id) = self.names.get(&name).copied() else { return };
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.series = None;
                }
                self.tidy(id);
            }
            Command::Once(name, what, done) => {
                let id = self.channel(&name);
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.once.push(Waiting { what, until: mono_now() + PATIENCE, io: None, done });
                }
                self.connected(id);
            }
        }
    }

    fn channel(&mut self, name: &str) -> ChannelId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.session.client.channel(Session::now(), name, 0);
        let channel = Channel { name: name.to_owned(), series: None, is_subscribed: false, once: Vec::new() };
        self.channels.insert(id, channel);
        self.names.insert(name.to_owned(), id);
        id
    }

    /// Closes a channel without users.
    fn tidy(&mut self, id: ChannelId) {
        if self.channels.get(&id).is_some_and(|channel| channel.series.is_none() && channel.once.is_empty())
            && let Some(channel) = self.channels.remove(&id)
        {
            self.names.remove(&channel.name);
            self.session.client.clear(id);
        }
    }

    /// Sends the pending requests of a connected channel.
    fn connected(&mut self, id: ChannelId) {
        let Some(info) = self.session.client.info(id) else { return };
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let class = |class| if info.native == Basic::String { Class::Sts } else { class };
        if let Some(series) = channel.series.as_ref().filter(|_| !channel.is_subscribed) {
            series.change(|inner| inner.is_connected = true);
            channel.is_subscribed = true;
            // Metadata first. Fails only if the channel is gone again, which has its own event.
            let _ = self.session.client.read(id, Dbr::new(class(Class::Ctrl), info.native), 1);
            let mask = EventMask(EventMask::VALUE.0 | EventMask::ALARM.0);
            self.session.client.subscribe(id, Dbr::new(Class::Time, info.native), info.count.min(16), mask);
        }
        for waiting in channel.once.iter_mut().filter(|waiting| waiting.io.is_none()) {
            let sent = match &waiting.what {
                Once::Describe => self.session.client.read(id, Dbr::new(class(Class::Ctrl), info.native), 1).map(Some),
                Once::Put(text) => {
                    let value = Value::Scalar(Scalar::String(Str40::new(text.as_bytes())));
                    self.session.client.write(id, &value, true)
                }
            };
            match sent {
                Ok(io) => waiting.io = io,
                // Ends by timeout, unless the channel reconnects.
                Err(_) => continue,
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.is_subscribed = false;
                }
                self.connected(id);
            }
            Event::Disconnected(id) => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                channel.once.iter_mut().for_each(|waiting| waiting.io = None);
                if let Some(series) = &channel.series {
                    series.change(|inner| inner.is_connected = false);
                }
            }
            Event::Read { io, channel, result } => {
                let described = result.map(|(_, reading)| reading);
                let series = self.channels.get(&channel).and_then(|channel| channel.series.as_ref());
                if let (Some(series), Ok(reading)) = (series, &described) {
                    let about = about(&reading.meta);
                    series.change(|inner| inner.about = about);
                }
                let server = self.session.client.info(channel);
                self.ended(channel, io, || match described {
                    Ok(reading) => Ok(described_as(&reading, server)),
                    Err(status) => Err(format!("its server answers {status}")),
                });
            }
            Event::Written { io, channel, result } => {
                self.ended(channel, io, || {
                    result.map(|()| json!({})).map_err(|status| format!("its server refuses: {status}"))
                });
            }
            Event::Update { channel, result: Ok((_, reading)), .. } => {
                if let Some(series) = self.channels.get(&channel).and_then(|channel| channel.series.as_ref()) {
                    update(series, &reading);
                }
            }
            _ => {}
        }
    }

    /// Completes a single operation.
    fn ended(&mut self, id: ChannelId, io: IoId, outcome: impl FnOnce() -> Outcome) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Some(at) = channel.once.iter().position(|waiting| waiting.io == Some(io)) {
            (channel.once.remove(at).done)(outcome());
            self.tidy(id);
        }
    }

    /// Ends operations whose timeout has expired.
    fn give_up(&mut self) {
        let now = mono_now();
        let mut ids = Vec::new();
        for (id, channel) in &mut self.channels {
            let (late, rest): (Vec<_>, _) =
                std::mem::take(&mut channel.once).into_iter().partition(|waiting: &Waiting| waiting.until < now);
            channel.once = rest;
            for waiting in late {
                let why = if waiting.io.is_some() { "its server does not answer" } else { "no server has it" };
                (waiting.done)(Err(format!("{why} (within {PATIENCE}); EPICS_CA_ADDR_LIST says where it is searched")));
                ids.push(*id);
            }
        }
        ids.into_iter().for_each(|id| self.tidy(id));
    }
}

fn update(series: &Series, reading: &Reading) {
    let severity = reading.alarm.severity as u8;
    let number = match &reading.value {
        Value::Scalar(scalar) => scalar.to_f64(),
        Value::Array(_) => None,
    };
    match number {
        Some(value) => series.push(Sample { at_ns: unix_ns(reading.stamp), value, severity }),
        None => {
            let text = text(&reading.value);
            series.change(|inner| (inner.text, inner.severity) = (Some(text), severity));
        }
    }
}

/// Text of a non-numeric value, truncated.
fn text(value: &Value) -> String {
    let one = |scalar: Scalar| match scalar {
        Scalar::String(text) => text.to_string(),
        number => number.to_f64().map_or_else(String::new, |number| number.to_string()),
    };
    cut(match value {
        Value::Scalar(scalar) => one(*scalar),
        Value::Array(Array::I8(_) | Array::U8(_)) => {
            let bytes = (0..value.len()).filter_map(|at| value.get(at)?.to_f64()).map(|byte| byte as u8 as char);
            bytes.take_while(|letter| *letter != '\0').collect()
        }
        Value::Array(_) => {
            let elements: Vec<String> = (0..value.len()).filter_map(|at| value.get(at)).map(one).collect();
            format!("[{}]", elements.join(", "))
        }
    })
}

fn described_as(reading: &Reading, info: Option<ca::client::ChannelInfo>) -> serde_json::Value {
    let server = info.map(|info| format!("{}:{}", std::net::Ipv4Addr::from(info.server.ip), info.server.port));
    let ty = info.map(|info| format!("{:?}", info.native).to_lowercase());
    description(ty, info.map(|info| info.count as usize), &reading.meta, info.map(|info| info.access.write), server)
}

#[cfg(test)]
mod tests {
    use super::super::TEXT_MAX;
    use super::*;

    #[test]
    fn texts_and_arrays_are_shown_truncated() {
        let array = |array| text(&Value::Array(array));
        assert_eq!(array(Array::F64(vec![1.5, 2.0])), "[1.5, 2]");
        assert_eq!(array(Array::U8(b"beam\0on".to_vec())), "beam");
        assert_eq!(text(&Value::Scalar(Scalar::String("idle".into()))), "idle");
        assert_eq!(array(Array::U8(vec![b'x'; 1000])).chars().count(), TEXT_MAX + 1);
    }
}
