//! The loop in one thread: telescope, datagrams, calibration by poking, control.

use kernels::{Centroids, Level, Light};
use optics::reconstruct::{Interaction, patterns};
use optics::{Command, Detector, Geometry, Integrator, SIDE, Settings, Share, Sky, Source, Stored, Telescope};

const LIGHT: Light = Light { threshold: 15.0, flux_min: 300.0 };

/// A sensor, a mirror and their calibration.
struct Bench {
    geometry: Geometry,
    telescope: Telescope,
    image: Vec<u16>,
    spots: Centroids,
    inverse: Vec<f32>,
}

impl Bench {
    fn command(&mut self, source: Source, values: &[f32]) {
        let mut bytes = vec![0; Command::bytes(values.len())];
        let length = Command::write(0, source, values, &mut bytes).unwrap();
        self.telescope.command(&Command::read(&bytes[..length], values.len()).unwrap());
    }

    /// The next image. Rows in `lost` keep their previous pixels.
    fn expose(&mut self, lost: impl Fn(usize) -> bool) {
        self.telescope.expose();
        let mut bytes = vec![0; self.geometry.row_bytes()];
        for row in (0..self.geometry.across()).filter(|row| !lost(*row)) {
            self.telescope.row(row, &mut bytes);
            let pixels = self.geometry.row_bytes() / 2;
            for (to, from) in self.image[row * pixels..][..pixels].iter_mut().zip(bytes.as_chunks::<2>().0) {
                *to = u16::from_le_bytes(*from);
            }
        }
    }

    fn slopes(&self) -> Vec<f32> {
        let mut slopes = vec![0.0; 2 * self.spots.apertures()];
        self.spots.measure(Level::best(), 0..self.spots.apertures(), &self.image, &mut slopes).unwrap();
        slopes
    }

    fn new(across: usize, sky: Sky) -> Self {
        let geometry = Geometry::new(across).unwrap();
        let pixels = geometry.width() * geometry.width();
        let corners = geometry.corners();
        let size = (geometry.width(), geometry.width());
        let spots = |dark: &[f32], gain: &[f32]| Centroids::new(size, SIDE, &corners, dark, gain, LIGHT).unwrap();
        let telescope = Telescope::new(geometry.clone(), sky);
        let raw = spots(&vec![0.0; pixels], &vec![1.0; pixels]);
        let mut bench =
            Self { geometry: geometry.clone(), telescope, image: vec![0; pixels], spots: raw, inverse: Vec::new() };
        let flat = vec![0.0; geometry.actuators().len()];
        let mut detector = Detector::new(pixels);
        for (source, frames) in [(Source::Shut, 50), (Source::Flat, 100)] {
            bench.command(source, &flat);
            for _ in 0..frames {
                bench.expose(|_| false);
                if source == Source::Shut { detector.add_dark(&bench.image) } else { detector.add_flat(&bench.image) }
            }
        }
        let (dark, gain, dead) = detector.calibration();
        assert!(dead < pixels / 500, "{dead} dead pixels of {pixels}");
        bench.spots = spots(&dark, &gain);
        let mean = |bench: &mut Self, values: &[f32]| {
            bench.command(Source::Lamp, values);
            let mut sums = vec![0.0; 2 * bench.spots.apertures()];
            for _ in 0..4 {
                bench.expose(|_| false);
                sums.iter_mut().zip(bench.slopes()).for_each(|(sum, slope)| *sum += slope / 4.0);
            }
            sums
        };
        let zeros = mean(&mut bench, &flat);
        bench.spots.set_zeros(&zeros).unwrap();
        let mut interaction = Interaction::new(&geometry);
        for pattern in patterns(&geometry) {
            let poke = |height: f32| {
                let mut values = flat.clone();
                pattern.iter().for_each(|actuator| values[*actuator] = height);
                values
            };
            let (up, down) = (mean(&mut bench, &poke(200.0)), mean(&mut bench, &poke(-200.0)));
            let slopes: Vec<f32> = up.iter().zip(down).map(|(up, down)| (up - down) / 400.0).collect();
            interaction.poked(&geometry, &pattern, &slopes);
        }
        bench.inverse = interaction.inverse(3e-3).unwrap();
        bench
    }

    /// Mean square residual divided by that of the atmosphere alone, after the loop has settled.
    fn ratio(&mut self, gain: f32, sign: f32, lost: impl Fn(usize, usize) -> bool) -> (f64, f64) {
        self.ratio_of(Stored::Single, gain, sign, lost)
    }

    /// The same with a reconstructor stored in this format.
    fn ratio_of(&mut self, stored: Stored, gain: f32, sign: f32, lost: impl Fn(usize, usize) -> bool) -> (f64, f64) {
        let mut share = Share::new(&self.geometry, &self.inverse, stored, &(0..Share::panels(&self.geometry)), |_| ());
        let mut mirror = Integrator::new(self.geometry.actuators().len(), 5000.0);
        let settings = Settings { closed: true, gain, leak: 0.99 };
        let (mut left, mut open) = (0.0, 0.0);
        for frame in 0..250 {
            self.command(Source::Sky, mirror.commands());
            self.expose(|row| lost(frame, row));
            let mut slopes = self.slopes();
            for row in (0..self.geometry.across()).filter(|row| lost(frame, *row)) {
                let apertures = self.geometry.row(row);
                slopes[2 * apertures.start..2 * apertures.end].fill(0.0);
            }
            (0..self.geometry.across()).for_each(|row| share.add(Level::best(), row, row == 0, &slopes).unwrap());
            let error: Vec<f32> = share.error().iter().map(|error| sign * error).collect();
            mirror.step(&error, settings);
            if frame >= 100 {
                let (residual, air) = self.telescope.residual();
                left += residual * residual;
                open += air * air;
            }
        }
        ((left / open).sqrt(), (open / 150.0).sqrt())
    }
}

#[test]
fn the_residual_falls_with_a_closed_loop_and_rises_with_the_wrong_sign() {
    let sky = Sky { frames: 300, ..Sky::default() };
    let mut bench = Bench::new(16, sky);
    let (ratio, open) = bench.ratio(0.5, 1.0, |_, _| false);
    assert!((200.0..2000.0).contains(&open), "{open} nm of air");
    assert!(ratio < 0.15, "{ratio}");
    let (with_losses, _) = bench.ratio(0.5, 1.0, |frame, row| row == frame % 16);
    assert!(with_losses < 0.17, "{with_losses}");
    assert!((0.99..1.01).contains(&bench.ratio(0.0, 1.0, |_, _| false).0));
    assert!(bench.ratio(0.5, -1.0, |_, _| false).0 > 1.5);
}

#[test]
fn a_reconstructor_of_8_or_16_bits_leaves_the_same_residual_as_one_of_32() {
    let ratio =
        |stored| Bench::new(16, Sky { frames: 300, ..Sky::default() }).ratio_of(stored, 0.5, 1.0, |_, _| false).0;
    let single = ratio(Stored::Single);
    for stored in [Stored::Half, Stored::Byte] {
        let more = ratio(stored) / single;
        assert!((0.98..1.02).contains(&more), "{stored:?}: {more}");
    }
}
