//! Groups from their definitions.

use super::define::{Definitions, GroupDefinition, MemberDefinition};
use super::fault::{Fault, Wrong};
use super::tree::{Node, Part, Place, parts};
use super::{Group, Mapping, Member};
use crate::codec::{Kind, Mask, Struct, Type};
use crate::nt::{Layout, Shape};
use std::fmt::Display;

/// The groups that can be served, and messages about the others.
#[derive(Debug, Default)]
pub struct Built {
    /// In the order of their names.
    pub groups: Vec<Group>,
    /// One fault each, with its place, what was found and what was expected.
    pub faults: Vec<String>,
}

impl Definitions {
    /// Builds the groups. `is_record` returns whether a name is that of a record, `shape` what a field is served as, or why it
    /// cannot be.
    pub fn build<E: Display>(
        self,
        is_record: impl Fn(&str) -> bool,
        shape: impl Fn(&str) -> Result<Shape, E>,
    ) -> Built {
        let shape = |channel: &str| {
            shape(channel).map_err(|why| Wrong::Channel { channel: channel.to_owned(), why: why.to_string() })
        };
        let mut built = Built { groups: Vec::new(), faults: self.faults };
        for (name, definition) in self.groups {
            if definition.broken {
                continue;
            }
            if is_record(&name) {
                built.faults.push(format!("group \"{name}\": found a record of this name, expected an unused name"));
                continue;
            }
            match group(&name, definition, &shape, &mut built.faults) {
                Ok(group) => built.groups.push(group),
                Err(fault) => built.faults.push(fault.to_string()),
            }
        }
        built
    }
}

fn group(
    name: &str,
    definition: GroupDefinition,
    shape: &impl Fn(&str) -> Result<Shape, Wrong>,
    faults: &mut Vec<String>,
) -> Result<Group, Fault> {
    let in_group = |wrong: Wrong| wrong.at(&format!("group \"{name}\""));
    let mut defined: Vec<(String, MemberDefinition)> = definition.members.into_iter().collect();
    // As in QSRV, members without an order are first.
    defined.sort_by_key(|(_, member)| member.put_order);
    let mut tree = Node::structure(definition.id);
    options().and_then(|options| insert(&mut tree, "record", options)).map_err(in_group)?;
    let (mut members, mut triggers) = (Vec::new(), Vec::new());
    for (field, definition) in defined {
        let place = definition.place.clone();
        let trigger = definition.trigger.clone();
        if field.is_empty() && definition.kind != "meta" {
            faults.push(format!(
                "{place}: found +type \"{}\" without a name, expected \"meta\"; it is ignored",
                definition.kind
            ));
            continue;
        }
        let (member, node) = member(&field, definition, shape, faults).map_err(|wrong| wrong.at(&place))?;
        if let Some(node) = node {
            insert(&mut tree, &field, node).map_err(|wrong| wrong.at(&place))?;
        }
        triggers.push((place, trigger));
        members.push(member);
    }
    let (ty, mut template) = tree.finish().map_err(in_group)?;
    let Type::Struct(fields) = &ty else { return Err(in_group(Wrong::OtherType)) };
    let mut constants = Mask::default();
    for member in &mut members {
        locate(member, &ty).map_err(in_group)?;
        if let Mapping::Constant(_, value) = &member.mapping
            && let Some((_, place)) = member.leaves.first()
            && let Some(target) = place.get_mut(&mut template)
        {
            *target = value.clone();
            constants.set(place.bit);
        }
    }
    resolve(name, &mut members, &triggers, faults);
    let atomic = definition.atomic.unwrap_or(true);
    super::set_atomic(&mut template, atomic);
    Ok(Group { name: name.to_owned(), atomic, members, ty: fields.clone(), template, constants })
}

/// The structure `record` of every group.
fn options() -> Result<Node, Wrong> {
    let int = Type::Scalar(Kind::I32);
    let options = vec![("queueSize".to_owned(), int), ("atomic".to_owned(), Type::Scalar(Kind::Bool))];
    let options = Struct::new("", options)?;
    let record = Struct::new("", vec![("_options".into(), Type::Struct(options))])?;
    Ok(Node::of(&Type::Struct(record)))
}

fn insert(tree: &mut Node, name: &str, node: Node) -> Result<(), Wrong> {
    tree.insert(&parts(name)?, node)
}

/// A member, and what it adds to the structure.
fn member(
    field: &str,
    definition: MemberDefinition,
    shape: &impl Fn(&str) -> Result<Shape, Wrong>,
    faults: &mut Vec<String>,
) -> Result<(Member, Option<Node>), Wrong> {
    let MemberDefinition { place, kind, id, mut channel, put_order, constant, .. } = definition;
    let mapping = match (kind.as_str(), constant) {
        ("plain", _) => Mapping::Plain,
        ("any", _) => Mapping::Any,
        ("meta", _) => Mapping::Meta,
        ("proc", _) => Mapping::Process,
        ("structure", _) => Mapping::Structure,
        ("const", Some((ty, value))) => Mapping::Constant(ty, value),
        ("const", None) => return Err(Wrong::NoConstant),
        _ => Mapping::Scalar,
    };
    let has_field = !matches!(mapping, Mapping::Structure | Mapping::Constant(..));
    if has_field && channel.is_empty() {
        return Err(Wrong::NoChannel);
    }
    if !has_field && !channel.is_empty() {
        faults
            .push(format!("{place}: found +channel \"{channel}\", expected none with +type \"{kind}\"; it is ignored"));
        channel.clear();
    }
    let found = if has_field { Some(shape(&channel)?) } else { None };
    // The number of a state, without the names.
    let bare = |shape: Shape| if shape == Shape::Enum { Shape::Scalar(Kind::U16) } else { shape };
    let layout = match (&mapping, found) {
        (Mapping::Scalar, Some(shape)) => Some(Layout::new(shape)),
        (Mapping::Plain | Mapping::Any, Some(shape)) => Some(Layout::new(bare(shape))),
        (Mapping::Meta, Some(_)) => Some(Layout::new(Shape::Scalar(Kind::F64))),
        _ => None,
    };
    let part = |name: &str| {
        let ty = layout.as_ref().and_then(|layout| layout.ty().fields()?.field(name));
        ty.map(|(_, _, ty)| Node::of(ty))
    };
    let node = match &mapping {
        Mapping::Scalar => layout.as_ref().map(|layout| Node::of(layout.ty())),
        Mapping::Plain => part("value"),
        Mapping::Any => Some(Node::Leaf(Type::Any)),
        Mapping::Meta => {
            let fields = ["alarm", "timeStamp"].into_iter();
            let fields = fields.filter_map(|name| Some((name.to_owned(), part(name)?))).collect();
            Some(Node::Struct { id: String::new(), fields })
        }
        Mapping::Structure => Some(Node::structure(id.clone())),
        Mapping::Constant(ty, _) => Some(Node::of(ty)),
        Mapping::Process => None,
    };
    let channel = if channel.is_empty() { None } else { Some(channel) };
    let name = field.to_owned();
    Ok((Member { name, mapping, id, channel, put_order, triggers: Vec::new(), layout, leaves: Vec::new() }, node))
}

/// Finds the places of a member's parts in the finished type.
fn locate(member: &mut Member, ty: &Type) -> Result<(), Wrong> {
    let path = parts(&member.name)?;
    let lost = || Wrong::Lost(member.name.clone());
    if matches!(member.mapping, Mapping::Constant(..)) {
        member.leaves.push((0, Place::of(ty, &path).ok_or_else(lost)?));
        return Ok(());
    }
    let Some(layout) = &member.layout else { return Ok(()) };
    for (bit, names) in layout.leaves() {
        let wanted = match member.mapping {
            Mapping::Scalar => true,
            Mapping::Meta => (layout.alarm() | layout.time()) >> bit & 1 == 1,
            _ => layout.value() >> bit & 1 == 1,
        };
        if !wanted {
            continue;
        }
        let names: &[&str] = if matches!(member.mapping, Mapping::Plain | Mapping::Any) { &[] } else { &names };
        let inner = names.iter().map(|name| Part { name: (*name).to_owned(), element: None });
        let full: Vec<Part> = path.iter().cloned().chain(inner).collect();
        member.leaves.push((bit, Place::of(ty, &full).ok_or_else(lost)?));
    }
    Ok(())
}

/// Resolves the names of triggers. Without any, each member triggers itself.
fn resolve(name: &str, members: &mut [Member], triggers: &[(String, String)], faults: &mut Vec<String>) {
    let has_field: Vec<bool> = members.iter().map(|member| member.channel.is_some()).collect();
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    if triggers.iter().all(|(_, text)| text.is_empty()) {
        for (index, member) in members.iter_mut().enumerate().filter(|(_, member)| member.channel.is_some()) {
            member.triggers.push(index);
        }
        if has_field.iter().filter(|has| **has).count() > 1 {
            faults.push(format!(
                "group \"{name}\": found no +trigger, expected \"*\" or names at the last record that is processed; each field \
                 is sent in an update of its own"
            ));
        }
        return;
    }
    for (index, (place, text)) in triggers.iter().enumerate() {
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let targets: Vec<usize> = match word {
                "*" => (0..names.len()).collect(),
                word => names.iter().position(|known| known == word).into_iter().collect(),
            };
            if targets.is_empty() {
                faults.push(format!(
                    "{place}: found +trigger \"{word}\", expected \"*\" or a field of the group; it is ignored"
                ));
            }
            let known = &mut members[index].triggers;
            known.extend(targets.into_iter().filter(|target| has_field[*target]));
        }
        members[index].triggers.sort_unstable();
        members[index].triggers.dedup();
        if members[index].channel.is_none() {
            members[index].triggers.clear();
        }
    }
}
