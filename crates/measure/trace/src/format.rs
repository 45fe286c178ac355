//! Parser for an event's `format` file, which describes the fields of its records.

/// Maximum size of a record; fields must be within it.
const RECORD_BYTES_MAX: usize = 4096;
/// Maximum number of fields, more than any event has.
const FIELDS_MAX: usize = 128;

/// Position of a field in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes; 0 if this kernel lacks the field.
    pub size: usize,
    /// Whether a number is signed.
    pub signed: bool,
    /// Whether it contains the position of the data (`__data_loc`), not the data.
    pub elsewhere: bool,
}

/// Format of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Number at the start of its records.
    pub id: u16,
    /// Fields with their names, in the file's order.
    pub fields: Vec<(String, Field)>,
}

/// Reason why a text is not a valid format file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// No `ID:` line with a number.
    Id,
    /// A field's line cannot be parsed, or its position exceeds the maximum record.
    Field {
        /// The line.
        line: String,
    },
    /// A field common to all events is missing or not in its usual position.
    Common,
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id => f.write_str("no line `ID: NUMBER`"),
            Self::Field { line } => write!(f, "this line of a field is not understood: {line:?}"),
            Self::Common => f.write_str("the fields that all events begin with are not where they have always been"),
        }
    }
}

impl std::error::Error for FormatError {}

impl Format {
    /// Parses a `format` file.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok()).ok_or(FormatError::Id)?;
        let fields = fields(text)?;
        let format = Self { id, fields };
        let common =
            [("common_type", 0, 2), ("common_flags", 2, 1), ("common_preempt_count", 3, 1), ("common_pid", 4, 4)];
        let stands = |&(name, offset, size): &(&str, usize, usize)| {
            format.field(name).is_some_and(|field| (field.offset, field.size) == (offset, size))
        };
        if !common.iter().all(stands) {
            return Err(FormatError::Common);
        }
        Ok(format)
    }

    /// The field `name`, if it exists.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, field)| *field)
    }
}

/// Parses the field lines of `text`.
pub(crate) fn fields(text: &str) -> Result<Vec<(String, Field)>, FormatError> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("field:")).take(FIELDS_MAX);
    lines.map(|line| field(line).ok_or_else(|| FormatError::Field { line: line.to_owned() })).collect()
}

/// Parses `field:char prev_comm[16]; offset:8; size:16; signed:0;`, separated by tabs.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?.trim();
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")? != 0);
    if offset.checked_add(size)? > RECORD_BYTES_MAX {
        return None;
    }
    let name = declared.rsplit([' ', '\t', '*']).next()?;
    let name = name.split('[').next().filter(|name| !name.is_empty())?;
    Some((name.to_owned(), Field { offset, size, signed, elsewhere: declared.starts_with("__data_loc ") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:void * function;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:32;\tsize:4;\tsigned:0;\n\nprint fmt: \"x\"\n";

    #[test]
    fn fields_are_found_by_name_for_any_type() {
        let format = Format::parse(SWITCH).unwrap();
        assert_eq!(format.id, 372);
        let plain = |offset, size| Field { offset, size, ..Field::default() };
        assert_eq!(format.field("prev_comm"), Some(plain(8, 16)));
        assert_eq!(format.field("function"), Some(plain(24, 8)));
        assert_eq!(format.field("name"), Some(Field { elsewhere: true, ..plain(32, 4) }));
        assert_eq!(format.field("nothing"), None);
    }

    #[test]
    fn a_malformed_format_is_refused_with_the_reason() {
        assert_eq!(Format::parse(""), Err(FormatError::Id));
        assert_eq!(Format::parse("ID: 70000"), Err(FormatError::Id));
        assert_eq!(Format::parse("ID: 7\n"), Err(FormatError::Common));
        assert!(matches!(Format::parse(&SWITCH.replace("offset:24", "offset:4090")), Err(FormatError::Field { .. })));
        assert_eq!(Format::parse(&SWITCH.replace("offset:4;", "offset:5;")), Err(FormatError::Common));
    }
}
