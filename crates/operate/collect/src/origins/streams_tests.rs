use super::*;
use ring::image::{Element, HEAD_BYTES, VERSION, at};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

const MS: i64 = 1_000_000;

/// A program that writes a stream according to the format's description.
struct Writer {
    file: File,
    images: u64,
}

impl Writer {
    fn new(path: &Path, element: Element, sizes: &[u32]) -> Self {
        let count: u64 = sizes.iter().map(|size| u64::from(*size)).product();
        let mut bytes = vec![0; HEAD_BYTES + count as usize * element.bytes() + 8];
        bytes[..4].copy_from_slice(&VERSION);
        bytes[at::AXES] = sizes.len() as u8;
        for (axis, size) in sizes.iter().enumerate() {
            bytes[at::SIZES + 4 * axis..][..4].copy_from_slice(&size.to_le_bytes());
        }
        bytes[at::COUNT..][..8].copy_from_slice(&count.to_le_bytes());
        bytes[at::ELEMENT] = element as u8;
        bytes[at::PLACE] = 0xff;
        std::fs::write(path, bytes).unwrap();
        Self { file: OpenOptions::new().write(true).open(path).unwrap(), images: 0 }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).unwrap();
    }

    fn time(&self, at: usize, ns: i64) {
        self.put(at, &[ns / 1_000_000_000, ns % 1_000_000_000].map(i64::to_le_bytes).concat());
    }

    fn begin(&self) {
        self.put(at::WRITE, &[1]);
    }

    fn end(&mut self, frame: u64, image: &[u8]) {
        self.put(HEAD_BYTES, image);
        self.put(at::FRAME, &frame.to_le_bytes());
        self.images += 1;
        self.put(at::IMAGES, &self.images.to_le_bytes());
        self.put(at::WRITE, &[0]);
    }

    fn write(&mut self, frame: u64, image: &[u8]) {
        self.begin();
        self.end(frame, image);
    }
}

/// A folder of streams and a reader with a simulated clock.
struct Site {
    folder: harness::Folder,
    streams: Streams,
    now: i64,
}

const ALL: Policy = Policy::Monitor { deadband: 0.0 };

impl Site {
    fn new(policy: Policy) -> Self {
        let folder = harness::Folder::new();
        let streams = Streams::new(folder.0.to_str().unwrap(), vec![("a*".to_owned(), policy)]);
        Self { folder, streams, now: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(format!("{name}.im.shm"))
    }

    fn writer(&self, name: &str) -> Writer {
        Writer::new(&self.path(name), Element::U8, &[4])
    }

    /// Items found after some time.
    fn after(&mut self, ns: i64) -> Vec<String> {
        let mut found = Vec::new();
        self.now += ns;
        if let Err(away) = self.streams.census(self.now, &mut found) {
            let folder = self.folder.0.display().to_string();
            found.push(Item::Told(format!("away: {}", away.to_string().replace(&folder, "FOLDER"))));
        }
        self.streams.take(self.now, &mut found);
        found.iter().map(shown).collect()
    }

    /// Items found after enough time for any error to be reported.
    fn later(&mut self) -> Vec<String> {
        self.after(2 * TROUBLE_NS)
    }
}

fn shown(found: &Item) -> String {
    match found {
        Item::Sample { name, sample, .. } => format!("{name} {} = {}", sample.pulse.unwrap(), sample.datum),
        Item::Gap { prefix, cause, lost } => format!("{prefix}: {cause} {lost}"),
        Item::Behind { name, cause: Cause::Overflow, lost, .. } => format!("{name}: missed {lost}"),
        Item::Behind { name, cause, lost, .. } => format!("{name}: {cause} {lost}"),
        Item::Told(what) => what.clone(),
        Item::Missing(patterns) => format!("missing: {}", patterns.join(", ")),
    }
}

#[test]
fn a_pattern_that_no_stream_fits_is_missing_while_others_are_there() {
    let mut site = Site::new(ALL);
    let _a = site.writer("a");
    assert_eq!(site.after(0), [""; 0]);
    site.streams.wanted.push(("b".to_owned(), ALL));
    assert_eq!(site.after(MS), ["missing: b"]);
    assert_eq!(site.after(MS), [""; 0]);
    let _b = site.writer("b");
    assert_eq!(site.after(MS), ["missing: "]);
}

#[test]
fn an_image_is_stored_as_an_array_of_its_type_with_its_frame_number() {
    let numbers: [(Element, Vec<u8>, &str); 10] = [
        (Element::U8, vec![1, 255], "[1, 255]"),
        (Element::I8, vec![1, 255], "[1, -1]"),
        (Element::U16, [1u16, 65_535].map(u16::to_le_bytes).concat(), "[1, 65535]"),
        (Element::I16, [1i16, -2].map(i16::to_le_bytes).concat(), "[1, -2]"),
        (Element::U32, [1u32, u32::MAX].map(u32::to_le_bytes).concat(), "[1, 4294967295]"),
        (Element::I32, [1i32, -2].map(i32::to_le_bytes).concat(), "[1, -2]"),
        (Element::U64, [1u64, u64::MAX].map(u64::to_le_bytes).concat(), "[1, 18446744073709551615]"),
        (Element::I64, [1i64, -2].map(i64::to_le_bytes).concat(), "[1, -2]"),
        (Element::F32, [0.5f32, -2.25].map(f32::to_le_bytes).concat(), "[0.5, -2.25]"),
        (Element::F64, [0.1f64, -2.25].map(f64::to_le_bytes).concat(), "[0.1, -2.25]"),
    ];
    for (element, bytes, text) in numbers {
        let mut site = Site::new(ALL);
        let mut writer = Writer::new(&site.path("a"), element, &[1, 2, 1]);
        assert_eq!(site.after(0), [""; 0], "no output before the first image");
        writer.write(77, &bytes);
        assert_eq!(site.later(), [format!("a 77 = {text}")]);
        assert_eq!(site.later(), [""; 0], "no repetition");
    }
}

#[test]
fn an_image_is_archived_once_it_is_complete_and_missed_ones_are_counted() {
    let mut site = Site::new(ALL);
    let mut writer = site.writer("a");
    writer.write(10, &[1; 4]);
    assert_eq!(site.after(0), ["a 10 = [1, 1, 1, 1]"]);
    writer.begin();
    assert_eq!(site.after(LOOK_NS.1), [""; 0]);
    writer.end(11, &[2; 4]);
    assert_eq!(site.after(LOOK_NS.1), ["a 11 = [2, 2, 2, 2]"]);
    (12..20).for_each(|frame| writer.write(frame, &[3; 4]));
    assert_eq!(site.after(LOOK_NS.1), ["a 19 = [3, 3, 3, 3]", "a: missed 7"]);
    // A writer that ended while writing leaves the image incomplete.
    writer.begin();
    writer.put(at::IMAGES, &[99]);
    assert_eq!(site.after(LOOK_NS.1), [""; 0]);
    assert_eq!(site.later(), [""; 0], "it may have begun just now");
    let told =
        ["a: not archived: an image was begun and is not finished: its writer may have ended", "a: disconnected 0"];
    assert_eq!(site.later(), told);
    assert_eq!(site.later(), [""; 0], "reported once");
    writer.images = 99;
    writer.write(20, &[4; 4]);
    let found = site.later();
    assert_eq!(found[..2], ["a 20 = [4, 4, 4, 4]", "a: missed 89"]);
    assert!(found[2].starts_with("a: archived again after "), "{found:?}");
}

#[test]
fn images_of_a_stream_without_frame_numbers_are_counted() {
    let mut site = Site::new(ALL);
    let (mut plain, mut events) = (site.writer("a"), site.writer("ae"));
    let mut found = Vec::new();
    for image in 1..4 {
        plain.write(0, &[image; 4]);
        // The field changes, but it does not count frames.
        events.write(1_000 - u64::from(image), &[image; 4]);
        found.extend(site.later());
    }
    let pulses = |name: &str| -> Vec<&str> {
        let of = |line: &&String| line.split(' ').next() == Some(name);
        found.iter().filter(of).map(|line| line.split(' ').nth(1).unwrap()).collect()
    };
    assert_eq!((pulses("a"), pulses("ae")), (vec!["1", "2", "3"], vec!["999", "2", "3"]));
}

#[test]
fn the_first_of_every_n_frames_is_kept_and_missing_ones_are_counted() {
    let mut site = Site::new(Policy::Every { pulses: 10 });
    let (mut slopes, mut dm) = (site.writer("a"), site.writer("ad"));
    let mut kept = Vec::new();
    for frame in 95..=131 {
        slopes.write(frame, &[frame as u8; 4]);
        dm.write(frame, &[frame as u8; 4]);
        // No polls for a while.
        if !(105..=125).contains(&frame) {
            kept.extend(site.later());
        }
    }
    let of =
        |name: &str| [95, 100, 126, 130].map(|frame| format!("{name} {frame} = [{frame}, {frame}, {frame}, {frame}]"));
    let (slopes, dm): (Vec<String>, Vec<String>) =
        kept.into_iter().partition(|line| line.starts_with("a ") || line.starts_with("a:"));
    for (found, name) in [(slopes, "a"), (dm, "ad")] {
        let (missed, kept): (Vec<String>, Vec<String>) = found.into_iter().partition(|line| line.contains("missed"));
        assert_eq!((kept, missed), (of(name).to_vec(), vec![format!("{name}: missed 1")]), "110 is missing");
    }
}

#[test]
fn a_stream_that_disappears_returns_or_is_replaced_is_followed_and_noted() {
    let mut site = Site::new(ALL);
    assert_eq!(site.later(), ["away: FOLDER has no stream of these names"]);
    let mut writer = site.writer("a");
    writer.write(1, &[1; 4]);
    writer.write(2, &[2; 4]);
    assert_eq!(site.later(), ["a 2 = [2, 2, 2, 2]", "a: missed 1"], "it began during the search");
    let other = site.writer("ab");
    site.later();
    // The file was replaced: the writer was restarted.
    std::fs::remove_file(site.path("a")).unwrap();
    let mut writer = site.writer("a");
    writer.write(7, &[3; 4]);
    assert_eq!(site.later(), ["a: source restarted 0", "a 7 = [3, 3, 3, 3]"]);
    // The same file, truncated and filled again.
    let mut writer = Writer::new(&site.path("a"), Element::U16, &[2, 2]);
    assert_eq!(site.later(), ["a: source restarted 0"]);
    let image = [5, 0, 6, 0, 7, 0, 8, 0];
    writer.write(3, &image);
    writer.write(4, &image);
    assert_eq!(site.later(), ["a 4 = [5, 6, 7, 8]", "a: missed 1"]);
    // Recreated so fast that no poll saw it empty.
    let mut writer = Writer::new(&site.path("a"), Element::U16, &[2, 2]);
    writer.time(at::CREATED, 1_795_000_000_000_000_000);
    (1..=3).for_each(|frame| writer.write(frame, &image));
    assert_eq!(site.later(), ["a: source restarted 0", "a 3 = [5, 6, 7, 8]", "a: missed 2"]);
    std::fs::remove_file(site.path("a")).unwrap();
    assert_eq!(site.later(), ["a: disconnected 0"]);
    drop(other);
    std::fs::remove_file(site.path("ab")).unwrap();
    assert_eq!(site.later(), ["away: FOLDER has no stream of these names"]);
    std::fs::remove_dir(&site.folder.0).unwrap();
    assert_eq!(site.later(), ["away: FOLDER: No such file or directory (os error 2)"]);
}

#[test]
fn a_damaged_or_truncated_stream_file_is_reported_and_allocates_nothing() {
    let mut site = Site::new(ALL);
    let mut writer = site.writer("a");
    writer.write(1, &[1; 4]);
    assert_eq!(site.after(0).len(), 1);
    let lie = |site: &mut Site, writer: &mut Writer, at: usize, bytes: &[u8]| {
        let mut before = vec![0; bytes.len()];
        File::open(site.path("a")).unwrap().read_exact_at(&mut before, at as u64).unwrap();
        writer.put(at, bytes);
        writer.write(writer.images + 1, &[2; 4]);
        assert_eq!(site.later(), [""; 0], "it may be incomplete");
        let told = site.later().remove(0);
        writer.put(at, &before);
        writer.write(writer.images + 1, &[3; 4]);
        let found = site.later();
        assert!(found[0].contains("= [3, 3, 3, 3]") && found.last().unwrap().contains("archived again"), "{found:?}");
        told
    };
    let huge = [[0xff; 4].to_vec(), vec![1, 0, 0, 0, 1, 0, 0, 0], u64::from(u32::MAX).to_le_bytes().to_vec()].concat();
    let longer = [vec![99, 0, 0, 0], vec![1, 0, 0, 0, 1, 0, 0, 0], 99u64.to_le_bytes().to_vec()].concat();
    for (at, bytes, why) in [
        (at::ELEMENT, vec![11], "its elements are complex numbers of 32 bits (type 11); expected integers or floats"),
        (at::SIZES, vec![5], "its image of 5 x 0 x 0 has 4 numbers; expected as many as its sizes make"),
        (at::SIZES, huge, "its image has 4294967295 numbers of 1 bytes; expected at most 16 MiB"),
        (at::SIZES, longer, "it has 396 bytes; expected 483, as in its header: another process has truncated it"),
        (0, b"1.20".to_vec(), "its version is \"1.20\"; expected ImageStreamIO's \"2.00\""),
        (at::PLACE, vec![1], "its image is in graphics card 1"),
    ] {
        let told = lie(&mut site, &mut writer, at, &bytes);
        assert!(told.contains(&format!("a: not archived: {why}")), "{told}");
    }
    assert!(site.streams.buffer.capacity() < 1_000);
    writer.file.set_len(100).unwrap();
    site.later();
    assert_eq!(site.later()[0], "a: not archived: it has 100 bytes; expected 384 about an image, and the image");
}

#[test]
fn links_pipes_and_folders_are_not_followed_and_do_not_block() {
    let mut site = Site::new(ALL);
    let mut good = site.writer("ab");
    good.write(1, &[1; 4]);
    let elsewhere = site.folder.0.join("elsewhere");
    Writer::new(&elsewhere, Element::U8, &[4]).write(1, &[9; 4]);
    std::os::unix::fs::symlink(&elsewhere, site.path("a1")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(site.path("a2")).status().unwrap().success());
    std::fs::create_dir(site.path("a3")).unwrap();
    assert_eq!(site.after(0), ["ab 1 = [1, 1, 1, 1]"]);
    let told: Vec<String> = site.later().into_iter().filter(|line| line.contains("not archived")).collect();
    let why =
        |name: &str| format!("{name}: not archived: there is something else in the place of this file: remove it");
    assert_eq!(told, ["a1", "a2", "a3"].map(why));
}

#[test]
fn the_time_of_an_image_is_when_it_was_acquired_else_written_else_polled() {
    let site = Site::new(ALL);
    let mut writer = site.writer("a");
    writer.write(1, &[1; 4]);
    let stream = Stream::new(Image::open(&site.path("a")).unwrap(), ALL, false, 0);
    let (second, wall) = (1_000_000_000, 1_795_000_000_000_000_000);
    let stamp = |acquired: i64, written: i64, tai: i64, before: [i64; 2]| {
        writer.time(at::ACQUIRED, acquired);
        writer.time(at::WRITTEN, written);
        let mut stream = Stream::new(Image::open(&site.path("a")).unwrap(), ALL, false, 0);
        let times = before.map(Some);
        stream.last = Some(Last { images: 0, frame: 0, created: None, times, at: 0, age: None });
        let ImagePoll::New(head, _) = stream.image.look(None, &mut Vec::new(), |_| true).unwrap() else {
            panic!("an image")
        };
        (stream.stamp(&head, Now { mono: 0, wall, tai: tai * second }) - wall) / MS
    };
    drop(stream);
    assert_eq!(stamp(wall - 3 * MS, wall - MS, 0, [1, 1]), -3);
    assert_eq!(stamp(0, wall - MS, 0, [1, 1]), -1, "no time of acquisition");
    assert_eq!(stamp(wall - 60 * second, wall - MS, 0, [1, 1]), -1, "the time of the stream's creation, for example");
    assert_eq!(stamp(wall, wall - MS, 0, [1, 1]), -1, "acquisition precedes the write");
    assert_eq!(stamp(wall - 3 * MS, wall - MS, 0, [wall - MS, 1]), -3, "the time of writing does not change");
    assert_eq!(stamp(wall - 3 * MS, wall - MS, 0, [1, wall - 3 * MS]), -1, "the time of acquisition changes");
    assert_eq!(stamp(5, 5, 0, [5, 5]), 0, "both change");
    assert_eq!(stamp(wall - 3 * MS + 37 * second, wall - MS + 37 * second, 37, [1, 1]), -3, "TAI");
    assert_eq!(stamp(wall - 3 * MS, wall - MS, 37, [1, 1]), -3, "UTC where TAI is known");
}

#[test]
fn a_stream_is_polled_at_the_rate_of_its_images() {
    let mut site = Site::new(ALL);
    let mut writer = site.writer("a");
    let next = |site: &Site| site.streams.known["a"].due - site.now;
    for frame in 1..100 {
        writer.write(frame, &[0; 4]);
        site.after(MS.max(if frame == 1 { 0 } else { next(&site).max(MS) }));
    }
    assert!((LOOK_NS.0..=MS).contains(&next(&site)), "{}", next(&site));
    // The stream is idle.
    for _ in 0..1_000 {
        site.after(next(&site));
    }
    assert_eq!(next(&site), LOOK_NS.1);
    // With time stamps of writing: one poll per image, an eighth of a period after it is due.
    let stream = site.streams.known.get_mut("a").unwrap();
    let last = stream.last.unwrap();
    (stream.period, stream.last) = (MS, Some(Last { at: 0, age: Some(MS / 4), ..last }));
    assert_eq!([0, MS / 2, MS].map(|now| stream.next(now) - now), [875, 375, 125].map(|us| us * 1_000));
    let scan = Policy::Scan { period: base::DurNs::from_secs(1) };
    let mut site = Site::new(scan);
    let mut writers = [site.writer("a"), site.writer("ab")];
    writers.iter_mut().for_each(|writer| writer.write(1, &[0; 4]));
    site.after(1_700 * MS);
    let due = |site: &Site| site.streams.known.values().map(|stream| stream.due / MS).collect::<Vec<_>>();
    assert_eq!(due(&site), [2_000, 2_000], "all at the same moment");
    writers.iter_mut().for_each(|writer| (2..50).for_each(|frame| writer.write(frame, &[1; 4])));
    assert_eq!(site.after(100 * MS), [""; 0], "not yet");
    assert_eq!(
        site.after(200 * MS),
        ["a 49 = [1, 1, 1, 1]", "ab 49 = [1, 1, 1, 1]"],
        "values skipped by a scan are no loss"
    );
}

#[test]
fn with_a_continuous_writer_each_image_is_complete_and_archived_or_counted() {
    const IMAGES: u64 = 20_000;
    let site = Site::new(ALL);
    let mut writer = Writer::new(&site.path("a"), Element::U16, &[64, 64]);
    let mut image = Stream::new(Image::open(&site.path("a")).unwrap(), ALL, true, 0);
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let end = ended.clone();
    let writing = std::thread::spawn(move || {
        for frame in 1..=IMAGES {
            writer.write(frame, &(frame as u16).to_le_bytes().repeat(64 * 64));
        }
        end.store(true, std::sync::atomic::Ordering::Release);
    });
    let (mut found, mut buffer, mut now) = (Vec::new(), Vec::new(), 0);
    loop {
        let is_over = ended.load(std::sync::atomic::Ordering::Acquire);
        now += 1;
        image.look("a", &mut buffer, Now { mono: now, wall: 0, tai: 0 }, &mut found).unwrap();
        if is_over {
            break;
        }
    }
    writing.join().unwrap();
    let (mut seen, mut missed) = (0, 0);
    for one in found {
        match one {
            Item::Sample { sample: Sample { datum: Datum::Array(base::Array::U16(values)), pulse, .. }, .. } => {
                assert_eq!(values.len(), 64 * 64);
                assert!(values.iter().all(|value| u64::from(*value) == pulse.unwrap()), "{pulse:?} is torn");
                seen += 1;
            }
            Item::Behind { cause: Cause::Overflow, lost, .. } => missed += lost,
            other => panic!("{}", shown(&other)),
        }
    }
    assert_eq!(seen + missed, IMAGES);
    assert!(seen > 0);
}

#[test]
fn no_bytes_of_a_stream_file_panic_and_memory_stays_small() {
    let mut site = Site::new(Policy::Every { pulses: 3 });
    let mut writer = site.writer("a");
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..2_000 {
        if round % 50 == 0 {
            // Start from a valid file, so that errors are not all found at once.
            writer = site.writer("a");
        }
        let (at, byte) = (next() as usize % (HEAD_BYTES + 8), next() as u8);
        writer.put(at, &[byte]);
        if next() % 3 == 0 {
            writer.write(next(), &[byte; 4]);
        }
        site.after(next() as i64 & 0x7fff_ffff);
    }
    assert!(site.streams.buffer.capacity() <= segment::VALUE_MAX);
}
