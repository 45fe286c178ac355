//! Time from a posted event to the processing of the two waiting records.

use super::host::Ioc;
use super::wire::{Circuit, stamped};
use super::{Figure, Scale, database, figure, spread};
use crate::Failed;
use ca::wire::command;

pub(super) fn event_database(_: &Scale) -> String {
    database::event()
}

/// Upper ends of the histogram's rows, in us.
const WITHIN_US: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

pub(super) const FIGURES: &[Figure] = &[
    figure("first: median", "us"),
    figure("first: p99", "us"),
    figure("first: max", "us"),
    figure("first within 1 us", "%"),
    figure("first within 2 us", "%"),
    figure("first within 5 us", "%"),
    figure("first within 10 us", "%"),
    figure("first within 20 us", "%"),
    figure("first within 50 us", "%"),
    figure("first within 100 us", "%"),
    figure("second: median", "us"),
    figure("second: p99", "us"),
    figure("second: max", "us"),
    figure("second within 1 us", "%"),
    figure("second within 2 us", "%"),
    figure("second within 5 us", "%"),
    figure("second within 10 us", "%"),
    figure("second within 20 us", "%"),
    figure("second within 50 us", "%"),
    figure("second within 100 us", "%"),
];

/// Time from the stamp of the posting record to those of the first and the second record, in us: median, 99th
/// percentile and maximum of each, and the histogram as shares within a time.
pub(super) fn event(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, Failed> {
    let mut circuit = Circuit::open(ioc.port)?;
    let sids = circuit.channels(&["post.PROC", "post.UDF", "first", "second"].map(str::to_owned))?;
    circuit.subscribe(&sids[2..])?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..scale.of(5_000) {
        circuit.put(sids[0], 1.0);
        circuit.flush()?;
        let mut stamps = [0; 2];
        circuit.expect(command::EVENT_ADD, 2, |header, payload| {
            if let Some(stamp) = stamps.get_mut(header.p2 as usize) {
                *stamp = stamped(payload).0;
            }
        })?;
        let posted = circuit.stamp(sids[1])?;
        for (times, stamp) in times.iter_mut().zip(stamps) {
            times.push(stamp.saturating_sub(posted) as f64 / 1e3);
        }
    }
    let share = |times: &[f64], most: f64| {
        100.0 * times.iter().filter(|time| **time <= most).count() as f64 / times.len().max(1) as f64
    };
    Ok(times
        .into_iter()
        .flat_map(|times| {
            let within = WITHIN_US.map(|most| share(&times, most));
            spread(times).into_iter().chain(within)
        })
        .collect())
}
