//! `/proc/PID/status`.

use base::CpuSet;

/// The value on the line `name:`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The CPUs on which the task may run.
///
/// # Errors
/// If the line is missing or holds no list of CPUs.
pub fn cpus_allowed(text: &str) -> Result<CpuSet, String> {
    let list = field(text, "Cpus_allowed_list").ok_or("no line Cpus_allowed_list")?;
    list.parse().map_err(|error| format!("Cpus_allowed_list: {error}"))
}

/// The effective capabilities, bit by number.
///
/// # Errors
/// If the line is missing or holds no hexadecimal number.
pub fn effective_capabilities(text: &str) -> Result<u64, String> {
    let mask = field(text, "CapEff").ok_or("no line CapEff")?;
    u64::from_str_radix(mask, 16).map_err(|_| format!("CapEff: {mask:?} is no hexadecimal number"))
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
