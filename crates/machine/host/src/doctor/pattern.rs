//! Path patterns: within one component, `#` matches a decimal number and `*` any text.

/// Whether `name` matches one component of a pattern.
#[must_use]
pub fn matches_component(pattern: &str, name: &str) -> bool {
    fits(pattern.as_bytes(), name.as_bytes())
}

/// Whether a whole path matches, component by component.
pub(super) fn matches_path(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if fits(wanted.as_bytes(), found.as_bytes()) => {}
            _ => return false,
        }
    }
}

/// The numbers that matched each `#` of the pattern, in order.
pub(super) fn numbers(pattern: &str, path: &str) -> Vec<u32> {
    let mut out = Vec::new();
    for (wanted, found) in pattern.split('/').zip(path.split('/')) {
        let (mut wanted, mut found) = (wanted.as_bytes(), found.as_bytes());
        while let Some((&head, rest)) = wanted.split_first() {
            let taken = match head {
                b'#' => digits(found),
                b'*' => break,
                _ => 1,
            };
            if head == b'#' {
                out.push(
                    found[..taken]
                        .iter()
                        .fold(0u32, |value, byte| value.saturating_mul(10).saturating_add(u32::from(byte - b'0'))),
                );
            }
            (wanted, found) = (rest, found.get(taken..).unwrap_or_default());
        }
    }
    out
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Patterns hold at most a few wildcards and names at most 255 bytes, so backtracking is cheap.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'#', rest)) => {
            let count = digits(name);
            count > 0 && fits(rest, &name[count..])
        }
        Some((b'*', rest)) => (0..=name.len()).any(|skip| fits(rest, &name[skip..])),
        Some((byte, rest)) => name.first() == Some(byte) && fits(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_and_any_name_are_distinguished() {
        for (pattern, path, expected) in [
            ("/cpu/cpu#/online", "/cpu/cpu12/online", true),
            ("/cpu/cpu#/online", "/cpu/cpuidle/online", false),
            ("/cpu/cpu#/online", "/cpu/cpu/online", false),
            ("/net/*/queues/rx-#/x", "/net/eth0/queues/rx-3/x", true),
            ("/net/*", "/net/eth0/x", false),
            ("/a", "/a", true),
        ] {
            assert_eq!(matches_path(pattern, path), expected, "{pattern} {path}");
        }
        assert_eq!(numbers("/cpu/cpu#/cpuidle/state#/name", "/cpu/cpu12/cpuidle/state3/name"), [12, 3]);
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in "[a-c#*/0-9]{0,8}", path in "[a-c/0-9]{0,12}") {
            matches_path(&pattern, &path);
            numbers(&pattern, &path);
        }
    }
}
