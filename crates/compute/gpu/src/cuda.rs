//! Implementation with NVIDIA's driver. The driver compiles the kernels; the CUDA toolkit is not needed.

use crate::{GpuError, Sensor};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

/// `frame.cu` as PTX, which the driver compiles for the card.
const PROGRAM: &str = include_str!("frame.ptx");
/// Threads per block. Each warp of 32 threads computes one row or one sub-aperture.
const THREADS: usize = 128;
const WARPS: usize = THREADS / 32;

/// A card.
#[derive(Clone, Debug)]
pub struct Gpu {
    stream: Arc<CudaStream>,
    multiply: CudaFunction,
    centres: CudaFunction,
    name: String,
}

/// A matrix on the card.
#[derive(Debug)]
pub struct Matrix {
    gpu: Gpu,
    rows: usize,
    columns: usize,
    matrix: CudaSlice<f32>,
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
}

/// A sensor and its reconstructor on the card.
#[derive(Debug)]
pub struct Frame {
    reconstructor: Matrix,
    width: i32,
    corners: CudaSlice<i32>,
    dark: CudaSlice<f32>,
    gain: CudaSlice<f32>,
    image: CudaSlice<u16>,
    light: [f32; 2],
}

fn refused(doing: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| GpuError::Refused { doing, said: format!("{error:?}") }
}

fn number(what: &'static str, value: usize) -> Result<i32, GpuError> {
    i32::try_from(value).map_err(|_| GpuError::Size { what, found: value, expected: i32::MAX as usize })
}

/// Launch configuration with one warp per item.
fn warps(many: usize) -> LaunchConfig {
    let blocks = many.div_ceil(WARPS).max(1) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS as u32, 1, 1), shared_mem_bytes: 0 }
}

impl Gpu {
    /// The first card.
    ///
    /// # Errors
    /// There is no driver, no card, or the driver refuses the programs.
    pub fn open() -> Result<Self, GpuError> {
        // SAFETY: loads NVIDIA's library by its usual names. Must come first: the other driver calls panic without the library.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        let context = match CudaContext::device_count() {
            Ok(cards) if cards > 0 => CudaContext::new(0).map_err(refused("open the card"))?,
            _ => return Err(GpuError::NoCard),
        };
        let module = context.load_module(Ptx::from_src(PROGRAM)).map_err(refused("compile for the card"))?;
        let function = |name| module.load_function(name).map_err(refused("find a program"));
        let (multiply, centres) = (function("multiply")?, function("centres")?);
        let name = context.name().map_err(refused("ask for the card's name"))?;
        Ok(Self { stream: context.default_stream(), multiply, centres, name })
    }

    /// Name of the card.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn zeros(&self, many: usize) -> Result<CudaSlice<f32>, GpuError> {
        self.stream.alloc_zeros(many.max(1)).map_err(refused("have memory on the card"))
    }

    fn copied(&self, values: &[f32]) -> Result<CudaSlice<f32>, GpuError> {
        self.stream.clone_htod(values).map_err(refused("copy to the card"))
    }

    /// Creates a matrix that stays on the card. `matrix` is row-major.
    ///
    /// # Errors
    /// `matrix` does not have `rows` × `columns` elements, has more than `i32::MAX`, or the card has too little memory.
    pub fn matrix(&self, rows: usize, columns: usize, matrix: &[f32]) -> Result<Matrix, GpuError> {
        GpuError::check("elements of the matrix", matrix.len(), rows.saturating_mul(columns))?;
        number("elements of the matrix", matrix.len())?;
        let (matrix, x, y) = (self.copied(matrix)?, self.zeros(columns)?, self.zeros(rows)?);
        Ok(Matrix { gpu: self.clone(), rows, columns, matrix, x, y })
    }

    /// A sensor that stays on the card.
    ///
    /// # Errors
    /// The sizes do not match, a sub-aperture is outside the image, or the card has too little memory.
    pub fn frame(&self, sensor: &Sensor<'_>) -> Result<Frame, GpuError> {
        let (pixels, slopes) = (sensor.dark.len(), 2 * sensor.corners.len());
        GpuError::check("gains", sensor.gain.len(), pixels)?;
        number("pixels", pixels)?;
        // The last pixel that `centres` reads.
        let last = sensor.corners.iter().max().map_or(0, |corner| corner + 7 * sensor.width + 7);
        if last >= pixels {
            return Err(GpuError::Size {
                what: "last pixel of a sub-aperture",
                found: last,
                expected: pixels.saturating_sub(1),
            });
        }
        let rows = sensor.reconstructor.len() / slopes.max(1);
        let corners: Vec<i32> = sensor.corners.iter().map(|corner| *corner as i32).collect();
        Ok(Frame {
            reconstructor: self.matrix(rows, slopes, sensor.reconstructor)?,
            width: number("width", sensor.width)?,
            corners: self.stream.clone_htod(&corners).map_err(refused("copy to the card"))?,
            dark: self.copied(sensor.dark)?,
            gain: self.copied(sensor.gain)?,
            image: self.stream.alloc_zeros(pixels).map_err(refused("have memory on the card"))?,
            light: [sensor.threshold, sensor.flux_min],
        })
    }
}

impl Matrix {
    /// `y` = matrix times `x`. Copies `x` to the card and `y` back, and blocks until `y` is complete.
    ///
    /// # Errors
    /// The sizes do not match, or the driver refuses a call.
    pub fn multiply(&mut self, x: &[f32], y: &mut [f32]) -> Result<(), GpuError> {
        GpuError::check("elements of the vector", x.len(), self.columns)?;
        self.gpu.stream.memcpy_htod(x, &mut self.x).map_err(refused("copy to the card"))?;
        self.run(y)
    }

    /// Multiplies with the `x` that is on the card.
    fn run(&mut self, y: &mut [f32]) -> Result<(), GpuError> {
        GpuError::check("elements of the result", y.len(), self.rows)?;
        let (rows, columns) = (self.rows as i32, self.columns as i32);
        let mut launch = self.gpu.stream.launch_builder(&self.gpu.multiply);
        launch.arg(&self.matrix).arg(&self.x).arg(&mut self.y).arg(&rows).arg(&columns);
        // SAFETY: the arguments are those of `multiply` in frame.cu, in its order; the slices have rows × columns, columns and rows elements.
        unsafe { launch.launch(warps(self.rows)) }.map_err(refused("multiply"))?;
        if self.rows > 0 {
            self.gpu.stream.memcpy_dtoh(&self.y, y).map_err(refused("copy from the card"))?;
        }
        self.gpu.stream.synchronize().map_err(refused("wait for the card"))
    }
}

impl Frame {
    /// Computes the error of each actuator from an image. Copies the pixels to the card and the errors back, and blocks until they are
    /// complete.
    ///
    /// # Errors
    /// The sizes do not match, or the driver refuses a call.
    pub fn compute(&mut self, image: &[u16], error: &mut [f32]) -> Result<(), GpuError> {
        GpuError::check("pixels", image.len(), self.dark.len())?;
        let (gpu, apertures) = (self.reconstructor.gpu.clone(), self.reconstructor.columns / 2);
        gpu.stream.memcpy_htod(image, &mut self.image).map_err(refused("copy to the card"))?;
        let many = apertures as i32;
        let mut launch = gpu.stream.launch_builder(&gpu.centres);
        launch.arg(&self.image).arg(&self.width).arg(&self.corners).arg(&self.dark).arg(&self.gain);
        launch.arg(&self.light[0]).arg(&self.light[1]).arg(&mut self.reconstructor.x).arg(&many);
        // SAFETY: the arguments are those of `centres` in frame.cu, in its order. The 8 × 8 pixels of each corner are in the image, which
        // has as many pixels as dark values and gains. `x` has two elements per sub-aperture.
        unsafe { launch.launch(warps(apertures)) }.map_err(refused("find spots"))?;
        self.reconstructor.run(error)
    }
}
