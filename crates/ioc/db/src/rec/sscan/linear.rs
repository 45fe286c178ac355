//! Parameters of a linear scan: which of them follow when one is written, unless they are frozen.
//!
//! Width = end − start = step · (points − 1), and the centre is half way. Two positions and the number of points define all.

/// A parameter, as a bit of a set.
pub(super) const START: u8 = 1;
pub(super) const STEP: u8 = 2;
pub(super) const END: u8 = 4;
pub(super) const CENTER: u8 = 8;
pub(super) const WIDTH: u8 = 16;
pub(super) const POINTS: u8 = 32;

/// Part of a step that rounding may have lost.
const ROUNDING: f64 = 1e-6;

/// The parameters of one positioner, and the number of points, which all positioners share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Linear {
    pub(super) start: f64,
    pub(super) step: f64,
    pub(super) end: f64,
    pub(super) center: f64,
    pub(super) width: f64,
    pub(super) points: i32,
    /// Highest number of points.
    pub(super) max_points: i32,
    /// Parameters that must not follow.
    pub(super) frozen: u8,
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Consistent,
    /// More points than the record holds. The written parameter was changed.
    TooManyPoints,
    /// The frozen parameters leave no solution. The written parameter was restored.
    TooConstrained,
}

/// Sets of parameters that can follow a written one, in the order of preference.
const fn followers(written: u8) -> &'static [u8] {
    match written {
        START => {
            &[STEP | CENTER | WIDTH, POINTS | CENTER | WIDTH, END | CENTER, STEP | END | WIDTH, POINTS | END | WIDTH]
        }
        STEP => &[POINTS, END | CENTER | WIDTH, START | CENTER | WIDTH, START | END | WIDTH],
        END => &[
            STEP | CENTER | WIDTH,
            POINTS | CENTER | WIDTH,
            START | CENTER,
            START | WIDTH | STEP,
            POINTS | START | WIDTH,
        ],
        CENTER => {
            &[START | END, END | STEP | WIDTH, START | STEP | WIDTH, POINTS | END | WIDTH, POINTS | START | WIDTH]
        }
        WIDTH => &[
            START | STEP | END,
            POINTS | START | END,
            CENTER | END | STEP,
            START | CENTER | STEP,
            POINTS | CENTER | END,
            POINTS | START | CENTER,
        ],
        // A new number of points. The step follows even if other parameters are frozen.
        _ => &[END | CENTER | WIDTH, START | CENTER | WIDTH, START | END | WIDTH],
    }
}

impl Linear {
    /// Makes the parameters consistent after one was written.
    pub(super) fn follow(&mut self, written: u8) -> Outcome {
        if written == POINTS && self.frozen & STEP == 0 {
            self.solve(STEP | WIDTH | CENTER);
            return Outcome::Consistent;
        }
        if written == STEP && self.frozen & POINTS == 0 && (self.step < 0.0) != (self.end < self.start) {
            // The step leads away from the end.
            if self.frozen & (START | END | WIDTH) == 0 {
                (self.start, self.end, self.width) = (self.end, self.start, -self.width);
            } else {
                self.solve(STEP);
            }
        }
        let Some(free) = followers(written).iter().copied().find(|free| free & self.frozen == 0) else {
            // The record accepts any start.
            if written != START {
                self.solve(written & !POINTS);
                return Outcome::TooConstrained;
            }
            return Outcome::Consistent;
        };
        self.solve(free);
        if self.points <= self.max_points {
            return Outcome::Consistent;
        }
        self.points = self.max_points;
        self.solve(free & !POINTS | written);
        Outcome::TooManyPoints
    }

    /// Computes the free parameters from the others.
    fn solve(&mut self, free: u8) {
        let has = |parameters: u8| free & parameters == 0;
        let steps = f64::from((self.points - 1).max(1));
        let width = match () {
            () if has(WIDTH) => self.width,
            () if has(START | END) => self.end - self.start,
            () if has(START | CENTER) => 2.0 * (self.center - self.start),
            () if has(END | CENTER) => 2.0 * (self.end - self.center),
            () => self.step * steps,
        };
        if !has(POINTS) {
            let count = if self.step.abs() <= f64::EPSILON {
                f64::from(self.max_points)
            } else {
                (width / self.step + ROUNDING).floor() + 1.0
            };
            // The cast saturates.
            self.points = count.max(1.0) as i32;
        }
        if !has(STEP) {
            self.step = width / steps;
        }
        let start = match () {
            () if has(START) => self.start,
            () if has(END) => self.end - width,
            () => self.center - width / 2.0,
        };
        for (parameter, value, place) in [
            (START, start, &mut self.start),
            (END, start + width, &mut self.end),
            (CENTER, start + width / 2.0, &mut self.center),
            (WIDTH, width, &mut self.width),
        ] {
            if !has(parameter) {
                *place = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Linear = Linear {
        start: 0.0,
        step: 1.0,
        end: 10.0,
        center: 5.0,
        width: 10.0,
        points: 11,
        max_points: 100,
        frozen: POINTS,
    };

    fn all(of: Linear) -> [f64; 6] {
        [of.start, of.step, of.end, of.center, of.width, of.points.into()]
    }

    fn after(mut of: Linear, written: u8, change: impl Fn(&mut Linear)) -> ([f64; 6], Outcome) {
        change(&mut of);
        let outcome = of.follow(written);
        (all(of), outcome)
    }

    #[test]
    fn by_default_step_centre_and_width_follow_start_and_end() {
        assert_eq!(after(TEN, START, |of| of.start = 5.0).0, [5.0, 0.5, 10.0, 7.5, 5.0, 11.0]);
        assert_eq!(after(TEN, END, |of| of.end = 20.0).0, [0.0, 2.0, 20.0, 10.0, 20.0, 11.0]);
        assert_eq!(after(TEN, STEP, |of| of.step = 2.0).0, [0.0, 2.0, 20.0, 10.0, 20.0, 11.0]);
        assert_eq!(after(TEN, CENTER, |of| of.center = 0.0).0, [-5.0, 1.0, 5.0, 0.0, 10.0, 11.0]);
        assert_eq!(after(TEN, WIDTH, |of| of.width = 20.0).0, [-5.0, 2.0, 15.0, 5.0, 20.0, 11.0]);
        assert_eq!(after(TEN, POINTS, |of| of.points = 21).0, [0.0, 0.5, 10.0, 5.0, 10.0, 21.0]);
    }

    #[test]
    fn frozen_parameters_stay_and_the_number_of_points_can_follow() {
        let step = Linear { frozen: POINTS | STEP, ..TEN };
        assert_eq!(after(step, START, |of| of.start = 2.0).0, [2.0, 1.0, 12.0, 7.0, 10.0, 11.0]);
        assert_eq!(after(step, POINTS, |of| of.points = 6).0, [0.0, 1.0, 5.0, 2.5, 5.0, 6.0]);
        let step = Linear { frozen: STEP, ..TEN };
        assert_eq!(after(step, END, |of| of.end = 20.0).0, [0.0, 1.0, 20.0, 10.0, 20.0, 21.0]);
        let free = Linear { frozen: 0, ..TEN };
        assert_eq!(after(free, STEP, |of| of.step = 0.5).0, [0.0, 0.5, 10.0, 5.0, 10.0, 21.0]);
    }

    #[test]
    fn too_many_points_and_too_many_frozen_parameters_are_reported() {
        let step = Linear { frozen: STEP, ..TEN };
        let (values, outcome) = after(step, END, |of| of.end = 1_000.0);
        assert_eq!((values, outcome), ([0.0, 1.0, 99.0, 49.5, 99.0, 100.0], Outcome::TooManyPoints));
        // Both SI and NPTS are frozen: a new width is refused.
        let both = Linear { frozen: POINTS | STEP, ..TEN };
        let (values, outcome) = after(both, WIDTH, |of| of.width = 4.0);
        assert_eq!((values[4], outcome), (10.0, Outcome::TooConstrained));
    }

    #[test]
    fn a_step_in_the_other_direction_swaps_start_and_end() {
        let free = Linear { frozen: 0, ..TEN };
        assert_eq!(after(free, STEP, |of| of.step = -1.0).0, [10.0, -1.0, 0.0, 5.0, -10.0, 11.0]);
    }
}
