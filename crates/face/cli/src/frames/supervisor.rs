//! What a frame's process tells its supervisor: what the frame has lost, and what results were worth, for the plant's verdict.

use crate::tell::value;
use base::Tally;
use keep::supervisor::FRAME_PULSES;
use ring::{FrameCounter, FramePage};

/// The counts of a frame, as the supervisor hears them.
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
