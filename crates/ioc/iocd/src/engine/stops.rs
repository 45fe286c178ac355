//! Lock sets with breakpoints: the engine lends the database to a separate thread for each.
//!
//! The engine waits while such a lock set is processed up to its next stop, as for any other processing. It never waits for
//! the operator at the breakpoint.

use super::{Engine, now};
use db::{Db, Hook, Now, RecId, Stop};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Formats a record for printing.
pub(crate) type Print = fn(&mut Db, &str) -> String;

/// Reason why a breakpoint cannot be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BreakError {
    #[error("{record} is scanned by a separate thread (--scan): a breakpoint would stop its scans")]
    OtherOwner { record: String },
    #[error("no thread for breakpoints: {0}")]
    Thread(io::Error),
}

/// The database, lent to a thread.
type Lent = (Box<Db>, Now);
/// The returned database, and whether the lock set has no breakpoints left.
type Back = (Box<Db>, bool);

/// The engine's side of a thread that processes a lock set with breakpoints.
pub(super) struct Stepper {
    number: u32,
    /// Starts a lock set that is not stopped.
    start: SyncSender<Lent>,
    /// Resumes a lock set that is stopped.
    resume: SyncSender<Lent>,
    back: Receiver<Back>,
    /// Replaces the database while it is lent.
    stand_in: Option<Box<Db>>,
}

impl Stepper {
    fn spawn(number: u32, print: Print) -> io::Result<Self> {
        let (start, started) = sync_channel::<Lent>(1);
        let (resume, resumed) = sync_channel(1);
        let (sender, back) = sync_channel::<Back>(1);
        let mut hook = Some(hook(resumed, sender.clone(), print));
        let work = move || {
            while let (Ok((mut db, now)), Some(ready)) = (started.recv(), hook.take()) {
                let (ready, ended) = db.run_stops(number, now, ready);
                hook = ready;
                if ended {
                    say(&format!("\n   BKPT> End debug of lockset {number}\n-> "));
                }
                if sender.send((db, ended)).is_err() || ended {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("breakpoints".into()).spawn(work)?;
        Ok(Self { number, start, resume, back, stand_in: Some(Box::new(Db::new())) })
    }
}

/// Hook that returns the database to the engine at a stop and waits until it is lent again.
fn hook(resumed: Receiver<Lent>, back: SyncSender<Back>, print: Print) -> Hook {
    let mut stand_in = Some(Box::new(Db::new()));
    Box::new(move |db, stop| {
        match stop {
            Stop::Print(record) => {
                let name = db.name_of(record).to_owned();
                let text = print(db, &name);
                say(&format!("\n{text}-> "));
            }
            Stop::At { record, entry } => {
                let (record, entry) = (db.name_of(record), db.name_of(entry));
                say(&format!("\n   BKPT> Stopped at:  {record}  within Entrypoint:  {entry}\n-> "));
                let Some(mut home) = stand_in.take() else { return now() };
                std::mem::swap(db, &mut home);
                let lent =
                    if back.send((home, false)).is_ok() { resumed.recv() } else { Err(std::sync::mpsc::RecvError) };
                let Ok((mut home, now)) = lent else {
                    // The IOC has ended, and the database with it. This stack cannot continue.
                    loop {
                        std::thread::park();
                    }
                };
                std::mem::swap(db, &mut home);
                stand_in = Some(home);
                return now;
            }
        }
        now()
    })
}

fn say(text: &str) {
    // Output may be closed already.
    let _ = sys::out::tell(format_args!("{text}"));
}

impl Engine {
    /// Sets a breakpoint. Returns whether it is new.
    ///
    /// # Errors
    /// If another owner has the record, or the thread for its lock set cannot be created.
    pub(crate) fn set_break(&mut self, record: RecId, print: Print) -> Result<bool, BreakError> {
        if self.store.db.location_of(record).is_some() {
            return Err(BreakError::OtherOwner { record: self.store.db.name_of(record).to_string() });
        }
        let (fresh, number) = self.store.db.set_break(record);
        if let Some(number) = number {
            match Stepper::spawn(number, print) {
                Ok(stepper) => self.steppers.push(stepper),
                Err(error) => {
                    self.store.db.clear_break(record);
                    return Err(BreakError::Thread(error));
                }
            }
        }
        Ok(fresh)
    }

    /// Lets a stopped lock set continue to its next breakpoint, or with `step` to its next record.
    pub(crate) fn go_on(&mut self, number: u32, step: bool) {
        self.store.db.go_on(number, step);
        self.lend(number, true);
    }

    /// Processes lock sets with breakpoints that are due, up to their next stop.
    pub(super) fn run_stops(&mut self) {
        while let Some(number) = self.store.db.stop_due() {
            if !self.lend(number, false) {
                break;
            }
        }
    }

    /// Lends the database to the thread of a lock set until it stops or finishes. Returns whether that was possible.
    fn lend(&mut self, number: u32, stands: bool) -> bool {
        let Some(at) = self.steppers.iter().position(|stepper| stepper.number == number) else { return false };
        let stepper = &mut self.steppers[at];
        let Some(mut home) = stepper.stand_in.take() else { return false };
        std::mem::swap(&mut self.store.db, &mut home);
        let way = if stands { &stepper.resume } else { &stepper.start };
        let back = way.send((home, now())).ok().and_then(|()| stepper.back.recv().ok());
        let Some((mut home, ended)) = back else {
            eprintln!("processing behind a breakpoint has panicked: the IOC ends");
            self.stop();
            return false;
        };
        std::mem::swap(&mut self.store.db, &mut home);
        stepper.stand_in = Some(home);
        if ended {
            self.steppers.remove(at);
        }
        true
    }
}
