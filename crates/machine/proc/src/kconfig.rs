//! The kernel's build configuration (`/proc/config.gz`, `/boot/config-…`).

/// A kernel configuration, searched in place.
#[derive(Clone, Copy, Debug)]
pub struct Kconfig<'a> {
    text: &'a str,
}

impl<'a> Kconfig<'a> {
    /// A configuration as `make` writes it.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// The value of `CONFIG_name`: `y`, `m`, a number, a quoted string; `None` if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.text.lines().find_map(|line| line.strip_prefix("CONFIG_")?.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether the kernel has an option of that name, set or not.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.get(name).is_some()
            || self.text.lines().any(|line| {
                let unset = line.strip_prefix("# CONFIG_").and_then(|line| line.strip_suffix(" is not set"));
                unset == Some(name)
            })
    }

    /// Whether `CONFIG_name` is built in.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name) == Some("y")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_distinguished_from_one_whose_name_begins_with_it() {
        let config = Kconfig::new("CONFIG_PREEMPT_DYNAMIC=y\n# CONFIG_PREEMPT is not set\nCONFIG_HZ=250\nCONFIG_X=m\n");
        assert!(config.is_set("PREEMPT_DYNAMIC"));
        assert!(!config.is_set("PREEMPT"));
        assert!(config.knows("PREEMPT") && !config.knows("PREEM"));
        assert!(!config.is_set("X"));
        assert_eq!(config.get("HZ"), Some("250"));
    }
}
