//! Threads that write status information of the IOC to records once a second.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::rounds::Rounds;

/// Update period.
const PERIOD: Duration = Duration::from_secs(1);

/// A thread that updates records until it is stopped.
pub(crate) struct Publisher {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Publisher {
    /// Starts a thread that calls `publish` each second until it returns `false`, because the IOC has ended.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(name: &str, mut publish: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let rounds = Rounds::watch(name, crate::SLOW_HANGS_AFTER);
        let run = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) && publish() {
                rounds.count();
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
