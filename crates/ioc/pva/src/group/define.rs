//! Definitions of groups as JSON.

use super::fault::{Fault, Wrong};
use crate::codec::{Kind, Type, Value};
use base::json::{self, Json};
use std::collections::BTreeMap;

/// The options of a group.
const GROUP_KEYS: &str = "+id, +atomic";
/// The options of a member.
const MEMBER_KEYS: &str = "+type, +channel, +id, +trigger, +putorder, +const";
/// The values of `+type`.
pub(super) const TYPES: &str = "scalar, plain, any, meta, proc, structure, const";

/// Groups as defined, by name, and the faults found so far.
#[derive(Debug, Default)]
pub struct Definitions {
    pub(super) groups: BTreeMap<String, GroupDefinition>,
    pub(super) faults: Vec<String>,
}

/// The definition of a group, from one or several texts.
#[derive(Debug, Default)]
pub(super) struct GroupDefinition {
    pub(super) id: String,
    pub(super) atomic: Option<bool>,
    /// Members by name, in the order of QSRV.
    pub(super) members: BTreeMap<String, MemberDefinition>,
    /// A fault was reported, so the group is not served.
    pub(super) broken: bool,
}

/// The definition of a member.
#[derive(Debug, Default)]
pub(super) struct MemberDefinition {
    /// Where it is defined, for messages.
    pub(super) place: String,
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) channel: String,
    pub(super) trigger: String,
    pub(super) put_order: Option<i64>,
    pub(super) constant: Option<(Type, Value)>,
}

impl Definitions {
    /// Adds the groups of a text. `place` names it in messages. Inside of a record, channels are names of its fields.
    ///
    /// A fault makes the group invalid in which it is. The others are kept.
    pub fn add(&mut self, text: &str, place: &str, record: Option<&str>) {
        let groups = match json::parse_commented(text) {
            Ok(Json::Map(groups)) => groups,
            Ok(other) => {
                let found = describe(&other);
                self.faults.push(format!("{place}: found {found}, expected groups, {{\"name\": {{…}}}}"));
                return;
            }
            Err(error) => {
                let before = &text[..error.at.min(text.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                self.faults.push(format!("{place}: line {line}, column {column}: {}", error.what));
                return;
            }
        };
        for (name, members) in groups {
            let place = format!("{place}: group \"{name}\"");
            let group = self.groups.entry(name.clone()).or_default();
            let added = match members {
                _ if name.is_empty() => Err(unexpected("an empty name", "the name of a channel").at(&place)),
                Json::Map(members) => group.add(members, &place, record, &mut self.faults),
                other => Err(unexpected(describe(&other), "members, {\"field\": {…}}").at(&place)),
            };
            if let Err(fault) = added {
                group.broken = true;
                self.faults.push(fault.to_string());
            }
        }
    }

    /// Adds a fault found elsewhere.
    pub fn report(&mut self, fault: String) {
        self.faults.push(fault);
    }

    /// Whether nothing is defined, and no fault was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.faults.is_empty()
    }
}

impl GroupDefinition {
    fn add(
        &mut self,
        members: Vec<(String, Json)>,
        place: &str,
        record: Option<&str>,
        faults: &mut Vec<String>,
    ) -> Result<(), Fault> {
        for (name, value) in members {
            match (name.as_str(), value) {
                ("+id", value) => self.id = text(value, place, "+id")?,
                ("+atomic", value) => {
                    let atomic = boolean(value, place, "+atomic")?;
                    if self.atomic.is_some_and(|before| before != atomic) {
                        faults.push(format!(
                            "{place}: +atomic is {atomic} here and {} elsewhere, using {atomic}",
                            !atomic
                        ));
                    }
                    self.atomic = Some(atomic);
                }
                (key, _) if key.starts_with('+') => {
                    faults.push(format!("{place}: found option \"{key}\", expected {GROUP_KEYS}; it is ignored"));
                }
                (_, Json::Map(options)) => {
                    let place = format!("{place}, field \"{name}\"");
                    if let Some(known) = self.members.get(&name) {
                        faults
                            .push(format!("{place}: this field is also defined at {}; the first is used", known.place));
                        continue;
                    }
                    let member = MemberDefinition::read(options, &place, record, faults)?;
                    self.members.insert(name, member);
                }
                (_, other) => {
                    let wrong = unexpected(describe(&other), "options, {\"+channel\": …}");
                    return Err(wrong.at(&format!("{place}, field \"{name}\"")));
                }
            }
        }
        Ok(())
    }
}

impl MemberDefinition {
    fn read(
        options: Vec<(String, Json)>,
        place: &str,
        record: Option<&str>,
        faults: &mut Vec<String>,
    ) -> Result<Self, Fault> {
        let mut member = Self { place: place.to_owned(), kind: "scalar".into(), ..Self::default() };
        for (key, value) in options {
            match key.as_str() {
                "+type" => {
                    let kind = text(value, place, "+type")?;
                    if !TYPES.split(", ").any(|known| known == kind) {
                        return Err(Wrong::Kind(kind).at(place));
                    }
                    member.kind = kind;
                }
                "+channel" => {
                    let field = text(value, place, "+channel")?;
                    member.channel = match record {
                        Some(record) => format!("{record}.{field}"),
                        None => field,
                    };
                }
                "+id" => member.id = text(value, place, "+id")?,
                "+trigger" => member.trigger = text(value, place, "+trigger")?,
                "+putorder" => match value {
                    Json::Int(order) => member.put_order = Some(order),
                    Json::Real(order) if order.fract() == 0.0 && order.abs() < 1e15 => {
                        member.put_order = Some(order as i64)
                    }
                    other => {
                        let found = format!("+putorder {}", describe(&other));
                        return Err(unexpected(found, "an integer").at(place));
                    }
                },
                "+const" => {
                    let found = format!("+const {}", describe(&value));
                    let wrong = || unexpected(found, "a number, a text, true or false").at(place);
                    member.constant = Some(constant(value).ok_or_else(wrong)?);
                }
                key => faults
                    .push(format!("{place}: found option \"{key}\", expected one of {MEMBER_KEYS}; it is ignored")),
            }
        }
        Ok(member)
    }
}

fn constant(value: Json) -> Option<(Type, Value)> {
    Some(match value {
        Json::Bool(value) => (Type::Scalar(Kind::Bool), Value::Bool(value)),
        Json::Int(value) => (Type::Scalar(Kind::I64), Value::I64(value)),
        Json::Real(value) => (Type::Scalar(Kind::F64), Value::F64(value)),
        Json::Text(value) => (Type::Scalar(Kind::Text), Value::Text(value)),
        Json::Null | Json::List(_) | Json::Map(_) => return None,
    })
}

fn text(value: Json, place: &str, key: &str) -> Result<String, Fault> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(unexpected(format!("{key} {}", describe(&other)), "a text").at(place)),
    }
}

/// A boolean. QSRV also accepts numbers and texts.
fn boolean(value: Json, place: &str, key: &str) -> Result<bool, Fault> {
    match value {
        Json::Bool(on) => Ok(on),
        Json::Int(number) => Ok(number != 0),
        Json::Text(text) if text == "true" || text == "false" => Ok(text == "true"),
        other => Err(unexpected(format!("{key} {}", describe(&other)), "true or false").at(place)),
    }
}

fn unexpected(found: impl Into<String>, expected: &'static str) -> Wrong {
    Wrong::Value { found: found.into(), expected }
}

/// A value as found, for messages.
fn describe(value: &Json) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(value) => value.to_string(),
        Json::Int(value) => value.to_string(),
        Json::Real(value) => value.to_string(),
        Json::Text(value) => format!("\"{value}\""),
        Json::List(_) => "a list".into(),
        Json::Map(_) => "a map".into(),
    }
}
