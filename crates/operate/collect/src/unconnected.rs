//! The list of signals and patterns whose source is not connected, for users.

/// Maximum names that are listed; the rest are counted.
const NAMES_MAX: usize = 3;

/// Collects signals and patterns of names.
#[derive(Debug, Default)]
pub(crate) struct Unconnected {
    all: usize,
    missing: usize,
    names: Vec<String>,
}

impl Unconnected {
    /// Adds a signal or a pattern of names. `name` is called if it is not connected and is listed.
    pub(crate) fn add(&mut self, is_connected: bool, name: impl FnOnce() -> String) {
        self.all += 1;
        if !is_connected {
            self.missing += 1;
            self.names.extend((self.missing <= NAMES_MAX).then(name));
        }
    }

    /// The list as text, such as `1 of 2 signals not connected: loops/llrf/*`. Empty if all are connected.
    pub(crate) fn text(&self) -> String {
        let Self { all, missing, names } = self;
        if *missing == 0 {
            return String::new();
        }
        let more = if *missing > NAMES_MAX { ", …" } else { "" };
        format!("{missing} of {all} signals not connected: {}{more}", names.join(", "))
    }
}

/// Whether a name fits a pattern.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    pattern == name || base::glob(pattern, name)
}
