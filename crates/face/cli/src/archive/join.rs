//! `tahti archive get --join pulse`: the samples of several signals that belong to the same pulse.
//!
//! A pulse belongs to the span if at least one of its samples does. The other samples of the pulse are found by its
//! number. Their time stamps do not matter: the clock of their host may be wrong, or may have been set meanwhile.
//!
//! Some writers restart their numbering at 0. If a signal has a number twice, only samples within the span are joined.

use super::get::{Format, json};
use super::{readable, time, visible};
use crate::failure::Failure;
use base::csv::quoted;
use segment::Sample;
use std::process::ExitCode;
use store::{Reader, Span, StoreError, Stream};

/// A signal with at most this many samples is searched completely. In a longer one, a pulse number is located by
/// bisection, which assumes that numbers ascend with time.
const WHOLE_MAX: u64 = 1_000_000;

/// Accuracy of that bisection.
const BISECTION_NS: i64 = 1_000_000;

/// Maximum size of the samples that are sorted in memory, for a signal whose numbers do not ascend with time.
const SORTED_BYTES_MAX: usize = 1 << 30;

/// Two samples of a signal with one pulse number that are further apart belong to different runs of their writer.
const RESTART_NS: i64 = 1_000_000_000;

/// Prints a row for each pulse of the span that all signals have, and then how many pulses are missing in some of them.
pub(super) fn run(archive: &dyn Reader, names: &[String], span: Span, format: Format) -> Result<ExitCode, Failure> {
    match format {
        Format::Csv => {
            let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
            println!("pulse,time,{}", names.join(","));
        }
        Format::Text => println!("pulse  time  {}", visible(&names.join("  "))),
        Format::Json => {}
    }
    let left_out = rows(archive, names, span, |pulse, samples| {
        let at = time::show(samples[0].at);
        let values = samples.iter().map(|sample| sample.datum.to_string());
        match format {
            Format::Text => {
                println!(
                    "{pulse}  {at}  {}",
                    values.map(|value| visible(&value).to_string()).collect::<Vec<_>>().join("  ")
                );
            }
            Format::Csv => {
                println!(
                    "{pulse},{at},{}",
                    values.map(|value| quoted(&value).into_owned()).collect::<Vec<_>>().join(",")
                )
            }
            Format::Json => {
                let row = serde_json::json!({ "pulse": pulse, "time": at });
                let values = names.iter().map(String::as_str).zip(samples.iter().map(|sample| &sample.datum));
                println!("{}", json(&row, values));
            }
        }
    })?;
    if left_out > 0 {
        eprintln!("tahti: {left_out} pulses are not shown: not all of these signals have them");
    }
    Ok(ExitCode::SUCCESS)
}

/// Calls `take` for each pulse of the span that all signals have, in ascending order of their numbers; returns how many pulses of
/// the span some signals do not have. Ignores samples without a pulse number. Memory: a chunk of each signal; for a signal whose
/// numbers do not ascend with time, its samples of these pulses, at most [`SORTED_BYTES_MAX`].
fn rows(
    archive: &dyn Reader,
    names: &[String],
    span: Span,
    mut take: impl FnMut(u64, &[Sample]),
) -> Result<u64, Failure> {
    let Some(pulses) = pulses_within(archive, names, span)? else { return Ok(0) };
    let mut sources = names.iter().map(|name| by_pulse(archive, name, span, pulses)).collect::<Result<Vec<_>, _>>()?;
    let mut heads: Vec<Option<Sample>> = Vec::new();
    for source in &mut sources {
        heads.push(source.next().transpose()?);
    }
    let is_within = |sample: &Sample| (span.from..=span.to).contains(&sample.at);
    let mut left_out = 0;
    while let Some(pulse) = heads.iter().flatten().filter_map(|head| head.pulse).min() {
        let (mut row, mut is_restarted) = (Vec::new(), false);
        for (source, head) in sources.iter_mut().zip(&mut heads) {
            // If a pulse has several values of one signal, the first one counts.
            let mut chosen: Option<Sample> = None;
            while let Some(sample) = head.take_if(|head| head.pulse == Some(pulse)) {
                *head = source.next().transpose()?;
                is_restarted |= chosen.as_ref().is_some_and(|one| one.at.abs_diff(sample.at) > RESTART_NS as u64);
                if chosen.as_ref().is_none_or(|one| !is_within(one) && is_within(&sample)) {
                    chosen = Some(sample);
                }
            }
            row.extend(chosen);
        }
        let is_whole = row.len() == names.len() && (!is_restarted || row.iter().all(is_within));
        if is_whole && row.iter().any(is_within) {
            take(pulse, &row);
        } else if row.iter().any(is_within) {
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// The minimum and maximum pulse number of all samples within a span.
fn pulses_within(archive: &dyn Reader, names: &[String], span: Span) -> Result<Option<(u64, u64)>, StoreError> {
    let mut pulses: Option<(u64, u64)> = None;
    for name in names {
        for sample in readable(archive.samples(name, span)?) {
            if let Some(pulse) = sample?.pulse {
                let (least, most) = pulses.unwrap_or((pulse, pulse));
                pulses = Some((least.min(pulse), most.max(pulse)));
            }
        }
    }
    Ok(pulses)
}

/// The samples of a signal with these pulse numbers, in ascending order of pulse number.
fn by_pulse<'a>(archive: &'a dyn Reader, name: &str, span: Span, pulses: (u64, u64)) -> Result<Stream<'a>, Failure> {
    let spans = spans_of(archive, name, span, pulses)?;
    let all = || -> Result<Stream<'a>, StoreError> {
        let streams = spans.iter().map(|span| archive.samples(name, *span)).collect::<Result<Vec<_>, _>>()?;
        let is_due = move |pulse: u64| (pulses.0..=pulses.1).contains(&pulse);
        Ok(Box::new(streams.into_iter().flat_map(readable).filter(move |sample| match sample {
            Ok(sample) => sample.pulse.is_some_and(is_due),
            Err(_) => true,
        })))
    };
    let mut newest = None;
    for sample in all()? {
        let pulse = sample?.pulse;
        if pulse < newest {
            return Ok(Box::new(sorted(name, all()?)?.into_iter().map(Ok)));
        }
        newest = pulse;
    }
    Ok(all()?)
}

/// Samples sorted by pulse number; samples with equal numbers are sorted by time.
fn sorted(name: &str, samples: Stream<'_>) -> Result<Vec<Sample>, Failure> {
    let (mut all, mut bytes, mut value) = (Vec::new(), 0, Vec::new());
    for sample in samples {
        let sample = sample?;
        value.clear();
        sample.datum.put_bytes(&mut value);
        bytes += size_of::<Sample>() + value.len();
        if bytes > SORTED_BYTES_MAX {
            return Err(format!(
                "{name}: pulse numbers do not ascend with time, and more than {} MiB of samples would be sorted in memory\n  \
                 try: a shorter span (--from, --to)",
                SORTED_BYTES_MAX >> 20
            )
            .into());
        }
        all.push(sample);
    }
    all.sort_by_key(|sample| sample.pulse);
    Ok(all)
}

/// The spans that contain the samples of these pulses, `span` included. The spans do not overlap.
fn spans_of(archive: &dyn Reader, name: &str, span: Span, (least, most): (u64, u64)) -> Result<Vec<Span>, StoreError> {
    let Some(found) = archive.about(name)? else { return Ok(Vec::new()) };
    let Some(whole) = found.span else { return Ok(Vec::new()) };
    if found.count <= WHOLE_MAX {
        return Ok(vec![Span::ALL]);
    }
    let from = place(archive, name, whole, least)?.from;
    let to = place(archive, name, whole, most.saturating_add(1))?.to;
    let mut spans = [span, Span { from, to }];
    spans.sort_by_key(|span| span.from);
    let [first, second] = spans;
    Ok(if first.to < second.from {
        vec![first, second]
    } else {
        vec![Span { from: first.from, to: first.to.max(second.to) }]
    })
}

/// The short span, at most [`BISECTION_NS`] long, in which a signal's pulse numbers reach `pulse`.
fn place(archive: &dyn Reader, name: &str, whole: Span, pulse: u64) -> Result<Span, StoreError> {
    let Span { mut from, mut to } = whole;
    while to.saturating_sub(from) > BISECTION_NS {
        let middle = from.midpoint(to);
        match archive.at(name, middle)?.and_then(|sample| sample.pulse) {
            Some(found) if found >= pulse => to = middle,
            _ => from = middle,
        }
    }
    Ok(Span { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use segment::rows::About;
    use store::{Config, Logger, Memory};

    #[test]
    fn samples_of_different_signals_are_joined_by_the_number_of_their_pulse() {
        let files = Memory::default();
        let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
        let mut log = |name: &str, late: i64, pulses: &[u64]| {
            let signal = logger.signal(name, About::default(), 0).unwrap();
            for pulse in pulses {
                let sample = Sample::new(*pulse as i64 * 1_000 + late, *pulse as f64 + late as f64);
                logger.push(signal, &Sample { pulse: Some(*pulse), ..sample });
            }
            let none = logger.signal(&format!("{name}-none"), About::default(), 0).unwrap();
            logger.push(none, &Sample::new(5, 1.0));
            logger.sync(0);
        };
        log("a", 3, &[1, 2, 3, 5, 6]);
        // The clock of this signal's host is far off.
        log("b", -700_000, &[2, 3, 4, 5, 7]);
        let archive = store::Archive::open(files).unwrap();
        let mut joined = Vec::new();
        let names = ["a", "b"].map(str::to_owned);
        let left_out = rows(&archive, &names, Span::ALL, |pulse, row| {
            joined.push((pulse, row.iter().filter_map(|sample| sample.datum.to_f64()).sum::<f64>()));
        });
        let sum = |pulse: u64| (pulse, 2.0 * pulse as f64 + 3.0 - 700_000.0);
        assert_eq!((joined, left_out.unwrap()), (vec![sum(2), sum(3), sum(5)], 4));
        let names = ["a", "a-none"].map(str::to_owned);
        assert_eq!(rows(&archive, &names, Span::ALL, |_, _| panic!("no pulse")).unwrap(), 5);
    }

    /// An archive of signals, given as names with the time and the pulse number of each sample.
    fn archive(signals: &[(&str, Vec<(i64, u64)>)]) -> store::Archive<Memory> {
        let files = Memory::default();
        let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
        for (name, samples) in signals {
            let signal = logger.signal(name, About::default(), 0).unwrap();
            for (at, pulse) in samples {
                logger.push(signal, &Sample { pulse: Some(*pulse), ..Sample::new(*at, *at as f64) });
            }
            logger.sync(0);
        }
        store::Archive::open(files).unwrap()
    }

    /// The pulses of a span that both signals have, with the sample time in each signal, and the number of pulses
    /// excluded.
    fn joined(archive: &dyn Reader, from: i64, to: i64) -> (Vec<(u64, i64, i64)>, u64) {
        let mut joined = Vec::new();
        let names = ["a", "b"].map(str::to_owned);
        let left_out =
            rows(archive, &names, Span { from, to }, |pulse, row| joined.push((pulse, row[0].at, row[1].at)));
        (joined, left_out.unwrap())
    }

    const S: i64 = 1_000_000_000;

    #[test]
    fn a_sample_whose_clock_is_outside_the_span_is_found_by_its_pulse_number() {
        let a: Vec<_> = (1..=10).map(|pulse| (pulse as i64 * S, pulse)).collect();
        for offset in [7_200 * S, -9 * S, 3 * S] {
            let b = (1..=10).map(|pulse| (pulse as i64 * S + offset, pulse)).collect();
            let archive = archive(&[("a", a.clone()), ("b", b)]);
            let (rows, left_out) = joined(&archive, 4 * S, 6 * S);
            let of_a: Vec<_> = (4..=6).map(|pulse| (pulse, pulse as i64 * S, pulse as i64 * S + offset)).collect();
            assert!(of_a.iter().all(|row| rows.contains(row)), "{offset}: {rows:?}");
            let is_within = |at: &i64| (4 * S..=6 * S).contains(at);
            assert!(rows.iter().all(|(_, a, b)| is_within(a) || is_within(b)), "{offset}: {rows:?}");
            assert_eq!(left_out, 0, "{offset}");
        }
    }

    #[test]
    fn pulses_are_joined_across_steps_of_the_clock() {
        let a: Vec<_> = (1..=20).map(|pulse| (pulse as i64 * S, pulse)).collect();
        for step in [3_600 * S, -5 * S] {
            let b = (1..=20).map(|pulse| (pulse as i64 * S + if pulse > 10 { step } else { 0 }, pulse)).collect();
            let (rows, left_out) = joined(&archive(&[("a", a.clone()), ("b", b)]), S, 20 * S);
            let pulses: Vec<_> = rows.iter().map(|row| row.0).collect();
            assert_eq!((pulses, left_out), ((1..=20).collect(), 0), "{step}");
        }
    }

    #[test]
    fn pulse_numbers_reused_by_a_restarted_writer_are_joined_within_the_span_only() {
        let run = |begin: i64, pulses: &[u64]| -> Vec<_> {
            pulses.iter().map(|pulse| (begin + *pulse as i64 * S, *pulse)).collect()
        };
        let a = [run(0, &[1, 2, 3, 4]), run(1_000 * S, &[1, 2, 3, 4])].concat();
        // The second run lacks pulse 3.
        let b = [run(0, &[1, 2, 3, 4]), run(1_000 * S, &[1, 2, 4])].concat();
        let at = |pulse: u64| (pulse, (1_000 + pulse as i64) * S, (1_000 + pulse as i64) * S);
        let (rows, left_out) = joined(&archive(&[("a", a), ("b", b)]), 900 * S, 2_000 * S);
        assert_eq!((rows, left_out), (vec![at(1), at(2), at(4)], 1));
    }

    #[test]
    fn the_place_of_a_pulse_in_a_long_signal_is_found_by_bisection() {
        let archive = archive(&[("a", (1..=1_000).map(|pulse| (pulse as i64 * S, pulse * 2)).collect())]);
        let whole = archive.about("a").unwrap().unwrap().span.unwrap();
        for pulse in [1, 2, 3, 999, 2_000, 2_001] {
            let place = place(&archive, "a", whole, pulse).unwrap();
            assert!(place.to - place.from <= BISECTION_NS);
            let expected = (pulse.div_ceil(2) as i64 * S).min(1_000 * S);
            assert!((place.from..=place.to).contains(&expected), "{pulse}: {place:?}");
        }
    }
}
