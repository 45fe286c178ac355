//! The layout of ImageStreamIO (milk, CACAO, pyMilk, rtimv), version 2.00, as its users compile it on 64-bit Linux. A stream
//! is a file that holds the newest image and that its readers map: a head of 384 bytes, the image, then the data that
//! waiting readers use.
//!
//! A writer sets `write`, stores the image, counts it in `cnt0` and clears `write`. A reader reads the [`Head`], then the
//! image, then the head again. The image is consistent if both heads are [of the same image](Head::is_of_the_same_image).

use core::fmt;

/// The version, at the start of the head.
pub const VERSION: [u8; 4] = *b"2.00";
/// Size of the head before the image, in bytes.
pub const HEAD_BYTES: usize = 384;

/// Byte offsets of fields in the head.
pub mod at {
    /// The stream's name, up to 80 bytes.
    pub const NAME: usize = 32;
    /// Number of axes, followed by their sizes and the number of elements.
    pub const AXES: usize = 112;
    /// Three sizes of four bytes each.
    pub const SIZES: usize = 116;
    /// Number of elements in the image.
    pub const COUNT: usize = 128;
    /// Type of the elements, see [`Element`](super::Element).
    pub const ELEMENT: usize = 136;
    /// Time of creation. All times here are seconds and nanoseconds.
    pub const CREATED: usize = 152;
    /// Time of the last access.
    pub const ACCESSED: usize = 168;
    /// Time at which the image was acquired.
    pub const ACQUIRED: usize = 184;
    /// Time at which the image was written.
    pub const WRITTEN: usize = 200;
    /// The process that made it.
    pub const CREATOR: usize = 216;
    /// 1: in shared memory.
    pub const SHARED: usize = 224;
    /// The file's inode.
    pub const INODE: usize = 232;
    /// Location of the image: negative for the CPU's memory, otherwise the number of a graphics card. A flag that allows
    /// logging follows.
    pub const PLACE: usize = 240;
    /// Number of semaphores.
    pub const SEMAPHORES: usize = 258;
    /// Number of process traces.
    pub const TRACES: usize = 260;
    /// `cnt0`: number of images so far.
    pub const IMAGES: usize = 264;
    /// `cnt2`: number of the frame, if the writer counts frames there.
    pub const FRAME: usize = 280;
    /// Not 0 while an image is being written.
    pub const WRITE: usize = 288;
    /// Size of the image, in bytes.
    pub const BYTES: usize = 312;
}

/// Type of an image's elements. Only plain numbers are supported.
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

    /// Size of one element, in bytes.
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

/// Reason why a file is not a readable stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoImage {
    /// The file is too short; its size in bytes.
    Short(usize),
    /// The version does not match; the bytes found in its place.
    Version([u8; 8]),
    /// The number of axes is not supported.
    Axes(u8),
    /// The number of elements is not the product of the sizes.
    Sizes([u32; 3], u64),
    /// The type of the elements is not supported.
    Element(u8),
    /// The image is in the memory of this graphics card.
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

/// The head of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Type of the elements.
    pub element: Element,
    /// Number of elements.
    pub count: u64,
    /// Time of creation of the stream.
    pub created: Option<i64>,
    /// Time of acquisition, in nanoseconds since 1970 by the writer's clock; `None` if the head has no time.
    pub acquired: Option<i64>,
    /// Time of writing, with the same unit.
    pub written: Option<i64>,
    /// `cnt0`: number of images so far.
    pub images: u64,
    /// `cnt2`: number of the frame, if the writer counts frames there.
    pub frame: u64,
    /// Whether the next image is being written.
    pub is_being_written: bool,
}

impl Head {
    /// Reads and checks a head. Its content is not trusted.
    ///
    /// # Errors
    /// The reason why the file is not a readable stream.
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
        // Sizes of axes beyond the number of axes have no meaning.
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

    /// Size of the image after the head, in bytes; `None` on overflow.
    #[must_use]
    pub const fn bytes(&self) -> Option<u64> {
        self.count.checked_mul(self.element.bytes() as u64)
    }

    /// Whether the image read between this head and `later` is a single, complete image.
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

/// A time after 1970, in nanoseconds; `None` if it is invalid or does not fit into 64 bits.
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
    fn a_head_describes_its_image_and_identifies_it() {
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
        // Nanoseconds must be below 1,000,000,000, and signed 64-bit nanoseconds end in 2262.
        for wrong in [[2u64, 1_000_000_000], [u64::MAX, 5], [1 << 40, 5]] {
            let bytes = wrong.map(u64::to_le_bytes).concat();
            assert_eq!(with(at::WRITTEN, &bytes).unwrap().written, None, "{wrong:?}");
        }
    }

    #[test]
    fn a_head_that_is_not_an_image_stream_is_refused_with_the_value_found() {
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
        // Sizes whose product overflows.
        let huge = [vec![3, 0, 0, 0], vec![0xff; 12], vec![0; 8]].concat();
        assert!(matches!(with(at::AXES, &huge), Err(NoImage::Sizes(..))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_a_head_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), is_near in any::<bool>()) {
            let mut bytes = bytes;
            if is_near {
                // The beginning is valid, so that the head passes the first checks.
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
        fn no_changed_byte_of_a_head_causes_a_panic(at in 0..HEAD_BYTES, byte in any::<u8>()) {
            let _ = with(at, &[byte]).map(|head| head.bytes());
        }
    }
}
