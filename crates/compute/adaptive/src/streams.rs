//! Each stage of the loop as a stream of ImageStreamIO (milk, CACAO, pyMilk, rtimv): a file with the newest image that readers map.
//!
//! The loop copies a frame into a buffer and goes on. A thread that is not real time writes it into the files (`stream`): another program may cut
//! or remove them at any time, and file systems have locks without priority inheritance.

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

/// Frames on their way to the thread. It has time for one each period; the others are for what interrupts it.
const FRAMES: usize = 8;

/// What the streams show of a frame.
struct Frame {
    image: Vec<u16>,
    slopes: Vec<f32>,
    map: Vec<f32>,
    figures: [f64; FIGURES],
    /// When its last pixel came, by the wall clock, and its number.
    of: (u64, u64),
}

/// What was counted of the streams.
#[derive(Debug, Default)]
struct Counts {
    unwritten: AtomicU64,
    restored: AtomicU64,
}

/// The stages of a loop as streams: `wfs` (pixels), `slopes` (x, y of each sub-aperture), `dm` (commands where the actuators are, in nanometres), and
/// `telemetry` (the figures of [`Figures`], in their order). Removed when dropped.
#[derive(Debug)]
pub struct Streams {
    /// Where each actuator is in the map of commands.
    places: Vec<usize>,
    free: Consumer<Box<Frame>>,
    full: Producer<Box<Frame>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the loop and the thread share.
#[derive(Debug, Default)]
struct Shared {
    bell: Bell,
    ends: AtomicBool,
    counts: Counts,
}

/// The thread's side.
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
    /// Makes the streams in a folder, in place of those under their names, and starts the thread that writes them, away from the CPUs in `busy`
    /// where the process has others. Names begin with `prefix`. Allocates.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(folder: &Path, prefix: &str, geometry: &Geometry, busy: &CpuSet) -> Result<Self, Error> {
        let points = geometry.points();
        let create = |name: &str, kind, size| Stream::create(folder, &format!("{prefix}{name}"), kind, size);
        let (mut free_in, free) = RingBuffer::new(FRAMES);
        let (full, full_out) = RingBuffer::new(FRAMES);
        for _ in 0..FRAMES {
            let (image, slopes) =
                (vec![0; geometry.width() * geometry.width()], vec![0.0; 2 * geometry.apertures().len()]);
            let frame = Frame { image, slopes, map: vec![0.0; points * points], figures: [0.0; FIGURES], of: (0, 0) };
            // As many as there is room for.
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

    /// Shows a frame. Real-time: copies it; neither allocates nor locks; a system call if the thread sleeps. A frame for which no buffer is free
    /// is counted and not shown.
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
        // There is room for all that there are.
        let _ = self.full.push(next);
        self.shared.bell.ring();
    }

    /// Images that were not written, and streams that were made anew because another program had damaged them.
    pub(crate) fn counts(&self) -> [u64; 2] {
        let Counts { unwritten, restored } = &self.shared.counts;
        [unwritten, restored].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.bell.ring();
        // One that panicked has said so on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Writer {
    fn run(mut self, busy: &CpuSet) {
        step_aside(busy);
        while !self.shared.ends.load(Ordering::Acquire) {
            while let Ok(frame) = self.full.pop() {
                self.write(&frame);
                // There is room for all that there are.
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

/// Makes the calling thread an ordinary one that is not on the CPUs of loop and team. Where the process has no others it has what they leave.
fn step_aside(busy: &CpuSet) {
    // What is refused here costs images, which are counted, and never the loop.
    let _ = sys::signal::block_all();
    let _ = set_scheduling(0, Scheduling { policy: Policy::OTHER, reset_on_fork: false });
    let others = sys::sched::affinity(0).map(|all| all.minus(busy)).unwrap_or_default();
    if !others.is_empty() {
        let _ = set_affinity(0, &others);
    }
}
