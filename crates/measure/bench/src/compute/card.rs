//! A graphics card: matrix times vector, and a frame of adaptive optics, transfers included.

use super::Args;
use super::peers::element;
use super::spots::{ACROSS, SIDE, corners};
use crate::Progress;
use gpu::{Gpu, GpuError, Sensor};
use report::{Latency, Row, Table};
use std::hint::black_box;
use sys::clock::mono_now;

/// Actuators of a mirror for as many sub-apertures.
const ACTUATORS: usize = 1332;
/// Calls before the measurement, to raise the card's clock.
const WARM: usize = 200;

pub(super) fn measure(args: &Args, progress: &mut Progress) -> Result<Vec<Table>, GpuError> {
    let gpu = Gpu::open()?;
    let mut times = Table::new(format!(
        "{}: matrix times vector, f32, the matrix stays on the card, vectors are transferred",
        gpu.name()
    ));
    for (place, &size) in args.sizes.iter().enumerate() {
        progress.at(place, args.sizes.len() + 1, "a graphics card");
        let matrix: Vec<f32> = (0..size * size).map(|at| element(at / size, at % size)).collect();
        let (mut matrix, x, mut y) = (gpu.matrix(size, size, &matrix)?, vec![0.5f32; size], vec![0.0f32; size]);
        let mut each = timed(args.jobs, || matrix.multiply(black_box(&x), black_box(&mut y)))?;
        times = times.row(Row::reference(format!("{size} x {size}"), Latency::of_times(&mut each)));
    }
    let width = ACROSS * SIDE;
    let image: Vec<u16> = (0..width * width).map(|pixel| 100 + (pixel * 7919 % 1009) as u16).collect();
    let firsts: Vec<usize> = corners().iter().map(|(column, line)| line * width + column).collect();
    let reconstructor: Vec<f32> =
        (0..ACTUATORS * 2 * firsts.len()).map(|at| element(at % ACTUATORS, at / ACTUATORS)).collect();
    let sensor = Sensor {
        width,
        corners: &firsts,
        dark: &vec![100.0; image.len()],
        gain: &vec![1.0; image.len()],
        threshold: 10.0,
        flux_min: 1.0,
        reconstructor: &reconstructor,
    };
    let (mut frame, mut error) = (gpu.frame(&sensor)?, vec![0.0; ACTUATORS]);
    let mut each = timed(args.jobs, || frame.compute(black_box(&image), black_box(&mut error)))?;
    let title = format!(
        "{}: a frame of {} sub-apertures and {ACTUATORS} actuators, pixels and errors in the host's memory",
        gpu.name(),
        firsts.len()
    );
    let frames = Table::new(title).row(Row::reference(
        "transfer of pixels, spots, reconstructor, transfer of errors",
        Latency::of_times(&mut each),
    ));
    Ok(vec![times, frames])
}

/// Nanoseconds of each call.
fn timed(jobs: usize, mut call: impl FnMut() -> Result<(), GpuError>) -> Result<Vec<u64>, GpuError> {
    (0..WARM).try_for_each(|_| call())?;
    let one = |_| {
        let begun = mono_now();
        call().map(|()| (mono_now() - begun).0 as u64)
    };
    (0..jobs).map(one).collect()
}
