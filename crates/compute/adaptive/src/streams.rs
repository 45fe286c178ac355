//! Each stage of the loop as an ImageStreamIO stream (milk, CACAO, pyMilk, rtimv): a file with the newest image, which readers map.
//!
//! The loop only copies a frame into a buffer. A thread without real-time priority writes the files (`stream`), because another program may
//! truncate or remove them at any time, and because file systems have locks without priority inheritance.

mod stream;

use crate::error::Error;
use crate::shown::{FIGURES, Figures};
use base::{CpuSet, MonoNs, Policy};
use optics::Geometry;
use ring::image::Element;
use rtrb::{Consumer, Producer, RingBuffer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use stream::Stream;
use sys::bell::Bell;
use sys::clock::{mono_now, wall_ns};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// Frames in flight to the writer. It needs one per period; the others cover interruptions of the thread.
const FRAMES: usize = 8;

/// Data of a frame for the streams.
struct Frame {
    image: Vec<u16>,
    slopes: Vec<f32>,
    map: Vec<f32>,
    figures: [f64; FIGURES],
    /// Wall-clock time of the last pixel, and the frame number.
    of: (u64, u64),
}

/// Counters of the streams.
#[derive(Debug, Default)]
struct Counts {
    unwritten: AtomicU64,
    restored: AtomicU64,
}

/// Streams of the stages of a loop: `wfs` (pixels), `slopes` (x and y of each sub-aperture), `dm` (commands at the places of the actuators, in
/// nanometres), and `telemetry` (the fields of [`Figures`], in order). The files are removed on drop.
#[derive(Debug)]
pub struct Streams {
    /// Index of each actuator in the map of commands.
    places: Vec<usize>,
    free: Consumer<Box<Frame>>,
    full: Producer<Box<Frame>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the loop and the writer.
#[derive(Debug, Default)]
struct Shared {
    bell: Bell,
    ends: AtomicBool,
    counts: Counts,
}

/// State of the writer thread.
struct Writer {
    wfs: Stream,
    slopes: Stream,
    dm: Stream,
    telemetry: Stream,
    free: Producer<Box<Frame>>,
    full: Consumer<Box<Frame>>,
    shared: Arc<Shared>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "frame {}", self.of.1)
    }
}

impl Streams {
    /// Creates the streams in a folder, replacing files of the same names, and starts the writer thread. The thread avoids the CPUs in `busy`
    /// if the process has others. Names begin with `prefix`. Allocates.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn open(folder: &Path, prefix: &str, geometry: &Geometry, busy: &CpuSet) -> Result<Self, Error> {
        let points = geometry.points();
        let create = |name: &str, kind, size| Stream::create(folder, &format!("{prefix}{name}"), kind, size);
        let (mut free_in, free) = RingBuffer::new(FRAMES);
        let (full, full_out) = RingBuffer::new(FRAMES);
        for _ in 0..FRAMES {
            let (image, slopes) =
                (vec![0; geometry.width() * geometry.width()], vec![0.0; 2 * geometry.apertures().len()]);
            let frame = Frame { image, slopes, map: vec![0.0; points * points], figures: [0.0; FIGURES], of: (0, 0) };
            // Fills the ring exactly.
            let _ = free_in.push(Box::new(frame));
        }
        let shared = Arc::<Shared>::default();
        let writer = Writer {
            wfs: create("wfs", Element::U16, (geometry.width(), geometry.width()))?,
            slopes: create("slopes", Element::F32, (2, geometry.apertures().len()))?,
            dm: create("dm", Element::F32, (points, points))?,
            telemetry: create("telemetry", Element::F64, (FIGURES, 1))?,
            free: free_in,
            full: full_out,
            shared: shared.clone(),
            bytes: Vec::new(),
        };
        let busy = *busy;
        let builder = std::thread::Builder::new().name("ao-streams".to_owned());
        let thread =
            builder.spawn(move || writer.run(&busy)).map_err(|error| sys::Error::of("start a thread", &error))?;
        let places = geometry.actuators().iter().map(|(column, line)| line * points + column).collect();
        Ok(Self { places, free, full, shared, thread: Some(thread) })
    }

    /// Publishes a frame. Real-time: copies it, neither allocates nor locks, and makes a system call only if the writer sleeps. A frame for
    /// which no buffer is free is counted and skipped.
    pub(crate) fn publish(
        &mut self,
        image: &[u16],
        slopes: &[f32],
        commands: &[f32],
        figures: &Figures,
        (frame, came): (u64, MonoNs),
    ) {
        let Ok(mut next) = self.free.pop() else {
            self.shared.counts.unwritten.fetch_add(1, Ordering::Relaxed);
            return;
        };
        next.of = (wall_ns().saturating_sub((mono_now() - came).0.max(0) as u64), frame);
        next.image.copy_from_slice(image);
        next.slopes.copy_from_slice(slopes);
        for (place, command) in self.places.iter().zip(commands) {
            next.map[*place] = *command;
        }
        next.figures = figures.all().map(|(_, _, value)| value);
        // Cannot fail: the ring has room for all frames.
        let _ = self.full.push(next);
        self.shared.bell.ring();
    }

    /// Images not written, and streams created again because another program had damaged them.
    pub(crate) fn counts(&self) -> [u64; 2] {
        let Counts { unwritten, restored } = &self.shared.counts;
        [unwritten, restored].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.bell.ring();
        // A thread that panicked has already printed to stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Writer {
    fn run(mut self, busy: &CpuSet) {
        step_aside(busy);
        while !self.shared.ends.load(Ordering::Acquire) {
            while let Ok(frame) = self.full.pop() {
                self.write(&frame);
                // Cannot fail: the ring has room for all frames.
                let _ = self.free.push(frame);
            }
            self.shared.bell.wait(None);
        }
    }

    fn write(&mut self, frame: &Frame) {
        let Self { wfs, slopes, dm, telemetry, bytes, shared, .. } = self;
        let counts = &shared.counts;
        let mut show = |stream: &mut Stream, values: &mut dyn Iterator<Item = u8>| {
            bytes.clear();
            bytes.extend(values);
            let shown = stream.show(mono_now(), bytes, frame.of);
            counts.restored.fetch_add(u64::from(shown.restored), Ordering::Relaxed);
            counts.unwritten.fetch_add(u64::from(!shown.written), Ordering::Relaxed);
        };
        show(wfs, &mut frame.image.iter().flat_map(|pixel| pixel.to_ne_bytes()));
        show(slopes, &mut frame.slopes.iter().flat_map(|slope| slope.to_ne_bytes()));
        show(dm, &mut frame.map.iter().flat_map(|command| command.to_ne_bytes()));
        show(telemetry, &mut frame.figures.iter().flat_map(|figure| figure.to_ne_bytes()));
    }
}

/// Gives the calling thread normal priority and moves it off the CPUs of loop and team. If the process has no other CPUs, the thread shares
/// them.
fn step_aside(busy: &CpuSet) {
    // A failure here can only cost images, which are counted. The loop is not affected.
    let _ = sys::signal::block_all();
    let _ = set_scheduling(0, Scheduling { policy: Policy::OTHER, reset_on_fork: false });
    let others = sys::sched::affinity(0).map(|all| all.minus(busy)).unwrap_or_default();
    if !others.is_empty() {
        let _ = set_affinity(0, &others);
    }
}
