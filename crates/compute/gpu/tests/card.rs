//! Compares a graphics card with the CPU. Without a card, the error must give the reason.

use gpu::{Gpu, GpuError, Sensor};
use kernels::{Centroids, Level, Light};

#[test]
fn a_graphics_card_computes_the_results_of_the_cpu_and_a_missing_one_is_reported() {
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(error) => {
            assert!(matches!(error, GpuError::NotBuilt | GpuError::NoDriver | GpuError::NoCard), "{error}");
            eprintln!("not compared: {error}");
            return;
        }
    };
    let (width, rows) = (48, 30);
    let corners: Vec<(usize, usize)> = (0..36).map(|at| (at % 6 * 8, at / 6 * 8)).collect();
    let image: Vec<u16> = (0..width * width).map(|pixel| 100 + (pixel * 7919 % 1009) as u16).collect();
    let (dark, gain) = (vec![90.0; image.len()], vec![1.5; image.len()]);
    let matrix: Vec<f32> = (0..rows * 72).map(|at| (at * 31 % 101) as f32 / 50.0 - 1.0).collect();
    let light = Light { threshold: 20.0, flux_min: 1.0 };
    let mut slopes = vec![0.0; 72];
    let spots = Centroids::new((width, width), 8, &corners, &dark, &gain, light).unwrap();
    spots.measure(Level::best(), 0..36, &image, &mut slopes).unwrap();
    let expected: Vec<f32> =
        matrix.chunks(72).map(|row| row.iter().zip(&slopes).map(|(a, x)| a * x).sum::<f32>()).collect();
    let close = |found: &[f32]| found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-3);
    let mut y = vec![0.0; rows];
    gpu.matrix(rows, 72, &matrix).unwrap().multiply(&slopes, &mut y).unwrap();
    assert!(close(&y), "{y:?} {expected:?}");
    let firsts: Vec<usize> = corners.iter().map(|(column, line)| line * width + column).collect();
    let sensor = Sensor {
        width,
        corners: &firsts,
        dark: &dark,
        gain: &gain,
        threshold: 20.0,
        flux_min: 1.0,
        reconstructor: &matrix,
    };
    let mut error = vec![0.0; rows];
    gpu.frame(&sensor).unwrap().compute(&image, &mut error).unwrap();
    assert!(close(&error), "{error:?} {expected:?}");
    assert!(matches!(gpu.matrix(2, 2, &[0.0; 3]).unwrap_err(), GpuError::Size { found: 3, expected: 4, .. }));
}
