//! Variables of another process, which may start and end at any time. One thread maintains the connection. Readers, which
//! may be real-time threads, never communicate with another process.

use crate::variables::{Imports, stale_after};
use base::{DurNs, MonoNs};
use ring::Reading;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Minimum time between checks of a connection: whether its process is alive, and whether a new one exports the name.
pub const LOOK_AFTER: DurNs = DurNs::from_ms(500);

/// The variables that are exported under one name, shared by all readers.
#[derive(Debug)]
pub struct Source {
    name: String,
    alive: AtomicBool,
    first: OnceLock<Arc<Connection>>,
    kept: Mutex<Cache>,
}

/// A connection to an exporting process. Readers follow the list to its end without waiting. Previous segments stay
/// mapped, because unmapping would interrupt every CPU of this process, including the real-time ones.
#[derive(Debug)]
struct Connection {
    imports: Imports,
    next: OnceLock<Arc<Self>>,
}

#[derive(Debug, Default)]
struct Cache {
    newest: Option<Arc<Connection>>,
    looked: Option<MonoNs>,
}

impl Source {
    /// A source that is not connected yet.
    #[must_use]
    pub fn new(name: &str) -> Arc<Self> {
        let (alive, first) = (AtomicBool::new(false), OnceLock::new());
        Arc::new(Self { name: name.to_owned(), alive, first, kept: Mutex::default() })
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
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.looked.is_some_and(|looked| now - looked < LOOK_AFTER) {
            return;
        }
        kept.looked = Some(now);
        if kept.newest.as_ref().is_some_and(|connection| connection.imports.is_alive()) {
            return;
        }
        self.alive.store(false, Ordering::Release);
        if let Ok(imports) = Imports::open(&self.name) {
            let connection = Arc::new(Connection { imports, next: OnceLock::new() });
            let place = kept.newest.as_ref().map_or(&self.first, |newest| &newest.next);
            // It is empty: connections are added here only, under the lock.
            let _ = place.set(connection.clone());
            kept.newest = Some(connection);
            self.alive.store(true, Ordering::Release);
        }
    }
}

/// A reader's view of one variable of a source.
#[derive(Debug)]
pub struct SourceView {
    source: Arc<Source>,
    name: String,
    connection: Option<Arc<Connection>>,
    index: Option<usize>,
}

impl SourceView {
    /// A view of the variable `name`, which need not exist yet.
    #[must_use]
    pub fn new(source: &Arc<Source>, name: &str) -> Self {
        Self { source: source.clone(), name: name.to_owned(), connection: None, index: None }
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
        // The source keeps all connections, so dropping a reference here frees no memory.
        while let Some(newer) = self.connection.as_ref().map_or(&self.source.first, |known| &known.next).get().cloned()
        {
            (self.connection, self.index) = (Some(newer), None);
        }
        let segment = self.connection.as_ref()?.imports.segment().ok()?;
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
        self.connection.as_ref()?.imports.segment().ok()?.period().map(stale_after)
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

    #[test]
    fn a_reader_sees_a_new_connection_while_another_thread_looks_after_it() {
        let name = format!("busy-{}", std::process::id());
        let source = Source::new(&name);
        let mut view = SourceView::new(&source, "voltage");
        let exports = Exports::open(&name, 1).unwrap();
        let first = Number::Float(0.0);
        let index = exports.add(&VariableSpec { name: "voltage", unit: "MV", first, safe: None }).unwrap();
        exports.set(index, Number::Float(2.5), 9, MonoNs(1));
        source.look_after(MonoNs(1));
        // A record that is processed once for each new value would keep the previous one.
        let _busy = source.kept.lock().unwrap();
        assert_eq!(view.read().map(|read| read.value), Some(Number::Float(2.5)));
    }
}
