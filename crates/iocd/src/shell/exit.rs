//! The subroutine `exit` of `sub` records: ends the IOC from within, as softIoc's exit record does.

use crate::engine::{Engine, Mailbox};
use db::{Db, Function};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Whom to ask to stop, known once the IOC runs.
pub(super) struct Exit(Arc<OnceLock<Mailbox>>);

impl Exit {
    /// Makes the function known to records. Field A is what the process ends with: 0 for success, else failure.
    pub(super) fn register(db: &mut Db) -> Self {
        let mailbox: Arc<OnceLock<Mailbox>> = Arc::default();
        let known = Arc::clone(&mailbox);
        let asked = AtomicBool::new(false);
        let function = Function::Sub(Arc::new(move |call| {
            let failure = call.inputs[0] != 0.0;
            if let Some(mailbox) = known.get()
                && !asked.swap(true, Ordering::Relaxed)
            {
                let mailbox = mailbox.clone();
                // The engine's thread, on which this runs, has to end its pass first.
                let ends = std::thread::Builder::new().name("ioc-exit".into()).spawn(move || {
                    let _ = mailbox.ask(Engine::stop);
                    std::process::exit(i32::from(failure));
                });
                return if ends.is_ok() { 0 } else { -1 };
            }
            0
        }));
        db.register_function("exit", function);
        Self(mailbox)
    }

    /// From now on the function ends the process.
    pub(super) fn may_ask(self, mailbox: Mailbox) {
        // It is empty: one IOC is started once.
        let _ = self.0.set(mailbox);
    }
}
