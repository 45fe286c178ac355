//! Values of one column without nulls, with the definition and repetition levels that give their positions.

use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;

/// Values of one of Parquet's physical types.
#[derive(Debug)]
pub(crate) enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

macro_rules! each {
    ($values:expr, $some:ident => $what:expr) => {
        match $values {
            Values::Bool($some) => $what,
            Values::I32($some) => $what,
            Values::I64($some) => $what,
            Values::F32($some) => $what,
            Values::F64($some) => $what,
            Values::Bytes($some) => $what,
        }
    };
}

impl Values {
    /// An empty set of values of a type. `None` for types that no supported column has.
    pub(crate) const fn new(kind: Physical) -> Option<Self> {
        Some(match kind {
            Physical::BOOLEAN => Self::Bool(Vec::new()),
            Physical::INT32 => Self::I32(Vec::new()),
            Physical::INT64 => Self::I64(Vec::new()),
            Physical::FLOAT => Self::F32(Vec::new()),
            Physical::DOUBLE => Self::F64(Vec::new()),
            Physical::BYTE_ARRAY => Self::Bytes(Vec::new()),
            Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => return None,
        })
    }
}

/// Values of a column for some rows.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) values: Values,
    /// Definition level of each value. Empty if the column is required.
    pub(crate) defined: Vec<i16>,
    /// Repetition level of each value, 0 at the start of a row. Empty if the column is not repeated.
    pub(crate) repeated: Vec<i16>,
}

impl Leaf {
    pub(crate) const fn new(values: Values) -> Self {
        Self { values, defined: Vec::new(), repeated: Vec::new() }
    }

    /// Removes all values and keeps the memory.
    pub(crate) fn clear(&mut self) {
        each!(&mut self.values, some => some.clear());
        self.defined.clear();
        self.repeated.clear();
    }

    /// Replaces the values by those of the next rows. Returns the number of rows read.
    pub(crate) fn get(&mut self, reader: &mut ColumnReader, rows: usize) -> Result<usize, ParquetError> {
        self.clear();
        let (defined, repeated) = (&mut self.defined, &mut self.repeated);
        match (&mut self.values, reader) {
            (Values::Bool(some), ColumnReader::BoolColumnReader(input)) => all(input, rows, defined, repeated, some),
            (Values::I32(some), ColumnReader::Int32ColumnReader(input)) => all(input, rows, defined, repeated, some),
            (Values::I64(some), ColumnReader::Int64ColumnReader(input)) => all(input, rows, defined, repeated, some),
            (Values::F32(some), ColumnReader::FloatColumnReader(input)) => all(input, rows, defined, repeated, some),
            (Values::F64(some), ColumnReader::DoubleColumnReader(input)) => all(input, rows, defined, repeated, some),
            (Values::Bytes(some), ColumnReader::ByteArrayColumnReader(input)) => {
                all(input, rows, defined, repeated, some)
            }
            _ => Err(ParquetError::General("a column of another type than its schema's".into())),
        }
    }
}

fn all<T: DataType>(
    input: &mut ColumnReaderImpl<T>,
    rows: usize,
    defined: &mut Vec<i16>,
    repeated: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<usize, ParquetError> {
    let (rows, ..) = input.read_records(rows, Some(defined), Some(repeated), values)?;
    Ok(rows)
}
