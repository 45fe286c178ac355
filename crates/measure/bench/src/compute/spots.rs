//! Centres of gravity of a Shack-Hartmann sensor's spots, as adaptive optics needs them each frame: plain code and each level.

use super::Args;
use crate::{Failed, Progress};
use kernels::{Centroids, Level, Light};
use report::{Good, Row, Table, Target};
use std::hint::black_box;
use sys::clock::mono_now;

/// Sub-apertures across the pupil.
pub(super) const ACROSS: usize = 40;
/// Pixels of a sub-aperture's side.
pub(super) const SIDE: usize = 8;
/// Images of a round: some milliseconds.
const IMAGES: usize = 50;

/// Sub-apertures in the light of a telescope with a mirror in the middle: 1,240 of 40 times 40.
pub(super) fn corners() -> Vec<(usize, usize)> {
    let lit = |column: usize, line: usize| {
        let middle = |at: usize| at as f64 + 0.5 - ACROSS as f64 / 2.0;
        let radius = middle(column).hypot(middle(line)) / (ACROSS as f64 / 2.0);
        (0.14..=1.0).contains(&radius)
    };
    let all = (0..ACROSS).flat_map(|line| (0..ACROSS).map(move |column| (column, line)));
    all.filter(|(column, line)| lit(*column, *line)).map(|(column, line)| (column * SIDE, line * SIDE)).collect()
}

pub(super) fn measure(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let (corners, width) = (corners(), ACROSS * SIDE);
    let image: Vec<u16> = (0..width * width).map(|pixel| 100 + (pixel * 7919 % 1009) as u16).collect();
    let fits = "sub-apertures within the image";
    let (dark, gain) = (vec![100.0; image.len()], vec![1.0; image.len()]);
    let light = Light { threshold: 10.0, flux_min: 1.0 };
    let centroids = Centroids::new((width, width), SIDE, &corners, &dark, &gain, light).expect(fits);
    let mut centres = vec![0.0f32; 2 * corners.len()];
    let levels: Vec<Level> = Level::all().collect();
    let mut times = vec![Vec::new(); levels.len()];
    for round in 0..=args.rounds {
        progress.at(round, args.rounds + 1, "centres of spots, level by level");
        for (level, times) in levels.iter().zip(&mut times) {
            let begun = mono_now();
            for _ in 0..IMAGES {
                let seen = centroids.measure(*level, 0..corners.len(), black_box(&image), black_box(&mut centres));
                let _ = black_box(seen).expect(fits);
            }
            // The first round warms the caches.
            if round > 0 {
                times.push((mono_now() - begun).0 as f64 / (IMAGES * 1000) as f64);
            }
        }
    }
    let title = format!(
        "centres of gravity of {} spots of {SIDE} x {SIDE} pixels of 16 bits, dark and gain of each pixel, on one CPU",
        corners.len()
    );
    let mut table = Table::new(title).columns("tahti", "plain code");
    let plain = report::Figure::median(times[0].clone());
    for (level, times) in levels.iter().zip(times) {
        let row = Row::samples(level.name(), "us", times).good(Good::Low).against(plain.clone());
        let best = *level == Level::best() && *level != Level::SCALAR;
        table = table.row(if best { row.target(Target::at_most(15.0)) } else { row });
    }
    Ok(table)
}
