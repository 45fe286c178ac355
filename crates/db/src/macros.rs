//! `$(NAME)` in files: EPICS' macro language.

use std::borrow::Cow;
use std::collections::HashMap;

/// Values of macros. `$(A)`, `${A}`, `$(A=default)`, `$(A,B=1)`; nested in names, values and defaults.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    values: HashMap<String, String>,
}

/// How deep macros may stand in macros.
const DEPTH_LIMIT: usize = 32;
/// How long a line may grow.
const LENGTH_LIMIT: usize = 65_536;

impl Macros {
    /// From `A=1,B="two, three",C`; a name without `=` removes the macro.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut macros = Self::default();
        macros.add(text);
        macros
    }

    /// Adds definitions of the form that [`parse`](Self::parse) reads.
    pub fn add(&mut self, text: &str) {
        for item in split_items(text) {
            match item.split_once('=') {
                Some((name, value)) => {
                    let value = unquote(value.trim());
                    let value = self.expand(&value).0.into_owned();
                    self.set(name.trim(), &value);
                }
                None => {
                    self.values.remove(item.trim());
                }
            }
        }
    }

    /// Defines one macro.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// The value of a macro.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The text with its macros replaced, and the names that have no value (left as they stand).
    #[must_use]
    pub fn expand<'a>(&self, text: &'a str) -> (Cow<'a, str>, Vec<String>) {
        if !text.contains('$') {
            return (Cow::Borrowed(text), Vec::new());
        }
        let mut undefined = Vec::new();
        let mut out = String::with_capacity(text.len() + 32);
        self.expand_into(text, &mut out, &mut undefined, &[], 0);
        (Cow::Owned(out), undefined)
    }

    fn expand_into(
        &self,
        text: &str,
        out: &mut String,
        undefined: &mut Vec<String>,
        scope: &[(String, String)],
        depth: usize,
    ) {
        let mut rest = text;
        // Macros in single quotes stay as they are, as EPICS leaves them.
        let mut quote = None;
        while let Some(at) = rest.find(['$', '\'', '"', '\\']) {
            out.push_str(&rest[..at]);
            let byte = rest.as_bytes()[at];
            let after = &rest[at + 1..];
            if byte == b'\\' {
                out.push('\\');
                let next = after.chars().next();
                if let Some(next) = next {
                    out.push(next);
                }
                rest = &after[next.map_or(0, char::len_utf8)..];
                continue;
            }
            if byte != b'$' {
                quote = match quote {
                    None => Some(byte),
                    Some(open) if open == byte => None,
                    other => other,
                };
                out.push(char::from(byte));
                rest = after;
                continue;
            }
            let close = match after.as_bytes().first() {
                Some(b'(') => b')',
                Some(b'{') => b'}',
                _ => {
                    out.push('$');
                    rest = after;
                    continue;
                }
            };
            let Some(end) = matching(after, close) else {
                out.push('$');
                rest = after;
                continue;
            };
            if quote == Some(b'\'') || depth >= DEPTH_LIMIT || out.len() > LENGTH_LIMIT {
                out.push_str(&rest[at..at + end + 2]);
            } else {
                self.reference(&after[1..end], close, out, undefined, scope, depth);
            }
            rest = &after[end + 1..];
        }
        out.push_str(rest);
    }

    /// One `NAME`, `NAME=default`, `NAME,A=1`.
    fn reference(
        &self,
        body: &str,
        close: u8,
        out: &mut String,
        undefined: &mut Vec<String>,
        scope: &[(String, String)],
        depth: usize,
    ) {
        let mut parts = split_top(body).into_iter();
        let head = parts.next().unwrap_or_default();
        let mut inner: Vec<(String, String)> = scope.to_vec();
        for part in parts {
            if let Some((name, value)) = part.split_once('=') {
                let mut expanded = String::new();
                self.expand_into(value, &mut expanded, undefined, scope, depth + 1);
                inner.push((name.trim().to_owned(), expanded));
            }
        }
        let (name, default) = match find_top(head, b'=') {
            Some(at) => (&head[..at], Some(&head[at + 1..])),
            None => (head, None),
        };
        let mut real = String::new();
        self.expand_into(name, &mut real, undefined, scope, depth + 1);
        let scoped = inner.iter().rev().find(|(known, _)| *known == real).map(|(_, value)| value.as_str());
        match scoped.or_else(|| self.get(&real)) {
            Some(value) => self.expand_into(value, out, undefined, &inner, depth + 1),
            None => match default {
                Some(default) => self.expand_into(default, out, undefined, &inner, depth + 1),
                None => {
                    let (open, close) = if close == b')' { ('(', ')') } else { ('{', '}') };
                    out.extend(['$', open]);
                    out.push_str(&real);
                    out.push(close);
                    undefined.push(real);
                }
            },
        }
    }
}

/// A text with its macros replaced line by line, comments apart; and the names without a value, each with its line.
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

/// Index of the bracket that closes the one at the start.
fn matching(text: &str, close: u8) -> Option<usize> {
    let open = text.as_bytes()[0];
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte == open {
            depth += 1;
        } else if byte == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// First `wanted` that stands in no bracket.
fn find_top(text: &str, wanted: u8) -> Option<usize> {
    let mut depth = 0i32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth -= 1,
            byte if byte == wanted && depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Parts between commas that stand in no bracket.
fn split_top(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = find_top(rest, b',') {
        parts.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    parts.push(rest);
    parts
}

/// Items of a definition list: commas and blanks in quotes do not count.
fn split_items(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut quote = None;
    let mut escaped = false;
    for c in text.chars() {
        let last = items.len() - 1;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            ',' if quote.is_none() => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items[last].push(c);
    }
    items.retain(|item| !item.trim().is_empty());
    items
}

fn unquote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                if let Some(next) = chars.next() {
                    if next != '"' && next != '\'' {
                        out.push('\\');
                    }
                    out.push(next);
                }
            }
            '"' | '\'' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            _ => out.push(c),
        }
    }
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
    fn names_without_a_value_are_reported() {
        assert_eq!(Macros::parse("A=1").expand("$(B)$(A)$(C)").1, ["B", "C"]);
    }

    #[test]
    fn a_macro_that_names_itself_ends() {
        let mut macros = Macros::default();
        macros.set("A", "$(A)");
        let _ = macros.expand("$(A)");
        macros.set("A", "$(A)$(A)");
        let _ = macros.expand("$(A)");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[$(){}=,A-C'\"\\\\ ]{0,30}") {
            let _ = Macros::parse(&text).expand(&text);
        }
    }
}
