//! What is written becomes what is asked for, piece by piece: a thread writes, and waits while nobody asks.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use web::Parts;

/// Pieces that are made before they are asked for.
const AHEAD: usize = 2;

enum Piece {
    Bytes(Vec<u8>),
    Failed(String),
    /// All was written. Who only stops has not come to the end.
    End,
}

/// The pieces that `write` makes, on a thread of its own, which ends when nobody asks any more. Returns when the first piece is
/// there.
///
/// # Errors
/// Of kind [`io::ErrorKind::Other`], why nothing was written; of other kinds, why there is no thread.
pub(crate) fn pieces<E: Display>(
    write: impl FnOnce(&mut dyn Write) -> Result<(), E> + Send + 'static,
) -> io::Result<Parts> {
    let (give, take) = sync_channel(AHEAD);
    let work = move || {
        let last = match write(&mut Giver(&give)) {
            Ok(()) => Piece::End,
            Err(error) => Piece::Failed(error.to_string()),
        };
        // Nobody asks any more.
        let _ = give.send(last);
    };
    thread::Builder::new().name("retrieval".into()).spawn(work)?;
    let first = match take.recv() {
        Ok(Piece::Failed(why)) => return Err(io::Error::other(why)),
        first => first.ok(),
    };
    Ok(Box::new(Taker { first, take, has_ended: false }))
}

/// What the thread writes to.
struct Giver<'a>(&'a SyncSender<Piece>);

impl Write for Giver<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(Piece::Bytes(bytes.to_vec()));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Taker {
    first: Option<Piece>,
    take: Receiver<Piece>,
    has_ended: bool,
}

impl Iterator for Taker {
    type Item = Result<Vec<u8>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let piece = self.first.take().or_else(|| self.take.recv().ok());
        let next = match piece {
            Some(Piece::Bytes(bytes)) => return Some(Ok(bytes)),
            Some(Piece::End) => None,
            Some(Piece::Failed(why)) => Some(Err(why)),
            None => Some(Err("the thread that reads the archive has ended".into())),
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
    fn what_is_written_comes_in_its_order_and_ends() {
        let parts = pieces(|out| (0..100u8).try_for_each(|byte| out.write_all(&[byte]))).unwrap();
        let all: Result<Vec<Vec<u8>>, String> = parts.collect();
        assert_eq!(all.unwrap().concat(), (0..100).collect::<Vec<u8>>());
        assert_eq!(pieces(|_| Ok::<_, io::Error>(())).unwrap().count(), 0);
    }

    #[test]
    fn what_fails_at_once_is_told_before_anything_is_answered_and_later_instead_of_an_end() {
        let error = pieces(|_| Err::<(), _>("the disk failed")).err().unwrap();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::Other, "the disk failed".into()));
        let half = |out: &mut dyn Write| {
            let _ = out.write_all(b"half");
            Err::<(), _>("the disk failed")
        };
        let mut parts = pieces(half).unwrap();
        assert_eq!(parts.next(), Some(Ok(b"half".to_vec())));
        assert_eq!((parts.next(), parts.next()), (Some(Err("the disk failed".into())), None));
    }

    #[test]
    fn a_thread_that_panics_is_no_end() {
        let mut parts = pieces(|out| {
            let _ = out.write_all(b"half");
            assert!(out.write_all(b"").is_err(), "on purpose");
            Ok::<_, io::Error>(())
        })
        .unwrap();
        let last = parts.by_ref().last().unwrap();
        assert!(last.unwrap_err().contains("has ended"));
    }

    #[test]
    fn the_thread_ends_when_nobody_asks_any_more() {
        let (ended, both) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let (mark, wait) = (ended.clone(), both.clone());
        let parts = pieces(move |out| {
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
