//! The structure of a group while it is built, and places in it.

use super::fault::Wrong;
use crate::codec::{Struct, Type, Value};

/// Maximum number of elements of an array of structures.
pub(super) const ELEMENTS_MAX: usize = 1_000;
/// Maximum number of parts of a name, so that the type does not exceed the depth of a type.
pub(super) const PARTS_MAX: usize = 16;

/// A part of a name such as `a[0].b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) element: Option<usize>,
}

/// Splits a name into its parts.
pub(super) fn parts(name: &str) -> Result<Vec<Part>, Wrong> {
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = || Wrong::Name(name.to_owned());
    let count = name.split('.').count();
    if count > PARTS_MAX {
        return Err(Wrong::Parts(count));
    }
    let valid = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let part = |word: &str| {
        let (name, element) = match word.strip_suffix(']') {
            None => (word, None),
            Some(open) => {
                let (name, number) = open.split_once('[').ok_or_else(wrong)?;
                let element = number.parse::<usize>().map_err(|_| wrong())?;
                if element >= ELEMENTS_MAX {
                    return Err(Wrong::Element { element, word: word.to_owned() });
                }
                (name, Some(element))
            }
        };
        if valid(name) { Ok(Part { name: name.to_owned(), element }) } else { Err(wrong()) }
    };
    name.split('.').map(part).collect()
}

/// A type that grows. Fields keep the order in which they were added.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Leaf(Type),
    Struct {
        id: String,
        fields: Vec<(String, Self)>,
    },
    /// An array of structures, with its number of elements.
    Array {
        id: String,
        fields: Vec<(String, Self)>,
        count: usize,
    },
}

impl Node {
    pub(super) const fn structure(id: String) -> Self {
        Self::Struct { id, fields: Vec::new() }
    }

    pub(super) fn of(ty: &Type) -> Self {
        match ty {
            Type::Struct(fields) => Self::Struct {
                id: fields.id().to_owned(),
                fields: fields.fields().iter().map(|(name, ty)| (name.clone(), Self::of(ty))).collect(),
            },
            ty => Self::Leaf(ty.clone()),
        }
    }

    /// Adds a node at a place. Structures at the same place are merged.
    pub(super) fn insert(&mut self, parts: &[Part], node: Self) -> Result<(), Wrong> {
        let Some((first, rest)) = parts.split_first() else { return self.merge(node) };
        let fields = match self {
            Self::Struct { fields, .. } | Self::Array { fields, .. } => fields,
            Self::Leaf(_) => return Err(Wrong::NoStructure(first.name.clone())),
        };
        let index = fields.iter().position(|(name, _)| *name == first.name).unwrap_or_else(|| {
            let new = match first.element {
                Some(_) => Self::Array { id: String::new(), fields: Vec::new(), count: 0 },
                None => Self::structure(String::new()),
            };
            // A leaf replaces the structure that stands for it.
            let new = match (&node, rest.is_empty() && first.element.is_none()) {
                (Self::Leaf(_), true) => node.clone(),
                _ => new,
            };
            fields.push((first.name.clone(), new));
            fields.len() - 1
        });
        let target = &mut fields[index].1;
        match (&mut *target, first.element) {
            (Self::Array { count, .. }, Some(element)) => *count = (*count).max(element + 1),
            (Self::Array { .. }, None) if rest.is_empty() && matches!(node, Self::Struct { .. }) => {}
            (Self::Array { .. }, None) => return Err(Wrong::WholeArray(first.name.clone())),
            (_, Some(_)) => return Err(Wrong::NoArray(first.name.clone())),
            _ => {}
        }
        target.insert(rest, node)
    }

    fn merge(&mut self, node: Self) -> Result<(), Wrong> {
        match (self, node) {
            (Self::Struct { id, fields } | Self::Array { id, fields, .. }, Self::Struct { id: new, fields: more }) => {
                if !new.is_empty() {
                    *id = new;
                }
                for (name, node) in more {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => known.merge(node)?,
                        None => fields.push((name, node)),
                    }
                }
                Ok(())
            }
            (Self::Leaf(one), Self::Leaf(other)) if *one == other => Ok(()),
            _ => Err(Wrong::OtherType),
        }
    }

    /// The finished type and its value of zeros.
    pub(super) fn finish(&self) -> Result<(Type, Value), Wrong> {
        let of = |id: &str, fields: &[(String, Self)]| {
            let (mut types, mut values) = (Vec::new(), Vec::new());
            for (name, node) in fields {
                let (ty, value) = node.finish()?;
                types.push((name.clone(), ty));
                values.push(value);
            }
            let ty = Struct::new(id, types)?;
            Ok::<_, Wrong>((ty, Value::Struct(values)))
        };
        Ok(match self {
            Self::Leaf(ty) => (ty.clone(), Value::zero(ty)),
            Self::Struct { id, fields } => {
                let (ty, value) = of(id, fields)?;
                (Type::Struct(ty), value)
            }
            Self::Array { id, fields, count } => {
                let (ty, value) = of(id, fields)?;
                (Type::StructArray(ty), Value::Elements(vec![Some(value); *count]))
            }
        })
    }
}

/// A place in the value of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The bit that marks it. All elements of an array have the bit of the array.
    pub(super) bit: u32,
    steps: Vec<usize>,
}

impl Place {
    /// The place of a name in a type.
    pub(super) fn of(ty: &Type, parts: &[Part]) -> Option<Self> {
        let (mut ty, mut bit, mut steps, mut counts) = (ty.clone(), 0, Vec::new(), true);
        for part in parts {
            let (Type::Struct(fields) | Type::StructArray(fields)) = &ty else { return None };
            let (index, offset, inner) = fields.field(&part.name)?;
            steps.push(index);
            steps.extend(part.element);
            if counts {
                bit += offset;
            }
            counts &= part.element.is_none();
            ty = inner.clone();
        }
        Some(Self { bit, steps })
    }

    pub(super) fn get<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.steps.iter().try_fold(value, |value, step| match value {
            Value::Struct(fields) => fields.get(*step),
            Value::Elements(elements) => elements.get(*step)?.as_ref(),
            _ => None,
        })
    }

    pub(super) fn get_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        self.steps.iter().try_fold(value, |value, step| match value {
            Value::Struct(fields) => fields.get_mut(*step),
            Value::Elements(elements) => elements.get_mut(*step)?.as_mut(),
            _ => None,
        })
    }
}
