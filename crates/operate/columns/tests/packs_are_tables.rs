//! Reads an archive's packs with Apache's Parquet reader, and compares each row with the archive.

use base::{Array, Scalar, Str40};
use columns::ParquetReader;
use exchange::Row;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use store::{Archive, Config, Logger, Memory, Span, pack};

/// The value of a signal of type `kind` at the number `k`.
fn datum(kind: usize, k: i64) -> Datum {
    let number = k as f64 / 8.0;
    match kind {
        0 => Datum::from(number.sin()),
        1 => Datum::from(number.floor() / 100.0),
        2 => Datum::Number(Scalar::F32(number as f32)),
        3 => Datum::Number(Scalar::I16(-k as i16)),
        4 => Datum::Number(Scalar::U32(u32::MAX - k as u32)),
        5 => Datum::from(i64::MIN + k),
        6 => Datum::Number(Scalar::U64(u64::MAX - k as u64)),
        7 => Datum::Number(Scalar::Enum((k % 3) as u16)),
        8 => Datum::Bool(k % 5 == 0),
        9 => Datum::Text(if k % 7 == 0 { vec![0xFF, k as u8] } else { format!("°{k}").into_bytes() }),
        10 => Datum::Blob(vec![k as u8; (k % 4) as usize]),
        11 => Datum::Array(Array::F64(vec![number; (k % 3) as usize])),
        12 => Datum::Array(Array::F32(vec![number as f32; 2])),
        13 => Datum::Array(Array::I32(vec![-k as i32; (k % 3) as usize])),
        14 => Datum::Array(Array::U8(vec![k as u8; 9])),
        15 => Datum::Array(Array::U64(vec![u64::MAX; 1])),
        _ => Datum::Array(Array::String(vec![Str40::new(b"a\\\xfe"); (k % 3) as usize])),
    }
}

#[test]
fn each_row_of_a_pack_equals_that_of_the_archive_and_the_file_checksum_is_right() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    for kind in 0..17 {
        let about = About { units: "°\"\n".into(), precision: Some(2), labels: vec!["off".into(), "on".into()] };
        let signal = logger.signal(&format!("S{kind:02}"), about, 5).unwrap();
        // More than a chunk, and for some signals more than a row group.
        for k in 0..if kind < 2 { 30_000 } else { 1_500 } {
            let pulse = (kind % 2 == 0).then_some(k as u64);
            let (severity, status) = if k / 500 == 1 { ((k % 4) as u8, (k % 99) as u16) } else { (0, 0) };
            logger.push(signal, &Sample { pulse, severity, status, ..Sample::new(k * 1_000 + k % 7, datum(kind, k)) });
        }
        logger.gap(Some(signal), 70, Cause::Disconnected, kind as u64);
    }
    logger.gap(None, 90, Cause::Paused, 0);
    logger.close(0, 100_000_000_000);
    let segments: Vec<String> = list(&files);
    let packed = pack(&files, 1, 1_000).unwrap();
    let left = vec![packed.name.clone(), "manifest".to_owned()];
    assert_eq!((list(&files), packed.samples), (left, 60_000 + 15 * 1_500), "{segments:?}");
    let archive = Archive::open(files.clone()).unwrap();
    let mut expected = Vec::new();
    for name in archive.names() {
        expected.extend(archive.rows(&name).into_iter().map(|row| {
            format!("{:?}", Row::Signal { name: row.name, since: row.since, kind: row.kind, about: row.about })
        }));
        for sample in archive.samples(&name, Span::ALL).unwrap() {
            expected.push(format!("{:?}", Row::Sample { name: name.clone(), sample: sample.unwrap() }));
        }
        for gap in archive.gaps(&name, Span::ALL).into_iter().filter(|gap| gap.id.is_some()) {
            expected.push(format!(
                "{:?}",
                Row::Gap { name: Some(name.clone()), at: gap.at, cause: gap.cause, lost: gap.lost }
            ));
        }
    }
    for gap in archive.gaps("", Span::ALL) {
        expected.push(format!("{:?}", Row::Gap { name: None, at: gap.at, cause: gap.cause, lost: gap.lost }));
    }
    let bytes = bytes::Bytes::from(files.bytes(&packed.name).unwrap());
    let found: Vec<String> = ParquetReader::new(bytes).unwrap().map(|row| format!("{:?}", row.unwrap())).collect();
    let (mut found, mut expected) = (found, expected);
    assert_eq!(found.len(), expected.len());
    // The rows about signals come first in a table.
    found.sort();
    expected.sort();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}

fn list(files: &Memory) -> Vec<String> {
    use store::Files as _;
    files.list().unwrap().into_iter().map(|(name, _)| name).filter(|name| name != "lock").collect()
}
