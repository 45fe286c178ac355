//! `tahti archive get --join pulse`: samples of several signals that belong to the same pulse, wherever they were measured.

use super::get::{Format, json, quoted};
use super::{time, visible};
use crate::failure::Failure;
use segment::Sample;
use std::process::ExitCode;
use store::{Reader, Span, StoreError};

/// Prints a row for each pulse that all signals have; how many pulses were left out is printed behind them.
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
                println!("{pulse},{at},{}", values.map(|value| quoted(&value)).collect::<Vec<_>>().join(","))
            }
            Format::Json => {
                let row = serde_json::json!({ "pulse": pulse, "time": at });
                let values = names.iter().map(String::as_str).zip(samples.iter().map(|sample| &sample.datum));
                println!("{}", json(&row, values));
            }
        }
    })?;
    if left_out > 0 {
        eprintln!("tahti: {left_out} pulses are left out, which not all of these signals have");
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands on the samples of each pulse that all signals have, ascending within each run of ascending pulses; how many pulses
/// were left out. Samples without a pulse are passed over. Memory is bounded by what stands in a chunk of each signal.
fn rows(
    archive: &dyn Reader,
    names: &[String],
    span: Span,
    mut take: impl FnMut(u64, &[Sample]),
) -> Result<u64, StoreError> {
    let of = |name: &String| archive.samples(name, span);
    let mut samples: Vec<_> = names.iter().map(of).collect::<Result<_, _>>()?;
    let mut next = |index: usize| -> Result<Option<Sample>, StoreError> {
        let is_due = |sample: &Result<Sample, StoreError>| match sample {
            Ok(sample) => sample.pulse.is_some(),
            // What is damaged is one of the archive's problems.
            Err(error) => error.problem().is_none(),
        };
        samples[index].by_ref().find(is_due).transpose()
    };
    let mut heads: Vec<Option<Sample>> = (0..names.len()).map(&mut next).collect::<Result<_, _>>()?;
    let mut left_out = 0;
    while let Some(first) = heads.iter().flatten().filter_map(|head| head.pulse).min() {
        let is_first = |head: &Option<Sample>| head.as_ref().is_some_and(|head| head.pulse == Some(first));
        if heads.iter().all(is_first) {
            let row: Vec<Sample> = heads.iter().flatten().cloned().collect();
            take(first, &row);
        } else {
            left_out += 1;
        }
        for (index, head) in heads.iter_mut().enumerate() {
            // A value that was written twice in a pulse counts once: the first.
            while is_first(head) {
                *head = next(index)?;
            }
        }
    }
    Ok(left_out)
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
        // Its clock is far off.
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
}
