//! A stream's file, of whoever's program: what is in it now.
//!
//! It is read, and not mapped: a mapped file that somebody makes shorter kills who looks at it, and reading costs little more than what is
//! read. Nothing is ever written to it: the semaphores that wake readers are ten, and who takes one tells so in the file, and takes
//! it from others.

use ring::image::{Element, HEAD_BYTES, Head};
use segment::{Datum, Kind};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Most bytes of an image: more is no value of the archive's.
const BYTES_MAX: u64 = segment::VALUE_MAX as u64;

/// A file with the newest image of a stream, open for reading.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    identity: (u64, u64),
}

/// What is in the file at a look.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    /// None yet: the stream was just made.
    Empty,
    /// The image that is known.
    Same,
    /// Another one is being written, or was meanwhile.
    Torn,
    /// Another one: whole, where it was wanted.
    New(Head, Option<Datum>),
}

/// What tells a file from another one that is put into its place.
pub(crate) fn identity(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

impl Image {
    /// Opens a file of somebody who is believed, and nothing else in its place.
    ///
    /// # Errors
    /// The kernel's, and why nothing is read from it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = store::opened(OpenOptions::new().read(true), path)?;
        let about = file.metadata()?;
        if !sys::peer::is_believed(about.uid()) {
            let (uid, peers) = (about.uid(), sys::peer::PEERS);
            let why = format!(
                "it belongs to user {uid}; expected our own or root: remove it, or set {peers}={uid} if that user is to be believed"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        Ok(Self { file, identity: identity(&about) })
    }

    /// Which file it is.
    pub(crate) const fn identity(&self) -> (u64, u64) {
        self.identity
    }

    fn head(&self) -> Result<Head, String> {
        let mut bytes = [0; HEAD_BYTES];
        let read = self.read(&mut bytes, 0)?;
        Head::read(&bytes[..read]).map_err(|why| why.to_string())
    }

    /// Reads as much as there is.
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize, String> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(done)
    }

    /// Looks for another image than the one known by its number; `is_wanted` decides from its head whether it is read, into `buffer`, whose
    /// length never exceeds what an image may have.
    ///
    /// # Errors
    /// Why there is none: the file is no stream, or not any more.
    pub(crate) fn look(
        &self,
        known: Option<u64>,
        buffer: &mut Vec<u8>,
        is_wanted: impl FnOnce(&Head) -> bool,
    ) -> Result<Seen, String> {
        let head = self.head()?;
        if head.images == 0 {
            return Ok(Seen::Empty);
        }
        if Some(head.images) == known {
            return Ok(Seen::Same);
        }
        if head.is_being_written {
            return Ok(Seen::Torn);
        }
        let bytes = head.bytes().filter(|bytes| *bytes <= BYTES_MAX);
        let Some(bytes) = bytes else {
            let (count, element) = (head.count, head.element.bytes());
            return Err(format!(
                "its image has {count} numbers of {element} bytes; expected at most {} MiB, the limit of a value in the archive",
                BYTES_MAX >> 20
            ));
        };
        if !is_wanted(&head) {
            return Ok(Seen::New(head, None));
        }
        buffer.resize(bytes as usize, 0);
        let read = self.read(buffer, HEAD_BYTES as u64)?;
        if (read as u64) < bytes {
            return Err(format!(
                "it has {} bytes; expected {}, as in its header: another process has truncated it",
                HEAD_BYTES + read,
                HEAD_BYTES as u64 + bytes
            ));
        }
        if !head.is_of_the_same_image(&self.head()?) {
            return Ok(Seen::Torn);
        }
        let datum = Datum::from_bytes(Kind::Array(field(head.element)), buffer).map_err(|bad| bad.to_string())?;
        Ok(Seen::New(head, Some(datum)))
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
