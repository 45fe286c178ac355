use super::*;
use base::{Array, Scalar, Str40};
use proptest::prelude::*;

/// A value of one of eight types, selected by `kind`.
fn datum(kind: u8) -> BoxedStrategy<Datum> {
    match kind % 8 {
        0 => any::<f64>().prop_map(Datum::from).boxed(),
        1 => any::<i16>().prop_map(|v| Datum::from(f64::from(v) / 100.0)).boxed(),
        2 => any::<bool>().prop_map(Datum::from).boxed(),
        3 => any::<u64>().prop_map(|v| Datum::Number(Scalar::U64(v))).boxed(),
        4 => any::<i8>().prop_map(|v| Datum::Number(Scalar::I8(v))).boxed(),
        5 => "[ab]{0,3}".prop_map(|text| Datum::from(text.as_str())).boxed(),
        6 => prop::collection::vec(any::<f32>(), 0..5).prop_map(|v| Datum::Array(Array::F32(v))).boxed(),
        _ => prop::collection::vec("[a-c]{0,2}", 0..3)
            .prop_map(|v| Datum::Array(Array::String(v.iter().map(|text| Str40::from(text.as_str())).collect())))
            .boxed(),
    }
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    (0..8u8, any::<bool>(), -1_000i64..1_000).prop_flat_map(|(kind, pulsed, first)| {
        let sample = (prop_oneof![Just(1_000_000i64), 0..5_000_000i64], datum(kind), 0..4u8, 0..22u16, 0..3u64);
        prop::collection::vec(sample, 1..60).prop_map(move |parts| {
            let (mut at, mut pulse) = (first, 40u64);
            let sample = |(step, datum, severity, status, pulses): (i64, Datum, u8, u16, u64)| {
                at += step;
                pulse += pulses;
                let (severity, status) = if severity == 3 { (severity, status) } else { (0, 0) };
                Sample { at, datum, severity, status, pulse: pulsed.then_some(pulse) }
            };
            parts.into_iter().map(sample).collect()
        })
    })
}

fn chunk_of(samples: &[Sample]) -> Chunk {
    let mut chunk = Chunk::new(samples[0].datum.kind());
    samples.iter().for_each(|sample| chunk.push(sample).unwrap());
    chunk
}

/// Printed for comparison, so that NaN equals NaN.
fn shown(samples: &[Sample]) -> Vec<String> {
    samples.iter().map(|sample| format!("{sample:?}")).collect()
}

proptest! {
    #[test]
    fn samples_survive_a_round_trip(samples in samples(), base in -1_000i64..1_000) {
        let chunk = chunk_of(&samples);
        prop_assert_eq!(shown(&chunk.iter().collect::<Vec<_>>()), shown(&samples));
        let mut bytes = Vec::new();
        chunk.encode(base, &mut bytes);
        let back = Chunk::decode(&bytes, base);
        prop_assert_eq!(back.as_ref(), Ok(&chunk));
        prop_assert_eq!(Chunk::span(&bytes, base), Ok((samples[0].at, samples[samples.len() - 1].at, samples.len())));
        for len in 0..bytes.len() {
            prop_assert!(Chunk::decode(&bytes[..len], base).is_err(), "{} of {} bytes", len, bytes.len());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0..80u8) {
        let mut bytes = bytes;
        if let Some(code) = bytes.get_mut(1) {
            *code = kind;
        }
        if let Ok(chunk) = Chunk::decode(&bytes, i64::MAX) {
            chunk.iter().for_each(drop);
            let _ = chunk.summary(0..chunk.len());
        }
    }
}

#[test]
fn each_type_has_a_unique_number() {
    let known: Vec<Kind> = (0..=255).filter_map(|code| Kind::from_code(code).ok()).collect();
    assert_eq!(known.len(), 11 + 3 + 12, "{known:?}");
    known.iter().for_each(|kind| assert_eq!(Kind::from_code(kind.code()), Ok(*kind), "{kind}"));
}

#[test]
fn a_chunk_returns_the_reason_for_refusing_a_sample() {
    let mut chunk = chunk_of(&[Sample::new(5, 1.0)]);
    assert_eq!(chunk.push(&Sample::new(4, 1.0)), Err(Full::Backwards));
    assert_eq!(chunk.push(&Sample::new(6, true)), Err(Full::Kind));
    assert_eq!(chunk.push(&Sample { pulse: Some(1), ..Sample::new(6, 1.0) }), Err(Full::Pulse));
    for at in 1..SAMPLES_MAX as i64 {
        assert_eq!(chunk.push(&Sample::new(5 + at, 1.0)), Ok(()));
    }
    assert_eq!(chunk.push(&Sample::new(i64::MAX, 1.0)), Err(Full::Count));
    let mut chunk = Chunk::new(Kind::Blob);
    let long = Sample::new(0, Datum::Blob(vec![0; VALUE_MAX + 1]));
    assert_eq!((chunk.push(&long), chunk.len()), (Err(Full::TooLong), 0));
}

#[test]
fn the_largest_value_survives_a_round_trip_after_others() {
    let mut chunk = Chunk::new(Kind::Blob);
    chunk.push(&Sample::new(0, Datum::Blob(vec![1; BYTES_ENOUGH - 1]))).unwrap();
    chunk.push(&Sample::new(1, Datum::Blob(vec![2; VALUE_MAX]))).unwrap();
    let mut bytes = Vec::new();
    chunk.encode(0, &mut bytes);
    assert_eq!(Chunk::decode(&bytes, 0), Ok(chunk));
}

#[test]
fn regular_samples_take_space_for_their_values_and_late_ones_also_for_their_stamps() {
    let sample = |k: u64, late: i64| Sample {
        pulse: Some(1_000_000 + k),
        ..Sample::new(1_795_000_000_000_000_000 + k as i64 * 1_000_000 + late, (k % 50) as f64)
    };
    let cost = |late: i64| {
        let chunk = chunk_of(&(0..1_000).map(|k| sample(k, if k == 700 { late } else { 0 })).collect::<Vec<_>>());
        let mut bytes = Vec::new();
        chunk.encode(1_795_000_000_000_000_000, &mut bytes);
        bytes.len()
    };
    // Values need six bits each; some of these mark the restart of the cycle of 50.
    assert!(cost(0) < 900, "{}", cost(0));
    assert!(cost(37_013) - cost(0) < 20, "{} and {}", cost(0), cost(37_013));
}

#[test]
fn distant_time_stamps_survive_a_round_trip() {
    let chunk = chunk_of(&[Sample::new(i64::MIN, 1.0), Sample::new(0, 1.0), Sample::new(i64::MAX, 2.0)]);
    let mut bytes = Vec::new();
    chunk.encode(i64::MAX, &mut bytes);
    assert_eq!(Chunk::decode(&bytes, i64::MAX), Ok(chunk));
}
