//! The layout of ImageStreamIO (milk, CACAO, pyMilk, rtimv), version 2.00, as its users compile it on 64-bit Linux: a file with the newest
//! image, which its readers map. 384 bytes about the image, the image, and then what those use who wait for it.
//!
//! A writer sets `write`, stores the image, counts it in `cnt0` and clears `write`; who has read an image between two looks at a
//! [`Head`] that are [of the same image](Head::is_of_the_same_image) has it whole.

use core::fmt;

/// The version, as it stands at the beginning.
pub const VERSION: [u8; 4] = *b"2.00";
/// Bytes about the image, in front of it.
pub const HEAD_BYTES: usize = 384;

/// Where in the head something stands, in bytes.
pub mod at {
    /// The stream's name, up to 80 bytes.
    pub const NAME: usize = 32;
    /// Number of axes; their sizes; numbers in the image.
    pub const AXES: usize = 112;
    /// Three sizes of four bytes.
    pub const SIZES: usize = 116;
    /// How many numbers the image has.
    pub const COUNT: usize = 128;
    /// What its numbers are: see [`Element`](super::Element).
    pub const ELEMENT: usize = 136;
    /// When it was made: seconds and nanoseconds, as all times here.
    pub const CREATED: usize = 152;
    /// When it was looked at last.
    pub const ACCESSED: usize = 168;
    /// When the image was acquired.
    pub const ACQUIRED: usize = 184;
    /// When it was written.
    pub const WRITTEN: usize = 200;
    /// The process that made it.
    pub const CREATOR: usize = 216;
    /// 1: in shared memory.
    pub const SHARED: usize = 224;
    /// The file's inode.
    pub const INODE: usize = 232;
    /// Below 0 in the CPU's memory, else the graphics card that has it; then whether it may be logged.
    pub const PLACE: usize = 240;
    /// Number of semaphores.
    pub const SEMAPHORES: usize = 258;
    /// Number of traces of processes.
    pub const TRACES: usize = 260;
    /// `cnt0`: images so far.
    pub const IMAGES: usize = 264;
    /// `cnt2`: the frame's number, where the writer counts frames there.
    pub const FRAME: usize = 280;
    /// Not 0 while an image is written.
    pub const WRITE: usize = 288;
    /// Bytes of the image.
    pub const BYTES: usize = 312;
}

/// What an image's numbers are, of those that are plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they say what they are")]
pub enum Element {
    U8 = 1,
    I8 = 2,
    U16 = 3,
    I16 = 4,
    U32 = 5,
    I32 = 6,
    U64 = 7,
    I64 = 8,
    F32 = 9,
    F64 = 10,
}

impl Element {
    const ALL: [Self; 10] =
        [Self::U8, Self::I8, Self::U16, Self::I16, Self::U32, Self::I32, Self::U64, Self::I64, Self::F32, Self::F64];

    /// Bytes of one.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// Why a file is no stream whose images can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoImage {
    /// Bytes that there are.
    Short(usize),
    /// What stands in place of the version.
    Version([u8; 8]),
    /// The number of axes.
    Axes(u8),
    /// The sizes, and the count of numbers that is not their product.
    Sizes([u32; 3], u64),
    /// What its numbers are.
    Element(u8),
    /// The graphics card that has it.
    Card(i8),
}

impl fmt::Display for NoImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(found) => {
                write!(f, "it has {found} bytes; expected {HEAD_BYTES} about an image, and the image")
            }
            Self::Version(found) => {
                let end = found.iter().position(|byte| *byte == 0).unwrap_or(found.len());
                write!(f, "its version is \"{}\"; expected ImageStreamIO's \"2.00\"", found[..end].escape_ascii())
            }
            Self::Axes(found) => write!(f, "its image has {found} axes; expected 1 to 3"),
            Self::Sizes([x, y, z], count) => {
                write!(f, "its image of {x} x {y} x {z} has {count} numbers; expected as many as its sizes make")
            }
            Self::Element(found) => {
                let name = match found {
                    0 => "not said",
                    11 => "complex numbers of 32 bits",
                    12 => "complex numbers of 64 bits",
                    13 => "numbers of half precision",
                    20 => "events",
                    _ => "unknown",
                };
                write!(f, "its elements are {name} (type {found}); expected integers or floats of 8 to 64 bits")
            }
            Self::Card(found) => write!(f, "its image is in graphics card {found}; expected the CPU's memory"),
        }
    }
}

impl core::error::Error for NoImage {}

/// What stands in front of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What its numbers are.
    pub element: Element,
    /// How many they are.
    pub count: u64,
    /// When the stream was made.
    pub created: Option<i64>,
    /// When it was acquired: nanoseconds since 1970 by the writer's clock; `None` where no time stands there.
    pub acquired: Option<i64>,
    /// When it was written, as above.
    pub written: Option<i64>,
    /// `cnt0`: images so far.
    pub images: u64,
    /// `cnt2`: the frame's number, where the writer counts frames there.
    pub frame: u64,
    /// Whether the next image is being written.
    pub is_being_written: bool,
}

impl Head {
    /// Reads what stands there, whoever wrote it.
    ///
    /// # Errors
    /// Why that is no stream whose images can be taken.
    pub fn read(bytes: &[u8]) -> Result<Self, NoImage> {
        let Some(bytes) = bytes.first_chunk::<HEAD_BYTES>() else { return Err(NoImage::Short(bytes.len())) };
        let version = take::<8>(bytes, 0);
        if version[..4] != VERSION || version[4] != 0 {
            return Err(NoImage::Version(version));
        }
        let axes = bytes[at::AXES];
        if !(1..=3).contains(&axes) {
            return Err(NoImage::Axes(axes));
        }
        let sizes = [0, 1, 2].map(|axis| u32::from_le_bytes(take(bytes, at::SIZES + 4 * axis)));
        let count = word(bytes, at::COUNT);
        // Sizes of axes that there are not mean nothing.
        let product =
            sizes[..usize::from(axes)].iter().try_fold(1u64, |product, size| product.checked_mul((*size).into()));
        if count == 0 || product != Some(count) {
            return Err(NoImage::Sizes(sizes, count));
        }
        let kind = bytes[at::ELEMENT];
        let element = Element::ALL.into_iter().find(|element| *element as u8 == kind).ok_or(NoImage::Element(kind))?;
        let place = bytes[at::PLACE] as i8;
        if place >= 0 {
            return Err(NoImage::Card(place));
        }
        Ok(Self {
            element,
            count,
            created: time(bytes, at::CREATED),
            acquired: time(bytes, at::ACQUIRED),
            written: time(bytes, at::WRITTEN),
            images: word(bytes, at::IMAGES),
            frame: word(bytes, at::FRAME),
            is_being_written: bytes[at::WRITE] != 0,
        })
    }

    /// Bytes of the image behind the head; `None` where that is beyond all numbers.
    #[must_use]
    pub const fn bytes(&self) -> Option<u64> {
        self.count.checked_mul(self.element.bytes() as u64)
    }

    /// Whether what was read between this look and a later one is one image, and whole.
    #[must_use]
    pub fn is_of_the_same_image(&self, later: &Self) -> bool {
        !self.is_being_written && self == later
    }
}

fn take<const N: usize>(bytes: &[u8; HEAD_BYTES], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn word(bytes: &[u8; HEAD_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(take(bytes, at))
}

/// A time of after 1970 that numbers of 64 bits can hold.
fn time(bytes: &[u8; HEAD_BYTES], at: usize) -> Option<i64> {
    let [secs, nanos] = [at, at + 8].map(|at| i64::from_le_bytes(take(bytes, at)));
    let is_time = secs > 0 && (0..1_000_000_000).contains(&nanos);
    secs.checked_mul(1_000_000_000)?.checked_add(nanos).filter(|_| is_time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString as _;
    use std::vec;

    fn head() -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&VERSION);
        head[at::AXES] = 2;
        for (axis, size) in [(0, 3u32), (1, 2), (2, u32::MAX)] {
            head[at::SIZES + 4 * axis..][..4].copy_from_slice(&size.to_le_bytes());
        }
        head[at::COUNT] = 6;
        head[at::ELEMENT] = Element::U16 as u8;
        head[at::PLACE] = 0xff;
        head[at::IMAGES] = 7;
        head[at::FRAME] = 9;
        head[at::WRITTEN] = 2;
        head[at::WRITTEN + 8] = 5;
        head
    }

    fn with(at: usize, bytes: &[u8]) -> Result<Head, NoImage> {
        let mut head = head();
        head[at..at + bytes.len()].copy_from_slice(bytes);
        Head::read(&head)
    }

    #[test]
    fn a_head_says_what_its_image_is_and_which() {
        let read = Head::read(&head()).unwrap();
        assert_eq!(
            (read.element, read.count, read.bytes(), read.images, read.frame),
            (Element::U16, 6, Some(12), 7, 9)
        );
        assert_eq!((read.acquired, read.written, read.is_being_written), (None, Some(2_000_000_005), false));
        let next = with(at::IMAGES, &[8]).unwrap();
        let writes = with(at::WRITE, &[1]).unwrap();
        assert!(read.is_of_the_same_image(&read) && !read.is_of_the_same_image(&next));
        assert!(!read.is_of_the_same_image(&writes) && !writes.is_of_the_same_image(&writes));
        // A second has a thousand million nanoseconds at most, and 64 bits end in 2262.
        for wrong in [[2u64, 1_000_000_000], [u64::MAX, 5], [1 << 40, 5]] {
            let bytes = wrong.map(u64::to_le_bytes).concat();
            assert_eq!(with(at::WRITTEN, &bytes).unwrap().written, None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_stream_is_refused_with_what_was_found() {
        let says = |at, bytes: &[u8]| with(at, bytes).unwrap_err().to_string();
        assert!(says(0, b"1.00").contains("its version is \"1.00\"; expected ImageStreamIO's \"2.00\""));
        assert!(says(0, b"\x1b[2Jevil").contains("\\x1b[2Jevil"), "no letter of it reaches a terminal");
        assert!(says(0, b"2.001").contains("2.001"));
        assert!(says(at::AXES, &[4]).contains("4 axes"));
        assert!(says(at::COUNT, &[7]).contains("3 x 2"));
        assert!(says(at::SIZES, &[0; 4]).contains("0 x 2"));
        assert!(says(at::ELEMENT, &[11]).contains("complex numbers of 32 bits (type 11)"));
        assert!(says(at::PLACE, &[2]).contains("graphics card 2"));
        assert_eq!(Head::read(&head()[1..]), Err(NoImage::Short(HEAD_BYTES - 1)));
        // Sizes whose product is beyond all numbers.
        let huge = [vec![3, 0, 0, 0], vec![0xff; 12], vec![0; 8]].concat();
        assert!(matches!(with(at::AXES, &huge), Err(NoImage::Sizes(..))));
    }

    proptest! {
        #[test]
        fn bytes_of_whatever_origin_are_a_head_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), is_near in any::<bool>()) {
            let mut bytes = bytes;
            if is_near {
                // Near enough to get past the first look.
                let head = head();
                for (to, from) in bytes.iter_mut().zip(&head).take(116) {
                    *to = *from;
                }
            }
            match Head::read(&bytes) {
                Ok(head) => prop_assert!(head.count > 0),
                Err(why) => prop_assert!(!why.to_string().is_empty()),
            }
        }

        #[test]
        fn a_byte_of_a_head_may_be_any(at in 0..HEAD_BYTES, byte in any::<u8>()) {
            let _ = with(at, &[byte]).map(|head| head.bytes());
        }
    }
}
