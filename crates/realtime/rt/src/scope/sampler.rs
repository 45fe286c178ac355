//! The loop's part of an oscilloscope.

use super::machine::{Cause, CycleInput, Machine, Phase};
use super::request::Setup;
use super::shared::Shared;
use base::MonoNs;
use ring::{Captures, Number, STATUS_WORDS, Variables, WritePosition};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::shm::SharedWords;

/// The command to stop sampling. Complete captures remain. All other commands are causes of a capture.
pub(super) const STOP: u8 = 255;

/// Samples exported variables once in each cycle for the clients of the oscilloscope. It is used by the loop that writes the
/// variables. Each segment of variables has at most one.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    state: State,
}

/// State of the loop.
#[derive(Debug, Default)]
struct State {
    /// Version of the setup in force; 0: none.
    version: u64,
    setup: Setup,
    machine: Machine,
    place: WritePosition,
    epoch: u64,
    commanded: u64,
    /// Marks of the cycles since the last row.
    marks: u64,
    told: (Phase, u64, u64),
}

impl Sampler {
    /// Creates the sampler; `None` if there already is one.
    pub(crate) fn new(shared: Arc<Shared>) -> Option<Self> {
        let taken = shared.taken.swap(true, Ordering::AcqRel);
        (!taken).then(|| Self { shared, state: State::default() })
    }

    /// Samples the requested variables at the end of a cycle. `marks` are the marks of the cycle ([`ring::marks`]), with the
    /// number of pulses skipped before it in the upper half.
    ///
    /// Real-time: neither allocates, waits nor makes a system call. Costs one load if there never was a client, and two if
    /// sampling is stopped. Otherwise it costs a load and a store for each variable, and about twenty more.
    pub fn cycle(&mut self, pulse: u64, at: MonoNs, marks: u64) {
        let Some(captures) = self.shared.memory.get() else { return };
        let state = &mut self.state;
        if captures.setup_version() != state.version {
            state.take(&self.shared, captures);
        }
        if state.machine.phase() != Phase::Stopped {
            state.sample(self.shared.variables.words(), captures, pulse, at, marks);
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some(captures) = self.shared.memory.get() {
            self.state.machine.stop();
            self.state.tell(captures);
        }
        self.shared.taken.store(false, Ordering::Release);
    }
}

impl State {
    /// Applies the requested setup.
    #[cold]
    fn take(&mut self, shared: &Shared, captures: &Captures<SharedWords>) {
        // If the setup is being written, the next cycle applies it.
        let Some((count, words)) = captures.setup() else { return };
        // An invalid setup is not tried again. The server checks setups, so it writes none.
        let version = captures.version_of(count);
        self.version = version;
        let Some(setup) = Setup::of(&words) else { return };
        let Some(division) = captures.divide(setup.count, setup.keep) else { return };
        let epoch = shared.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        let machine = Machine::new(setup.timing, setup.condition);
        let place = captures.begin_overwrite(division, 0, epoch << 32);
        *self = Self { version, setup, machine, place, epoch, commanded: setup.commanded, ..Self::default() };
        self.tell(captures);
    }

    fn sample(
        &mut self,
        variables: &ring::Words,
        captures: &Captures<SharedWords>,
        pulse: u64,
        at: MonoNs,
        marks: u64,
    ) {
        let mut force = None;
        let (word, what) = captures.commanded();
        if word != self.commanded {
            self.commanded = word;
            if what == STOP {
                self.machine.stop();
                return self.tell(captures);
            }
            force = Cause::of(what.into());
        }
        let (value, bits) = match self.setup.on.and_then(|on| Variables::peek(variables, on)) {
            Some((Number::Float(value), bits)) => (value, bits),
            Some((Number::Int(value), bits)) => (value as f64, bits),
            Some((Number::Bool(value), bits)) => (f64::from(u8::from(value)), bits),
            None => (f64::NAN, 0),
        };
        let step = self.machine.step(&CycleInput { pulse, marks, value, bits }, force);
        self.marks |= marks;
        if step.row {
            let wanted = &self.setup.channels[..self.setup.count];
            let values = wanted.iter().map(|index| Variables::peek_bits(variables, *index).unwrap_or(0));
            captures.push_overwrite(&mut self.place, [pulse, at.0, self.marks], values);
            self.marks = 0;
        }
        if let Some(cause) = step.trigger {
            captures.mark(&self.place, cause.code().into());
        }
        if step.complete {
            captures.complete(&self.place);
            self.next(captures);
        }
        if (self.machine.phase(), self.machine.captures(), self.machine.ignored()) != self.told {
            self.tell(captures);
        }
    }

    /// Starts the segment after a complete capture.
    #[cold]
    fn next(&mut self, captures: &Captures<SharedWords>) {
        let number = self.machine.captures();
        if self.machine.phase() != Phase::Stopped
            && let Some(division) = captures.divide(self.setup.count, self.setup.keep)
        {
            let index = (number % self.setup.keep.max(1) as u64) as usize;
            self.place = captures.begin_overwrite(division, index, self.epoch << 32 | number);
        }
    }

    /// Publishes the status.
    #[cold]
    fn tell(&mut self, captures: &Captures<SharedWords>) {
        let (phase, done, ignored) = (self.machine.phase(), self.machine.captures(), self.machine.ignored());
        self.told = (phase, done, ignored);
        let status: [u64; STATUS_WORDS] = [self.setup.id, self.epoch, phase as u64, done, ignored, 0];
        captures.set_status(status);
    }
}
