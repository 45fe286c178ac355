//! Counts that a frame's process sends to its supervisor for the plant's verdict: lost pulses and the value of results.

use crate::tell::value;
use base::Tally;
use keep::supervisor::FRAME_PULSES;
use ring::{FrameCounter, FramePage};

/// The counts of a frame in the supervisor's protocol.
pub(super) fn counts(page: &FramePage<'_>) -> String {
    let count = |counter| page.counter(counter);
    let (ran, lost) = (count(FrameCounter::Minors), count(FrameCounter::Lost));
    let mut text = format!("{FRAME_PULSES}{ran} {lost} {}\n", count(FrameCounter::Overruns));
    let activities = 0..page.shape().activities;
    if let Some(all) = activities.clone().filter_map(|one| page.tally(one)).reduce(Tally::plus) {
        text += &value(&all, activities.map(|one| page.hard_misses(one)).sum());
    }
    text
}
