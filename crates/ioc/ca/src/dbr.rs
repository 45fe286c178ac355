//! The 39 data types of the wire (`DBR_…`): type of the element and additional data.

use base::FieldType;

/// Type of an element on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the protocol names them")]
#[repr(u8)]
pub enum Basic {
    String = 0,
    Short = 1,
    Float = 2,
    Enum = 3,
    Char = 4,
    Long = 5,
    Double = 6,
}

impl Basic {
    /// All seven types in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::String, Self::Short, Self::Float, Self::Enum, Self::Char, Self::Long, Self::Double];

    /// Size of one element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::String => 40,
            Self::Short | Self::Enum => 2,
            Self::Float | Self::Long => 4,
            Self::Char => 1,
            Self::Double => 8,
        }
    }

    /// The type on the wire for the type of a record field. Types that the wire lacks are sent as the next wider type.
    #[must_use]
    pub const fn native_of(field: FieldType) -> Self {
        match field {
            FieldType::String | FieldType::Link => Self::String,
            FieldType::I8 | FieldType::U8 => Self::Char,
            FieldType::I16 => Self::Short,
            FieldType::U16 | FieldType::I32 => Self::Long,
            FieldType::U32 | FieldType::I64 | FieldType::U64 | FieldType::F64 => Self::Double,
            FieldType::F32 => Self::Float,
            FieldType::Enum | FieldType::Menu | FieldType::Device => Self::Enum,
        }
    }
}

/// The data before the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// No data.
    Plain = 0,
    /// Alarm status and severity.
    Sts = 1,
    /// Alarm and time stamp.
    Time = 2,
    /// Alarm, units, precision, display and alarm limits, or state names.
    Gr = 3,
    /// As `Gr`, with control limits.
    Ctrl = 4,
}

/// One of the 39 types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dbr(u16);

impl Dbr {
    /// Write: whether transient alarms need acknowledgement.
    pub const PUT_ACKT: Self = Self(35);
    /// Write: acknowledges alarms up to a severity.
    pub const PUT_ACKS: Self = Self(36);
    /// Text with alarm and acknowledgement state.
    pub const STSACK_STRING: Self = Self(37);
    /// The record's type.
    pub const CLASS_NAME: Self = Self(38);

    /// Converts the number on the wire. Returns `None` above 38.
    #[must_use]
    pub const fn from_wire(number: u16) -> Option<Self> {
        if number <= 38 { Some(Self(number)) } else { None }
    }

    /// The type of an element with a class.
    #[must_use]
    pub const fn new(class: Class, basic: Basic) -> Self {
        Self(class as u16 * 7 + basic as u16)
    }

    /// The type of an element without additional data.
    #[must_use]
    pub const fn plain(basic: Basic) -> Self {
        Self(basic as u16)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn wire(self) -> u16 {
        self.0
    }

    /// Class and element for types 0 to 34.
    #[must_use]
    pub const fn parts(self) -> Option<(Class, Basic)> {
        if self.0 > 34 {
            return None;
        }
        let class = match self.0 / 7 {
            0 => Class::Plain,
            1 => Class::Sts,
            2 => Class::Time,
            3 => Class::Gr,
            _ => Class::Ctrl,
        };
        Some((class, Basic::ALL[(self.0 % 7) as usize]))
    }

    /// Type of the element.
    #[must_use]
    pub const fn basic(self) -> Basic {
        SHAPES[self.0 as usize].0
    }

    /// Number of bytes before the first element.
    #[must_use]
    pub const fn value_offset(self) -> usize {
        SHAPES[self.0 as usize].1 as usize
    }

    const fn basic_by_rule(self) -> Basic {
        match self.parts() {
            Some((_, basic)) => basic,
            None if self.0 == 35 || self.0 == 36 => Basic::Short,
            None => Basic::String,
        }
    }

    const fn offset_by_rule(self) -> u16 {
        let Some((class, basic)) = self.parts() else {
            return if self.0 == 37 { 8 } else { 0 };
        };
        match (class, basic) {
            (Class::Plain, _) => 0,
            (Class::Sts, Basic::Char) => 5,
            (Class::Sts, Basic::Double) => 8,
            (Class::Sts, _) | (Class::Gr | Class::Ctrl, Basic::String) => 4,
            (Class::Time, Basic::String | Basic::Float | Basic::Long) => 12,
            (Class::Time, Basic::Short | Basic::Enum) => 14,
            (Class::Time, Basic::Char) => 15,
            (Class::Time, Basic::Double) => 16,
            (Class::Gr | Class::Ctrl, Basic::Enum) => 422,
            (Class::Gr, Basic::Short) => 24,
            (Class::Gr, Basic::Float) => 40,
            (Class::Gr, Basic::Char) => 19,
            (Class::Gr, Basic::Long) => 36,
            (Class::Gr, Basic::Double) => 64,
            (Class::Ctrl, Basic::Short) => 28,
            (Class::Ctrl, Basic::Float) => 48,
            (Class::Ctrl, Basic::Char) => 21,
            (Class::Ctrl, Basic::Long) => 44,
            (Class::Ctrl, Basic::Double) => 80,
        }
    }

    /// Size in bytes of a payload with `count` elements, without padding. With a count of zero it is the size of the data before
    /// the value.
    #[must_use]
    pub const fn size(self, count: u32) -> usize {
        self.value_offset() + self.basic().size() * count as usize
    }

    /// Returns whether the type contains labels, limits or units.
    #[must_use]
    pub const fn wants_meta(self) -> bool {
        matches!(self.parts(), Some((Class::Gr | Class::Ctrl, _)))
    }

    /// The name in EPICS headers, e.g. `DBR_TIME_DOUBLE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        NAMES[self.0 as usize]
    }
}

/// Element and value offset of each type. A table, because each request needs them several times.
const SHAPES: [(Basic, u16); 39] = {
    let mut shapes = [(Basic::String, 0); 39];
    let mut number = 0;
    while number < shapes.len() {
        let dbr = Dbr(number as u16);
        shapes[number] = (dbr.basic_by_rule(), dbr.offset_by_rule());
        number += 1;
    }
    shapes
};

const NAMES: [&str; 39] = [
    "DBR_STRING",
    "DBR_SHORT",
    "DBR_FLOAT",
    "DBR_ENUM",
    "DBR_CHAR",
    "DBR_LONG",
    "DBR_DOUBLE",
    "DBR_STS_STRING",
    "DBR_STS_SHORT",
    "DBR_STS_FLOAT",
    "DBR_STS_ENUM",
    "DBR_STS_CHAR",
    "DBR_STS_LONG",
    "DBR_STS_DOUBLE",
    "DBR_TIME_STRING",
    "DBR_TIME_SHORT",
    "DBR_TIME_FLOAT",
    "DBR_TIME_ENUM",
    "DBR_TIME_CHAR",
    "DBR_TIME_LONG",
    "DBR_TIME_DOUBLE",
    "DBR_GR_STRING",
    "DBR_GR_SHORT",
    "DBR_GR_FLOAT",
    "DBR_GR_ENUM",
    "DBR_GR_CHAR",
    "DBR_GR_LONG",
    "DBR_GR_DOUBLE",
    "DBR_CTRL_STRING",
    "DBR_CTRL_SHORT",
    "DBR_CTRL_FLOAT",
    "DBR_CTRL_ENUM",
    "DBR_CTRL_CHAR",
    "DBR_CTRL_LONG",
    "DBR_CTRL_DOUBLE",
    "DBR_PUT_ACKT",
    "DBR_PUT_ACKS",
    "DBR_STSACK_STRING",
    "DBR_CLASS_NAME",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_one_element_are_those_of_the_table() {
        let sizes = [
            [40, 2, 4, 2, 1, 4, 8],
            [44, 6, 8, 6, 6, 8, 16],
            [52, 16, 16, 16, 16, 16, 24],
            [44, 26, 44, 424, 20, 40, 72],
            [44, 30, 52, 424, 22, 48, 88],
        ];
        for (class, row) in sizes.iter().enumerate() {
            for (basic, size) in row.iter().enumerate() {
                let dbr = Dbr::from_wire((class * 7 + basic) as u16).unwrap();
                assert_eq!(dbr.size(1), *size, "{}", dbr.name());
            }
        }
        assert_eq!((Dbr::STSACK_STRING.size(1), Dbr::CLASS_NAME.size(1), Dbr::PUT_ACKS.size(1)), (48, 40, 2));
        assert_eq!(Dbr::from_wire(39), None);
    }
}
