//! Calls of functions as bytes, between the IOC and the process of a plug-in. Both ends are the same program.

use base::{Array, FieldType, Str40};
use db::ARGUMENTS;
use std::io::{self, Read, Write};
use sys::plugin::Fields;

/// Maximum bytes of a message without its arrays.
const HEAD_MAX: usize = 65_536;

/// A call of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Request {
    /// Number of the function in the plug-in.
    pub function: u32,
    pub resumed: bool,
    pub token: [u64; 2],
    pub record: String,
    pub description: Vec<u8>,
    pub fields: Fields,
    pub arguments: Arguments,
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub result: i32,
    pub later: bool,
    pub alarm: (u16, u16),
    pub fields: Fields,
    pub arguments: Arguments,
}

/// Inputs and outputs of a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arguments {
    /// A to U, and VAL of a sub record.
    Numbers([f64; ARGUMENTS], f64),
    /// A to U and VALA to VALU of an aSub record, with their capacities.
    Arrays(Box<Arrays>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arrays {
    pub inputs: [Array; ARGUMENTS],
    pub outputs: [Array; ARGUMENTS],
    pub capacity: [u32; ARGUMENTS],
    pub room: [u32; ARGUMENTS],
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Numbers([0.0; ARGUMENTS], 0.0)
    }
}

/// Malformed bytes, which a plug-in that damages its memory may send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Appends values to a message.
#[derive(Default)]
pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn fields(&mut self, fields: &Fields) {
        let Fields { value, seconds, nanoseconds, status, severity, new_status, new_severity, .. } = *fields;
        let Fields { bad_return, priority, precision, time_event, trace, undefined, .. } = *fields;
        [value as u32, seconds, nanoseconds].iter().for_each(|number| self.u32(*number));
        let words =
            [status, severity, new_status, new_severity, bad_return, priority, precision as u16, time_event as u16];
        words.iter().for_each(|number| self.u32(u32::from(*number)));
        [trace, undefined].iter().for_each(|number| self.u32(u32::from(*number)));
        [fields.units, fields.message].iter().for_each(|text| self.0.extend_from_slice(text.padded()));
    }

    fn array(&mut self, array: &Array) {
        macro_rules! numbers {
            ($elements:expr) => {
                $elements.iter().for_each(|one| self.0.extend_from_slice(&one.to_ne_bytes()))
            };
        }
        self.u32(kind_number(array.kind()));
        self.u32(array.len() as u32);
        match array {
            Array::String(texts) => texts.iter().for_each(|text| self.0.extend_from_slice(text.padded())),
            Array::I8(elements) => numbers!(elements),
            Array::U8(elements) => self.0.extend_from_slice(elements),
            Array::I16(elements) => numbers!(elements),
            Array::U16(elements) | Array::Enum(elements) => numbers!(elements),
            Array::I32(elements) => numbers!(elements),
            Array::U32(elements) => numbers!(elements),
            Array::I64(elements) => numbers!(elements),
            Array::U64(elements) => numbers!(elements),
            Array::F32(elements) => numbers!(elements),
            Array::F64(elements) => numbers!(elements),
        }
    }

    fn arguments(&mut self, arguments: &Arguments) {
        match arguments {
            Arguments::Numbers(inputs, val) => {
                self.u32(0);
                inputs.iter().chain([val]).for_each(|number| self.0.extend_from_slice(&number.to_ne_bytes()));
            }
            Arguments::Arrays(arrays) => {
                self.u32(1);
                arrays.inputs.iter().chain(&arrays.outputs).for_each(|array| self.array(array));
                arrays.capacity.iter().chain(&arrays.room).for_each(|number| self.u32(*number));
            }
        }
    }
}

/// Takes values from a message.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.fixed()?))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        u16::try_from(self.u32()?).map_err(|_| Malformed)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn fields(&mut self) -> Result<Fields, Malformed> {
        let (value, seconds, nanoseconds) = (self.u32()? as i32, self.u32()?, self.u32()?);
        let (status, severity, new_status, new_severity) = (self.u16()?, self.u16()?, self.u16()?, self.u16()?);
        let (bad_return, priority) = (self.u16()?, self.u16()?);
        let (precision, time_event) = (self.u16()? as i16, self.u16()? as i16);
        let (trace, undefined) = (self.u32()? as u8, self.u32()? as u8);
        let (units, message) = (Str40::new(self.take(40)?), Str40::new(self.take(40)?));
        #[rustfmt::skip]
        let fields = Fields {
            value, seconds, nanoseconds, status, severity, new_status, new_severity, bad_return, priority, precision,
            time_event, trace, undefined, reserved: 0, units, message,
        };
        Ok(fields)
    }

    fn array(&mut self) -> Result<Array, Malformed> {
        let kind = kind_of(self.u32()?)?;
        let count = self.u32()? as usize;
        let data = self.take(count.checked_mul(size_of_kind(kind)).ok_or(Malformed)?)?;
        macro_rules! numbers {
            ($variant:ident $type:ty) => {
                Array::$variant(
                    data.as_chunks::<{ size_of::<$type>() }>()
                        .0
                        .iter()
                        .map(|bytes| <$type>::from_ne_bytes(*bytes))
                        .collect(),
                )
            };
        }
        Ok(match kind {
            FieldType::I8 => numbers!(I8 i8),
            FieldType::U8 => Array::U8(data.to_vec()),
            FieldType::I16 => numbers!(I16 i16),
            FieldType::U16 => numbers!(U16 u16),
            FieldType::I32 => numbers!(I32 i32),
            FieldType::U32 => numbers!(U32 u32),
            FieldType::I64 => numbers!(I64 i64),
            FieldType::U64 => numbers!(U64 u64),
            FieldType::F32 => numbers!(F32 f32),
            FieldType::F64 => numbers!(F64 f64),
            FieldType::Enum | FieldType::Menu | FieldType::Device => numbers!(Enum u16),
            FieldType::String | FieldType::Link => Array::String(data.chunks_exact(40).map(Str40::new).collect()),
        })
    }

    fn arguments(&mut self) -> Result<Arguments, Malformed> {
        if self.u32()? == 0 {
            let mut numbers = [0.0; ARGUMENTS + 1];
            for number in &mut numbers {
                *number = f64::from_ne_bytes(self.fixed()?);
            }
            let mut inputs = [0.0; ARGUMENTS];
            inputs.copy_from_slice(&numbers[..ARGUMENTS]);
            return Ok(Arguments::Numbers(inputs, numbers[ARGUMENTS]));
        }
        let empty = || std::array::from_fn(|_| Array::zeros(FieldType::F64, 0));
        let mut arrays = Arrays { inputs: empty(), outputs: empty(), capacity: [0; ARGUMENTS], room: [0; ARGUMENTS] };
        for array in arrays.inputs.iter_mut().chain(&mut arrays.outputs) {
            *array = self.array()?;
        }
        for number in arrays.capacity.iter_mut().chain(&mut arrays.room) {
            *number = self.u32()?;
        }
        Ok(Arguments::Arrays(Box::new(arrays)))
    }
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u32(self.function);
        to.u32(self.resumed.into());
        self.token.iter().for_each(|word| to.0.extend_from_slice(&word.to_ne_bytes()));
        to.text(&self.record);
        to.bytes(&self.description);
        to.fields(&self.fields);
        to.arguments(&self.arguments);
        to.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        Ok(Self {
            function: from.u32()?,
            resumed: from.u32()? != 0,
            token: [u64::from_ne_bytes(from.fixed()?), u64::from_ne_bytes(from.fixed()?)],
            record: from.text()?,
            description: from.bytes()?.to_vec(),
            fields: from.fields()?,
            arguments: from.arguments()?,
        })
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u32(self.result as u32);
        to.u32(self.later.into());
        to.u32(self.alarm.0.into());
        to.u32(self.alarm.1.into());
        to.fields(&self.fields);
        to.arguments(&self.arguments);
        to.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        Ok(Self {
            result: from.u32()? as i32,
            later: from.u32()? != 0,
            alarm: (from.u16()?, from.u16()?),
            fields: from.fields()?,
            arguments: from.arguments()?,
        })
    }
}

impl Arguments {
    /// Maximum bytes of a message with these arguments after a call.
    pub(super) fn bytes_max(&self) -> usize {
        let Self::Arrays(arrays) = self else { return HEAD_MAX };
        let of = |(array, room): (&Array, &u32)| size_of_kind(array.kind()) * (*room as usize).max(array.len());
        let inputs = arrays.inputs.iter().zip(&arrays.capacity).map(of);
        HEAD_MAX + inputs.chain(arrays.outputs.iter().zip(&arrays.room).map(of)).sum::<usize>()
    }
}

/// Writes a message with its length.
pub(super) fn send(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    to.write_all(&(message.len() as u64).to_ne_bytes())?;
    to.write_all(message)
}

/// Reads a message of at most `max` bytes.
pub(super) fn receive(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_ne_bytes(length)).ok().filter(|length| *length <= max);
    let mut message = vec![0; length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?];
    from.read_exact(&mut message)?;
    Ok(message)
}

const KINDS: [FieldType; 12] = [
    FieldType::String,
    FieldType::I8,
    FieldType::U8,
    FieldType::I16,
    FieldType::U16,
    FieldType::I32,
    FieldType::U32,
    FieldType::I64,
    FieldType::U64,
    FieldType::F32,
    FieldType::F64,
    FieldType::Enum,
];

fn kind_number(kind: FieldType) -> u32 {
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len() - 1) as u32
}

fn kind_of(number: u32) -> Result<FieldType, Malformed> {
    KINDS.get(number as usize).copied().ok_or(Malformed)
}

const fn size_of_kind(kind: FieldType) -> usize {
    match kind {
        FieldType::String | FieldType::Link => 40,
        FieldType::I8 | FieldType::U8 => 1,
        FieldType::I16 | FieldType::U16 | FieldType::Enum | FieldType::Menu | FieldType::Device => 2,
        FieldType::I32 | FieldType::U32 | FieldType::F32 => 4,
        FieldType::I64 | FieldType::U64 | FieldType::F64 => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let mut inputs = KINDS.map(|kind| Array::zeros(kind, 3)).to_vec();
        inputs.resize(ARGUMENTS, Array::F64(vec![1.5, f64::MAX]));
        inputs[0] = Array::String(vec![Str40::new(&[b'x'; 39]), Str40::EMPTY]);
        inputs[1] = Array::I8(vec![-128, 127]);
        inputs[7] = Array::I64(vec![i64::MIN]);
        let inputs: [Array; ARGUMENTS] = inputs.try_into().unwrap();
        let outputs = std::array::from_fn(|_| Array::zeros(FieldType::F64, 0));
        let arrays = Arrays { inputs, outputs, capacity: [4; ARGUMENTS], room: [1; ARGUMENTS] };
        let (units, message) = (Str40::new(b"mm"), Str40::new(&[b'x'; 39]));
        let fields = Fields { value: -1, precision: -2, time_event: -2, trace: 1, bad_return: 3, ..Fields::default() };
        let fields = Fields { units, message, ..fields };
        Request {
            function: 2,
            resumed: true,
            token: [u64::MAX, 1],
            record: "X:r".into(),
            description: b"\xff".to_vec(),
            fields,
            arguments: Arguments::Arrays(Box::new(arrays)),
        }
    }

    #[test]
    fn a_call_and_its_result_arrive_unchanged() {
        let request = request();
        assert_eq!(Request::decode(&request.encode()), Ok(request.clone()));
        let reply =
            Reply { result: -1, later: true, alarm: (4, 1), fields: request.fields, arguments: request.arguments };
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        let numbers = Request { arguments: Arguments::Numbers([2.0; ARGUMENTS], 3.0), ..Request::default() };
        assert_eq!(Request::decode(&numbers.encode()), Ok(numbers));
    }

    #[test]
    fn bytes_of_a_damaged_plug_in_are_refused_and_never_panic() {
        let bytes = request().encode();
        for end in 0..bytes.len() {
            assert_eq!(Request::decode(&bytes[..end]), Err(Malformed), "{end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] = 0xff;
            let _ = (Request::decode(&damaged), Reply::decode(&damaged));
        }
    }

    #[test]
    fn a_message_longer_than_allowed_is_refused_before_memory_is_reserved() {
        let mut bytes = Vec::new();
        send(&mut bytes, b"abc").unwrap();
        assert_eq!(receive(&mut &bytes[..], 3).unwrap(), b"abc");
        assert_eq!(receive(&mut &bytes[..], 2).unwrap_err().kind(), io::ErrorKind::InvalidData);
        bytes[..8].fill(0xff);
        assert!(receive(&mut &bytes[..], usize::MAX / 2).is_err());
    }
}
