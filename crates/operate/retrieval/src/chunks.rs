//! Adapter from a writer to a sequence of chunks. A thread writes, and blocks while the client does not read.

use std::error::Error;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use web::Parts;

/// Maximum number of chunks produced in advance.
const AHEAD: usize = 2;

enum Chunk {
    Bytes(Vec<u8>),
    Failed(io::Error),
    /// The writer has finished. A channel that closes without this chunk is an error.
    End,
}

/// Runs `write` in a separate thread and returns its output as chunks. The thread ends when the chunks are dropped. Returns once the first
/// chunk is available.
///
/// # Errors
/// Kind [`io::ErrorKind::Other`]: the writer failed before its first output. Other kinds: the thread could not be started.
pub(crate) fn chunks<E: Into<Box<dyn Error + Send + Sync>>>(
    write: impl FnOnce(&mut dyn Write) -> Result<(), E> + Send + 'static,
) -> io::Result<Parts> {
    let (sender, receiver) = sync_channel(AHEAD);
    let work = move || {
        let last = match write(&mut ChannelWriter(&sender)) {
            Ok(()) => Chunk::End,
            Err(error) => Chunk::Failed(io::Error::other(error)),
        };
        // Fails if the chunks have been dropped.
        let _ = sender.send(last);
    };
    thread::Builder::new().name("retrieval".into()).spawn(work)?;
    let first = match receiver.recv() {
        Ok(Chunk::Failed(error)) => return Err(error),
        first => first.ok(),
    };
    Ok(Box::new(Chunks { first, receiver, has_ended: false }))
}

/// The writer's end of the channel.
struct ChannelWriter<'a>(&'a SyncSender<Chunk>);

impl Write for ChannelWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(Chunk::Bytes(bytes.to_vec()));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Chunks {
    first: Option<Chunk>,
    receiver: Receiver<Chunk>,
    has_ended: bool,
}

impl Iterator for Chunks {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let chunk = self.first.take().or_else(|| self.receiver.recv().ok());
        let next = match chunk {
            Some(Chunk::Bytes(bytes)) => return Some(Ok(bytes)),
            Some(Chunk::End) => None,
            Some(Chunk::Failed(error)) => Some(Err(error)),
            None => Some(Err(io::Error::other("the thread that reads the archive has ended"))),
        };
        self.has_ended = true;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Barrier};

    #[test]
    fn written_parts_arrive_in_order_and_end() {
        let parts = chunks(|out| (0..100u8).try_for_each(|byte| out.write_all(&[byte]))).unwrap();
        let all: io::Result<Vec<Vec<u8>>> = parts.collect();
        assert_eq!(all.unwrap().concat(), (0..100).collect::<Vec<u8>>());
        assert_eq!(chunks(|_| Ok::<_, io::Error>(())).unwrap().count(), 0);
    }

    #[test]
    fn a_failure_at_the_start_is_an_error_and_a_later_one_replaces_the_end() {
        let error = chunks(|_| Err::<(), _>("the disk failed")).err().unwrap();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::Other, "the disk failed".into()));
        let half = |out: &mut dyn Write| {
            let _ = out.write_all(b"half");
            Err::<(), _>("the disk failed")
        };
        let mut parts = chunks(half).unwrap();
        assert_eq!(parts.next().unwrap().unwrap(), b"half");
        assert_eq!(parts.next().unwrap().unwrap_err().to_string(), "the disk failed");
        assert!(parts.next().is_none());
    }

    #[test]
    fn a_thread_that_panics_ends_the_parts_with_an_error() {
        let mut parts = chunks(|out| {
            let _ = out.write_all(b"half");
            assert!(out.write_all(b"").is_err(), "on purpose");
            Ok::<_, io::Error>(())
        })
        .unwrap();
        let last = parts.by_ref().last().unwrap();
        assert!(last.unwrap_err().to_string().contains("has ended"));
    }

    #[test]
    fn the_thread_ends_when_its_reader_is_dropped() {
        let (ended, both) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let (mark, wait) = (ended.clone(), both.clone());
        let parts = chunks(move |out| {
            while out.write_all(&[0; 1_000]).is_ok() {}
            mark.store(true, Ordering::SeqCst);
            wait.wait();
            Ok::<_, io::Error>(())
        });
        drop(parts);
        both.wait();
        assert!(ended.load(Ordering::SeqCst));
    }
}
