//! Ways to end the IOC other than the command `exit`: the subroutine `exit` of `sub` records, as in softIoc's exit record,
//! and the signals SIGTERM, SIGINT and SIGHUP. Each saves the same data as `exit`.

use crate::autosave::Autosave;
use crate::engine::Mailbox;
use db::Function;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use sys::signal::{SIGTERM, SignalFd, end_signals};

/// Data to be written before the IOC ends: autosave's last values, then the put log.
#[derive(Clone, Default)]
pub(super) struct Ending {
    /// The IOC; empty until it runs.
    pub(super) ioc: Arc<OnceLock<Mailbox>>,
    /// Autosave; empty if no set was created.
    pub(super) saver: Arc<OnceLock<Autosave>>,
}

impl Ending {
    /// Writes all data and ends the engine. Blocks until the data are written.
    pub(super) fn finish(&self) {
        if let Some(saver) = self.saver.get() {
            saver.stop();
        }
        if let Some(mailbox) = self.ioc.get() {
            // If the engine has ended, its put log was dropped, which wrote the remaining entries.
            let _ = mailbox.ask(|engine| {
                engine.store.put_log = None;
                engine.stop();
            });
        }
    }

    fn exit(&self, code: i32) -> ! {
        self.finish();
        super::terminal::restore();
        std::process::exit(code);
    }
}

/// The subroutine `exit`, which is effective once the IOC runs. Field A is the exit status: 0 for success, otherwise failure.
pub(super) fn function(ending: Ending) -> Function {
    let asked = AtomicBool::new(false);
    Function::Sub(Arc::new(move |call| {
        let failure = call.inputs[0] != 0.0;
        if ending.ioc.get().is_some() && !asked.swap(true, Ordering::Relaxed) {
            let ending = ending.clone();
            // This runs on the engine's thread, whose pass must end first.
            let ends = std::thread::Builder::new().name("ioc-exit".into()).spawn(move || {
                ending.exit(i32::from(failure));
            });
            return if ends.is_ok() { 0 } else { -1 };
        }
        0
    }))
}

/// Signals that end the process, blocked until they are handled.
pub(super) struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals on this thread and on threads started later. Ignored signals stay ignored, so a program run by
    /// `nohup` outlives its terminal.
    pub(super) fn hold() -> sys::Result<Self> {
        SignalFd::new(&end_signals()).map(Self)
    }

    /// From now on, a signal ends the process like `exit`. The status is success for SIGTERM, otherwise that of a shell for
    /// signals.
    pub(super) fn end(self, ending: Ending) -> io::Result<()> {
        std::thread::Builder::new().name("ioc-signals".into()).spawn(move || {
            let signal = loop {
                match (poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None), self.0.read()) {
                    (_, Ok(Some(arrived))) => break arrived.signal,
                    (Err(rustix::io::Errno::INTR), _) | (Ok(_), Ok(None)) => {}
                    // No further signals can be received.
                    _ => return,
                }
            };
            ending.exit(if signal == SIGTERM { 0 } else { 128 + signal });
        })?;
        Ok(())
    }
}
