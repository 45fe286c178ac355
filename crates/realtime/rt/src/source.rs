//! Variables of another process that comes and goes: one thread looks after the connection, and readers, who may be real
//! time, never ask anybody.

use crate::variables::{Imports, stale_after};
use base::{DurNs, MonoNs};
use ring::Reading;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How often a connection is looked after: whether its process lives, whether there is a new one.
pub const LOOK_AFTER: DurNs = DurNs::from_ms(500);

/// What somebody exports under one name; shared by all who read it.
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
    /// Segments of before stay mapped: unmapping would interrupt every CPU of this process, the real-time ones too.
    before: Vec<Arc<Imports>>,
    looked: Option<MonoNs>,
}

impl Source {
    /// A source that nobody has looked after yet.
    #[must_use]
    pub fn new(name: &str) -> Arc<Self> {
        let (generation, alive) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { name: name.to_owned(), generation, alive, held: Mutex::default() })
    }

    /// Under which name it exports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the process that exports was there when it was looked after last.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Connects where nobody is connected, and notices where the process has died, at most every [`LOOK_AFTER`]. Asks
    /// another process: never on a real-time thread.
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

/// One variable of a source, as one reader sees it.
#[derive(Debug)]
pub struct SourceView {
    source: Arc<Source>,
    name: String,
    generation: u64,
    imports: Option<Arc<Imports>>,
    index: Option<usize>,
}

impl SourceView {
    /// A view of variable `name`, which need not be there yet.
    #[must_use]
    pub fn new(source: &Arc<Source>, name: &str) -> Self {
        let source = source.clone();
        Self { source, name: name.to_owned(), generation: 0, imports: None, index: None }
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// What stands there now, also after the process has died; `None` if there never was such a variable.
    ///
    /// Real-time: neither allocates, nor blocks, nor asks anybody; after a new connection it looks the name up once.
    pub fn read(&mut self) -> Option<Reading> {
        let generation = self.source.generation.load(Ordering::Acquire);
        // Never waits: while the connection is being looked after, that of before is read once more. The one given up
        // here is kept by the source, so nothing is freed.
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

    /// How old what [`read`](Self::read) has given may be before it is stale, where the exporter says how often it writes.
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
    fn readers_see_a_process_come_and_go_only_when_somebody_looks_after_it() {
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
        assert!(view.read().is_none(), "it is not asked more often than every half a second");
        now = now + LOOK_AFTER;
        source.look_after(now);
        assert!(source.is_alive());
        assert_eq!(view.read().map(|read| (read.value, read.pulse)), Some((Number::Float(2.5), 9)));
    }
}
