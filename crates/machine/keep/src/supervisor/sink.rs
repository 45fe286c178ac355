//! Writing to what may not take it: a terminal that is stopped (Ctrl-S), a pipe that nobody reads, a disk that hangs.
//! A thread writes; whoever has something to say never waits, and what does not fit in is lost and counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Pieces that may wait.
const PIECES_MAX: usize = 1024;

/// How long the end waits for what is on its way.
const LAST_WITHIN: Duration = Duration::from_secs(2);

/// The near end. Dropping it waits for what is on its way, [`LAST_WITHIN`] at most.
#[derive(Debug)]
pub(super) struct Sink {
    pieces: Option<SyncSender<Vec<u8>>>,
    over: Receiver<()>,
    lost: Arc<AtomicU64>,
}

impl Sink {
    /// Begins to write to `to`. Where there can be no thread everything is lost, and counted.
    pub(super) fn new(name: &str, mut to: impl Write + Send + 'static) -> Self {
        let (pieces, arriving) = sync_channel::<Vec<u8>>(PIECES_MAX);
        let (tells, over) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let counts = lost.clone();
        let work = move || {
            for piece in arriving {
                if to.write_all(&piece).and_then(|()| to.flush()).is_err() {
                    counts.fetch_add(1, Ordering::Relaxed);
                }
            }
            // Nobody waits only if the end did not.
            let _ = tells.send(());
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        Self { pieces: thread.is_ok().then_some(pieces), over, lost }
    }

    /// Says something; never waits.
    pub(super) fn say(&self, text: String) {
        if self.pieces.as_ref().is_none_or(|pieces| pieces.try_send(text.into_bytes()).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pieces that were not written so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.pieces.take().is_some() {
            // What hangs is left behind.
            let _ = self.over.recv_timeout(LAST_WITHIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// Takes nothing until it is let.
    struct Stopped(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // An end of the test lets it, too.
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_that_is_stopped_holds_up_nobody_and_what_does_not_fit_in_is_counted() {
        let (go, waits) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink::new("test", Stopped(waits, written.clone()));
        // One is at hand, or will be; the others wait.
        (0..PIECES_MAX + 100).for_each(|_| sink.say("x".to_owned()));
        assert!((99..=100).contains(&sink.lost()), "{}", sink.lost());
        drop(go);
        drop(sink);
        assert!((PIECES_MAX..=PIECES_MAX + 1).contains(&written.lock().unwrap().len()));
    }
}
