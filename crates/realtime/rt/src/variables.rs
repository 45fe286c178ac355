//! Exported variables: variables of a real-time process that other processes can read by name.
//!
//! [`ring::Variables`] describes the segment. It is handed over at the socket `tahti-variables-NAME`.

use crate::scope::{Sampler, Shared};
use crate::share::ShareError;
use base::{DurNs, MonoNs};
use ring::{Number, Reading, VariableSpec, Variables};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use sys::shm::{ReadWords, SharedWords};

fn address(name: &str) -> String {
    format!("tahti-variables-{name}")
}

/// Number of samples kept of each variable for clients that need every sample (the archive): 0.25 s of a loop at 1 kHz.
const SAMPLES: usize = 256;
/// Maximum size of all samples of a segment, in bytes. With many variables, fewer samples of each are kept.
const SAMPLE_BYTES: usize = 1 << 20;
/// Size of a sample, in bytes.
const SAMPLE: usize = 32;

/// Number of samples kept of each of `count` variables; a power of two.
fn samples_of(count: usize) -> usize {
    let each = (SAMPLE_BYTES / SAMPLE / count.max(1)).clamp(8, SAMPLES);
    1 << each.ilog2()
}

/// The variables exported by this process. Clones share them.
///
/// ```
/// use base::MonoNs;
/// use rt::{Exports, Imports, Number, VariableSpec};
///
/// let name = format!("doc-{}", std::process::id());
/// let exports = Exports::open(&name, 1)?;
/// let current = exports.add(&VariableSpec { name: "current", unit: "mA", first: Number::Float(0.0), safe: None })?;
/// exports.set(current, Number::Float(99.5), 1, MonoNs(1));
///
/// // Any process of the machine with the same user:
/// let imports = Imports::open(&name)?;
/// assert_eq!(imports.get("current").unwrap().value, Number::Float(99.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Exports {
    name: Arc<str>,
    words: Arc<SharedWords>,
    /// Opened when a thread asks for the sampler for the first time.
    scope: Arc<Mutex<Option<Arc<Shared>>>>,
}

impl Exports {
    /// Opens a segment for `count` variables with a name on this machine. A non-real-time thread hands it out. The last 256
    /// samples of each variable are kept, or fewer with more than 128 variables.
    ///
    /// # Errors
    /// The kernel's error, or another process exports under this name.
    pub fn open(name: &str, count: usize) -> Result<Self, ShareError> {
        Self::open_keeping(name, count, samples_of(count))
    }

    /// As [`open`](Self::open), but keeps the last `samples` samples of each variable, for clients that need every sample.
    /// `samples` is 0 or a power of two. Each sample takes 32 bytes.
    ///
    /// # Errors
    /// The kernel's error, another process exports under this name, or `samples` is not allowed.
    pub fn open_keeping(name: &str, count: usize, samples: usize) -> Result<Self, ShareError> {
        let refused = |error| ShareError::Export { name: name.to_owned(), error };
        let words =
            SharedWords::create("tahti-variables", Variables::words_keeping(count, samples)).map_err(refused)?;
        Variables::format_keeping(words.words(), samples)?;
        let exports = Self { name: name.into(), words: Arc::new(words), scope: Arc::default() };
        let fd = exports.words.read_only().map_err(refused)?;
        crate::share::offer_at(&address(name), fd).map_err(refused)?;
        Ok(exports)
    }

    /// Adds a variable and returns its index.
    ///
    /// # Errors
    /// There is no room, or its name or unit is too long, or its name is taken.
    pub fn add(&self, spec: &VariableSpec<'_>) -> Result<usize, ShareError> {
        self.segment().add(spec).ok_or_else(|| ShareError::Variable { name: spec.name.to_owned() })
    }

    /// Sets the maximum time between writes of a variable. Its readers treat a value as stale after [`stale_after`] this
    /// period. A frame sets its major frame for its activities.
    pub fn set_period(&self, period: DurNs) {
        self.segment().set_period(period);
    }

    /// Writes a variable. A value of another type than the variable's is refused. To be called from one thread.
    ///
    /// Real-time: a few stores.
    pub fn set(&self, index: usize, value: Number, pulse: u64, now: MonoNs) -> bool {
        self.segment().set(index, value, pulse, now)
    }

    /// Puts the safe values of all variables that have one in force, or withdraws them.
    ///
    /// Real-time: a store for each variable.
    pub(crate) fn stand_safe(&self, safe: bool) {
        self.segment().stand_safe(safe);
    }

    /// Creates the sampler of the variables for the [oscilloscope](crate::scope). It is used by the loop that writes them,
    /// at the end of each of its cycles. [`LoopSpec::exports`](crate::LoopSpec) and
    /// [`Member::join`](crate::frames::Member::join) create it themselves. A non-real-time thread receives requests. The
    /// memory is created for the first client. A real-time thread must not call this.
    ///
    /// # Errors
    /// Another thread samples the variables, or the kernel's error.
    pub fn sampler(&self) -> Result<Sampler, ShareError> {
        // A poisoned lock is harmless, because the option only ever holds complete values.
        let mut scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match &*scope {
            Some(shared) => shared.clone(),
            None => scope.insert(Shared::open(&self.name, self.words.clone())?).clone(),
        };
        Sampler::new(shared).ok_or_else(|| ShareError::Sampled { name: self.name.to_string() })
    }

    /// The segment's descriptor.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }

    fn segment(&self) -> Variables<'_> {
        Variables::attach(self.words.words()).expect("made by `open`, and only its own entries are written since")
    }
}

/// Maximum age of a value with this period before it is stale: two periods plus 10 ms.
#[must_use]
pub const fn stale_after(period: DurNs) -> DurNs {
    DurNs(period.0.saturating_mul(2).saturating_add(10_000_000))
}

/// The variables of another process.
#[derive(Debug)]
pub struct Imports {
    words: ReadWords,
    connection: OwnedFd,
}

impl Imports {
    /// Opens the variables that are exported under a name.
    ///
    /// # Errors
    /// No process exports this name.
    pub fn open(name: &str) -> Result<Self, ShareError> {
        let refused = |error| ShareError::NotExported { name: name.to_owned(), error };
        let (fd, connection) = sys::handover::ask(&address(name)).map_err(refused)?;
        let words = SharedWords::attach_read_only(fd)?;
        Variables::attach(words.words())?;
        Ok(Self { words, connection })
    }

    /// The segment of variables.
    ///
    /// # Errors
    /// Its owner has damaged it.
    pub fn segment(&self) -> Result<Variables<'_>, ring::LayoutError> {
        Variables::attach(self.words.words())
    }

    /// Reads a variable by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Reading> {
        let segment = self.segment().ok()?;
        segment.get(segment.find(name)?)
    }

    /// Whether the exporting process is alive. Its last values remain readable, but become stale.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        sys::handover::is_alive(self.connection.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_variable_is_read_by_name() {
        let name = format!("test-{}", std::process::id());
        let exports = Exports::open(&name, 4).unwrap();
        assert!(Exports::open(&name, 4).unwrap_err().to_string().contains("Address already in use"));
        let spec = VariableSpec { name: "voltage", unit: "MV", first: Number::Float(0.0), safe: None };
        let index = exports.add(&spec).unwrap();
        assert!(exports.set(index, Number::Float(2.5), 9, MonoNs(1)));
        let imports = Imports::open(&name).unwrap();
        assert_eq!(imports.get("voltage").map(|read| (read.value, read.pulse)), Some((Number::Float(2.5), 9)));
        assert!(imports.is_alive() && imports.get("current").is_none());
        assert!(Imports::open("not-exported").unwrap_err().to_string().contains("expected a running process"));
    }
}
