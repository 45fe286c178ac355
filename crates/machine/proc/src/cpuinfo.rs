//! `/proc/cpuinfo`.

/// Whether the processor reports a hypervisor.
#[must_use]
pub fn has_hypervisor(text: &str) -> bool {
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_is_a_flag_of_the_first_processor() {
        assert!(has_hypervisor("processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"));
        assert!(!has_hypervisor("processor\t: 0\nflags\t\t: fpu lahf_lm\nbugs : hypervisor\n"));
        assert!(!has_hypervisor(""));
    }
}
