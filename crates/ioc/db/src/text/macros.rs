//! Expansion of `$(NAME)` in files: the EPICS macro language.

use std::borrow::Cow;
use std::collections::HashMap;

/// Values of macros. `$(A)`, `${A}`, `$(A=default)`, `$(A,B=1)`; nested in names, values and defaults.
///
/// ```
/// let macros = db::Macros::parse("P=ring,UNIT=mA");
/// assert_eq!(macros.expand("$(P):current in $(UNIT=A), ${R=1 Hz}").0, "ring:current in mA, 1 Hz");
/// assert_eq!(macros.expand("$(MISSING)").1, ["MISSING"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Macros {
    values: HashMap<String, String>,
}

/// Maximum nesting depth of macros.
const DEPTH_LIMIT: usize = 32;
/// Maximum length of an expanded line in bytes.
const LENGTH_LIMIT: usize = 65_536;
/// Maximum number of bytes of line and values read to expand one line. References beyond it are copied unexpanded.
const WORK_LIMIT: usize = 4 << 20;

impl Macros {
    /// Parses `A=1,B="two, three",C`. A name without `=` removes the macro.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut macros = Self::default();
        macros.add(text);
        macros
    }

    /// Adds definitions in the format of [`parse`](Self::parse).
    pub fn add(&mut self, text: &str) {
        for item in split_top(text, b',') {
            let name = split_top(item, b'=').first().copied().unwrap_or_default();
            let value = item.get(name.len() + 1..);
            let name = without_quotes(name.trim());
            match value {
                Some(value) => {
                    // Quotes are removed when the macro is used.
                    let value = self.expand(value.trim()).0.into_owned();
                    self.set(&name, &value);
                }
                None if item.trim().is_empty() => {}
                None => drop(self.values.remove(&name)),
            }
        }
    }

    /// Defines one macro. Quotes and backslashes in the value protect the text in them. They are removed when the macro is
    /// used.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Whether the macro is defined.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a macro after expansion.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        let value = self.values.get(name)?;
        let (mut use_of, mut out) = (Use::of(self), String::new());
        use_of.open.push(name.to_owned());
        use_of.copy(value, &[], true, &mut out);
        Some(out)
    }

    /// Expands the macros in a text. Also returns the names without a value; their references are copied unexpanded.
    #[must_use]
    pub fn expand<'a>(&self, text: &'a str) -> (Cow<'a, str>, Vec<String>) {
        if !text.contains('$') {
            return (Cow::Borrowed(text), Vec::new());
        }
        let mut use_of = Use::of(self);
        let mut out = String::with_capacity(text.len() + 32);
        use_of.copy(text, &[], false, &mut out);
        (Cow::Owned(out), use_of.undefined)
    }
}

/// State of one expansion.
struct Use<'a> {
    macros: &'a Macros,
    /// Names without a value.
    undefined: Vec<String>,
    /// Macros defined within a reference (`$(A,B=1)`), innermost last.
    scope: Vec<(String, String)>,
    /// Macros whose values are being copied. A macro cannot contain itself.
    open: Vec<String>,
    /// Remaining work limit in bytes.
    work: usize,
}

impl<'a> Use<'a> {
    const fn of(macros: &'a Macros) -> Self {
        Self { macros, undefined: Vec::new(), scope: Vec::new(), open: Vec::new(), work: WORK_LIMIT }
    }

    /// Copies a text with its macros expanded, up to a byte of `ends` or the end of the text. Returns the number of bytes
    /// read. Quotes and backslashes are kept at the outermost level only; in references and values (`inside`) they are
    /// removed.
    ///
    /// As in macLib, quotes do not protect the bytes that end a name or a default.
    fn copy(&mut self, text: &str, ends: &[u8], inside: bool, out: &mut String) -> usize {
        let bytes = text.as_bytes();
        let (mut at, mut copied) = (0, 0);
        let mut quote = None;
        while at < bytes.len() && !ends.contains(&bytes[at]) {
            let byte = bytes[at];
            let is_quote = match quote {
                Some(open) if open == byte => {
                    quote = None;
                    true
                }
                None if matches!(byte, b'"' | b'\'') => {
                    quote = Some(byte);
                    true
                }
                _ => false,
            };
            let refers = byte == b'$' && matches!(bytes.get(at + 1), Some(b'(' | b'{')) && quote != Some(b'\'');
            let escapes = byte == b'\\' && at + 1 < bytes.len();
            if !(is_quote && inside || refers || escapes) {
                at += 1;
                continue;
            }
            out.push_str(&text[copied..at]);
            self.work = self.work.saturating_sub(at - copied + 1);
            if refers {
                at += self.reference(&text[at..], out);
            } else if escapes {
                let next = text[at + 1..].chars().next().map_or(0, char::len_utf8);
                out.push_str(&text[at + usize::from(inside)..at + 1 + next]);
                at += 1 + next;
            } else {
                at += 1;
            }
            copied = at;
        }
        out.push_str(&text[copied..at]);
        self.work = self.work.saturating_sub(at - copied);
        at
    }

    /// Skips a default that is used later or not at all, by the rules of [`copy`](Self::copy), up to a byte of `ends`. Reads
    /// each byte once at any nesting depth. Expanding defaults to find their end would double the work with each level.
    fn skip(text: &str, ends: &[u8], depth: usize) -> usize {
        let bytes = text.as_bytes();
        let (mut at, mut quote) = (0, None);
        while at < bytes.len() && !ends.contains(&bytes[at]) {
            match bytes[at] {
                byte if quote == Some(byte) => quote = None,
                byte @ (b'"' | b'\'') if quote.is_none() => quote = Some(byte),
                b'\\' if at + 1 < bytes.len() => at += text[at + 1..].chars().next().map_or(0, char::len_utf8),
                b'$' if quote != Some(b'\'') && depth < DEPTH_LIMIT => {
                    if let Some(open @ (b'(' | b'{')) = bytes.get(at + 1) {
                        at += Self::skip_reference(&text[at + 2..], *open, depth + 1) + 2;
                        continue;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        at.min(bytes.len())
    }

    /// Skips the rest of a reference after its `$(`, including the closing byte.
    fn skip_reference(text: &str, open: u8, depth: usize) -> usize {
        let close = if open == b'(' { b')' } else { b'}' };
        let mut at = Self::skip(text, &[b'=', b',', close], depth);
        if text.as_bytes().get(at) == Some(&b'=') {
            at += 1 + Self::skip(&text[at + 1..], &[b',', close], depth);
        }
        while text.as_bytes().get(at) == Some(&b',') {
            at += 1 + Self::skip(&text[at + 1..], &[b'=', b',', close], depth);
            if text.as_bytes().get(at) == Some(&b'=') {
                at += 1 + Self::skip(&text[at + 1..], &[b',', close], depth);
            }
        }
        (at + 1).min(text.len())
    }

    /// Expands one `$(NAME)`, `$(NAME=default)` or `$(NAME,A=1)`. Returns its length in bytes.
    fn reference(&mut self, text: &str, out: &mut String) -> usize {
        let (open, close) = if text.as_bytes()[1] == b'(' { ('(', b')') } else { ('{', b'}') };
        if self.open.len() >= DEPTH_LIMIT || out.len() > LENGTH_LIMIT || self.work == 0 {
            out.push_str(&text[..2]);
            return 2;
        }
        let (outer, depth) = (self.scope.len(), self.open.len());
        self.open.push(String::new());
        let mut name = String::new();
        let mut at = 2 + self.copy(&text[2..], &[b'=', b',', close], true, &mut name);
        let mut default = None;
        if text.as_bytes().get(at) == Some(&b'=') {
            default = Some(at + 1);
            let skipped = Self::skip(&text[at + 1..], &[b',', close], self.open.len());
            self.work = self.work.saturating_sub(skipped);
            at += 1 + skipped;
        }
        while text.as_bytes().get(at) == Some(&b',') {
            let (mut inner, mut value) = (String::new(), String::new());
            at += 1 + self.copy(&text[at + 1..], &[b'=', b',', close], true, &mut inner);
            if text.as_bytes().get(at) == Some(&b'=') {
                at += 1 + self.copy(&text[at + 1..], &[b',', close], true, &mut value);
                self.scope.push((inner.trim().to_owned(), value));
            }
        }
        let recursive = self.open.contains(&name) && !name.is_empty();
        let scoped = self.scope.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let value = scoped.or_else(|| self.macros.values.get(&name).cloned());
        match (value, default) {
            (Some(value), _) if !recursive => {
                self.open[depth].clone_from(&name);
                self.copy(&value, &[], true, out);
            }
            (None, Some(default)) => drop(self.copy(&text[default..], &[b',', close], true, out)),
            _ => {
                out.extend(['$', open]);
                out.push_str(&name);
                out.push(char::from(close));
                self.undefined.push(name);
            }
        }
        self.open.truncate(depth);
        self.scope.truncate(outer);
        // An unclosed reference ends with the text.
        (at + 1).min(text.len())
    }
}

/// Expands the macros of a text line by line, except in comments. Also returns the names without a value and their lines.
pub(crate) fn expand_lines<'a>(text: &'a str, macros: &Macros) -> (Cow<'a, str>, Vec<(usize, String)>) {
    if !text.contains('$') {
        return (Cow::Borrowed(text), Vec::new());
    }
    let mut out = String::with_capacity(text.len());
    let mut missing = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_start().starts_with('#') {
            out.push_str(line);
            continue;
        }
        let (expanded, undefined) = macros.expand(line);
        out.push_str(&expanded);
        missing.extend(undefined.into_iter().map(|name| (number + 1, name)));
    }
    (Cow::Owned(out), missing)
}

/// Splits at the bytes `wanted` that are neither quoted nor escaped.
fn split_top(text: &str, wanted: u8) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut parts, mut start, mut at, mut quote) = (Vec::new(), 0, 0, None);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if quote == Some(byte) => quote = None,
            byte @ (b'"' | b'\'') if quote.is_none() => quote = Some(byte),
            byte if byte == wanted && quote.is_none() => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&text[start..]);
    parts
}

/// Removes quotes and backslashes.
fn without_quotes(text: &str) -> String {
    let none = Macros::default();
    let mut out = String::new();
    Use::of(&none).copy(text, &[], true, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(definitions: &str, text: &str, expected: &str) {
        assert_eq!(Macros::parse(definitions).expand(text).0, expected, "{text} with {definitions}");
    }

    #[test]
    fn macros_are_replaced() {
        check("P=X:,R=1", "$(P)a${R}b", "X:a1b");
        check("P=X", "$(Q=def)$(P=no)", "defX");
        check("A=B,B=two", "$($(A))", "two");
        check("A=$(B),B=two", "$(A)", "two");
        check("", "$(A,A=5)", "5");
        check("", "$(A=$(B=7))", "7");
        check("P=\"a,b\"", "[$(P)]", "[a,b]");
        check("P=", "[$(P)]", "[]");
        check("A=1", "$(A) and $(NONE) and $", "1 and $(NONE) and $");
        check("A=1", "'$(A)' \"$(A)\"", "'$(A)' \"1\"");
    }

    #[test]
    fn quotes_and_backslashes_stay_where_the_user_reads_them_and_go_inside_of_macros() {
        check("", "\"$(D=\"a b\")\"", "\"a b\"");
        check("", "$(D='a b')$(E=a\\\"b)", "a ba\"b");
        // As in macLib, a comma ends a default even in quotes.
        check("", "[$(D=\"a, b\")]", "[a]");
        check("P='it is',Q=a\\,b,\"R\"=\"\\\"\"", "$(P) $(Q) $(R) \\\"", "it is a,b \" \\\"");
        check("P='$(Q)',Q=1", "$(P)", "$(Q)");
        check("P=a=b", "$(P)$(Z=$(P,P=2))$(P,P='c')", "a=b2c");
        assert_eq!(Macros::parse("P='a b'").get("P").as_deref(), Some("a b"));
    }

    #[test]
    fn names_without_a_value_are_reported() {
        assert_eq!(Macros::parse("A=1").expand("$(B)$(A)$(C)").1, ["B", "C"]);
    }

    #[test]
    fn the_expansion_of_a_recursive_macro_ends() {
        let mut macros = Macros::default();
        macros.set("A", "$(A)");
        let _ = macros.expand("$(A)");
        macros.set("A", "$(A)$(A)");
        let _ = macros.expand("$(A)");
        for number in 0..30 {
            macros.set(&format!("N{number}"), &format!("$(N{0})$(N{0})", number + 1));
        }
        macros.set("N30", "");
        let _ = macros.expand("$(N0)");
    }

    #[test]
    fn nested_defaults_are_read_a_bounded_number_of_times() {
        let (depth, mut text) = (4_000, String::new());
        (0..depth).for_each(|number| text.push_str(&format!("$(A{number}=")));
        text.push('x');
        (0..depth).for_each(|_| text.push(')'));
        let macros = Macros::default();
        let (mut use_of, mut out) = (Use::of(&macros), String::new());
        use_of.copy(&text, &[], false, &mut out);
        let read = WORK_LIMIT - use_of.work;
        assert!(read <= 2 * (DEPTH_LIMIT + 1) * text.len(), "{read} bytes were read for a line of {}", text.len());
        // References within the limit are expanded. The innermost value is copied as written.
        assert!(out.starts_with("$(A32=$(A33=") && out.contains("=x)"), "{}", &out[..40]);
        check("", "$(A=$(B=$(C=1)$(D=2)$(E)))", "12$(E)");
        check("B=7", "$(A=$(B=$(C=1)$(D=2)))", "7");
    }

    #[test]
    fn many_references_to_long_values_are_read_up_to_a_limit() {
        let mut macros = Macros::default();
        macros.set("LONG", &format!("$(X={})", "y".repeat(60_000)));
        macros.set("X", "");
        let line = "$(LONG)".repeat(9_000);
        let (mut use_of, mut out) = (Use::of(&macros), String::new());
        use_of.copy(&line, &[], false, &mut out);
        assert_eq!(use_of.work, 0);
        assert!(out.ends_with("$(LONG)"), "text after the limit is unchanged");
    }

    #[test]
    fn macros_in_an_unused_default_are_not_reported_as_missing() {
        assert_eq!(Macros::parse("A=1").expand("$(A=$(B))$(C=$(D=$(E)))").1, ["E"]);
    }

    proptest! {
        #[test]
        fn a_skipped_default_ends_where_a_copied_one_does(text in "[$(){}=,A-C'\"\\\\ é]{0,40}") {
            let macros = Macros::parse("A=1,B=$(A)");
            let ends = [b',', b')'];
            let copied = Use::of(&macros).copy(&text, &ends, true, &mut String::new());
            prop_assert_eq!(Use::skip(&text, &ends, 0), copied);
        }

        #[test]
        fn no_text_panics(text in "[$(){}=,A-C'\"\\\\ ]{0,30}") {
            let _ = Macros::parse(&text).expand(&text);
        }
    }
}
