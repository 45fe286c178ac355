//! Post-processors, compared with their definitions.

use crate::model::{Model, NOON, SECOND, clock};
use proptest::prelude::*;
use segment::Sample;
use segment::rows::Signal;

#[test]
fn bins_begin_at_multiples_of_their_length_and_the_sample_before_has_a_separate_bin() {
    let model = Model::counting("A", 20);
    // Noon is a multiple of 5 s, and of 900 s.
    let mean = model.numbers("mean_5(A)", 7, 17);
    assert_eq!(mean, [(7.5, 8.0), (12.5, 12.0), (17.5, 16.0)]);
    // With a start 0.5 s later, the newest sample before it is in the previous bin.
    let query = format!("pv=mean_5(A)&from={}&to={}", clock(7).replace("07.000", "07.500"), clock(17));
    let json = model.json("/retrieval/data/getData.json", &query);
    assert_eq!((&json[0]["data"][0]["val"], &json[0]["data"][1]["val"]), (&7.0.into(), &8.5.into()), "{json:#}");
    assert_eq!(model.numbers("A&pp=max_10", 0, 19), [(5.0, 9.0), (15.0, 19.0)]);
}

#[test]
fn bins_without_samples_repeat_the_last_value_or_are_omitted_and_none_is_in_the_future() {
    let mut model = Model::counting("A", 5);
    model.signals.get_mut("A").unwrap().1.push(Sample::new(NOON + 16 * SECOND, 100.0));
    let values = |pv: &str| model.numbers(pv, 0, 24).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(values("max_5(A)"), [4.0, 4.0, 4.0, 100.0, 100.0]);
    assert_eq!(values("maxSample_5(A)"), [4.0, 100.0]);
    assert_eq!(values("count_5(A)"), [5.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(values("firstFill_5(A)"), [0.0, 0.0, 0.0, 100.0, 100.0]);
    assert_eq!(values("lastSample_5(A)"), [4.0, 100.0]);
    // The model's clock is at one hour after noon.
    let last = model.numbers("mean_600(A)", 0, 7_200).pop().unwrap();
    assert_eq!(last, (3_900.0, 22.0 - 22.0 + (0.0 + 1.0 + 2.0 + 3.0 + 4.0 + 100.0) / 6.0));
}

#[test]
fn statistics_have_their_textbook_values() {
    let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
    let model = Model::of("A", values.iter().zip(0..).map(|(v, k)| Sample::new(NOON + k * SECOND, *v)).collect());
    let one = |pv: &str| model.numbers(pv, 0, 9)[0].1;
    let near = |pv: &str, expected: f64| assert!((one(pv) - expected).abs() < 1e-6, "{pv}: {} {expected}", one(pv));
    near("mean_10(A)", 5.0);
    near("popvariance_10(A)", 4.0);
    near("rms_10(A)", 29.0f64.sqrt());
    near("variance_10(A)", 32.0 / 7.0);
    near("std_10(A)", (32.0f64 / 7.0).sqrt());
    near("jitter_10(A)", (32.0f64 / 7.0).sqrt() / 5.0);
    near("median_10(A)", 4.5);
    // As in scipy.stats with bias=False.
    near("skewness_10(A)", 0.818_487_553_4);
    near("kurtosis_10(A)", 0.940_625);
    near("linear_10(A)", 5.0);
    near("count_10(A)", 8.0);
    let stats = &model.points("stats_10(A)", 0, 9)[0].1;
    assert_eq!((&stats[0], &stats[2], &stats[3], &stats[4]), (&5.0.into(), &2.0.into(), &9.0.into(), &8.0.into()));
    let json =
        model.json("/retrieval/data/getData.json", &format!("pv=errorbar_10(A)&from={}&to={}", clock(0), clock(9)));
    let std: f64 = json[0]["data"][0]["fields"]["stdz"].as_str().unwrap().parse().unwrap();
    assert!((std - (32.0f64 / 7.0).sqrt()).abs() < 1e-9);
}

#[test]
fn few_samples_are_returned_unchanged_and_many_as_statistics() {
    let model = Model::counting("A", 100);
    assert_eq!(model.points("optimized_100(A)", 0, 99).len(), 100);
    assert_eq!(model.points("optimized_100(A)", -1, 99).len(), 100);
    assert_eq!(
        model.points("optimized_99(A)", -1, 99)[0].1.as_array().map(Vec::len),
        Some(5),
        "no value before the first bin"
    );
    let few = model.points("optimized_10(A)", 0, 99);
    assert_eq!((few.len(), &few[0].1[4]), (12, &9.0.into()), "{few:?}");
    let last = &model.points("optimLastSample_10(A)", 0, 200)[5].1;
    assert_eq!(last.as_array().unwrap().len(), 6, "{last}");
    assert_eq!(*last, serde_json::json!([99.0, 0.0, 99.0, 99.0, 0.0, 99.0]));
}

#[test]
fn samples_are_picked_thinned_and_counted() {
    let model = Model::counting("A", 20);
    let values = |pv: &str| model.numbers(pv, 0, 19).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(values("firstSample_5(A)"), [0.0, 5.0, 10.0, 15.0]);
    assert_eq!(values("A&usereduced=true"), [0.0]);
    assert_eq!(values("nth_7(A)"), [0.0, 7.0, 14.0]);
    assert_eq!(values("ncount(A)"), [20.0]);
    assert_eq!(values("deadBand_6(A)"), [0.0, 6.0, 12.0, 18.0]);
    let plot = model.numbers("caplotbinning_10(A)", 0, 19);
    assert_eq!(
        plot,
        [(0.0, 0.0), (2.0, 0.0), (5.0, 9.0), (7.0, 9.0), (10.0, 10.0), (12.0, 10.0), (15.0, 19.0), (17.0, 19.0)]
    );
    let mut model = model;
    model.signals.get_mut("A").unwrap().1[7].datum = 1e6.into();
    assert_eq!(model.numbers("flyers_60_3(A)", 0, 19), [(7.0, 1e6)]);
    assert_eq!(model.numbers("ignoreflyers_60_3(A)", 0, 19).len(), 19);
}

#[test]
fn texts_in_a_signal_of_numbers_are_excluded_from_statistics_and_otherwise_shown() {
    let is_text = |k: i64| (10..20).contains(&k);
    let sample = |k: i64| {
        let datum = if is_text(k) { segment::Datum::from("off") } else { (k as f64).into() };
        Sample::new(NOON + k * SECOND, datum)
    };
    let mut model = Model::of("A", (0..30).map(sample).collect());
    let rows = &mut model.signals.get_mut("A").unwrap().0;
    let (number, text) = (rows[0].clone(), segment::Kind::Text);
    rows.push(Signal { since: NOON + 10 * SECOND, kind: text, ..number.clone() });
    rows.push(Signal { since: NOON + 20 * SECOND, ..number });
    assert_eq!(model.numbers("meanSample_10(A)", 0, 29), [(5.0, 4.5), (25.0, 24.5)]);
    assert_eq!(model.numbers("countSample_10(A)", 0, 29), [(5.0, 10.0), (25.0, 10.0)]);
    assert_eq!(model.numbers("medianSample_15(A)", 0, 29), [(7.5, 4.5), (22.5, 24.5)]);
    assert_eq!(
        model.numbers("deadBand_5(A)", 0, 29).iter().map(|(_, value)| *value).collect::<Vec<_>>(),
        [0.0, 5.0, 20.0, 25.0]
    );
    assert_eq!(model.numbers("flyers_60_0(A)", 0, 29).len(), 20);
    assert_eq!(
        model.points("nth_5(A)", 0, 29).iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>(),
        ["0.0", "5.0", "\"off\"", "\"off\"", "20.0", "25.0"]
    );
    assert_eq!(model.points("optimizedSample_3(A)", 0, 29).len(), 4, "bins of 9 s");
    assert_eq!(model.points("optimized_3(A)", 12, 18).len(), 7, "texts are returned unchanged");
}

proptest! {
    /// Summaries and single samples give the same result, for any bin borders.
    #[test]
    fn the_mean_of_a_bin_is_the_mean_of_its_samples(
        steps in prop::collection::vec(1i64..4_000, 1..200),
        from in -100i64..200, len in 0i64..400, secs in 1i64..50,
    ) {
        let mut at = NOON;
        let samples: Vec<Sample> = steps.iter().map(|step| {
            at += step * 1_000_000;
            Sample::new(at, (at / 1_000_000 % 1_000) as f64)
        }).collect();
        let model = Model::of("A", samples.clone());
        let (begin, end) = (NOON + from * SECOND, NOON + (from + len) * SECOND);
        let width = secs * SECOND;
        let mut expected: std::collections::BTreeMap<i64, Vec<f64>> = std::collections::BTreeMap::new();
        if let Some(before) = samples.iter().rfind(|sample| sample.at <= begin).filter(|sample| sample.at < begin) {
            expected.insert(begin.div_euclid(width) - 1, vec![before.datum.to_f64().unwrap()]);
        }
        for sample in samples.iter().filter(|sample| (begin..=end).contains(&sample.at)) {
            expected.entry(sample.at.div_euclid(width)).or_default().push(sample.datum.to_f64().unwrap());
        }
        let middle = |bin: i64| (bin * width + width / 2 - NOON) as f64 / 1e9;
        let expected: Vec<(f64, f64)> = expected.into_iter().map(|(bin, values)| {
            (middle(bin), values.iter().sum::<f64>() / values.len() as f64)
        }).collect();
        let found = model.numbers(&format!("meanSample_{secs}(A)"), from, from + len);
        prop_assert_eq!(found.len(), expected.len());
        for ((at, mean), (expected_at, expected)) in found.iter().zip(expected) {
            prop_assert!((at - expected_at).abs() < 1e-6 && (mean - expected).abs() < 1e-6);
        }
    }
}
