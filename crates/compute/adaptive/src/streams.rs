//! Each stage of the loop as a stream of ImageStreamIO (milk, CACAO, pyMilk, rtimv): a file with the newest image that readers map.
//!
//! Of the layout ([`ring::image`]) the ten semaphores and who uses them are here, behind the image: a reader may wait at one, which is posted after each
//! image up to ten times ahead.

use crate::error::Error;
use crate::shown::Figures;
use base::MonoNs;
use optics::Geometry;
use ring::image::{Element, HEAD_BYTES as HEAD, VERSION, at};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use sys::clock::{mono_now, wall_ns};
use sys::shared_file::SharedFile;

/// Semaphores for readers; how far each is posted ahead.
const SEMAPHORES: usize = 10;
const AHEAD: u64 = 10;
/// Bytes of a semaphore, and of a trace of a process, of which there are ten.
const SEMAPHORE: usize = 32;
const TRACE: usize = 64;
/// A semaphore of the C library that processes share: its word `private` has this value.
const SHARED: u64 = 128;

/// An image that readers map.
#[derive(Debug)]
struct Stream {
    file: SharedFile,
    /// Where the semaphores begin.
    semaphores: usize,
}

fn put(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    for (offset, byte) in bytes.iter().enumerate() {
        let (word, shift) = (&words[(at + offset) / 8], 8 * ((at + offset) % 8));
        let kept = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(kept | u64::from(*byte) << shift, Ordering::Relaxed);
    }
}

impl Stream {
    fn create(folder: &Path, name: &str, kind: Element, (width, height): (usize, usize)) -> Result<Self, Error> {
        let data = (width * height * kind.bytes()).next_multiple_of(8);
        // Behind the semaphores: one of the logger, readers, writers, control and status, four bytes for each semaphore, and the traces.
        let semaphores = HEAD + data;
        let others = semaphores + (SEMAPHORES + 1) * SEMAPHORE;
        let traces = others + 4 * SEMAPHORES * 4;
        let fill = |words: &[AtomicU64], inode: u64| {
            let count = width * height;
            let now = wall_ns();
            put(words, at::NAME, name.as_bytes());
            put(words, at::AXES, &[2]);
            for (axis, size) in [width, height, 1].into_iter().enumerate() {
                put(words, at::SIZES + 4 * axis, &(size as u32).to_le_bytes());
            }
            put(words, at::COUNT, &(count as u64).to_le_bytes());
            put(words, at::ELEMENT, &[kind as u8]);
            for at in [at::CREATED, at::ACCESSED] {
                time(words, at, now);
            }
            put(words, at::CREATOR, &std::process::id().to_le_bytes());
            put(words, at::SHARED, &[1]);
            put(words, at::INODE, &inode.to_le_bytes());
            // In the CPU's memory, and may be logged.
            put(words, at::PLACE, &[0xff, 1]);
            put(words, at::SEMAPHORES, &(SEMAPHORES as u16).to_le_bytes());
            put(words, at::TRACES, &10u16.to_le_bytes());
            put(words, at::BYTES, &((count * kind.bytes()) as u64).to_le_bytes());
            for semaphore in 0..=SEMAPHORES {
                words[(semaphores + semaphore * SEMAPHORE) / 8 + 1].store(SHARED, Ordering::Relaxed);
            }
            // Nobody reads, nobody else writes.
            put(words, others, &[0xff; 2 * SEMAPHORES * 4]);
            for trace in 0..10 {
                put(words, traces + trace * TRACE + 48, &[0xff; 4]);
            }
            // Last, as readers look for it.
            put(words, 0, &VERSION);
        };
        let file = SharedFile::create(&folder.join(format!("{name}.im.shm")), traces + 10 * TRACE, fill)?;
        Ok(Self { file, semaphores })
    }

    /// Real-time: stores, and a system call for each reader that waits.
    fn write(&self, data: impl Iterator<Item = u64>, (acquired, frame): (u64, u64)) {
        let words = self.file.words();
        words[at::WRITE / 8].store(1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, from) in words[HEAD / 8..self.semaphores / 8].iter().zip(data) {
            to.store(from, Ordering::Relaxed);
        }
        time(words, at::ACQUIRED, acquired);
        time(words, at::WRITTEN, wall_ns());
        words[at::FRAME / 8].store(frame, Ordering::Relaxed);
        let images = words[at::IMAGES / 8].load(Ordering::Relaxed) + 1;
        words[at::IMAGES / 8].store(images, Ordering::Release);
        words[at::WRITE / 8].store(0, Ordering::Release);
        for semaphore in 0..SEMAPHORES {
            post(&words[(self.semaphores + semaphore * SEMAPHORE) / 8]);
        }
    }
}

fn time(words: &[AtomicU64], at: usize, ns: u64) {
    words[at / 8].store(ns / 1_000_000_000, Ordering::Relaxed);
    words[at / 8 + 1].store(ns % 1_000_000_000, Ordering::Relaxed);
}

/// Posts a semaphore of glibc's on 64 bits: its value in the low half, how many wait in the high one.
fn post(semaphore: &AtomicU64) {
    if semaphore.load(Ordering::Relaxed) & 0xffff_ffff < AHEAD && semaphore.fetch_add(1, Ordering::Release) >> 32 > 0 {
        sys::futex::wake_one(semaphore);
    }
}

/// The stages of a loop as streams: `wfs` (pixels), `slopes` (x, y of each sub-aperture), `dm` (commands where the actuators are, in nanometres), and
/// `telemetry` (the figures of [`Figures`], in their order). Taken away when dropped.
#[derive(Debug)]
pub struct Streams {
    wfs: Stream,
    slopes: Stream,
    dm: Stream,
    telemetry: Stream,
    /// Where each actuator is in `map`.
    places: Vec<usize>,
    map: Vec<f32>,
}

impl Streams {
    /// Makes the streams in a folder; what is there under their names goes. Names begin with `prefix`. Allocates.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(folder: &Path, prefix: &str, geometry: &Geometry) -> Result<Self, Error> {
        let points = geometry.points();
        let create = |name: &str, kind, size| Stream::create(folder, &format!("{prefix}{name}"), kind, size);
        Ok(Self {
            wfs: create("wfs", Element::U16, (geometry.width(), geometry.width()))?,
            slopes: create("slopes", Element::F32, (2, geometry.apertures().len()))?,
            dm: create("dm", Element::F32, (points, points))?,
            telemetry: create("telemetry", Element::F64, (Figures::default().all().len(), 1))?,
            places: geometry.actuators().iter().map(|(column, line)| line * points + column).collect(),
            map: vec![0.0; points * points],
        })
    }

    /// Shows a frame. Real-time: neither allocates nor locks; a system call for each reader that waits.
    pub(crate) fn publish(
        &mut self,
        image: &[u16],
        slopes: &[f32],
        commands: &[f32],
        figures: &Figures,
        (frame, came): (u64, MonoNs),
    ) {
        let of = (wall_ns().saturating_sub((mono_now() - came).0.max(0) as u64), frame);
        self.wfs.write(
            image.chunks(4).map(|four| four.iter().rev().fold(0, |word, pixel| word << 16 | u64::from(*pixel))),
            of,
        );
        self.slopes.write(pairs(slopes), of);
        for (place, command) in self.places.iter().zip(commands) {
            self.map[*place] = *command;
        }
        self.dm.write(pairs(&self.map), of);
        let figures = figures.all().into_iter().map(|(_, _, value)| value.to_bits());
        self.telemetry.write(figures, of);
    }
}

fn pairs(values: &[f32]) -> impl Iterator<Item = u64> + '_ {
    values.chunks(2).map(|two| two.iter().rev().fold(0, |word, value| word << 32 | u64::from(value.to_bits())))
}
