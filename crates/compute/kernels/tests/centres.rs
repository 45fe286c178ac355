//! Centres of gravity of sub-apertures, at each level that the CPU supports.

use kernels::{BadAperture, Centroids, Level, Light, SIDE_MAX, Without};
use proptest::prelude::*;

/// Pseudo-random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 31)
    }
}

/// An image with a spot in each sub-aperture of a row, its calibration and the corners.
struct Scene {
    size: (usize, usize),
    corners: Vec<(usize, usize)>,
    image: Vec<u16>,
    dark: Vec<f32>,
    gain: Vec<f32>,
}

fn scene(side: usize, apertures: usize, seed: u64) -> Scene {
    let mut chance = Chance(seed | 1);
    // Gaps of different widths between sub-apertures give lines any alignment.
    let (mut column, mut corners) = (0, Vec::new());
    for _ in 0..apertures {
        column += (chance.next() * 3.0) as usize;
        corners.push((column, (chance.next() * 4.0) as usize));
        column += side;
    }
    let size = (column + 2, side + 4);
    let pixels = size.0 * size.1;
    let bright = [20.0, 800.0, 60_000.0][(chance.next() * 3.0) as usize];
    let image = (0..pixels).map(|_| (chance.next() * bright) as u16).collect();
    let dark = (0..pixels).map(|_| (chance.next() * 30.0) as f32).collect();
    let gain = (0..pixels).map(|_| if chance.next() < 0.02 { 0.0 } else { (0.5 + chance.next()) as f32 }).collect();
    Scene { size, corners, image, dark, gain }
}

impl Scene {
    fn centroids(&self, side: usize, light: Light) -> Centroids {
        Centroids::new(self.size, side, &self.corners, &self.dark, &self.gain, light).unwrap()
    }

    /// Flux, centre, and the sum from which the error bound follows, in double precision.
    fn exact(&self, side: usize, aperture: usize, threshold: f32) -> (f64, [f64; 2], f64) {
        let (left, top) = self.corners[aperture];
        let (mut flux, mut x, mut y, mut all) = (0.0, 0.0, 0.0, 0.0);
        for (line, column) in (0..side).flat_map(|line| (0..side).map(move |column| (line, column))) {
            let at = (top + line) * self.size.0 + left + column;
            let (dark, gain) = (f64::from(self.dark[at]), f64::from(self.gain[at]));
            let value = ((f64::from(self.image[at]) - dark) * gain - f64::from(threshold)).max(0.0);
            let middle = (side as f64 - 1.0) / 2.0;
            flux += value;
            x += value * (column as f64 - middle);
            y += value * (line as f64 - middle);
            all += f64::from(self.image[at]) * gain + (dark * gain + f64::from(threshold)).abs();
        }
        (flux, [x / flux, y / flux], all)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_level_keeps_the_bound_and_gives_the_same_bits_for_any_split(
        side in prop_oneof![3 => Just(8usize), 1 => 1..=SIDE_MAX],
        apertures in 0..if cfg!(miri) { 10 } else { 40usize },
        seed in any::<u64>(),
        threshold in prop_oneof![Just(0.0f32), 0.0f32..40.0],
        cut in 0..40usize,
    ) {
        let scene = scene(side, apertures, seed);
        let centroids = scene.centroids(side, Light { threshold, flux_min: 1.0 });
        let mut plain = vec![7.0; 2 * apertures];
        let without = centroids.measure(Level::SCALAR, 0..apertures, &scene.image, &mut plain).unwrap();
        for aperture in 0..apertures {
            let (flux, exact, all) = scene.exact(side, aperture, threshold);
            if plain[2 * aperture..][..2] == [7.0; 2] {
                prop_assert!(flux < 1.01, "{flux}");
                continue;
            }
            let k = (2 * side + 12) as f64 * f64::from(f32::EPSILON) / 2.0;
            let bound = k / (1.0 - k) * (2 * side + 1) as f64 * all / (flux * (1.0 - k)) + 1e-12;
            for (found, exact) in plain[2 * aperture..].iter().zip(exact) {
                prop_assert!((f64::from(*found) - exact).abs() <= bound, "{side}: {found} {exact} {bound:e}");
            }
        }
        for level in Level::all() {
            let mut found = vec![7.0; 2 * apertures];
            let cut = cut.min(apertures);
            let (first, second) = found.split_at_mut(2 * cut);
            let a = centroids.measure(level, 0..cut, &scene.image, first).unwrap();
            let b = centroids.measure(level, cut..apertures, &scene.image, second).unwrap();
            prop_assert_eq!(&found, &plain, "{}", level);
            prop_assert_eq!(a.dark + b.dark, without.dark);
        }
    }
}

#[test]
fn the_centre_of_a_spot_is_measured_and_its_zero_subtracted() {
    let mut image = vec![100u16; 64];
    image[2 * 8 + 5] = 1100;
    let light = Light { threshold: 0.0, flux_min: 10.0 };
    let mut centroids = Centroids::new((8, 8), 8, &[(0, 0)], &[100.0; 64], &[2.0; 64], light).unwrap();
    centroids.set_zeros(&[1.0, -0.5]).unwrap();
    for level in Level::all() {
        let mut centre = [0.0; 2];
        assert_eq!(centroids.measure(level, 0..1, &image, &mut centre), Ok(Without::default()));
        assert_eq!(centre, [0.5, -1.0], "{level}");
    }
}

#[test]
fn sub_apertures_without_light_or_with_too_much_keep_their_values_and_are_counted() {
    let corners: Vec<(usize, usize)> = (0..9).map(|aperture| (8 * aperture, 0)).collect();
    let (mut dark, mut gain) = (vec![10.0; 72 * 8], vec![1.0; 72 * 8]);
    // The second sub-aperture has a gain that makes its flux infinite, the third has only dead pixels, and the fourth
    // is darker than its calibration.
    let mut image = vec![50u16; 72 * 8];
    for line in 0..8 {
        gain[line * 72 + 8..][..8].fill(f32::MAX);
        gain[line * 72 + 16..][..8].fill(0.0);
        dark[line * 72 + 24..][..8].fill(60.0);
        image[line * 72 + 32..][..8].fill(0);
    }
    let light = Light { threshold: 3.0, flux_min: 5.0 };
    let centroids = Centroids::new((72, 8), 8, &corners, &dark, &gain, light).unwrap();
    for level in Level::all() {
        let mut centres = [9.0; 18];
        let without = centroids.measure(level, 0..9, &image, &mut centres);
        assert_eq!(without, Ok(Without { dark: 3, unbounded: 1 }), "{level}");
        let expected: Vec<f32> = (0..18).map(|place| if (2..10).contains(&place) { 9.0 } else { 0.0 }).collect();
        assert_eq!(centres.to_vec(), expected, "{level}");
    }
}

#[test]
fn impossible_sub_apertures_and_calibrations_are_refused() {
    let (dark, mut gain) = ([0.0; 100], [1.0; 100]);
    let light = Light { threshold: 0.0, flux_min: 0.0 };
    let refused = |side, corner, dark: &[f32], gain: &[f32]| {
        Centroids::new((10, 10), side, &[(0, 0), corner], dark, gain, light).unwrap_err().to_string()
    };
    assert_eq!(refused(0, (0, 0), &dark, &gain), "sub-apertures of 0 pixels: expected 1 to 32");
    assert_eq!(refused(33, (0, 0), &dark, &gain), "sub-apertures of 33 pixels: expected 1 to 32");
    for corner in [(3, 0), (0, 3), (usize::MAX, 0)] {
        let said = refused(8, corner, &dark, &gain);
        assert!(
            said.starts_with("sub-aperture 1 at column") && said.ends_with("expected it within the image"),
            "{said}"
        );
    }
    assert_eq!(refused(8, (0, 0), &dark[1..], &gain), "dark values: found 99, expected 100");
    gain[42] = f32::NAN;
    let found = Centroids::new((10, 10), 8, &[(0, 0)], &dark, &gain, light);
    assert!(matches!(found, Err(BadAperture::Pixel { pixel: 42, .. })));
    gain[42] = -1.0;
    assert!(refused(8, (0, 0), &dark, &gain).starts_with("pixel 42: dark 0, gain -1; expected finite numbers"));
    gain[42] = 1.0;
    let none = Light { threshold: f32::NAN, flux_min: 1.0 };
    let said = Centroids::new((10, 10), 8, &[(0, 0)], &dark, &gain, none).unwrap_err().to_string();
    assert_eq!(said, "threshold NaN, least flux 1: expected finite numbers");
    let mut centroids = Centroids::new((10, 10), 8, &[(0, 0), (2, 2)], &dark, &gain, light).unwrap();
    assert_eq!(centroids.set_zeros(&[0.0; 3]).unwrap_err().to_string(), "zeros: found 3, expected 4");
    let (level, image, mut centres) = (Level::best(), [9; 100], [5.0; 4]);
    let refusals = [
        centroids.measure(level, 0..2, &image[1..], &mut centres),
        centroids.measure(level, 1..3, &image, &mut centres),
        centroids.measure(level, 0..1, &image, &mut centres),
    ];
    let said: Vec<String> = refusals.map(|refusal| refusal.unwrap_err().to_string()).into();
    assert_eq!(said[0], "pixels of the image: found 99, expected 100");
    assert_eq!(said[1], "end of the sub-apertures: found 3, expected 2");
    assert_eq!(said[2], "places for centres: found 4, expected 2");
    assert_eq!(centres, [5.0; 4]);
}
