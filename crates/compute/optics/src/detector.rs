//! Calibration of the detector's pixels: dark values and gains, from frames with the shutter closed and frames of uniform light.

/// Sums of frames, per pixel. Used before the loop, with a few hundred frames.
#[derive(Clone, Debug)]
pub struct Detector {
    dark: Mean,
    flat: Mean,
}

#[derive(Clone, Debug)]
struct Mean {
    sums: Vec<u32>,
    frames: u32,
}

impl Mean {
    fn add(&mut self, image: &[u16]) {
        // 65,535 sums of 16-bit values fit into 32 bits. Further frames are ignored.
        if self.frames < 0xffff {
            self.sums.iter_mut().zip(image).for_each(|(sum, pixel)| *sum += u32::from(*pixel));
            self.frames += 1;
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.sums.iter().map(|sum| f64::from(*sum) / f64::from(self.frames.max(1)))
    }
}

impl Detector {
    /// A detector with `pixels` pixels. Allocates.
    #[must_use]
    pub fn new(pixels: usize) -> Self {
        let none = || Mean { sums: vec![0; pixels], frames: 0 };
        Self { dark: none(), flat: none() }
    }

    /// Adds an image without light.
    pub fn add_dark(&mut self, image: &[u16]) {
        self.dark.add(image);
    }

    /// Adds an image of uniform light.
    pub fn add_flat(&mut self, image: &[u16]) {
        self.flat.add(image);
    }

    /// Dark value and gain of each pixel, and the number of dead pixels. A dead pixel receives less than a tenth of the mean light; its gain is
    /// 0.
    #[must_use]
    pub fn calibration(&self) -> (Vec<f32>, Vec<f32>, usize) {
        let dark: Vec<f64> = self.dark.values().collect();
        let light: Vec<f64> = self.flat.values().zip(&dark).map(|(flat, dark)| flat - dark).collect();
        let mean = light.iter().sum::<f64>() / light.len().max(1) as f64;
        let gain = |light: &f64| if *light > 0.1 * mean { (mean / light) as f32 } else { 0.0 };
        let gains: Vec<f32> = light.iter().map(gain).collect();
        let dead = gains.iter().filter(|gain| **gain == 0.0).count();
        (dark.into_iter().map(|dark| dark as f32).collect(), gains, dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_equalize_pixels_and_dead_pixels_have_gain_zero() {
        let mut detector = Detector::new(4);
        detector.add_dark(&[10, 20, 10, 10]);
        detector.add_dark(&[12, 20, 10, 10]);
        detector.add_flat(&[111, 220, 60, 11]);
        let (dark, gain, dead) = detector.calibration();
        assert_eq!((dark, dead), (vec![11.0, 20.0, 10.0, 10.0], 1));
        let mean = (100.0 + 200.0 + 50.0 + 1.0) / 4.0;
        assert_eq!(gain, [mean / 100.0, mean / 200.0, mean / 50.0, 0.0]);
        let (_, none, dead) = Detector::new(2).calibration();
        assert_eq!((none, dead), (vec![0.0; 2], 2), "without frames all pixels are dead");
    }
}
