//! Address of a record with a line protocol: `FILE PROTOCOL(ARGUMENTS) PORT`, as in StreamDevice.

use db::AttachError;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The protocol file.
    pub file: String,
    /// The protocol.
    pub protocol: String,
    /// `$1` and the following.
    pub arguments: Vec<String>,
    /// The port.
    pub port: String,
}

impl Address {
    /// Parses the text after a link's `@`. Text after the port is ignored: it selects one of several devices on a port, and
    /// ports of tahti have one.
    pub(super) fn parse(text: &str) -> Result<Self, AttachError> {
        let expected = || "FILE PROTOCOL PORT or FILE PROTOCOL(ARGUMENTS) PORT".to_owned();
        let bad = || AttachError::Unexpected { found: format!("\"{text}\""), expected: expected() };
        let (file, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(bad)?;
        let rest = rest.trim_start();
        let len = rest.find(|c: char| c == '(' || c.is_whitespace()).ok_or_else(bad)?;
        let (protocol, rest) = rest.split_at(len);
        let rest = rest.trim_start();
        let (arguments, rest) = match rest.strip_prefix('(') {
            Some(inside) => {
                let end = end_of_arguments(inside).ok_or_else(|| AttachError::Unreadable {
                    found: format!("\"{text}\""),
                    why: "no ) to the (".to_owned(),
                })?;
                (arguments(&inside[..end]), &inside[end + 1..])
            }
            None => (Vec::new(), rest),
        };
        let port = rest.split_whitespace().next().ok_or_else(bad)?;
        if protocol.is_empty() {
            return Err(bad());
        }
        Ok(Self { file: file.to_owned(), protocol: protocol.to_owned(), arguments, port: port.to_owned() })
    }
}

/// Position of the bracket that closes the arguments: the last unmatched one before white space.
fn end_of_arguments(inside: &str) -> Option<usize> {
    let mut depth = 0;
    let mut end = None;
    let mut chars = inside.char_indices();
    while let Some((at, next)) = chars.next() {
        match next {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                end = if depth < 0 { Some(at) } else { end };
            }
            '\\' => {
                chars.next();
            }
            next if next.is_whitespace() && depth < 0 => break,
            _ => {}
        }
    }
    end.filter(|_| depth < 0)
}

/// Splits arguments at commas outside of brackets. One blank next to a comma is removed. `\` makes a character literal.
fn arguments(inside: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut depth = 0;
    let mut chars = inside.strip_prefix(' ').unwrap_or(inside).chars().peekable();
    while let Some(next) = chars.next() {
        let last = all.len() - 1;
        let current = &mut all[last];
        match next {
            ',' if depth <= 0 => {
                if current.ends_with(' ') {
                    current.pop();
                }
                chars.next_if_eq(&' ');
                all.push(String::new());
                continue;
            }
            // A double backslash is kept, because quoted text replaces it by one.
            '\\' if chars.peek() == Some(&'\\') => {
                current.push_str("\\\\");
                chars.next();
                continue;
            }
            '\\' => {
                current.extend(chars.next());
                continue;
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        current.push(next);
    }
    if let Some(last) = all.last_mut().filter(|last| last.ends_with(' ')) {
        last.pop();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_file_protocol_arguments_and_port() {
        let parsed = |text: &str| {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.file.as_str(), address.protocol.as_str(), address.port.as_str()),
                ("a.proto", "get", "L0")
            );
            address.arguments
        };
        assert_eq!(parsed("a.proto get L0"), [""; 0]);
        assert_eq!(parsed("a.proto get(1, two words) L0 0"), ["1", "two words"]);
        assert_eq!(parsed("a.proto get (1) L0 0 more words"), ["1"]);
        assert_eq!(parsed("a.proto get( 1 ,2,  3  ) L0"), ["1", "2", " 3 "]);
        assert_eq!(parsed("a.proto get() L0"), [""]);
        assert_eq!(parsed("a.proto get(ARG(10,20),30) L0"), ["ARG(10,20)", "30"]);
        assert_eq!(parsed("a.proto get(ARG ( 10 , 20 ) , 30 )  L0"), ["ARG ( 10 , 20 )", "30"]);
        assert_eq!(parsed("a.proto get(\\ ARG\\,\\\\(10,20)\\,30) L0"), [" ARG,\\\\(10,20),30"]);
        assert_eq!(parsed("a.proto get(a\\(b) L0"), ["a(b"]);
        for bad in ["", "a.proto", "a.proto get", "a.proto get(1 L0", "a.proto (1) L0"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
