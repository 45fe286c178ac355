//! Faults of the parts of an IOC, for its supervisor. Clones share them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::notify::Supervisor;

/// Present faults, which the engine reports each second, and reports of what a part did not obtain, each by its part.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Reports>>);

#[derive(Debug, Default)]
struct Reports {
    present: BTreeMap<String, String>,
    lacks: BTreeMap<String, String>,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Reports> {
        // A panic while the lock is held cannot leave the maps inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the present fault of a part; `None` if it has none. With a fault, the plant is failed.
    pub(crate) fn set(&self, part: &str, fault: Option<String>) {
        let present = &mut self.lock().present;
        match fault {
            Some(fault) => drop(present.insert(part.to_owned(), fault)),
            None => drop(present.remove(part)),
        }
    }

    /// The present faults; `None` if there are none.
    pub(crate) fn text(&self) -> Option<String> {
        let reports = self.lock();
        let texts: Vec<&str> = reports.present.values().map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Reports something that a part did not obtain, which degrades the plant. Only the first report of a part is sent.
    pub(crate) fn lack(&self, part: &str, text: String) {
        let lacks = &mut self.lock().lacks;
        if lacks.contains_key(part) {
            return;
        }
        if !Supervisor::from_env().shortfall(&text) {
            eprintln!("not reported to the supervisor: {text}");
        }
        lacks.insert(part.to_owned(), text);
    }

    /// The reports of [`lack`](Self::lack).
    #[cfg(test)]
    pub(crate) fn lacks(&self) -> Vec<String> {
        self.lock().lacks.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_present_fault_and_one_report_of_what_it_lacks() {
        let faults = Faults::default();
        assert_eq!(faults.text(), None);
        faults.set("b", Some("disk full".into()));
        faults.set("a", Some("no server".into()));
        assert_eq!(faults.text().as_deref(), Some("no server; disk full"));
        faults.set("a", None);
        assert_eq!(faults.text().as_deref(), Some("disk full"));
        faults.lack("scan", "first".into());
        faults.clone().lack("scan", "second".into());
        assert_eq!(faults.lacks(), ["first"]);
    }
}
