//! Ends of the IOC besides the command: the subroutine `exit` of `sub` records, as softIoc's exit record has it, and
//! SIGTERM.

use crate::engine::{Engine, Mailbox};
use db::Function;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use sys::signal::{SIGTERM, SignalFd};

/// The subroutine `exit`, once the IOC runs. Field A is what the process ends with: 0 for success, else failure.
pub(super) fn function(ioc: Arc<OnceLock<Mailbox>>) -> Function {
    let asked = AtomicBool::new(false);
    Function::Sub(Arc::new(move |call| {
        let failure = call.inputs[0] != 0.0;
        if let Some(mailbox) = ioc.get()
            && !asked.swap(true, Ordering::Relaxed)
        {
            let mailbox = mailbox.clone();
            // The engine's thread, on which this runs, has to end its pass first.
            let ends = std::thread::Builder::new().name("ioc-exit".into()).spawn(move || {
                let _ = mailbox.ask(Engine::stop);
                super::terminal::restore();
                std::process::exit(i32::from(failure));
            });
            return if ends.is_ok() { 0 } else { -1 };
        }
        0
    }))
}

/// SIGTERM, kept from ending the process before it has been asked to.
pub(super) struct Term(SignalFd);

impl Term {
    /// Keeps the signal back, on this thread and those that it starts from now on.
    pub(super) fn hold() -> sys::Result<Self> {
        SignalFd::new(&[SIGTERM]).map(Self)
    }

    /// From now on the signal ends the process as `exit` does.
    pub(super) fn end(self, mailbox: Mailbox) -> io::Result<()> {
        std::thread::Builder::new().name("ioc-term".into()).spawn(move || {
            loop {
                match (poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None), self.0.read()) {
                    (_, Ok(Some(_))) => break,
                    (Err(rustix::io::Errno::INTR), _) | (Ok(_), Ok(None)) => {}
                    // Nothing can be heard any more.
                    _ => return,
                }
            }
            let _ = mailbox.ask(Engine::stop);
            super::terminal::restore();
            std::process::exit(0);
        })?;
        Ok(())
    }
}
