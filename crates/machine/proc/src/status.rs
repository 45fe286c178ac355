//! `/proc/PID/status`.

use crate::FormatError;
use base::CpuSet;

/// The value on the line `name:`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn required<'a>(text: &'a str, name: &str) -> Result<&'a str, FormatError> {
    field(text, name).ok_or_else(|| FormatError::NoLine(name.to_owned()))
}

/// The CPUs on which the task may run.
///
/// # Errors
/// If the line is missing or holds no list of CPUs.
pub fn cpus_allowed(text: &str) -> Result<CpuSet, FormatError> {
    let list = required(text, "Cpus_allowed_list")?;
    list.parse().map_err(|_| FormatError::value("Cpus_allowed_list", "a list of CPUs", list))
}

/// The effective capabilities, bit by number.
///
/// # Errors
/// If the line is missing or holds no hexadecimal number.
pub fn effective_capabilities(text: &str) -> Result<u64, FormatError> {
    let mask = required(text, "CapEff")?;
    u64::from_str_radix(mask, 16).map_err(|_| FormatError::value("CapEff", "a hexadecimal number", mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "Name:\tcat\nCapEff:\t000001ffffffffff\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(field(text, "Name"), Some("cat"));
        assert_eq!(field(text, "Cpus_allowed"), Some("3"));
        assert_eq!(cpus_allowed(text).unwrap().to_string(), "0-1");
        assert_eq!(effective_capabilities(text), Ok(0x1ff_ffff_ffff));
        assert!(cpus_allowed("").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = (cpus_allowed(&format!("Cpus_allowed_list:{text}")), effective_capabilities(&text));
        }
    }
}
