//! A loop page in shared memory, inherited from the parent process or created by this one.

use ring::{LOOP_FD, LOOP_PAGE_WORDS, LayoutError, LoopPage};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use sys::shm::SharedWords;

/// A mapped loop page. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct SharedPage {
    words: Arc<SharedWords>,
}

/// Reason why there is no loop page.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageError {
    /// [`LOOP_FD`] is not a number.
    #[error("{LOOP_FD}={0:?}: expected the number of an open descriptor; unset it to run alone")]
    Variable(String),
    /// The kernel refused.
    #[error("loop page: {0}")]
    Kernel(#[from] sys::Error),
    /// The inherited memory is not a loop page.
    #[error("loop page: {0}; unset {LOOP_FD} to run alone")]
    Layout(#[from] LayoutError),
}

impl SharedPage {
    /// Creates a page, for a loop of this process or for a process that will inherit its descriptor.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn own(name: &str) -> Result<Self, PageError> {
        let words = SharedWords::create(&format!("tahti-loop-{name}"), LOOP_PAGE_WORDS)?;
        LoopPage::format(words.words())?;
        Ok(Self { words: Arc::new(words) })
    }

    /// The page that this process has inherited ([`LOOP_FD`]), otherwise a new one.
    ///
    /// # Errors
    /// The variable is set but does not lead to a loop page. This is an error because the parent process waits for
    /// heartbeats there.
    pub fn from_env_or_own(name: &str) -> Result<Self, PageError> {
        let Ok(text) = std::env::var(LOOP_FD) else { return Self::own(name) };
        let raw = text.parse().map_err(|_| PageError::Variable(text))?;
        let words = SharedWords::inherited(raw)?;
        LoopPage::attach(words.words())?;
        Ok(Self { words: Arc::new(words) })
    }

    /// The page, for readers.
    ///
    /// # Panics
    /// Never. The page was checked when it was created or inherited. If a process that has the descriptor has damaged it
    /// since, the page is formatted again and is empty.
    #[must_use]
    pub fn read(&self) -> LoopPage<'_> {
        match LoopPage::attach(self.words.words()) {
            Ok(page) => page,
            Err(_) => LoopPage::format(self.words.words()).expect("long enough: checked when it was mapped"),
        }
    }

    /// Its descriptor, to be handed to another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }
}
