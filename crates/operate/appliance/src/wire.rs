//! The subset of the Protocol Buffers wire format that is needed here.

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// Fields of a message with their numbers. Ends with `None` at the first unreadable field.
pub(crate) fn fields(mut input: &[u8]) -> impl Iterator<Item = Option<(u64, Field<'_>)>> {
    std::iter::from_fn(move || {
        if input.is_empty() {
            return None;
        }
        let field = field(&mut input);
        if field.is_none() {
            input = &[];
        }
        Some(field)
    })
}

fn field<'a>(input: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = varint(input)?;
    let field = match key & 7 {
        0 => Field::Varint(varint(input)?),
        1 => Field::Fixed64(fixed(input)?),
        2 => {
            let len = usize::try_from(varint(input)?).ok()?;
            let (bytes, rest) = input.split_at_checked(len)?;
            *input = rest;
            Field::Bytes(bytes)
        }
        5 => Field::Fixed32(fixed(input)?),
        // Groups are deprecated and not supported.
        _ => return None,
    };
    Some((key >> 3, field))
}

/// Reads a variable-length integer.
pub(crate) fn varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn fixed<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*bytes)
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

pub(crate) fn put_fixed64(out: &mut Vec<u8>, field: u64, bytes: [u8; 8]) {
    put_varint(out, field << 3 | 1);
    out.extend_from_slice(&bytes);
}

pub(crate) fn put_fixed32(out: &mut Vec<u8>, field: u64, bytes: [u8; 4]) {
    put_varint(out, field << 3 | 5);
    out.extend_from_slice(&bytes);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Zigzag encoding of a signed number, as in `sint32`: small magnitudes give small numbers.
pub(crate) const fn zigzag(value: i32) -> u64 {
    ((value << 1) ^ (value >> 31)) as u32 as u64
}

/// The inverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1) as i32 ^ -((value & 1) as i32)
}
