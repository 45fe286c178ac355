//! Query string and body of a request.

use crate::Refused;

/// Maximum parameters per request.
const PARAMETERS_MAX: usize = 10_000;

/// Parameters of a request, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Splits `a=1&b=2`. A plus sign is a space; `%41` is a byte.
    pub(crate) fn read(text: &str) -> Result<Self, Refused> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(Refused::bad(format!("the request has more than {PARAMETERS_MAX} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((plain(name)?, plain(value)?));
        }
        Ok(Self(pairs))
    }

    /// First parameter with a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All parameters with a name.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The parameter is `true`.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// Decodes percent encoding.
fn plain(text: &str) -> Result<String, Refused> {
    let wrong = || {
        Refused::bad(format!(
            "{text:?} is not encoded as addresses are; expected % and two hexadecimal digits, of UTF-8"
        ))
    };
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(wrong);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| wrong())
}

/// Names in a body: a JSON list, `pv=A&pv=B`, `pv=A,B`, or names separated by commas or newlines.
pub(crate) fn names(body: &[u8]) -> Result<Vec<String>, Refused> {
    let text = std::str::from_utf8(body).map_err(|_| Refused::bad("the body is not UTF-8; expected names"))?.trim();
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(|error| {
            Refused::bad(format!("the body is no JSON list of names: {error}; expected [\"A\", \"B\"]"))
        });
    }
    let split = |text: &str| text.split([',', '\n', '\r']).map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    let mut names =
        if text.starts_with("pv=") { Query::read(text)?.all("pv").flat_map(split).collect() } else { split(text) };
    names.retain(|name| !name.is_empty());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_of_addresses_are_decoded() {
        let query = Query::read("pv=A%3Ab&pv=c+d&x&fetchLatestMetadata=True").unwrap();
        assert_eq!(query.all("pv").collect::<Vec<_>>(), ["A:b", "c d"]);
        assert_eq!((query.get("x"), query.get("y")), (Some(""), None));
        assert!(query.is_on("fetchLatestMetadata") && !query.is_on("x"));
        for wrong in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(Query::read(wrong).unwrap_err().why.contains("hexadecimal"), "{wrong}");
        }
    }

    #[test]
    fn names_in_a_body_are_a_list_of_json_a_form_or_lines() {
        for body in ["[\"A:1\", \"B\"]", "pv=A%3A1&pv=B", "pv=A:1,B", "A:1,B", "A:1\r\nB\n"] {
            assert_eq!(names(body.as_bytes()).unwrap(), ["A:1", "B"], "{body}");
        }
        assert!(names(b"[1]").unwrap_err().why.contains("expected [\"A\", \"B\"]"));
        assert!(names(b"\xff").unwrap_err().why.contains("UTF-8"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", body in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (Query::read(&text), names(&body));
        }
    }
}
