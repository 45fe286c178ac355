//! Variables of another process, which may start and end at any time. One thread maintains the connection. Readers, which
//! may be real-time threads, never communicate with another process.

use crate::variables::{Imports, stale_after};
use base::{DurNs, MonoNs};
use ring::Reading;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum time between checks of a connection: whether its process is alive, and whether a new one exports the name.
pub const LOOK_AFTER: DurNs = DurNs::from_ms(500);

/// The variables that are exported under one name, shared by all readers.
#[derive(Debug)]
pub struct Source {
    name: String,
    /// Changes with each connection.
    generation: AtomicU64,
    alive: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    now: Option<Arc<Imports>>,
    /// Previous segments stay mapped, because unmapping would interrupt every CPU of this process, including the real-time
    /// ones.
    before: Vec<Arc<Imports>>,
    looked: Option<MonoNs>,
}

impl Source {
    /// A source that is not connected yet.
    #[must_use]
    pub fn new(name: &str) -> Arc<Self> {
        let (generation, alive) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { name: name.to_owned(), generation, alive, held: Mutex::default() })
    }

    /// Name of the exported segment.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the exporting process was alive at the last [`look_after`](Self::look_after).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Connects if there is no connection, and detects whether the process has died, at most every [`LOOK_AFTER`].
    /// Communicates with another process, so a real-time thread must not call it.
    pub fn look_after(&self, now: MonoNs) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.looked.is_some_and(|looked| now - looked < LOOK_AFTER) {
            return;
        }
        held.looked = Some(now);
        if held.now.as_ref().is_some_and(|imports| imports.is_alive()) {
            return;
        }
        self.alive.store(false, Ordering::Release);
        if let Ok(imports) = Imports::open(&self.name) {
            let before = held.now.replace(Arc::new(imports));
            held.before.extend(before);
            self.generation.fetch_add(1, Ordering::Release);
            self.alive.store(true, Ordering::Release);
        }
    }
}

/// A reader's view of one variable of a source.
#[derive(Debug)]
pub struct SourceView {
    source: Arc<Source>,
    name: String,
    generation: u64,
    imports: Option<Arc<Imports>>,
    index: Option<usize>,
}

impl SourceView {
    /// A view of the variable `name`, which need not exist yet.
    #[must_use]
    pub fn new(source: &Arc<Source>, name: &str) -> Self {
        let source = source.clone();
        Self { source, name: name.to_owned(), generation: 0, imports: None, index: None }
    }

    /// The source of the variable.
    #[must_use]
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The present value, which remains after the process has died. `None` if the variable has never existed.
    ///
    /// Real-time: neither allocates, blocks, nor communicates with another process. Looks up the name once after a new
    /// connection.
    pub fn read(&mut self) -> Option<Reading> {
        let generation = self.source.generation.load(Ordering::Acquire);
        // Never waits. If the connection is being maintained at this moment, the previous one is read once more. The source
        // keeps the previous one, so dropping the reference here frees no memory.
        if generation != self.generation
            && let Ok(held) = self.source.held.try_lock()
        {
            self.imports.clone_from(&held.now);
            (self.generation, self.index) = (generation, None);
        }
        let segment = self.imports.as_ref()?.segment().ok()?;
        if self.index.is_none() {
            self.index = segment.find(&self.name);
        }
        segment.get(self.index?)
    }

    /// Maximum age of a value from [`read`](Self::read) before it is stale, if the exporter has set its period.
    ///
    /// Real-time: neither allocates nor blocks.
    #[must_use]
    pub fn stale_after(&self) -> Option<DurNs> {
        self.imports.as_ref()?.segment().ok()?.period().map(stale_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exports, Number, VariableSpec};

    #[test]
    fn readers_see_a_process_appear_only_after_its_source_was_polled() {
        let name = format!("source-{}", std::process::id());
        let source = Source::new(&name);
        let mut view = SourceView::new(&source, "voltage");
        let mut now = MonoNs(1);
        source.look_after(now);
        assert!(view.read().is_none() && !source.is_alive());
        let exports = Exports::open(&name, 1).unwrap();
        let first = Number::Float(0.0);
        let index = exports.add(&VariableSpec { name: "voltage", unit: "MV", first, safe: None }).unwrap();
        exports.set(index, Number::Float(2.5), 9, MonoNs(1));
        source.look_after(now);
        assert!(view.read().is_none(), "it is searched at most every half a second");
        now = now + LOOK_AFTER;
        source.look_after(now);
        assert!(source.is_alive());
        assert_eq!(view.read().map(|read| (read.value, read.pulse)), Some((Number::Float(2.5), 9)));
    }
}
