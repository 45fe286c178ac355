//! A stream file (ImageStreamIO) written by any program: reads its present image.
//!
//! The file is read, not mapped. If another process truncates a mapped file, the reader is killed by SIGBUS. Reading costs little
//! more than the copy. Nothing is written to the file: its semaphores for readers are only ten, and using one means writing to
//! the file and taking it from other readers.

use ring::image::{Element, HEAD_BYTES, Head};
use segment::{Datum, Kind};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Maximum size of an image in bytes: the limit of a value in the archive.
const BYTES_MAX: u64 = segment::VALUE_MAX as u64;

/// A stream's file, open for reading.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    identity: (u64, u64),
}

/// Result of a poll.
#[derive(Debug, PartialEq)]
pub(crate) enum ImagePoll {
    /// No image yet: the stream was just created.
    Empty,
    /// No new image.
    Same,
    /// An image is being written, or was during the read.
    Torn,
    /// A new image, complete if its data were wanted.
    New(Head, Option<Datum>),
}

/// The reason why a file has no image that can be archived.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoStream {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Head(#[from] ring::image::NoImage),
    #[error(transparent)]
    Data(#[from] segment::Bad),
    #[error(
        "its image has {count} numbers of {element} bytes; expected at most {} MiB, the limit of a value in the archive",
        BYTES_MAX >> 20
    )]
    TooLarge { count: u64, element: usize },
    #[error("it has {found} bytes; expected {expected}, as in its header: another process has truncated it")]
    Truncated { found: usize, expected: u64 },
    #[error("an image was begun and is not finished: its writer may have ended")]
    Unfinished,
}

/// Identifies a file, to detect its replacement.
pub(crate) fn identity(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

impl Image {
    /// Opens a regular file of a trusted user.
    ///
    /// # Errors
    /// The kernel's error, or the reason why the file is not accepted.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = store::opened(OpenOptions::new().read(true), path)?;
        let about = file.metadata()?;
        if !sys::peer::is_believed(about.uid()) {
            let (uid, peers) = (about.uid(), sys::peer::PEERS);
            let why = format!(
                "it belongs to user {uid}; expected our own or root: remove it, or set {peers}={uid} to trust that user"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        Ok(Self { file, identity: identity(&about) })
    }

    /// Identity of the file.
    pub(crate) const fn identity(&self) -> (u64, u64) {
        self.identity
    }

    fn head(&self) -> Result<Head, NoStream> {
        let mut bytes = [0; HEAD_BYTES];
        let read = self.read(&mut bytes, 0)?;
        Ok(Head::read(&bytes[..read])?)
    }

    /// Reads until the buffer is full or the file ends.
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Checks for an image with another number than `known`. `is_wanted` decides from its header whether the data are read into
    /// `buffer`, whose length never exceeds the limit of an image.
    ///
    /// # Errors
    /// If the file is not, or no longer, a valid stream.
    pub(crate) fn look(
        &self,
        known: Option<u64>,
        buffer: &mut Vec<u8>,
        is_wanted: impl FnOnce(&Head) -> bool,
    ) -> Result<ImagePoll, NoStream> {
        let head = self.head()?;
        if head.images == 0 {
            return Ok(ImagePoll::Empty);
        }
        if Some(head.images) == known {
            return Ok(ImagePoll::Same);
        }
        if head.is_being_written {
            return Ok(ImagePoll::Torn);
        }
        let bytes = head.bytes().filter(|bytes| *bytes <= BYTES_MAX);
        let Some(bytes) = bytes else {
            return Err(NoStream::TooLarge { count: head.count, element: head.element.bytes() });
        };
        if !is_wanted(&head) {
            return Ok(ImagePoll::New(head, None));
        }
        buffer.resize(bytes as usize, 0);
        let read = self.read(buffer, HEAD_BYTES as u64)?;
        if (read as u64) < bytes {
            return Err(NoStream::Truncated { found: HEAD_BYTES + read, expected: HEAD_BYTES as u64 + bytes });
        }
        if !head.is_of_the_same_image(&self.head()?) {
            return Ok(ImagePoll::Torn);
        }
        let datum = Datum::from_bytes(Kind::Array(field(head.element)), buffer)?;
        Ok(ImagePoll::New(head, Some(datum)))
    }
}

const fn field(element: Element) -> base::FieldType {
    use base::FieldType;
    match element {
        Element::U8 => FieldType::U8,
        Element::I8 => FieldType::I8,
        Element::U16 => FieldType::U16,
        Element::I16 => FieldType::I16,
        Element::U32 => FieldType::U32,
        Element::I32 => FieldType::I32,
        Element::U64 => FieldType::U64,
        Element::I64 => FieldType::I64,
        Element::F32 => FieldType::F32,
        Element::F64 => FieldType::F64,
    }
}
