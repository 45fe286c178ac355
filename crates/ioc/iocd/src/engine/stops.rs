//! Lock sets with breakpoints: a thread for each, to which the engine lends the database.
//!
//! The engine waits while such a lock set is processed, up to the next stop, as it waits while others are; never for the
//! person at the breakpoint.

use super::{Engine, now};
use db::{Db, Hook, Now, RecId, Stop};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How a record is printed.
pub(crate) type Print = fn(&mut Db, &str) -> String;

/// Why there is no breakpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BreakError {
    #[error("{record} is scanned by a thread of its own (--scan): a stop there would be one of its scans")]
    OtherOwner { record: String },
    #[error("no thread for breakpoints: {0}")]
    Thread(io::Error),
}

/// The database on its way to a thread.
type Lent = (Box<Db>, Now);
/// The database on its way back, and whether the lock set has no breakpoints any more.
type Back = (Box<Db>, bool);

/// The engine's end of a thread that processes a lock set with breakpoints.
pub(super) struct Stepper {
    number: u32,
    /// For a lock set that does not stand.
    start: SyncSender<Lent>,
    /// For one that does.
    resume: SyncSender<Lent>,
    back: Receiver<Back>,
    /// Takes the database's place while that is lent.
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

/// At a stop the database goes back to the engine, and is waited for.
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
                    // The IOC has ended, and the database with it: the stack has nothing to go on with.
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
    // Nobody may be left to read it.
    let _ = sys::out::tell(format_args!("{text}"));
}

impl Engine {
    /// Sets a breakpoint; whether there was none yet.
    ///
    /// # Errors
    /// When the record is another owner's, or there can be no thread for its lock set.
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

    /// Lets a lock set that stands go on to its next breakpoint, or to its next record.
    pub(crate) fn go_on(&mut self, number: u32, step: bool) {
        self.store.db.go_on(number, step);
        self.lend(number, true);
    }

    /// Processes what waits of lock sets with breakpoints, up to where they stop.
    pub(super) fn run_stops(&mut self) {
        while let Some(number) = self.store.db.stop_due() {
            if !self.lend(number, false) {
                break;
            }
        }
    }

    /// Lends the database to the thread of a lock set until that stops or is through; whether that was possible.
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
