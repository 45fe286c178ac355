//! From a posted event to the processing of the two records that wait for it (S2.6).

use super::Scale;
use super::database;
use super::host::Ioc;
use super::wire::{Circuit, stamped};
use ca::wire::command;

pub(super) fn event_database(_: &Scale) -> String {
    database::event()
}

/// From the stamp of the record that posts to that of the first and of the second record, in us: median, 99th
/// percentile and largest of each.
pub(super) fn event(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, String> {
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
    Ok(times
        .into_iter()
        .flat_map(|mut times| {
            times.sort_by(f64::total_cmp);
            [times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]]
        })
        .collect())
}
