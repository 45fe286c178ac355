//! Encoding of integers that are mostly zero after subtracting a prediction. A run of zeros takes two or three bytes, any other
//! number a varint.

use crate::bits;
use crate::bytes::{Bad, Input, put_varint, put_zigzag};

/// Writes numbers.
pub(crate) struct Ints<'a> {
    out: &'a mut Vec<u8>,
    zeros: u64,
}

impl<'a> Ints<'a> {
    pub(crate) const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, zeros: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: i64) {
        if value == 0 {
            self.zeros += 1;
            return;
        }
        self.run();
        put_zigzag(self.out, value);
    }

    fn run(&mut self) {
        if self.zeros > 0 {
            self.out.push(0);
            put_varint(self.out, self.zeros);
            self.zeros = 0;
        }
    }

    pub(crate) fn finish(mut self) {
        self.run();
    }
}

/// Reads `count` numbers and passes each to `take`.
#[inline]
pub(crate) fn each(input: &mut Input<'_>, count: usize, mut take: impl FnMut(i64)) -> Result<(), Bad> {
    let mut left = count as u64;
    while left > 0 {
        match input.zigzag()? {
            0 => {
                let run = input.varint()?;
                if run == 0 || run > left {
                    return Err(Bad::Number);
                }
                (0..run).for_each(|_| take(0));
                left -= run;
            }
            value => {
                take(value);
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Writes values as differences; for small differences.
pub(crate) fn put_deltas(out: &mut Vec<u8>, values: impl Iterator<Item = i64>) {
    let mut ints = Ints::new(out);
    values.fold(0i64, |before, value| {
        ints.push(value.wrapping_sub(before));
        value
    });
    ints.finish();
}

/// Reads what [`put_deltas`] wrote.
pub(crate) fn deltas(input: &mut Input<'_>, count: usize, mut take: impl FnMut(i64)) -> Result<(), Bad> {
    let mut value = 0i64;
    each(input, count, |delta| {
        value = value.wrapping_add(delta);
        take(value);
    })
}

/// Writes evenly growing values: the first value, the first step, then changes of the step.
pub(crate) fn put_steps(out: &mut Vec<u8>, values: impl Iterator<Item = i64>) {
    let mut ints = Ints::new(out);
    let (mut before, mut step) = (0i64, 0i64);
    for (index, value) in values.enumerate() {
        let this = value.wrapping_sub(before);
        ints.push(this.wrapping_sub(step));
        // The difference from zero to the first value is not a step.
        step = if index == 0 { 0 } else { this };
        before = value;
    }
    ints.finish();
}

/// Reads what [`put_steps`] wrote.
pub(crate) fn steps(input: &mut Input<'_>, count: usize, mut take: impl FnMut(i64)) -> Result<(), Bad> {
    let (mut value, mut step, mut first) = (0i64, 0i64, true);
    each(input, count, |change| {
        let this = step.wrapping_add(change);
        value = value.wrapping_add(this);
        step = if first { 0 } else { this };
        first = false;
        take(value);
    })
}

/// Writes unevenly growing values: the first, then bit-packed differences. Writes nothing and returns false unless this takes
/// fewer than `most` bytes.
pub(crate) fn put_uneven(out: &mut Vec<u8>, most: usize, values: &[i64]) -> bool {
    let [first, ..] = values else { return false };
    let steps: Vec<i64> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    // The first value takes at least one byte.
    if 1 + bits::len(&steps) >= most {
        return false;
    }
    put_zigzag(out, *first);
    bits::put(out, &steps);
    true
}

/// Reads what [`put_uneven`] wrote.
pub(crate) fn uneven(input: &mut Input<'_>, count: usize, mut take: impl FnMut(i64)) -> Result<(), Bad> {
    let mut value = input.zigzag()?;
    take(value);
    bits::get(input, count.saturating_sub(1), |step| {
        value = value.wrapping_add(step);
        take(value);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_survive_a_round_trip(values in prop::collection::vec(prop_oneof![Just(0i64), -3i64..3, any::<i64>()], 0..200)) {
            let mut out = Vec::new();
            put_deltas(&mut out, values.iter().copied());
            put_steps(&mut out, values.iter().copied());
            let mut input = Input(&out);
            let (mut by_delta, mut by_step) = (Vec::new(), Vec::new());
            deltas(&mut input, values.len(), |value| by_delta.push(value)).unwrap();
            steps(&mut input, values.len(), |value| by_step.push(value)).unwrap();
            prop_assert!(input.is_empty());
            prop_assert_eq!(&by_delta, &values);
            prop_assert_eq!(&by_step, &values);
        }
    }

    #[test]
    fn even_steps_take_almost_no_bytes_and_a_late_one_a_few() {
        let cost = |late: i64| {
            let mut out = Vec::new();
            put_steps(&mut out, (0..1000).map(|k| 5 + k * 1_000_000 + if k == 500 { late } else { 0 }));
            out.len()
        };
        assert_eq!((cost(0), cost(20_000)), (7, 7 + 3 * 3 + 3));
    }

    #[test]
    fn a_run_longer_than_its_sequence_is_refused() {
        assert_eq!(each(&mut Input(&[0, 200, 1]), 100, |_| ()), Err(Bad::Number));
        assert_eq!(each(&mut Input(&[0, 0]), 100, |_| ()), Err(Bad::Number));
    }
}
