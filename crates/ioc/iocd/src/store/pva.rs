//! The database, as accessed by PVAccess. Opening, reading and writing take the path of Channel Access.

use super::{Store, groups};
use base::{Array, FieldType, Scalar, Value};
use ca::encode::{Needs, Reading};
use ca::server::{Backend, Peer, PutOutcome, Token, Write};
use db::{Channel, Db, FieldInfo, Processing};
use pva::codec::Kind;
use pva::nt::{Hints, Shape, View, Written, short_text};
use pva::server::{self, Access, Get, Opened, Options, Put, Source, StructureGet};
use std::sync::Arc;

/// Tokens with this bit belong to PVAccess. Those of Channel Access are below it; those with a higher bit belong to links.
const TOKENS: u64 = 1 << 62;
const _: () = assert!(Token::END <= TOKENS);

/// Minimum size in bytes of a text field whose value does not fit into EPICS' short text.
const LONG_TEXT: u16 = 42;

/// The token of a PVAccess request among those of the engine.
const fn token_of(token: server::Token) -> Token {
    Token(token.0 | TOKENS)
}

/// The PVAccess request of a token; `None` if it belongs to another protocol.
#[must_use]
pub(crate) const fn request_of(token: Token) -> Option<server::Token> {
    if token.0 >> 61 == 2 { Some(server::Token(token.0 & !TOKENS)) } else { None }
}

/// A reading as PVAccess sends it.
#[must_use]
pub(crate) const fn view(reading: &Reading) -> View<'_> {
    View {
        value: &reading.value,
        alarm: reading.alarm,
        stamp: reading.stamp,
        note: reading.note,
        hints: Hints::NONE,
        meta: &reading.meta,
        description: reading.description,
    }
}

/// The result of a write for the client.
#[must_use]
pub(crate) fn put(outcome: PutOutcome) -> Put {
    match outcome {
        PutOutcome::Done => Put::Done,
        PutOutcome::Later => Put::Later,
        PutOutcome::Sent => Put::Sent,
        PutOutcome::Failed => Put::Failed(
            "the record refused the write: the value does not fit the field, DISP is set, or processing failed".into(),
        ),
    }
}

/// A client as access security sees it. Host names that clients send are not trusted: rules apply to the address.
fn peer_of(peer: server::Peer<'_>) -> Peer<'_> {
    let host = peer.address.rsplit_once(':').map_or(peer.address, |(host, _)| host).trim_matches(['[', ']']);
    Peer { user: peer.user, host, address: peer.address }
}

const fn access(access: ca::server::Access) -> Access {
    Access { read: access.read, write: access.write }
}

/// The channel of a name. Long texts and links are read as characters, because a short text would cut them.
pub(super) fn channel_of(db: &Db, name: &[u8]) -> Option<Channel> {
    let mut channel = db.find(super::text(name)?).ok()?;
    let info = db.info(&channel);
    let long = info.kind == FieldType::Link || (info.kind == FieldType::String && info.text_size >= LONG_TEXT);
    channel.long_string |= long && !info.array && !channel.type_name;
    Some(channel)
}

/// The reason why PVAccess cannot serve a name as a field.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoShape {
    #[error(transparent)]
    NotFound(#[from] db::FindError),
    #[error("the field has no value")]
    NoValue,
}

/// The shape of the field that a name selects.
///
/// # Errors
/// It is no field with a value.
pub(super) fn shape_of(db: &Db, name: &str) -> Result<Shape, NoShape> {
    db.find(name)?;
    let channel = channel_of(db, name.as_bytes()).filter(|channel| db.has_value(channel));
    let channel = channel.ok_or(NoShape::NoValue)?;
    Ok(shape(db, &channel, &db.info(&channel)))
}

/// The shape of a field.
fn shape(db: &Db, channel: &Channel, info: &FieldInfo) -> Shape {
    if channel.long_string {
        return Shape::Scalar(Kind::Text);
    }
    let many = info.array && info.elements_max > 1;
    let kind = match info.kind {
        FieldType::String | FieldType::Link => Kind::Text,
        FieldType::I8 | FieldType::U8 if many && is_text(db, channel) => return Shape::Scalar(Kind::Text),
        FieldType::I8 => Kind::I8,
        FieldType::U8 => Kind::U8,
        FieldType::I16 => Kind::I16,
        FieldType::U16 => Kind::U16,
        FieldType::I32 => Kind::I32,
        FieldType::U32 => Kind::U32,
        FieldType::I64 => Kind::I64,
        FieldType::U64 => Kind::U64,
        FieldType::F32 => Kind::F32,
        FieldType::F64 => Kind::F64,
        FieldType::Enum | FieldType::Menu | FieldType::Device if !many => return Shape::Enum,
        FieldType::Enum | FieldType::Menu | FieldType::Device => Kind::U16,
    };
    if many { Shape::Array(kind) } else { Shape::Scalar(kind) }
}

/// The `info` tags of a record for a field.
pub(super) fn hints(db: &Db, channel: &Channel) -> Hints {
    let is_value = db.channel_name(channel) == db.name_of(channel.record);
    let mut hints = Hints::NONE;
    for (name, text) in db.info_tags(channel.record) {
        match name.as_str() {
            "Q:time:tag" => hints.tag_bits = Hints::tag_bits(text).unwrap_or(0),
            "Q:form" if is_value => hints.form = Hints::form(text).unwrap_or(0),
            _ => {}
        }
    }
    hints
}

/// Faults of the `info` tags for PVAccess.
pub(crate) fn wrong_tags(db: &Db, record: db::RecId) -> Vec<String> {
    let tags = db.info_tags(record).iter().filter_map(|(name, text)| {
        let expected = match name.as_str() {
            "Q:time:tag" if Hints::tag_bits(text).is_none() => "\"nsec:lsb:N\" with N up to 31",
            "Q:form" if Hints::form(text).is_none() => {
                "Default, String, Binary, Decimal, Hex, Exponential or Engineering"
            }
            _ => return None,
        };
        Some(format!("record \"{}\", info({name}): found \"{text}\", expected {expected}", db.name_of(record)))
    });
    tags.collect()
}

/// Whether the characters of a record's value are a text, by `info(Q:form, "String")`.
fn is_text(db: &Db, channel: &Channel) -> bool {
    let is_value = db.channel_name(channel) == db.name_of(channel.record);
    is_value && db.info_tags(channel.record).iter().any(|(name, form)| name == "Q:form" && form == "String")
}

/// The reason why a value cannot be written to a field.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("the channel is closed")]
    Closed,
    #[error("the text has {bytes} bytes, the field holds {room}")]
    LongText { bytes: usize, room: usize },
    #[error("the value has {count} elements, the field holds {room}")]
    Elements { count: usize, room: usize },
    #[error(transparent)]
    Value(#[from] pva::nt::Unfit),
}

impl Store {
    /// The value that a client's text is written as.
    fn text_value(&self, handle: u64, text: &str) -> Result<Value, Unfit> {
        let channel = self.channel(handle).ok_or(Unfit::Closed)?;
        let info = self.db.info(channel);
        let characters = matches!(info.kind, FieldType::I8 | FieldType::U8) && info.array;
        if !channel.long_string && !characters {
            return Ok(Value::Scalar(Scalar::String(short_text(text)?)));
        }
        let room = info.elements_max as usize;
        if text.len() >= room && characters {
            return Err(Unfit::LongText { bytes: text.len(), room: room.saturating_sub(1) });
        }
        Ok(Value::Array(Array::I8(text.bytes().chain([0]).map(|byte| byte as i8).collect())))
    }

    /// The value that is written to a field.
    ///
    /// # Errors
    /// It does not fit the field.
    pub(super) fn value_of(&self, handle: u64, written: Written) -> Result<Value, Unfit> {
        match written {
            Written::Value(value) => {
                let room = self.channel(handle).map_or(0, |channel| self.db.info(channel).elements_max as usize);
                if value.len() > room {
                    return Err(Unfit::Elements { count: value.len(), room });
                }
                Ok(value)
            }
            Written::Text(text) => self.text_value(handle, &text),
        }
    }

    /// Processes the record of a channel by its field PROC.
    fn process_record(&mut self, handle: u64, peer: Peer<'_>, token: Token, wait: bool) -> PutOutcome {
        let Some(record) = self.channel(handle).map(|channel| self.db.name_of(channel.record).to_owned()) else {
            return PutOutcome::Failed;
        };
        let Some(process) = Backend::open(self, format!("{record}.PROC").as_bytes(), peer) else {
            return PutOutcome::Failed;
        };
        let write = Write::Value(Value::Scalar(Scalar::U8(1)));
        let outcome = Backend::write(self, process.handle, peer, write, token, wait);
        Backend::close(self, process.handle);
        outcome
    }
}

impl Source for Store {
    fn exists(&mut self, name: &[u8]) -> bool {
        // Searches and channels use the same check, so that a client does not search for a name that is then refused.
        let is_field = Backend::exists(self, name)
            && channel_of(&self.db, name).is_some_and(|channel| self.db.has_value(&channel));
        is_field || super::text(name).is_some_and(|name| self.groups.has(name))
    }

    fn open(&mut self, name: &[u8], peer: server::Peer<'_>) -> Option<Opened> {
        let Some(channel) = channel_of(&self.db, name) else {
            return self.open_group(super::text(name)?, peer_of(peer));
        };
        let shape = shape(&self.db, &channel, &self.db.info(&channel));
        let opened = self.open_channel(channel, peer_of(peer))?;
        Some(Opened { handle: opened.handle, watch: opened.watch, shape, access: access(opened.access) })
    }

    fn access(&mut self, handle: u64, peer: server::Peer<'_>) -> Access {
        if groups::is_group(handle) {
            return self.group_access(handle, peer_of(peer));
        }
        access(Backend::access(self, handle, peer_of(peer)))
    }

    fn close(&mut self, handle: u64) {
        if !groups::is_group(handle) {
            Backend::close(self, handle);
        }
    }

    fn read(&mut self, handle: u64, properties: bool, token: Option<server::Token>) -> Get<'_> {
        let mut reading = std::mem::take(&mut self.pva_reading);
        let needs = if properties { Needs::All } else { Needs::Value };
        let got = Backend::read(self, handle, needs, &mut reading, token.map(token_of));
        self.pva_reading = reading;
        match got {
            Ok(ca::server::Get::Done) => Get::Done(view(&self.pva_reading)),
            Ok(ca::server::Get::Sent) => Get::Sent,
            Err(_) => Get::Failed,
        }
    }

    fn write(
        &mut self,
        handle: u64,
        peer: server::Peer<'_>,
        write: server::Write,
        token: server::Token,
        wait: bool,
    ) -> Put {
        let peer = peer_of(peer);
        if groups::is_group(handle) {
            let (marks, value) = match write {
                server::Write::Structure { marks, value, .. } => (marks, value),
                _ => (pva::codec::Mask::default(), pva::codec::Value::Struct(Vec::new())),
            };
            return self.write_group(handle, peer, (&marks, &value), token, wait);
        }
        let token = token_of(token);
        let (written, processing) = match write {
            server::Write::Process => return put(self.process_record(handle, peer, token, wait)),
            server::Write::Structure { .. } => return Put::Failed("the channel is a field, not a group".into()),
            server::Write::Value(written) => (written, Processing::Passive),
            server::Write::ValueAs(written, true) => (written, Processing::Always),
            server::Write::ValueAs(written, false) => (written, Processing::Never),
        };
        let value = match self.value_of(handle, written) {
            Ok(value) => value,
            Err(unfit) => return Put::Failed(unfit.to_string()),
        };
        put(self.write_processing(handle, peer, Write::Value(value), (token, wait), processing))
    }

    fn hints(&self, handle: u64) -> Hints {
        self.channel(handle).map_or(Hints::NONE, |channel| hints(&self.db, channel))
    }

    fn structure(&self, handle: u64) -> Option<Arc<pva::codec::Struct>> {
        self.groups.ty(handle)
    }

    fn read_structure(&mut self, handle: u64, options: Options, token: server::Token) -> StructureGet {
        self.read_group(handle, options, token)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.groups.take_warnings()
    }

    fn forget(&mut self, token: server::Token) {
        self.forget_group(token);
        Backend::forget(self, token_of(token));
    }

    fn watch(&mut self, handle: u64) {
        if groups::is_group(handle) {
            return self.watch_group(handle);
        }
        Backend::watch(self, handle);
    }

    fn unwatch(&mut self, handle: u64) {
        if groups::is_group(handle) {
            return self.unwatch_group(handle);
        }
        Backend::unwatch(self, handle);
    }

    fn names(&self) -> Vec<String> {
        let records = self.db.all_names().map(|(name, _)| name);
        records.chain(self.groups.names()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use db::{Db, Macros, Now};

    const PEER: server::Peer<'_> = server::Peer { user: "ann", address: "10.0.0.9:4000" };
    const TOKEN: server::Token = server::Token(7);

    const RECORDS: &str = r#"
record(ao, "ao") { field(DESC, "a set point") field(VAL, "1.5") }
record(calc, "count") { field(INPA, "count") field(CALC, "A+1") }
record(mbbo, "mbbo") { field(ZRST, "zero") field(ONST, "one") }
record(stringout, "text") {}
record(lso, "long") { field(SIZV, "60") }
record(waveform, "wave") { field(FTVL, "LONG") field(NELM, "4") }
record(waveform, "one") { field(FTVL, "FLOAT") field(NELM, "1") }
record(waveform, "states") { field(FTVL, "ENUM") field(NELM, "3") }
record(waveform, "characters") { field(FTVL, "CHAR") field(NELM, "10") info(Q:form, "String") }
"#;

    fn store() -> Store {
        let mut db = Db::new();
        db.load_records(RECORDS, "test.db", &Macros::default(), &mut |_| None).unwrap();
        db.init(Now::default());
        Store::new(db)
    }

    fn open(store: &mut Store, name: &str) -> Opened {
        assert!(Source::exists(store, name.as_bytes()), "{name} is found");
        Source::open(store, name.as_bytes(), PEER).unwrap_or_else(|| panic!("{name} opens"))
    }

    fn write(store: &mut Store, name: &str, write: server::Write) -> Put {
        let opened = open(store, name);
        Source::write(store, opened.handle, PEER, write, TOKEN, false)
    }

    fn text_of(store: &mut Store, name: &str) -> String {
        let (opened, layout) = (open(store, name), pva::nt::Layout::new(Shape::Scalar(Kind::Text)));
        assert_eq!(opened.shape, Shape::Scalar(Kind::Text), "{name}");
        let Get::Done(view) = Source::read(store, opened.handle, false, Some(TOKEN)) else { panic!("{name} is read") };
        let mut out = pva::codec::Writer::new(pva::codec::Order::Little);
        layout.encode(2, &view, &mut out);
        String::from_utf8(out.bytes[1..].to_vec()).unwrap()
    }

    #[test]
    fn a_field_is_served_as_the_type_of_its_elements() {
        let mut store = store();
        for (name, shape) in [
            ("ao", Shape::Scalar(Kind::F64)),
            ("ao.PREC", Shape::Scalar(Kind::I16)),
            ("ao.SCAN", Shape::Enum),
            ("ao.DTYP", Shape::Enum),
            ("ao.OUT", Shape::Scalar(Kind::Text)),
            ("ao.DESC", Shape::Scalar(Kind::Text)),
            ("ao.DESC$", Shape::Scalar(Kind::Text)),
            ("mbbo", Shape::Enum),
            ("mbbo.ZRVL", Shape::Scalar(Kind::U32)),
            ("text", Shape::Scalar(Kind::Text)),
            ("long", Shape::Scalar(Kind::Text)),
            ("wave", Shape::Array(Kind::I32)),
            ("one", Shape::Scalar(Kind::F32)),
            ("states", Shape::Array(Kind::U16)),
            ("characters", Shape::Scalar(Kind::Text)),
        ] {
            assert_eq!(open(&mut store, name).shape, shape, "{name}");
        }
    }

    #[test]
    fn a_name_is_found_only_if_its_channel_opens() {
        let mut store = store();
        for name in ["ao.NONE", "nothing", "ao.TIME", "wave.VAL$", "ao.VAL{\"none\":{}}"] {
            assert!(!Source::exists(&mut store, name.as_bytes()), "{name}");
            assert!(Source::open(&mut store, name.as_bytes(), PEER).is_none(), "{name}");
        }
    }

    #[test]
    fn properties_include_the_description() {
        let mut store = store();
        let handle = open(&mut store, "ao").handle;
        let Get::Done(view) = Source::read(&mut store, handle, true, None) else { panic!("it is read") };
        assert_eq!((view.value, view.description), (&Value::from(1.5), "a set point".into()));
    }

    #[test]
    fn texts_are_written_and_read_whole_or_refused() {
        let mut store = store();
        let long = "a text that is longer than forty characters";
        let text = |text: &str| server::Write::Value(Written::Text(text.to_owned()));
        for (name, given) in
            [("text", "short"), ("long", long), ("characters", "123456789"), ("ao.OUT", "text.VAL NPP")]
        {
            assert_eq!(write(&mut store, name, text(given)), Put::Done, "{name}");
            assert!(text_of(&mut store, name).starts_with(given), "{name}");
        }
        for (name, given) in [("text", long), ("characters", "1234567890")] {
            let Put::Failed(message) = write(&mut store, name, text(given)) else { panic!("{name} takes {given}") };
            assert!(message.contains(&format!("{} bytes", given.len())), "{message}");
        }
        let many = server::Write::Value(Written::Value(Value::from(vec![1, 2, 3, 4, 5])));
        assert!(matches!(write(&mut store, "wave", many), Put::Failed(_)), "more elements than the field holds");
    }

    #[test]
    fn processing_a_record_needs_no_value() {
        let mut store = store();
        assert_eq!(write(&mut store, "count", server::Write::Process), Put::Done);
        assert_eq!(write(&mut store, "count", server::Write::Process), Put::Done);
        let handle = open(&mut store, "count").handle;
        let Get::Done(view) = Source::read(&mut store, handle, false, None) else { panic!("it is read") };
        assert_eq!(view.value, &Value::from(2.0));
    }

    #[test]
    fn a_write_processes_the_record_as_the_client_requests() {
        let mut store = store();
        let mut expected = 0.0;
        // INPA is its own value, so each processing counts.
        for (process, processes) in [(Some(true), true), (Some(false), false), (None, false)] {
            let value = Written::Value(Value::from(3i16));
            let given = process
                .map_or_else(|| server::Write::Value(value.clone()), |on| server::Write::ValueAs(value.clone(), on));
            assert_eq!(write(&mut store, "count.PREC", given), Put::Done);
            expected += f64::from(u8::from(processes));
            let handle = open(&mut store, "count").handle;
            let Get::Done(view) = Source::read(&mut store, handle, false, None) else { panic!("it is read") };
            assert_eq!(view.value, &Value::from(expected), "{process:?}");
        }
    }

    #[test]
    fn tokens_of_the_protocols_are_different() {
        assert_eq!(request_of(token_of(TOKEN)), Some(TOKEN));
        assert_eq!([request_of(Token(7)), request_of(Token(u64::MAX)), request_of(Token(1 << 63))], [None; 3]);
    }
}
