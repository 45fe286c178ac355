//! One stream and its file, which is created again if another program has damaged it.
//!
//! [`ring::image`] defines the layout. This module adds the ten semaphores and their users' pids, behind the image. A reader may wait at a
//! semaphore. Each is posted after every image, up to a count of ten.

use crate::error::Error;
use base::{DurNs, MonoNs};
use ring::image::{Element, HEAD_BYTES as HEAD, VERSION, at};
use std::path::{Path, PathBuf};
use sys::clock::wall_ns;
use sys::shared_file::SharedFile;

/// Number of semaphores for readers, and the maximum count of each.
const SEMAPHORES: usize = 10;
const AHEAD: u32 = 10;
/// Bytes of a semaphore, and bytes of a process trace. There are ten traces.
const SEMAPHORE: usize = 32;
const TRACE: usize = 64;
/// Value of the field `private` of a glibc semaphore that processes share.
const SHARED: u64 = 128;
/// Minimum interval between two attempts to create a damaged file again.
const RESTORE_EVERY: DurNs = DurNs::from_secs(1);

/// An image that readers map.
pub(super) struct Stream {
    path: PathBuf,
    layout: Layout,
    file: Option<SharedFile>,
    /// Creation time. Distinguishes this file from one that another program created in its place.
    stamp: [u8; 16],
    images: u64,
    restore_at: MonoNs,
}

/// Result of writing an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) written: bool,
    pub(super) restored: bool,
}

/// Contents of the file and their offsets.
#[derive(Clone)]
struct Layout {
    name: String,
    kind: Element,
    width: usize,
    height: usize,
}

impl Layout {
    fn count(&self) -> usize {
        self.width * self.height
    }

    /// Offset of the first semaphore.
    fn semaphores(&self) -> usize {
        HEAD + (self.count() * self.kind.bytes()).next_multiple_of(8)
    }

    /// Offset of the fields behind the semaphores (ten, and one of the logger): readers, writers, control and status, four bytes per semaphore
    /// each.
    fn others(&self) -> usize {
        self.semaphores() + (SEMAPHORES + 1) * SEMAPHORE
    }

    fn traces(&self) -> usize {
        self.others() + 4 * SEMAPHORES * 4
    }

    fn bytes(&self) -> usize {
        self.traces() + 10 * TRACE
    }

    fn fill(&self, bytes: &mut [u8], inode: u64, now: u64) {
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &VERSION);
        put(at::NAME, &self.name.as_bytes()[..self.name.len().min(79)]);
        put(at::AXES, &[2]);
        for (axis, size) in [self.width, self.height, 1].into_iter().enumerate() {
            put(at::SIZES + 4 * axis, &(size as u32).to_ne_bytes());
        }
        put(at::COUNT, &(self.count() as u64).to_ne_bytes());
        put(at::ELEMENT, &[self.kind as u8]);
        for at in [at::CREATED, at::ACCESSED] {
            put(at, &time(now));
        }
        put(at::CREATOR, &std::process::id().to_ne_bytes());
        put(at::SHARED, &[1]);
        put(at::INODE, &inode.to_ne_bytes());
        // In CPU memory; logging is allowed.
        put(at::PLACE, &[0xff, 1]);
        put(at::SEMAPHORES, &(SEMAPHORES as u16).to_ne_bytes());
        put(at::TRACES, &10u16.to_ne_bytes());
        put(at::BYTES, &((self.count() * self.kind.bytes()) as u64).to_ne_bytes());
        for semaphore in 0..=SEMAPHORES {
            put(self.semaphores() + semaphore * SEMAPHORE + 8, &SHARED.to_ne_bytes());
        }
        // No reading process, and no other writing process.
        put(self.others(), &[0xff; 2 * SEMAPHORES * 4]);
        for trace in 0..10 {
            put(self.traces() + trace * TRACE + 48, &[0xff; 4]);
        }
    }
}

/// Seconds and nanoseconds of a time.
fn time(ns: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(ns / 1_000_000_000).to_ne_bytes());
    bytes[8..].copy_from_slice(&(ns % 1_000_000_000).to_ne_bytes());
    bytes
}

impl Stream {
    pub(super) fn create(
        folder: &Path,
        name: &str,
        kind: Element,
        (width, height): (usize, usize),
    ) -> Result<Self, Error> {
        let layout = Layout { name: name.to_owned(), kind, width, height };
        let path = folder.join(format!("{name}.im.shm"));
        let (file, stamp) = make(&path, &layout)?;
        Ok(Self { path, layout, file: Some(file), stamp, images: 0, restore_at: MonoNs(0) })
    }

    /// Writes an image with its wall-clock acquisition time and frame number, and wakes readers. First creates the file again if another
    /// program has truncated, removed or overwritten it.
    pub(super) fn show(&mut self, now: MonoNs, image: &[u8], (acquired, frame): (u64, u64)) -> Shown {
        let restored = !self.is_intact() && self.restore(now);
        let written = self.is_intact() && self.write(image, acquired, frame).is_ok();
        self.images += u64::from(written);
        Shown { written, restored }
    }

    fn is_intact(&self) -> bool {
        let mut stamp = [0; 16];
        self.file
            .as_ref()
            .is_some_and(|file| file.is_whole() && file.read(at::CREATED, &mut stamp).is_ok() && stamp == self.stamp)
    }

    fn restore(&mut self, now: MonoNs) -> bool {
        if now < self.restore_at {
            return false;
        }
        self.restore_at = now + RESTORE_EVERY;
        // A file that another program has put under the same name belongs to that program.
        if self.file.as_ref().is_some_and(SharedFile::is_replaced) {
            return false;
        }
        let Ok((file, stamp)) = make(&self.path, &self.layout) else { return false };
        (self.file, self.stamp) = (Some(file), stamp);
        true
    }

    fn write(&self, image: &[u8], acquired: u64, frame: u64) -> sys::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.write(at::WRITE, &1u64.to_ne_bytes())?;
        file.write(HEAD, image)?;
        file.write(at::ACQUIRED, &time(acquired))?;
        file.write(at::WRITTEN, &time(wall_ns()))?;
        file.write(at::FRAME, &frame.to_ne_bytes())?;
        file.write(at::IMAGES, &(self.images + 1).to_ne_bytes())?;
        file.write(at::WRITE, &0u64.to_ne_bytes())?;
        for semaphore in 0..SEMAPHORES {
            post(file, self.layout.semaphores() + semaphore * SEMAPHORE)?;
        }
        Ok(())
    }
}

fn make(path: &Path, layout: &Layout) -> Result<(SharedFile, [u8; 16]), sys::Error> {
    let now = wall_ns();
    let file = SharedFile::create(path, layout.bytes(), |bytes, inode| layout.fill(bytes, inode, now))?;
    Ok((file, time(now)))
}

/// Posts a 64-bit glibc semaphore: count in the low half, number of waiters in the high half.
fn post(file: &SharedFile, at: usize) -> sys::Result<()> {
    let mut value = [0; 4];
    file.read(at, &mut value)?;
    if u32::from_ne_bytes(value) < AHEAD { file.count_up_and_wake_one(at) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::image::Head;
    use std::fs::OpenOptions;
    use std::os::unix::fs::MetadataExt as _;

    struct Folder(PathBuf);

    impl Folder {
        fn make(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("tahti-stream-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const SECOND: u64 = 1_000_000_000;

    /// Number of images so far, and the newest image.
    fn newest(path: &Path) -> (u64, Vec<u16>) {
        let bytes = std::fs::read(path).unwrap();
        let head = Head::read(&bytes[..HEAD]).unwrap();
        let image = &bytes[HEAD..HEAD + head.bytes().unwrap() as usize];
        (head.images, image.as_chunks().0.iter().map(|pixel| u16::from_ne_bytes(*pixel)).collect())
    }

    fn image(pixel: u16) -> Vec<u8> {
        [pixel; 6].iter().flat_map(|pixel| pixel.to_ne_bytes()).collect()
    }

    #[test]
    fn a_stream_that_another_program_damages_or_removes_is_restored_once_a_second() {
        let folder = Folder::make("cut");
        let mut stream = Stream::create(&folder.0, "x", Element::U16, (3, 2)).unwrap();
        let path = folder.0.join("x.im.shm");
        let mut now = MonoNs(SECOND);
        let show = |stream: &mut Stream, now: MonoNs, pixel: u16| stream.show(now, &image(pixel), (1, 2));
        let written = Shown { written: true, restored: false };
        assert_eq!(show(&mut stream, now, 1), written);
        assert_eq!(newest(&path), (1, vec![1; 6]));
        let cut = || drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        // Truncated; truncated and extended again with other content; removed.
        let damages: [&dyn Fn(); 3] = [
            &cut,
            &|| {
                let bytes = std::fs::metadata(&path).unwrap().len();
                cut();
                OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes).unwrap();
            },
            &|| std::fs::remove_file(&path).unwrap(),
        ];
        for (nth, damage) in damages.iter().enumerate() {
            now = now + RESTORE_EVERY;
            damage();
            let images = stream.images;
            let shown = show(&mut stream, now, 7);
            assert_eq!(shown, Shown { written: true, restored: true }, "damage {nth}");
            assert_eq!(newest(&path), (images + 1, vec![7; 6]), "its count continues");
            // Damaged again at once: the restore waits for its interval, and the image is not written into the other program's file.
            cut();
            assert_eq!(show(&mut stream, now + DurNs(1), 8), Shown::default());
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        }
        drop(stream);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn a_file_of_another_program_with_the_same_name_is_kept() {
        let folder = Folder::make("replaced");
        let mut first = Stream::create(&folder.0, "x", Element::U16, (3, 2)).unwrap();
        let mut second = Stream::create(&folder.0, "x", Element::U16, (3, 2)).unwrap();
        let path = folder.0.join("x.im.shm");
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let before = inode();
        assert_eq!(first.show(MonoNs(SECOND), &image(1), (1, 1)), Shown::default());
        assert!(second.show(MonoNs(SECOND), &image(2), (1, 1)).written);
        drop(first);
        assert_eq!((inode(), newest(&path)), (before, (1, vec![2; 6])));
    }

    #[test]
    fn semaphores_are_posted_up_to_ten_times_ahead() {
        let folder = Folder::make("posts");
        let mut stream = Stream::create(&folder.0, "x", Element::U16, (3, 2)).unwrap();
        (0..12).for_each(|_| assert!(stream.show(MonoNs(SECOND), &image(1), (1, 1)).written));
        let bytes = std::fs::read(folder.0.join("x.im.shm")).unwrap();
        for semaphore in 0..SEMAPHORES {
            let at = stream.layout.semaphores() + semaphore * SEMAPHORE;
            assert_eq!(bytes[at..at + 16], [[10, 0, 0, 0, 0, 0, 0, 0], SHARED.to_ne_bytes()].concat());
        }
    }
}
