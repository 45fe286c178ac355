//! Filters of many channels, at each level that the CPU supports.

use kernels::{BadFilter, Biquads, Fir, Level, Real, Section};
use proptest::prelude::*;

/// Pseudo-random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    }

    /// An input of the filter. Some inputs are zero or very small.
    fn input(&mut self) -> f64 {
        match (self.next() * 8.0) as i32 {
            -7 => 0.0,
            7 => self.next() * 1e-35,
            _ => self.next() * 100.0,
        }
    }

    /// A stable section: its poles are inside the unit circle.
    fn section(&mut self) -> Section<f32> {
        let (radius, angle) = (self.next().abs() * 0.99, self.next() * 3.0);
        let b = [self.next(), self.next(), self.next()].map(|b| b as f32);
        Section { b, a: [(-2.0 * radius * angle.cos()) as f32, (radius * radius) as f32] }
    }
}

/// Whether a filter may keep this number as state: zero, or neither tiny nor unbounded.
fn fine<T: Real>(number: T) -> bool {
    number == T::default() || number.magnitude() >= T::TINY && number.bounded()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn each_step_of_each_section_is_within_its_bound_and_all_levels_give_the_same_bits(
        channels in 1usize..70, seed in any::<u64>(),
    ) {
        let mut chance = Chance(seed);
        let mut filters = Biquads::new(channels, &[chance.section()]).unwrap();
        let own: Vec<Section<f32>> = (0..channels).map(|_| chance.section()).collect();
        for (channel, section) in own.iter().enumerate() {
            filters.set(channel, &[*section]).unwrap();
        }
        let mut others: Vec<(Level, Biquads<f32>)> = Level::all().map(|level| (level, filters.clone())).collect();
        let u = f64::from(f32::EPSILON) / 2.0;
        let gamma = |k: f64| k * u / (1.0 - k * u);
        let tiny = f64::from(f32::TINY);
        for _ in 0..20 {
            let x: Vec<f32> = (0..channels).map(|_| chance.input() as f32).collect();
            let before: Vec<[f32; 2]> = (0..channels).map(|channel| filters.states(channel, 0).unwrap()).collect();
            let mut y = vec![9.0; channels];
            prop_assert_eq!(filters.step(Level::SCALAR, &x, &mut y), Ok(0));
            for channel in 0..channels {
                let Section { b, a } = own[channel];
                let x = f64::from(x[channel]);
                // Inputs below the minimum count as zero.
                let x = if x.abs() < tiny { 0.0 } else { x };
                let ([b0, b1, b2], [a1, a2]) = (b.map(f64::from), a.map(f64::from));
                let ([s1, s2], got) = (before[channel].map(f64::from), f64::from(y[channel]));
                prop_assert!((got - (b0 * x + s1)).abs() <= gamma(2.0) * ((b0 * x).abs() + s1.abs()) + tiny);
                let next = filters.states(channel, 0).unwrap();
                let exact = [b1 * x - a1 * got + s2, b2 * x - a2 * got];
                let sizes = [(b1 * x).abs() + (a1 * got).abs() + s2.abs(), (b2 * x).abs() + (a2 * got).abs()];
                for state in 0..2 {
                    let off = (f64::from(next[state]) - exact[state]).abs();
                    prop_assert!(off <= gamma(3.0) * sizes[state] + tiny, "{off:e}");
                    prop_assert!(fine(next[state]), "{}", next[state]);
                }
                prop_assert!(fine(y[channel]));
            }
            for (level, other) in &mut others {
                let mut same = vec![0.0; channels];
                prop_assert_eq!(other.step(*level, &x, &mut same), Ok(0));
                prop_assert_eq!(&same, &y, "{}", level);
            }
        }
    }

    #[test]
    fn taps_are_summed_within_the_bound_and_all_levels_give_the_same_bits(
        channels in 1usize..140, taps in 1usize..20, seed in any::<u64>(),
    ) {
        let mut chance = Chance(seed);
        let mut filter = Fir::new(channels, &vec![0.0f32; taps]).unwrap();
        let own: Vec<Vec<f32>> = (0..channels).map(|_| (0..taps).map(|_| chance.next() as f32).collect()).collect();
        own.iter().enumerate().for_each(|(channel, taps)| filter.set(channel, taps).unwrap());
        let mut others: Vec<(Level, Fir<f32>)> = Level::all().map(|level| (level, filter.clone())).collect();
        let mut history: Vec<Vec<f32>> = Vec::new();
        let n = taps as f64 * f64::from(f32::EPSILON) / 2.0;
        for _ in 0..taps + 5 {
            history.insert(0, (0..channels).map(|_| chance.input() as f32).collect());
            let mut y = vec![9.0; channels];
            prop_assert_eq!(filter.step(Level::SCALAR, &history[0], &mut y), Ok(0));
            for channel in 0..channels {
                let terms = || own[channel].iter().zip(&history).map(|(tap, x)| f64::from(*tap) * f64::from(x[channel]));
                let sizes: f64 = terms().map(f64::abs).sum();
                let lost: f64 = own[channel].iter().map(|tap| f64::from(tap.abs())).sum();
                let bound = n / (1.0 - n) * sizes + (1.0 + lost) * f64::from(f32::TINY);
                let exact: f64 = terms().sum();
                prop_assert!((f64::from(y[channel]) - exact).abs() <= bound && fine(y[channel]));
            }
            for (level, other) in &mut others {
                let mut same = vec![0.0; channels];
                prop_assert_eq!(other.step(*level, &history[0], &mut same), Ok(0));
                prop_assert_eq!(&same, &y, "{}", level);
            }
        }
    }
}

#[test]
fn filters_in_double_precision_give_the_same_bits_at_every_level() {
    let sections = [Section { b: [0.2, 0.3, 0.1], a: [-1.2, 0.5] }, Section { b: [1.0, -0.5, 0.0], a: [0.1, 0.0] }];
    let mut expected = None;
    for level in Level::all() {
        let mut filters = Biquads::new(21, &sections).unwrap();
        let mut fir = Fir::new(21, &[0.25f64, 0.5, 0.25]).unwrap();
        let mut all = Vec::new();
        for step in 0..50 {
            let x: Vec<f64> = (0..21).map(|channel| f64::from(channel * 31 + step * 17 % 101) - 50.0).collect();
            let (mut y, mut z) = (vec![0.0; 21], vec![0.0; 21]);
            assert_eq!((filters.step(level, &x, &mut y), fir.step(level, &y, &mut z)), (Ok(0), Ok(0)));
            all.extend(z);
        }
        assert_eq!(*expected.get_or_insert_with(|| all.clone()), all, "{level}");
    }
}

#[test]
fn the_impulse_response_of_a_section_is_exact_and_decays_to_zero() {
    for level in Level::all() {
        // y = x + 0.5·y halves the state until it is too small to be kept.
        let mut filters = Biquads::new(17, &[Section { b: [1.0f32, 0.0, 0.0], a: [-0.5, 0.0] }]).unwrap();
        let (mut x, mut y) = (vec![1.0; 17], vec![0.0; 17]);
        for step in 0..300 {
            filters.step(level, &x, &mut y).unwrap();
            x.fill(0.0);
            let half = 0.5f32.powi(step);
            assert!(y.iter().all(|y| *y == if half >= f32::TINY { half } else { 0.0 }), "{level} {step}: {y:?}");
        }
        assert_eq!(filters.states(16, 0), Some([0.0; 2]));
    }
}

#[test]
fn a_non_finite_input_is_counted_treated_as_zero_and_stays_in_its_channel() {
    for level in Level::all() {
        let section = Section { b: [1.0f32, 0.5, 0.25], a: [-0.5, 0.25] };
        let mut filters = Biquads::new(20, &[section, section]).unwrap();
        let mut fir = Fir::new(20, &[0.5f32, 0.25]).unwrap();
        let (mut clean, mut clean_fir) = (filters.clone(), fir.clone());
        for step in 0..10 {
            let mut x: Vec<f32> = (0..20).map(|channel| (channel + step) as f32).collect();
            let (mut y, mut z) = (vec![0.0; 20], vec![0.0; 20]);
            if step == 4 {
                (x[3], x[19]) = (0.0, 0.0);
                clean.step(level, &x, &mut y).unwrap();
                clean_fir.step(level, &x, &mut z).unwrap();
                (x[3], x[19]) = (f32::NAN, f32::NEG_INFINITY);
            } else {
                clean.step(level, &x, &mut y).unwrap();
                clean_fir.step(level, &x, &mut z).unwrap();
            }
            let (mut got, mut got_fir) = (vec![0.0; 20], vec![0.0; 20]);
            let expected = if step == 4 { Ok(2) } else { Ok(0) };
            assert_eq!(filters.step(level, &x, &mut got), expected, "{level} {step}");
            assert_eq!(fir.step(level, &x, &mut got_fir), expected, "{level} {step}");
            assert_eq!((got, got_fir), (y, z), "{level} {step}");
        }
    }
}

#[test]
fn a_filter_that_diverges_is_counted_and_reset() {
    for level in Level::all() {
        let mut filters = Biquads::new(3, &[Section { b: [1.0f32, 0.0, 0.0], a: [-4.0, 0.0] }]).unwrap();
        let mut y = [0.0; 3];
        let counted: usize = (0..200).map(|_| filters.step(level, &[1.0, 0.0, 0.0], &mut y).unwrap()).sum();
        assert!((2..10).contains(&counted), "{level}: {counted}");
        assert!(y[0].is_finite() && y[1..] == [0.0; 2]);
    }
}

#[test]
fn a_step_can_be_undone_once_and_repeated() {
    let level = Level::best();
    let section = Section { b: [0.5f32, 0.25, 0.125], a: [-0.9, 0.2] };
    let (mut filters, mut fir) = (Biquads::new(5, &[section]).unwrap(), Fir::new(5, &[0.5f32, 0.25, 0.125]).unwrap());
    assert!(!filters.take_back() && !fir.take_back());
    let (mut y, mut z) = ([0.0; 5], [0.0; 5]);
    for step in 0..9 {
        let x = [1.0, 2.0, -3.0, 4.0, step as f32];
        filters.step(level, &[99.0; 5], &mut y).unwrap();
        fir.step(level, &[99.0; 5], &mut z).unwrap();
        assert!(filters.take_back() && fir.take_back() && !filters.take_back() && !fir.take_back());
        filters.step(level, &x, &mut y).unwrap();
        fir.step(level, &x, &mut z).unwrap();
    }
    let (mut plain, mut plain_fir) =
        (Biquads::new(5, &[section]).unwrap(), Fir::new(5, &[0.5f32, 0.25, 0.125]).unwrap());
    let (mut expected, mut expected_fir) = ([0.0; 5], [0.0; 5]);
    for step in 0..9 {
        let x = [1.0, 2.0, -3.0, 4.0, step as f32];
        plain.step(level, &x, &mut expected).unwrap();
        plain_fir.step(level, &x, &mut expected_fir).unwrap();
    }
    assert_eq!((y, z), (expected, expected_fir));
    plain.reset();
    plain_fir.reset();
    assert!(!plain.take_back() && !plain_fir.take_back());
    plain.step(level, &[0.0; 5], &mut y).unwrap();
    plain_fir.step(level, &[0.0; 5], &mut z).unwrap();
    assert_eq!((y, z), ([0.0; 5], [0.0; 5]));
}

#[test]
fn impossible_filters_are_refused_with_the_reason_and_change_nothing() {
    let section = Section { b: [1.0f32, 0.0, 0.0], a: [0.0, 0.0] };
    assert_eq!(Biquads::new(0, &[section]).unwrap_err(), BadFilter::Empty("channels"));
    assert_eq!(Biquads::<f32>::new(1, &[]).unwrap_err().to_string(), "a filter without sections: expected 1 or more");
    assert_eq!(Fir::<f32>::new(1, &[]).unwrap_err(), BadFilter::Empty("taps"));
    let mut filters = Biquads::new(2, &[section]).unwrap();
    let wrong = Section { a: [f32::NAN, 0.0], ..section };
    let refused = filters.set(1, &[wrong]).unwrap_err().to_string();
    assert_eq!(refused, "coefficient NaN of section or tap 0: expected a finite number");
    assert_eq!(filters.set(2, &[section]).unwrap_err().to_string(), "channel 2: there are 2, numbered from 0");
    assert!(filters.set(0, &[section; 2]).is_err());
    let mut y = [9.0; 2];
    assert!(filters.step(Level::best(), &[1.0; 3], &mut y).is_err() && y == [9.0; 2]);
    assert_eq!(filters.step(Level::best(), &[1.0, 2.0], &mut y), Ok(0));
    assert_eq!(y, [1.0, 2.0]);
    let mut fir = Fir::new(2, &[1.0f32]).unwrap();
    assert!(fir.set(0, &[f32::INFINITY]).is_err() && fir.set(0, &[]).is_err() && fir.set(7, &[1.0]).is_err());
    assert!(fir.step(Level::best(), &[1.0; 2], &mut y[..1]).is_err());
    assert_eq!((filters.states(2, 0), filters.states(0, 1)), (None, None));
}
