//! Groups: fields of several records as one structure, as in QSRV.
//!
//! [`Definitions`] collects the texts of `info(Q:group, …)` and of group files. [`Definitions::build`] checks them and returns
//! the [`Group`]s: their types, the places of their members, which member triggers which, and the order of writes. A group
//! holds no value. The caller reads the fields and passes them to [`Group::patch`].

mod build;
mod define;
mod fault;
mod tree;

#[cfg(test)]
mod tests;

pub use build::Built;
pub use define::Definitions;

use crate::codec::{Mask, Struct, Type, Value};
use crate::nt::{Layout, Shape, Unfit, View, Written};
use base::EventMask;
use std::sync::Arc;
use tree::Place;

/// Bit of `record._options.queueSize`, with which the type of each group starts.
pub const QUEUE_SIZE_BIT: u32 = 3;
/// Bit of `record._options.atomic`.
pub const ATOMIC_BIT: u32 = 4;

/// Contribution of a member to the structure.
#[derive(Clone, Debug, PartialEq)]
pub enum Mapping {
    /// The field with alarm, time stamp and properties.
    Scalar,
    /// The value.
    Plain,
    /// The value, in a variant.
    Any,
    /// Alarm and time stamp.
    Meta,
    /// The identifier of a structure.
    Structure,
    /// Nothing. The record is processed at each write.
    Process,
    /// A constant.
    Constant(Type, Value),
}

impl Mapping {
    /// The name in a definition.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Plain => "plain",
            Self::Any => "any",
            Self::Meta => "meta",
            Self::Structure => "structure",
            Self::Process => "proc",
            Self::Constant(..) => "const",
        }
    }
}

/// A member of a group.
#[derive(Debug)]
pub struct Member {
    /// Its name in the group; empty for the group itself.
    pub name: String,
    /// Its contribution to the structure.
    pub mapping: Mapping,
    /// The identifier of its structure, or empty.
    pub id: String,
    /// The field of a record, if it has one.
    pub channel: Option<String>,
    /// The order of writes; `None` if the member is read only.
    pub put_order: Option<i64>,
    /// Indexes of the members that are read and sent after an event of this one.
    pub triggers: Vec<usize>,
    layout: Option<Layout>,
    /// The leaves of its layout with their places in the structure.
    leaves: Vec<(u32, Place)>,
}

/// A group of fields.
#[derive(Debug)]
pub struct Group {
    /// The name of its channel.
    pub name: String,
    /// Whether its fields are read and written together, unless a client requests otherwise.
    pub atomic: bool,
    /// The members, in the order in which they are written.
    pub members: Vec<Member>,
    ty: Arc<Struct>,
    template: Value,
    constants: Mask,
}

/// A write to a member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberWrite {
    /// Index of the member.
    pub member: usize,
    /// The value; `None` to process the record.
    pub value: Option<Written>,
}

/// The reason why a write to a group is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A value does not fit a member.
    #[error("{0}: {1}")]
    Unfit(String, Unfit),
    /// No marked field is written.
    #[error("No fields changed: {0} is read only, expected a member with +putorder")]
    Nothing(String),
}

impl Group {
    /// The type.
    #[must_use]
    pub const fn ty(&self) -> &Arc<Struct> {
        &self.ty
    }

    /// The value before any field was read.
    #[must_use]
    pub const fn template(&self) -> &Value {
        &self.template
    }

    /// The fields that never change: constants.
    #[must_use]
    pub const fn constants(&self) -> &Mask {
        &self.constants
    }

    /// The parts of a member that an event of itself changes, as bits of its layout.
    #[must_use]
    pub fn changed(&self, member: usize, event: EventMask) -> u64 {
        self.members.get(member).map_or(0, |member| member.changed(event))
    }

    /// The parts of a member that are read and sent with the first update, as bits of its layout.
    #[must_use]
    pub fn everything(&self, member: usize) -> u64 {
        self.changed(member, EventMask::VALUE | EventMask::ALARM | EventMask::PROPERTY)
    }

    /// Whether parts of a member come from properties of the record.
    #[must_use]
    pub fn needs_properties(&self, member: usize, parts: u64) -> bool {
        self.members
            .get(member)
            .and_then(|member| member.layout.as_ref())
            .is_some_and(|it| it.properties() & parts != 0)
    }

    /// Whether an event causes an update. Alarm and time stamp alone change only with alarms.
    #[must_use]
    pub fn is_trigger(&self, member: usize, event: EventMask) -> bool {
        self.members.get(member).is_some_and(|member| {
            let events = match member.mapping {
                Mapping::Meta => EventMask::ALARM,
                _ => EventMask::VALUE | EventMask::ALARM | EventMask::LOG,
            };
            !member.triggers.is_empty() && event.meets(events)
        })
    }

    /// Copies parts of a member from its field into the structure, and marks them.
    pub fn patch(&self, member: usize, parts: u64, view: &View<'_>, value: &mut Value, marks: &mut Mask) {
        let Some(member) = self.members.get(member) else { return };
        let Some(layout) = &member.layout else { return };
        for (bit, place) in member.leaves.iter().filter(|(bit, _)| parts >> bit & 1 == 1) {
            let (ty, part) = layout.leaf(*bit, view);
            if let Some(target) = place.get_mut(value) {
                *target = match member.mapping {
                    Mapping::Any => Value::Any(Some(Box::new((ty, part)))),
                    _ => part,
                };
            }
            marks.set(place.bit);
        }
    }

    /// The writes that a client's value requests, in their order, and the names of marked members that are read only.
    ///
    /// # Errors
    /// A value does not fit, or no marked field is written.
    pub fn writes(&self, marks: &Mask, value: &Value) -> Result<(Vec<MemberWrite>, Vec<String>), Refused> {
        let marked = marks.leaves(&Type::Struct(self.ty.clone()));
        let (mut writes, mut ignored) = (Vec::new(), Vec::new());
        for (index, member) in self.members.iter().enumerate() {
            if member.mapping == Mapping::Process {
                writes.push(MemberWrite { member: index, value: None });
                continue;
            }
            let Some(layout) = &member.layout else {
                continue;
            };
            let mut leaves = member.leaves.iter().filter(|(bit, _)| layout.value() >> bit & 1 == 1);
            let Some((_, place)) = leaves.find(|(_, place)| marked.has(place.bit)) else { continue };
            if member.put_order.is_none() {
                ignored.push(member.name.clone());
                continue;
            }
            // A client may send fewer elements of an array of structures.
            let Some(given) = place.get(value).cloned() else { continue };
            let written = layout.written_leaf(given).map_err(|unfit| Refused::Unfit(member.name.clone(), unfit))?;
            if let Some(written) = written {
                writes.push(MemberWrite { member: index, value: Some(written) });
            }
        }
        if writes.is_empty() && !marked.is_empty() {
            let names = if ignored.is_empty() { "the marked field".to_owned() } else { ignored.join(", ") };
            return Err(Refused::Nothing(names));
        }
        Ok((writes, ignored))
    }
}

impl Member {
    /// The shape of the field; `None` if it has no value in the structure.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        self.layout.as_ref().map(Layout::shape)
    }

    fn changed(&self, event: EventMask) -> u64 {
        let Some(layout) = &self.layout else { return 0 };
        let (value, alarm) = (event.meets(EventMask::VALUE), event.meets(EventMask::ALARM));
        let when = |on: bool, parts: u64| if on { parts } else { 0 };
        match self.mapping {
            Mapping::Scalar => {
                when(value, layout.value())
                    | when(alarm, layout.alarm())
                    | when(value || alarm, layout.time())
                    | when(event.meets(EventMask::PROPERTY), layout.properties())
            }
            Mapping::Plain | Mapping::Any => when(value, layout.value()),
            Mapping::Meta => when(alarm, layout.alarm()) | when(value || alarm, layout.time()),
            Mapping::Structure | Mapping::Process | Mapping::Constant(..) => 0,
        }
    }
}

/// Sets the number of updates that a monitor queues, in the value of a group.
/// Whether the value begins with the options of a group.
pub(crate) fn has_options(value: &Value) -> bool {
    let Value::Struct(fields) = value else { return false };
    matches!(fields.first(), Some(Value::Struct(record)) if matches!(record.first(), Some(Value::Struct(_))))
}

pub(crate) fn set_queue_size(value: &mut Value, size: i32) {
    if let Some(place) = options(value).and_then(|options| options.first_mut()) {
        *place = Value::I32(size);
    }
}

/// Sets whether the value of a group was read at once.
pub fn set_atomic(value: &mut Value, atomic: bool) {
    if let Some(place) = options(value).and_then(|options| options.get_mut(1)) {
        *place = Value::Bool(atomic);
    }
}

/// The fields of `record._options`.
fn options(value: &mut Value) -> Option<&mut Vec<Value>> {
    let Value::Struct(fields) = value else { return None };
    let Some(Value::Struct(record)) = fields.first_mut() else { return None };
    match record.first_mut() {
        Some(Value::Struct(options)) => Some(options),
        _ => None,
    }
}
