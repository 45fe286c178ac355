//! Reads memory with a plain loop of wide loads: the reference for kernels that read a matrix once.

use crate::Level;
use crate::level::wide::{Wide, at};

/// Numbers per step of one stream: four registers of 256 bits.
const STEP: usize = 32;
/// Number of concurrent streams. A single stream does not saturate the memory.
const STREAMS: usize = 4;

/// Reads all of `memory` with the vector instructions of a level, in one stream or in four, and returns a word that depends on all of it.
/// Neither allocates nor blocks. From the second-level cache on, this is the upper limit of the machine. In the first-level cache the loop's
/// own instructions are the limit.
#[must_use]
pub fn read(level: Level, memory: &[f32], in_streams: bool) -> u32 {
    at(level, Fold { memory, in_streams })
}

struct Fold<'a> {
    memory: &'a [f32],
    in_streams: bool,
}

impl Wide for Fold<'_> {
    type Output = u32;

    #[inline(always)]
    fn with<const N: usize>(self) -> u32 {
        fold(self.memory, self.in_streams)
    }
}

/// Folds with exclusive or, which has a latency of one cycle, so instructions do not wait for each other as additions would.
#[inline(always)]
fn fold(memory: &[f32], in_streams: bool) -> u32 {
    let (steps, rest) = memory.as_chunks::<STEP>();
    let each = if in_streams { steps.len() / STREAMS } else { 0 };
    let (first, more) = steps.split_at(each);
    let (second, more) = more.split_at(each);
    let (third, more) = more.split_at(each);
    let (fourth, more) = more.split_at(each);
    let mut words = [0; STEP];
    for (((one, two), three), four) in first.iter().zip(second).zip(third).zip(fourth) {
        for lane in 0..STEP {
            words[lane] ^= one[lane].to_bits() ^ two[lane].to_bits() ^ three[lane].to_bits() ^ four[lane].to_bits();
        }
    }
    for step in more {
        for lane in 0..STEP {
            words[lane] ^= step[lane].to_bits();
        }
    }
    words.into_iter().chain(rest.iter().map(|number| number.to_bits())).fold(0, |all, word| all ^ word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_each_number_once_in_one_stream_and_in_four() {
        for length in [0, 1, 31, 32, 100, 127, 128, 129, 1000] {
            let memory: Vec<f32> = (0..length).map(|number| f32::from_bits(number * 2_654_435)).collect();
            let expected = memory.iter().fold(0, |all, number| all ^ number.to_bits());
            for level in Level::all() {
                assert_eq!(
                    [false, true].map(|streams| read(level, &memory, streams)),
                    [expected; 2],
                    "{level} {length}"
                );
            }
        }
    }
}
