//! Tests in QEMU guests with a second chance: if such a test fails, it runs again, in a separate boot, and passes if the second
//! run passes. Any other failed test fails the run. The gate has no such test.

/// A test with a second chance.
#[derive(Debug)]
pub(crate) struct SecondChance {
    /// The test's path in its program.
    pub(crate) test: &'static str,
    /// Why it may fail without a fault in the code, and why the test cannot be made reliable.
    pub(crate) why: &'static str,
}

/// The list of these tests.
pub(crate) const SECOND_CHANCES: &[SecondChance] = &[SecondChance {
    test: "a_defined_guest_runs_under_xen_on_the_cpu_of_a_separate_pool",
    why: "Xen's virtualisation (SVM) runs in QEMU's emulation, where a guest's kernel sometimes dies of a page fault on its \
              entry stack; the console in the message shows it",
}];

/// Whether a test has a second chance.
pub(crate) fn is_listed(test: &str) -> bool {
    SECOND_CHANCES.iter().any(|listed| listed.test == test)
}

/// The list, for the report of a run.
pub(crate) fn shown() -> String {
    let lines = SECOND_CHANCES.iter().map(|SecondChance { test, why }| format!("  {test}: {why}\n"));
    format!("Tests with a second chance: {}\n{}", SECOND_CHANCES.len(), lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn every_test_with_a_second_chance_exists_and_has_a_reason() {
        let files = tidy::files().unwrap();
        let sources: Vec<String> = files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
        for SecondChance { test, why } in SECOND_CHANCES {
            let function = format!("fn {}()", test.rsplit("::").next().unwrap_or(test));
            assert!(sources.iter().any(|text| text.contains(&function)), "no {function}");
            assert!(why.split_whitespace().count() > 5, "{test}: {why}");
            assert!(is_listed(test));
        }
        assert!(!is_listed("tests::every_test_with_a_second_chance_exists_and_has_a_reason"));
    }
}
