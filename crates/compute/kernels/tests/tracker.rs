//! Correlation tracking, at each level that the CPU supports.

use kernels::{BadTracker, Level, Tracked, Tracker};
use proptest::prelude::*;

/// A Gaussian spot with standard deviation `sigma` in pixels and centre (x, y), in an image with lines of `width`
/// pixels.
fn spot(width: usize, height: usize, (x, y): (f64, f64), sigma: f64) -> Vec<f32> {
    let at = |pixel: usize| ((pixel % width) as f64 - x, (pixel / width) as f64 - y);
    let light = |(x, y): (f64, f64)| 1000.0 * (-(x * x + y * y) / (2.0 * sigma * sigma)).exp();
    (0..width * height).map(|pixel| light(at(pixel)) as f32).collect()
}

/// Pseudo-random pixels.
fn texture(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 1000.0
    };
    (0..count).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn all_levels_give_the_same_bits_within_the_bound_of_exact_arithmetic(
        side in 1usize..20, reach in 1usize..20, more in (0usize..5, 0usize..5), seed in any::<u64>(),
    ) {
        let (width, height) = (side + 2 * reach + more.0, side + 2 * reach + more.1);
        let (image, reference) = (texture(width * height, seed), texture(side * side, !seed));
        let corner = (reach + more.0 / 2, reach + more.1 / 2);
        let mut tracker = Tracker::new(side, reach, &reference).unwrap();
        let expected = tracker.measure(Level::SCALAR, &image, width, corner).unwrap();
        let k = (side * side + 3) as f64 * f64::from(f32::EPSILON) / 2.0;
        let away = reach as isize;
        for (x, y) in (-away..=away).flat_map(|y| (-away..=away).map(move |x| (x, y))) {
            let pixel = |at: usize| {
                let (column, line) = (corner.0 + at % side, corner.1 + at / side);
                image[line.wrapping_add_signed(y) * width + column.wrapping_add_signed(x)]
            };
            let exact: f64 =
                (0..side * side).map(|at| (f64::from(pixel(at)) - f64::from(reference[at])).powi(2)).sum();
            let got = f64::from(tracker.difference(x, y).unwrap());
            let bound = k / (1.0 - k) * exact + 1e-38 * (side * side) as f64;
            prop_assert!((got - exact).abs() <= bound, "{} {} {} {}", x, y, got, exact);
        }
        prop_assert_eq!(tracker.difference(away + 1, 0), None);
        for level in Level::all() {
            prop_assert_eq!(tracker.measure(level, &image, width, corner).unwrap(), expected, "{}", level);
        }
    }

    #[test]
    fn a_spot_is_found_to_three_hundredths_of_a_pixel(
        x in -3.4f64..3.4, y in -3.4f64..3.4, sigma in 1.5f64..2.5,
    ) {
        let reference = spot(24, 24, (11.5, 11.5), sigma);
        let image = spot(40, 40, (19.5 + x, 19.5 + y), sigma);
        let mut tracker = Tracker::new(24, 4, &reference).unwrap();
        let found = tracker.measure(Level::best(), &image, 40, (8, 8)).unwrap();
        let Tracked::At(shift) = found else { panic!("{found:?}") };
        prop_assert!((f64::from(shift.x) - x).abs() < 0.03 && (f64::from(shift.y) - y).abs() < 0.03, "{:?}", shift);
    }

    #[test]
    fn a_part_of_an_image_is_found_again_at_its_pixel(
        side in 2usize..16, reach in 1usize..10, at in (0usize..10, 0usize..10), seed in any::<u64>(),
    ) {
        let across = side + 2 * reach;
        let image = texture(across * across, seed);
        let (left, top) = (at.0.min(2 * reach), at.1.min(2 * reach));
        let reference: Vec<f32> =
            (0..side).flat_map(|line| image[(top + line) * across + left..][..side].to_vec()).collect();
        let mut tracker = Tracker::new(side, reach, &reference).unwrap();
        let found = tracker.measure(Level::best(), &image, across, (reach, reach)).unwrap();
        let (Tracked::At(shift) | Tracked::Edge(shift)) = found else { panic!("{found:?}") };
        let truth = (left as f32 - reach as f32, top as f32 - reach as f32);
        prop_assert!((shift.x.round(), shift.y.round()) == truth && shift.difference == 0.0, "{:?} {:?}", shift, truth);
        let at_edge = [left, top].iter().any(|at| *at == 0 || *at == 2 * reach);
        prop_assert_eq!(matches!(found, Tracked::Edge(_)), at_edge);
    }
}

#[test]
fn a_flat_image_has_no_position_and_non_finite_pixels_exclude_only_their_positions() {
    let mut tracker = Tracker::new(4, 2, &[1.0; 16]).unwrap();
    for level in Level::all() {
        assert_eq!(tracker.measure(level, &[5.0; 64], 8, (2, 2)), Ok(Tracked::Flat), "{level}");
        assert_eq!(tracker.measure(level, &[f32::NAN; 64], 8, (2, 2)), Ok(Tracked::Unbounded), "{level}");
        assert_eq!(tracker.measure(level, &[1e30; 64], 8, (2, 2)), Ok(Tracked::Unbounded), "{level}: too large");
        let mut image = spot(20, 20, (9.5, 9.5), 1.5);
        let mut spots = Tracker::new(12, 2, &spot(12, 12, (5.5, 5.5), 1.5)).unwrap();
        let clean = spots.measure(level, &image, 20, (4, 4)).unwrap();
        let near = |shift: f32| shift.abs() < 1e-6;
        assert!(matches!(clean, Tracked::At(shift) if near(shift.x) && near(shift.y)), "{level}: {clean:?}");
        // The window two places to the left includes this pixel. The windows of the best place and its neighbours do
        // not.
        image[5 * 20 + 2] = f32::INFINITY;
        assert_eq!(spots.measure(level, &image, 20, (4, 4)).unwrap(), clean, "{level}");
        assert_eq!(spots.difference(-2, 0), Some(f32::INFINITY));
    }
}

#[test]
fn images_of_the_wrong_size_are_refused_and_the_reference_stays() {
    assert_eq!(Tracker::new(0, 1, &[]).unwrap_err(), BadTracker::Side(0));
    assert_eq!(Tracker::new(1, 0, &[1.0]).unwrap_err(), BadTracker::Reach(0));
    let refused = Tracker::new(2, 1, &[1.0; 3]).unwrap_err().to_string();
    assert_eq!(refused, "pixels of the reference: found 3, expected 4");
    assert_eq!(Tracker::new(1, 1, &[f32::NAN]).unwrap_err(), BadTracker::Pixel(0));
    let mut tracker = Tracker::new(2, 1, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert!(tracker.refer(&[0.0; 3]).is_err() && tracker.refer(&[f32::INFINITY; 4]).is_err());
    let mut image = vec![0.0; 5 * 4];
    for (at, pixel) in [(6, 1.0), (7, 2.0), (11, 3.0), (12, 4.0)] {
        image[at] = pixel;
    }
    let level = Level::best();
    let found = tracker.measure(level, &image, 5, (1, 1));
    assert!(matches!(found, Ok(Tracked::At(shift)) if shift.difference == 0.0), "{found:?}");
    let refused =
        |tracker: &mut Tracker, width, corner| tracker.measure(level, &image, width, corner).unwrap_err().to_string();
    assert_eq!(refused(&mut tracker, 5, (0, 1)), "column of the corner: found 0, expected 1");
    assert_eq!(refused(&mut tracker, 5, (3, 1)), "column of the corner: found 3, expected 2");
    assert_eq!(refused(&mut tracker, 5, (1, 2)), "line of the corner: found 2, expected 1");
    assert_eq!(refused(&mut tracker, 3, (1, 1)), "pixels of the image's lines: found 20, expected 18");
    assert!(tracker.measure(level, &[], 0, (1, 1)).is_err());
    assert!(tracker.measure(level, &image, 5, (usize::MAX, 1)).is_err());
    tracker.refer(&[0.0; 4]).unwrap();
    assert!(matches!(tracker.measure(level, &[7.0; 16], 4, (1, 1)), Ok(Tracked::Flat)));
}
