//! Writes to an output that may block: a stopped terminal (Ctrl-S), a pipe without a reader, a hanging disk. A separate
//! thread writes, so callers never wait. Text that does not fit into the queue is lost and counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Maximum number of queued pieces.
const PIECES_MAX: usize = 1024;

/// Maximum time for which dropping the sink waits for queued pieces.
const LAST_WITHIN: Duration = Duration::from_secs(2);

/// The sending end. Dropping it waits for the queued pieces, at most [`LAST_WITHIN`].
#[derive(Debug)]
pub(super) struct Sink {
    pieces: Option<SyncSender<Vec<u8>>>,
    over: Receiver<()>,
    lost: Arc<AtomicU64>,
}

impl Sink {
    /// Starts to write to `to`. If the thread cannot be created, everything is lost and counted.
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
            // The send fails only if the sink has been dropped without waiting to the end.
            let _ = tells.send(());
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        Self { pieces: thread.is_ok().then_some(pieces), over, lost }
    }

    /// Queues text. Never waits.
    pub(super) fn say(&self, text: String) {
        if self.pieces.as_ref().is_none_or(|pieces| pieces.try_send(text.into_bytes()).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of pieces lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.pieces.take().is_some() {
            // A blocked thread is abandoned.
            let _ = self.over.recv_timeout(LAST_WITHIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// A writer that blocks until it is released.
    struct Stopped(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // The end of the test also releases it.
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stopped_terminal_does_not_block_the_supervisor_and_lost_pieces_are_counted() {
        let (go, waits) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink::new("test", Stopped(waits, written.clone()));
        // The thread takes one piece, now or later; the others stay queued.
        (0..PIECES_MAX + 100).for_each(|_| sink.say("x".to_owned()));
        assert!((99..=100).contains(&sink.lost()), "{}", sink.lost());
        drop(go);
        drop(sink);
        assert!((PIECES_MAX..=PIECES_MAX + 1).contains(&written.lock().unwrap().len()));
    }
}
