//! Round trips of chunks. The crate `columns` tests reading with other programs.

use super::{entries as entries_of, *};
use crate::datum::{Datum, Sample};
use crate::rows::{About, Cause, Gap, Signal};
use crate::{Bad, Chunk};
use base::{Array, Scalar, Str40};
use proptest::prelude::*;

/// Writes a table of these chunks. Returns it with the positions of the chunks.
fn table(chunks: &[Chunk]) -> (Vec<u8>, Vec<Pages>) {
    let (mut table, mut out, mut entries) = (Table::new(), MAGIC.to_vec(), Vec::new());
    for (id, chunk) in (0..).zip(chunks) {
        let about = About { units: "\"\n".into(), precision: None, labels: vec!["off".into(), "on".into()] };
        let name = format!("S{id}");
        table.signal(&name, &[Signal { id, since: 0, kind: chunk.kind(), name: name.clone(), about }]);
        table.chunk(id, chunk);
        table.gap(&Gap { id: Some(id), at: 5, cause: Cause::Overflow, lost: 3 }, false);
        if table.is_full(true) || id % 3 == 2 {
            entries.extend(table.group(&mut out));
        }
    }
    entries.extend(table.group(&mut out));
    let sum = crc32c::crc32c(&out);
    let end = table.end(sum);
    assert!(is_as_written(&end, sum) && !is_as_written(&end, sum ^ 1));
    out.extend_from_slice(&end);
    (out, entries.into_iter().map(|(_, entry)| entry).collect())
}

fn read(file: &[u8], entry: &Pages) -> Result<Chunk, Bad> {
    let bytes = |page: &Page| file[page.offset as usize..][..page.len as usize].to_vec();
    let numbers = entry.dictionary.map(|(page, count)| Pages::numbers(&page, count, &bytes(&page))).transpose()?;
    let pressed: Vec<Vec<u8>> = entry.pages.iter().map(bytes).collect();
    entry.decode(&pressed, numbers.as_deref())
}

fn chunk(values: &[Datum], pulses: bool, alarms: bool) -> Chunk {
    let mut chunk = Chunk::new(values[0].kind());
    for (k, datum) in values.iter().enumerate() {
        let pulse = pulses.then_some(k as u64 * 3);
        let (severity, status) = if alarms { ((k % 4) as u8, (k * 77) as u16) } else { (0, 0) };
        let sample = Sample { severity, status, pulse, ..Sample::new(k as i64 * 1_000 - 7, datum.clone()) };
        chunk.push(&sample).unwrap();
    }
    chunk
}

fn same(one: &Chunk, other: &Chunk) {
    // Printed, so that NaN equals NaN.
    assert_eq!(format!("{:?}", one.iter().collect::<Vec<_>>()), format!("{:?}", other.iter().collect::<Vec<_>>()));
}

fn all_types() -> Vec<Chunk> {
    let numbers = |make: fn(i64) -> Scalar| (0..300).map(|k| Datum::Number(make(k))).collect::<Vec<_>>();
    let values: Vec<Vec<Datum>> = vec![
        numbers(|k| Scalar::F64((k as f64).sin())),
        numbers(|k| Scalar::F64([0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE][k as usize % 5])),
        numbers(|k| Scalar::F32((k as f32).cos())),
        numbers(|k| Scalar::I8(-k as i8)),
        numbers(|k| Scalar::U8(k as u8)),
        numbers(|k| Scalar::I16(-k as i16 * 99)),
        numbers(|k| Scalar::U16(k as u16 * 200)),
        numbers(|k| Scalar::I32(i32::MIN + k as i32)),
        numbers(|k| Scalar::U32(u32::MAX - k as u32)),
        numbers(|k| Scalar::I64(i64::MIN + k)),
        numbers(|k| Scalar::U64(u64::MAX - k as u64)),
        numbers(|k| Scalar::Enum((k % 3) as u16)),
        (0..300).map(|k| Datum::Bool(k % 7 == 0)).collect(),
        (0..300).map(|k| Datum::Text(vec![b'a' + (k % 3) as u8; k % 4])).collect(),
        (0..300).map(|k| Datum::Text(if k % 2 == 0 { vec![0xFF, 1] } else { b"good".to_vec() })).collect(),
        (0..300).map(|k| Datum::Blob(vec![k as u8; k % 5])).collect(),
        (0..99).map(|k| Datum::Array(Array::F64(vec![k as f64 / 3.0; k % 4]))).collect(),
        (0..99).map(|k| Datum::Array(Array::F32(vec![k as f32 / 3.0; k % 3]))).collect(),
        (0..99).map(|k| Datum::Array(Array::U8(vec![k as u8 * 2; k]))).collect(),
        (0..99).map(|k| Datum::Array(Array::I16(vec![-(k as i16); k % 2]))).collect(),
        (0..99).map(|k| Datum::Array(Array::U64(vec![u64::MAX - k as u64; 2]))).collect(),
        (0..99).map(|k| Datum::Array(Array::I64(vec![i64::MIN; k % 2 * 3]))).collect(),
        (0..99).map(|k| Datum::Array(Array::Enum(vec![k as u16; 3]))).collect(),
        (0..99).map(|k| Datum::Array(Array::String(vec![Str40::new(b"\xff\\x"); k % 3]))).collect(),
    ];
    let chunks = values.iter().enumerate();
    chunks.map(|(index, values)| chunk(values, index % 2 == 0, index % 3 == 0)).collect()
}

#[test]
fn values_of_each_type_survive_a_round_trip() {
    let chunks = all_types();
    let (file, entries) = table(&chunks);
    assert_eq!(entries.len(), chunks.len());
    for (entry, chunk) in entries.iter().zip(&chunks) {
        same(&read(&file, entry).unwrap(), chunk);
        let mut payload = 7u32.to_le_bytes().to_vec();
        entry.write(&mut payload);
        let (id, back) = entries_of(&payload).unwrap();
        assert_eq!((id, format!("{back:?}")), (7, format!("{:?}", [entry])));
    }
}

#[test]
fn a_flipped_byte_is_detected() {
    let (file, entries) = table(&all_types()[..3]);
    for entry in &entries {
        let places = entry.pages.iter().chain(entry.dictionary.as_ref().map(|(page, _)| page));
        for page in places {
            for at in (page.offset..page.offset + u64::from(page.len)).step_by(13) {
                let mut turned = file.clone();
                turned[at as usize] ^= 4;
                assert_eq!(read(&turned, entry).err(), Some(Bad::Sum), "byte {at}");
            }
        }
    }
}

proptest! {
    #[test]
    fn doubles_survive_a_round_trip(bits in prop::collection::vec(prop_oneof![any::<u64>(), (0..50u64).prop_map(|v| (v as f64 / 10.0).to_bits())], 1..300)) {
        let values: Vec<Datum> = bits.into_iter().map(|bits| Datum::from(f64::from_bits(bits))).collect();
        let made = chunk(&values, false, false);
        let (file, entries) = table(&[made.clone(), made.clone()]);
        for entry in &entries {
            same(&read(&file, entry).unwrap(), &made);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), plain in prop::collection::vec(any::<u8>(), 0..80), which in 0..24usize) {
        let _ = entries_of(&bytes);
        // A page with a valid checksum and random contents.
        let pressed = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
        let (_, entries) = table(&all_types()[which..=which]);
        let mut entry = entries[0].clone();
        for page in &mut entry.pages {
            *page = Page::new(page.column, page.encoding, 0, plain.len(), &pressed);
        }
        let count = entry.pages.len();
        let _ = entry.decode(&vec![pressed; count], Some(&[1, 2]));
    }
}
