//! A loop page in shared memory: handed over by who started the process, or its own.

use ring::{LOOP_FD, LOOP_PAGE_WORDS, LayoutError, LoopPage};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use sys::shm::SharedWords;

/// A mapped loop page. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct SharedPage {
    words: Arc<SharedWords>,
}

/// Why there is no loop page.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageError {
    /// [`LOOP_FD`] holds no number.
    #[error("{LOOP_FD}={0:?}: expected the number of an open descriptor; unset it to run alone")]
    Variable(String),
    /// The kernel refused.
    #[error("loop page: {0}")]
    Kernel(#[from] sys::Error),
    /// What was handed over is no loop page.
    #[error("loop page: {0}; unset {LOOP_FD} to run alone")]
    Layout(#[from] LayoutError),
}

impl SharedPage {
    /// Makes a page, for a loop of this process or for one that will be started with its descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn own(name: &str) -> Result<Self, PageError> {
        let words = SharedWords::create(&format!("tahti-loop-{name}"), LOOP_PAGE_WORDS)?;
        LoopPage::format(words.words())?;
        Ok(Self { words: Arc::new(words) })
    }

    /// The page that this process was started with ([`LOOP_FD`]), else one of its own.
    ///
    /// # Errors
    /// A variable that is set but leads to no loop page: the one who set it waits for heartbeats there.
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
    /// Never: it was checked when it was made or taken over, and whoever could damage it since has the
    /// descriptor; then the damaged page is made anew, empty.
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
