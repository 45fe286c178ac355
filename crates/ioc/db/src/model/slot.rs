//! Memory layout of fields: typed members of plain structs, accessible by number if the type is unknown.

use crate::model::link::Link;
use base::{Array, Scalar, Str40};

/// Text of at most `N - 1` bytes that most records leave empty: one word in the record, its bytes on the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<const N: usize>(Option<Box<[u8; N]>>);

impl<const N: usize> Text<N> {
    /// The text without padding.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            None => b"",
            Some(bytes) => &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(N)],
        }
    }

    /// Stores the text, truncated to `N - 1` bytes.
    pub(crate) fn set(&mut self, text: &[u8]) {
        let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len()).min(N - 1);
        if len == 0 {
            self.0 = None;
            return;
        }
        let bytes = self.0.get_or_insert_with(|| Box::new([0; N]));
        bytes.fill(0);
        bytes[..len].copy_from_slice(&text[..len]);
    }
}

/// A text of any size, as accessed through a slot.
pub(crate) trait AnyText {
    fn bytes(&self) -> &[u8];
    fn set(&mut self, text: &[u8]);
}

impl<const N: usize> AnyText for Text<N> {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
    fn set(&mut self, text: &[u8]) {
        self.set(text);
    }
}

/// One field of one record, borrowed.
pub(crate) enum Slot<'a> {
    /// A field that is not stored (private to the C code of EPICS).
    None,
    I8(&'a mut i8),
    U8(&'a mut u8),
    I16(&'a mut i16),
    U16(&'a mut u16),
    I32(&'a mut i32),
    U32(&'a mut u32),
    I64(&'a mut i64),
    U64(&'a mut u64),
    F32(&'a mut f32),
    F64(&'a mut f64),
    Str(&'a mut Str40),
    Text(&'a mut dyn AnyText),
    Link(&'a mut Link),
    Array(&'a mut Array),
}

impl Slot<'_> {
    /// The number or short text in the slot.
    #[inline]
    pub(crate) fn scalar(&self) -> Option<Scalar> {
        Some(match self {
            Slot::F64(number) => Scalar::F64(**number),
            Slot::F32(number) => Scalar::F32(**number),
            Slot::I32(number) => Scalar::I32(**number),
            Slot::U16(number) => Scalar::U16(**number),
            Slot::I16(number) => Scalar::I16(**number),
            Slot::U8(number) => Scalar::U8(**number),
            Slot::I8(number) => Scalar::I8(**number),
            Slot::U32(number) => Scalar::U32(**number),
            Slot::I64(number) => Scalar::I64(**number),
            Slot::U64(number) => Scalar::U64(**number),
            Slot::Str(text) => Scalar::String(**text),
            Slot::Text(_) | Slot::Link(_) | Slot::Array(_) | Slot::None => return None,
        })
    }
}

/// Matches a slot: one arm for all numeric types, then the given arms.
macro_rules! with_number {
    ($slot:expr, $place:ident => $number:expr, $($other:tt)*) => {
        match $slot {
            $crate::model::slot::Slot::F64($place) => $number,
            $crate::model::slot::Slot::F32($place) => $number,
            $crate::model::slot::Slot::I32($place) => $number,
            $crate::model::slot::Slot::U16($place) => $number,
            $crate::model::slot::Slot::I16($place) => $number,
            $crate::model::slot::Slot::U8($place) => $number,
            $crate::model::slot::Slot::I8($place) => $number,
            $crate::model::slot::Slot::U32($place) => $number,
            $crate::model::slot::Slot::I64($place) => $number,
            $crate::model::slot::Slot::U64($place) => $number,
            $($other)*
        }
    };
}
pub(crate) use with_number;

/// A member of a record struct that holds one or more fields.
pub(crate) trait Fields {
    /// Number of fields.
    const COUNT: usize;
    /// The field at `index`, which must be below `COUNT`.
    fn slot(&mut self, index: usize) -> Slot<'_>;
    /// Whether the fields are at their initial values and unallocated. [`slot`](Self::slot) allocates them.
    fn rests(&self) -> bool {
        false
    }
}

macro_rules! scalar_fields {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl Fields for $type {
            const COUNT: usize = 1;
            #[inline]
            fn slot(&mut self, _: usize) -> Slot<'_> {
                Slot::$variant(self)
            }
        })*
    };
}
scalar_fields!(i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f32 => F32, f64 => F64,
    Str40 => Str, Link => Link, Array => Array);

impl<const N: usize> Fields for Text<N> {
    const COUNT: usize = 1;
    #[inline]
    fn slot(&mut self, _: usize) -> Slot<'_> {
        Slot::Text(self)
    }
}

impl<T: Fields, const K: usize> Fields for [T; K] {
    const COUNT: usize = K;
    #[inline]
    fn slot(&mut self, index: usize) -> Slot<'_> {
        self[index].slot(0)
    }
}

/// Text of at most `N - 1` bytes that most records set: its bytes are in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inline<const N: usize>([u8; N]);

impl<const N: usize> Inline<N> {
    /// The text without padding.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.0.iter().position(|byte| *byte == 0).unwrap_or(N)]
    }
}

impl<const N: usize> AnyText for Inline<N> {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
    fn set(&mut self, text: &[u8]) {
        let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len()).min(N - 1);
        self.0.fill(0);
        self.0[..len].copy_from_slice(&text[..len]);
    }
}

impl<const N: usize> Fields for Inline<N> {
    const COUNT: usize = 1;
    #[inline]
    fn slot(&mut self, _: usize) -> Slot<'_> {
        Slot::Text(self)
    }
}

/// Fields that keep their initial values in most records.
pub(crate) trait Idle: Clone + 'static {
    /// The initial values.
    const IDLE: &'static Self;
    /// Whether all fields have their initial values.
    fn is_idle(&self) -> bool;
}

/// Lazily allocated fields: one word in the record until a field is accessed for writing.
///
/// Cloning drops the allocation if all fields have their initial values.
#[derive(Debug)]
pub(crate) struct Lazy<T>(Option<Box<T>>);

impl<T: Idle> std::ops::Deref for Lazy<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::IDLE)
    }
}

impl<T: Idle> std::ops::DerefMut for Lazy<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::IDLE.clone()))
    }
}

impl<T> Lazy<T> {
    /// Whether all fields have their initial values and nothing is allocated.
    #[inline]
    pub(crate) const fn rests(&self) -> bool {
        self.0.is_none()
    }
}

impl<T: Idle> Lazy<T> {
    /// Frees the memory if all fields have their initial values.
    pub(crate) fn settle(&mut self) {
        self.0.take_if(|fields| fields.is_idle());
    }
}

impl<T: Idle> Clone for Lazy<T> {
    fn clone(&self) -> Self {
        Self(self.0.as_ref().filter(|fields| !fields.is_idle()).cloned())
    }
}

impl<T: Idle + Fields> Fields for Lazy<T> {
    const COUNT: usize = T::COUNT;
    fn slot(&mut self, index: usize) -> Slot<'_> {
        (**self).slot(index)
    }
    fn rests(&self) -> bool {
        self.rests()
    }
}

/// A struct whose members are the fields of a record.
pub(crate) trait Layout: Clone {
    /// Field names in slot order.
    const NAMES: &'static [&'static str];
    /// The field at slot `index`; `Slot::None` beyond the last one.
    fn slot(&mut self, index: usize) -> Slot<'_>;
    /// Whether that field is at its initial value and unallocated.
    fn rests(&self, index: usize) -> bool;
}

/// Index of a name in a list. Compilation fails if the name is missing.
pub(crate) const fn place(names: &[&str], wanted: &str) -> u16 {
    let mut at = 0;
    while !same(names[at].as_bytes(), wanted.as_bytes()) {
        at += 1;
    }
    at as u16
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Declares a record struct and the field numbers as constants. Each member lists its fields. Members after `private` are not
/// fields.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident {
        $($member:ident: $type:ty [$($field:ident)+],)*
    } $(private { $($own:ident: $own_type:ty,)* })?) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name {
            $(pub(crate) $member: $type,)*
            $($(pub(crate) $own: $own_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($member: <$type as $crate::model::slot::Zero>::ZERO,)*
                    $($($own: Default::default(),)*)?
                }
            }
        }

        #[allow(dead_code, reason = "fields that only clients name")]
        impl $name {
            $($(
                #[doc = concat!("Number of ", stringify!($field), ".")]
                pub(crate) const $field: u16 = $crate::model::slot::place(<Self as $crate::model::slot::Layout>::NAMES, stringify!($field));
            )+)*
        }

        impl $crate::model::slot::Layout for $name {
            const NAMES: &'static [&'static str] = &[$($(stringify!($field),)+)*];

            #[allow(unused_assignments, reason = "the last step of the generated walk")]
            fn slot(&mut self, index: usize) -> $crate::model::slot::Slot<'_> {
                let mut index = index;
                $(
                    if index < <$type as $crate::model::slot::Fields>::COUNT {
                        return $crate::model::slot::Fields::slot(&mut self.$member, index);
                    }
                    index -= <$type as $crate::model::slot::Fields>::COUNT;
                )*
                $crate::model::slot::Slot::None
            }

            #[allow(unused_assignments, reason = "the last step of the generated walk")]
            fn rests(&self, index: usize) -> bool {
                let mut index = index;
                $(
                    if index < <$type as $crate::model::slot::Fields>::COUNT {
                        return $crate::model::slot::Fields::rests(&self.$member);
                    }
                    index -= <$type as $crate::model::slot::Fields>::COUNT;
                )*
                false
            }
        }

        const _: () = {
            let mut fields = 0;
            $(fields += <$type as $crate::model::slot::Fields>::COUNT;)*
            assert!(fields == <$name as $crate::model::slot::Layout>::NAMES.len());
        };
    };
}
pub(crate) use record;

/// Initial values, also for arrays of any length.
pub(crate) trait Zero {
    /// Zero or empty.
    const ZERO: Self;
}

macro_rules! zero {
    ($($type:ty = $zero:expr),* $(,)?) => { $(impl Zero for $type { const ZERO: Self = $zero; })* };
}
zero!(
    i8 = 0,
    u8 = 0,
    i16 = 0,
    u16 = 0,
    i32 = 0,
    u32 = 0,
    i64 = 0,
    u64 = 0,
    f32 = 0.0,
    f64 = 0.0,
    Str40 = Str40::EMPTY,
    Link = Link::EMPTY,
    Array = Array::F64(Vec::new())
);

impl<const N: usize> Zero for Text<N> {
    const ZERO: Self = Self(None);
}

impl<const N: usize> Zero for Inline<N> {
    const ZERO: Self = Self([0; N]);
}

impl<T> Zero for Lazy<T> {
    const ZERO: Self = Self(None);
}

impl<T: Zero, const K: usize> Zero for [T; K] {
    const ZERO: Self = [T::ZERO; K];
}
