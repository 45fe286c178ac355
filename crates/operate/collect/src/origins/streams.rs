//! Streams of images in shared memory, written by any program. Polls each stream as often as its image may have changed.

use crate::gate::Nth;
use crate::image::{Image, ImagePoll, NoStream, identity};
use crate::origin::{Item, Origin};
use crate::serve::{mono, wall};
use crate::unconnected::fits;
use base::MonoNs;
use host::plant::archive::Policy;
use ring::image::Head;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// File name extension of streams.
const ENDING: &str = ".im.shm";
/// Maximum streams per folder, and maximum streams with reported errors.
const STREAMS_MAX: usize = 256;
/// Interval at which the folder is listed.
const CENSUS_NS: i64 = 200_000_000;
/// Time (ns) and size (bytes) after which collected images are passed to the logger.
const GATHER: (i64, usize) = (20_000_000, 4 << 20);
/// Minimum and maximum interval between polls of a stream if every image may be wanted.
const LOOK_NS: (i64, i64) = (100_000, 10_000_000);
/// Delay before an error is reported: a stream is briefly invalid while it is being created.
const TROUBLE_NS: i64 = 1_000_000_000;
/// Maximum plausible time between acquiring and writing an image. Otherwise the acquisition time is ignored.
const ACQUIRED_NS: i64 = 10_000_000_000;

/// The streams of a folder.
pub(crate) struct Streams {
    folder: PathBuf,
    wanted: Vec<(String, Policy)>,
    known: BTreeMap<String, Stream>,
    troubles: BTreeMap<String, Trouble>,
    /// Patterns that no known stream fits.
    missing: Vec<String>,
    census_at: i64,
    /// True until the first listing: streams found then may already have had images.
    is_first: bool,
    /// Offset of TAI from UTC in nanoseconds; 0 if not set in the kernel.
    tai: i64,
    buffer: Vec<u8>,
}

/// The reason why a stream is not archived.
struct Trouble {
    why: String,
    since: i64,
    is_told: bool,
}

/// A stream whose file is open.
struct Stream {
    image: Image,
    policy: Policy,
    nth: Nth,
    /// The last image seen, kept or not.
    last: Option<Last>,
    /// Whether the writer maintains the frame number, as far as known.
    has_frames: bool,
    /// Recent interval between images; 0 if unknown.
    period: i64,
    /// Time of the next poll.
    due: i64,
    /// Number of consecutive polls during which an image was being written, and the time of the first.
    torn: (u32, i64),
    /// The stamp of the last sample.
    stamped: Option<i64>,
}

/// An image that was seen.
#[derive(Clone, Copy)]
struct Last {
    images: u64,
    frame: u64,
    created: Option<i64>,
    times: [Option<i64>; 2],
    /// Time of the poll.
    at: i64,
    /// Its age at that time, if known.
    age: Option<i64>,
}

/// Monotonic clock, wall clock, and offset of TAI from UTC.
#[derive(Clone, Copy, Debug)]
struct Now {
    mono: i64,
    wall: i64,
    tai: i64,
}

/// The reason why a folder has no streams.
#[derive(Debug, thiserror::Error)]
enum NoStreams {
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, std::io::Error),
    #[error("{} has no stream of these names", .0.display())]
    None(PathBuf),
    #[error("{} has none that can be read", .0.display())]
    Unreadable(PathBuf),
}

impl Streams {
    pub(crate) fn new(folder: &str, wanted: Vec<(String, Policy)>) -> Self {
        Self {
            folder: folder.into(),
            wanted,
            known: BTreeMap::new(),
            troubles: BTreeMap::new(),
            missing: Vec::new(),
            census_at: i64::MIN,
            is_first: true,
            tai: 0,
            buffer: Vec::new(),
        }
    }

    /// The policies that remain to be applied to the images of this source: those that depend on values or faults.
    pub(crate) fn passed(&self) -> Vec<(String, Policy)> {
        let left = |policy: Policy| match policy {
            Policy::Scan { .. } | Policy::Every { .. } => Policy::Monitor { deadband: 0.0 },
            other => other,
        };
        self.wanted.iter().map(|(pattern, policy)| (pattern.clone(), left(*policy))).collect()
    }

    /// Lists the folder: finds new, replaced and removed files.
    fn census(&mut self, now: i64, found: &mut Vec<Item>) -> Result<(), NoStreams> {
        let lost = |error| NoStreams::Io(self.folder.clone(), error);
        let (mut there, mut beyond) = (BTreeMap::new(), 0);
        for entry in std::fs::read_dir(&self.folder).map_err(lost)? {
            let entry = entry.map_err(lost)?;
            // Nothing is stored for files that do not match.
            let file = entry.file_name();
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(ENDING)) else { continue };
            let Some((_, policy)) = self.wanted.iter().find(|(pattern, _)| fits(pattern, name)) else { continue };
            // Removed since it was listed.
            let Ok(about) = entry.metadata() else { continue };
            if there.len() == STREAMS_MAX {
                beyond += 1;
            } else {
                there.insert(name.to_owned(), (entry.path(), about, *policy));
            }
        }
        let gone: Vec<String> = self.known.keys().filter(|name| !there.contains_key(*name)).cloned().collect();
        self.known.retain(|name, _| there.contains_key(name));
        self.troubles.retain(|name, _| name.is_empty() || there.contains_key(name));
        if beyond > 0 {
            let why = format!("{beyond} streams more than the maximum of {STREAMS_MAX}: list fewer");
            self.trouble("", why, now, found);
        }
        for (name, (path, about, policy)) in there {
            self.open(name, (&path, &about), policy, now, found);
        }
        self.is_first = false;
        self.tai = sys::clock::discipline().map_or(0, |clock| i64::from(clock.tai_offset_s) * 1_000_000_000);
        if self.known.is_empty() {
            let (folder, is_unreadable) = (self.folder.clone(), !self.troubles.is_empty());
            return Err(if is_unreadable { NoStreams::Unreadable(folder) } else { NoStreams::None(folder) });
        }
        let is_missing = |pattern: &String| !self.known.keys().any(|name| fits(pattern, name));
        let missing: Vec<String> =
            self.wanted.iter().map(|one| &one.0).filter(|one| is_missing(one)).cloned().collect();
        if missing != self.missing {
            found.push(Item::Missing(missing.clone()));
            self.missing = missing;
        }
        // If all are gone, the error is reported for all of them.
        found.extend(gone.into_iter().map(|prefix| Item::Gap { prefix, cause: Cause::Disconnected, lost: 0 }));
        Ok(())
    }

    /// Opens a file that is new.
    fn open(
        &mut self,
        name: String,
        (path, about): (&Path, &Metadata),
        policy: Policy,
        now: i64,
        found: &mut Vec<Item>,
    ) {
        let known = self.known.get(&name);
        if known.is_some_and(|known| known.image.identity() == identity(about)) {
            return;
        }
        match Image::open(path) {
            Ok(image) => {
                found.extend(known.map(|known| known.restarted(&name)));
                // Created since the last listing: all its images count from the first.
                let is_new = !self.is_first && !self.troubles.contains_key(&name);
                self.known.insert(name, Stream::new(image, policy, is_new, now));
            }
            Err(error) => {
                self.known.remove(&name);
                self.trouble(&name, error.to_string(), now, found);
            }
        }
    }

    /// Records an error of a stream, or of all if `name` is empty. It is reported once it has persisted.
    fn trouble(&mut self, name: &str, why: String, now: i64, found: &mut Vec<Item>) {
        if self.troubles.len() >= STREAMS_MAX && !self.troubles.contains_key(name) {
            return;
        }
        let new = || Trouble { why: String::new(), since: now, is_told: false };
        let trouble = self.troubles.entry(name.to_owned()).or_insert_with(new);
        if trouble.why != why {
            (trouble.why, trouble.is_told) = (why, false);
        }
        if !trouble.is_told && now - trouble.since >= TROUBLE_NS {
            trouble.is_told = true;
            found.push(Item::Told(format!("{name}: not archived: {}", trouble.why)));
            found.push(Item::Gap { prefix: name.to_owned(), cause: Cause::Disconnected, lost: 0 });
        }
    }

    /// Polls the streams that are due. Returns the bytes of images read.
    fn take(&mut self, now: i64, found: &mut Vec<Item>) -> usize {
        let (mut bytes, mut troubles) = (0, Vec::new());
        for (name, stream) in self.known.iter_mut().filter(|(_, stream)| stream.due <= now) {
            let now = Now { mono: now, wall: wall(), tai: self.tai };
            match stream.look(name, &mut self.buffer, now, found) {
                Ok(None) => {}
                Ok(Some(taken)) => {
                    bytes += taken;
                    if let Some(trouble) = self.troubles.remove(name).filter(|trouble| trouble.is_told) {
                        let since = (now.mono - trouble.since) / 1_000_000_000;
                        found.push(Item::Told(format!("{name}: archived again after {since} s")));
                    }
                }
                Err(why) => troubles.push((name.clone(), why)),
            }
        }
        for (name, why) in troubles {
            self.trouble(&name, why.to_string(), now, found);
        }
        bytes
    }
}

impl Origin for Streams {
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String> {
        let begin = mono();
        if begin >= self.census_at {
            self.census(begin, found).map_err(|error| error.to_string())?;
            self.census_at = begin + CENSUS_NS;
        }
        let (mut until, mut bytes) = (self.census_at, 0);
        loop {
            let now = mono();
            bytes += self.take(now, found);
            if !found.is_empty() {
                until = until.min(begin + GATHER.0);
            }
            if now >= until || bytes >= GATHER.1 {
                return Ok(());
            }
            let due = self.known.values().map(|stream| stream.due).min().unwrap_or(until);
            sys::clock::sleep_until(MonoNs(due.min(until).max(0) as u64));
        }
    }
}

impl Stream {
    fn new(image: Image, policy: Policy, is_new: bool, now: i64) -> Self {
        let (nth, torn) = (Nth::default(), (0, now));
        let mut stream =
            Self { image, policy, nth, last: None, has_frames: true, period: 0, due: now, torn, stamped: None };
        if is_new {
            stream.begin(now);
        }
        stream
    }

    /// Takes a new image, if any. Returns the number of bytes read.
    fn look(
        &mut self,
        name: &str,
        buffer: &mut Vec<u8>,
        now: Now,
        found: &mut Vec<Item>,
    ) -> Result<Option<usize>, NoStream> {
        let known = self.last.map(|last| last.images);
        let is_wanted = |head: &Head| match self.policy {
            Policy::Every { pulses } => self.nth.clone().takes(pulses, Some(self.pulse(head))),
            _ => true,
        };
        let looked = self.image.look(known, buffer, is_wanted);
        let torn = std::mem::replace(&mut self.torn, (0, now.mono));
        let taken = match looked.inspect_err(|_| self.due = now.mono + LOOK_NS.1)? {
            ImagePoll::Same => None,
            ImagePoll::Empty => {
                self.follow(name, None, now, found);
                None
            }
            ImagePoll::Torn => {
                self.torn = (torn.0 + 1, if torn.0 == 0 { now.mono } else { torn.1 });
                self.due = now.mono + (LOOK_NS.0 << torn.0.min(8)).min(LOOK_NS.1);
                if now.mono - self.torn.1 >= TROUBLE_NS {
                    return Err(NoStream::Unfinished);
                }
                return Ok(None);
            }
            ImagePoll::New(head, datum) => {
                let bytes = if datum.is_some() { buffer.len() } else { 0 };
                self.take(name, &head, datum, now, found);
                Some(bytes)
            }
        };
        self.due = self.next(now.mono);
        Ok(taken)
    }

    /// Takes a new image; `datum` is `None` if the policy does not keep it.
    fn take(&mut self, name: &str, head: &Head, datum: Option<Datum>, now: Now, found: &mut Vec<Item>) {
        self.follow(name, Some(head), now, found);
        let pulse = self.pulse(head);
        self.has_frames = pulse == head.frame;
        let missed = self.last.map_or(0, |last| head.images.saturating_sub(last.images).saturating_sub(1));
        let lost = match self.policy {
            Policy::Every { pulses } => self.nth.missing(pulses, pulse, missed),
            Policy::Scan { .. } => 0,
            Policy::Monitor { .. } | Policy::OnFault { .. } => missed,
        };
        if let Policy::Every { pulses } = self.policy {
            self.nth.takes(pulses, Some(pulse));
        }
        let at = self.stamp(head, now);
        if let Some(last) = self.last.filter(|last| last.images > 0) {
            let period = (now.mono - last.at) / i64::try_from(missed).unwrap_or(i64::MAX).saturating_add(1);
            self.period = if self.period == 0 { period } else { (3 * self.period + period) / 4 };
        }
        let times = [head.written, head.acquired];
        let age = self.written(head, now).map(|written| now.wall - written).filter(|age| *age >= 0);
        let (images, frame, created) = (head.images, head.frame, head.created);
        self.last = Some(Last { images, frame, created, times, at: now.mono, age });
        let before = self.stamped.map_or(at - 1, |stamped| stamped.saturating_add(1).min(at));
        if let Some(datum) = datum {
            self.stamped = Some(at);
            let sample = Sample { pulse: Some(pulse), ..Sample::new(at, datum) };
            found.push(Item::Sample { name: name.to_owned(), about: About::default(), sample });
        }
        if lost > 0 {
            found.push(Item::Behind { name: name.to_owned(), at: before, cause: Cause::Overflow, lost });
        }
    }

    /// Marks a restart after the last sample.
    fn restarted(&self, name: &str) -> Item {
        let at = self.stamped.map_or_else(wall, |stamped| stamped.saturating_add(1));
        Item::Behind { name: name.to_owned(), at, cause: Cause::Restarted, lost: 0 }
    }

    /// Detects that a stream was recreated in the same file.
    fn follow(&mut self, name: &str, head: Option<&Head>, now: Now, found: &mut Vec<Item>) {
        let Some(last) = self.last.filter(|last| last.images > 0) else { return };
        if head.is_none_or(|head| head.images < last.images || head.created != last.created) {
            found.push(self.restarted(name));
            self.begin(now.mono);
        }
    }

    /// No image has been seen yet, and all later ones count.
    fn begin(&mut self, now: i64) {
        self.last = Some(Last { images: 0, frame: 0, created: None, times: [None; 2], at: now, age: None });
        (self.nth, self.has_frames, self.period) = (Nth::default(), true, 0);
    }

    /// The frame number if the writer maintains it, otherwise the image number.
    fn pulse(&self, head: &Head) -> u64 {
        let counts = self.has_frames && self.last.is_none_or(|last| head.frame > last.frame);
        if counts && head.frame > 0 { head.frame } else { head.images }
    }

    /// Time stamp of an image: acquired, otherwise written, otherwise seen.
    fn stamp(&self, head: &Head, now: Now) -> i64 {
        let before = self.last.and_then(|last| last.times[1]);
        let written = self.written(head, now).unwrap_or(now.wall);
        let acquired = head.acquired.filter(|_| head.acquired != before).map(|at| now.utc(at));
        acquired.filter(|acquired| (0..=ACQUIRED_NS).contains(&written.saturating_sub(*acquired))).unwrap_or(written)
    }

    /// Time of writing. A time that does not change between images is ignored.
    fn written(&self, head: &Head, now: Now) -> Option<i64> {
        let before = self.last.and_then(|last| last.times[0]);
        head.written.filter(|_| head.written != before).map(|at| now.utc(at))
    }

    /// Time of the next poll.
    fn next(&self, now: i64) -> i64 {
        if let Policy::Scan { period } = self.policy {
            // All streams with the same period are polled at the same moment.
            return (now / period.0 + 1) * period.0;
        }
        let Some(last) = self.last.filter(|_| self.period > 0) else { return now + LOOK_NS.1 / 2 };
        // If only some images are wanted, wait half the time until the next of them, so that it is seen even if the rate
        // increases.
        let images = match self.policy {
            Policy::Every { pulses } if self.has_frames => pulses - last.frame % pulses,
            Policy::Every { pulses } => pulses - last.images % pulses,
            _ => 1,
        };
        let ahead = self.period.saturating_mul(i64::try_from(images - 1).unwrap_or(i64::MAX)) / 2;
        // Poll slightly later than one period after the last image.
        let since = now - last.at;
        let left = last.age.map_or(0, |age| self.period.saturating_sub(age).saturating_sub(since).max(0));
        let rest = if last.age.is_some() { left + self.period / 8 } else { self.period / 4 };
        // Poll an idle stream less and less often.
        now + rest.max(since / 16).clamp(LOOK_NS.0, LOOK_NS.1).max(ahead.min(CENSUS_NS))
    }
}

impl Now {
    /// Converts a writer's time stamp, which is UTC or, from ImageStreamIO's own library, TAI.
    const fn utc(self, at: i64) -> i64 {
        let is_tai = self.tai > 0 && at > self.wall && at - self.tai <= self.wall;
        if is_tai { at - self.tai } else { at }
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
