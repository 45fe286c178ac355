//! Access checks on requests. Pure.
//!
//! Loopback is no protection: any web page in a browser on this machine can send requests to it. Two headers that a page cannot
//! set identify the origin of a request.
//!
//! - `Host` is the name in the address bar. A foreign name that resolves to this machine (DNS rebinding) is refused.
//! - `Origin` is the requesting page. Requests that change something, and WebSockets, must come from our pages. Programs send no
//!   `Origin`; for a WebSocket they need a token.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Method, Uri};
use std::net::{IpAddr, SocketAddr};

/// The reason of a refusal. Its text contains what was found, what was expected, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `Host` is missing, occurs several times, or is not a name.
    NoHost,
    /// The name does not belong to this machine.
    Host {
        /// The name found.
        found: String,
        /// The names of this machine.
        expected: String,
    },
    /// A request from a foreign page.
    Origin {
        /// The origin of the page.
        found: String,
        /// The expected origin.
        expected: String,
    },
    /// A WebSocket without an origin and without a token.
    NoOrigin,
    /// The browser reports that another site sent the request.
    CrossSite,
}

impl Refusal {
    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::NoHost => 400,
            Self::Host { .. } => 421,
            Self::Origin { .. } | Self::NoOrigin | Self::CrossSite => 403,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHost => write!(f, "the request has no valid Host header; HTTP/1.1 requires one"),
            Self::Host { found, expected } => {
                write!(f, "Host is {found:?}; expected {expected}; add a correct name to `names`")
            }
            Self::Origin { found, expected } => {
                write!(f, "the request is from a page of {found:?}; expected a page of {expected:?}")
            }
            Self::NoOrigin => {
                write!(f, "a WebSocket without Origin; programs that are no browser need `Authorization: Bearer TOKEN`")
            }
            Self::CrossSite => {
                write!(f, "the browser reports a request from another site; expected a page of this server")
            }
        }
    }
}

/// Checks the origin of a request. `local` is the local address of the connection; `names` are further names of this machine.
///
/// # Errors
/// The reason of the refusal.
pub fn check(
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    local: SocketAddr,
    names: &[String],
    is_upgrade: bool,
) -> Result<(), Refusal> {
    let host = one(headers, &HOST).ok_or(Refusal::NoHost)?;
    // An absolute target has precedence over `Host`. Both must be ours.
    for text in [Some(host), uri.authority().map(Authority::as_str)].into_iter().flatten() {
        let authority: Authority = text.parse().map_err(|_| Refusal::NoHost)?;
        if text.contains('@') || !is_ours(authority.host(), local.ip(), names) {
            return Err(Refusal::Host { found: text.to_owned(), expected: expected(local.ip(), names) });
        }
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) || is_upgrade;
    if !changes {
        return Ok(());
    }
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(Refusal::CrossSite);
    }
    match headers.get(ORIGIN) {
        Some(origin) => {
            let found = String::from_utf8_lossy(origin.as_bytes()).into_owned();
            let ours = ["http://", "https://"].iter().any(|scheme| {
                found.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
                    && found[scheme.len()..].eq_ignore_ascii_case(host)
            });
            if ours && headers.get_all(ORIGIN).iter().count() == 1 {
                Ok(())
            } else {
                Err(Refusal::Origin { found, expected: format!("http://{host}") })
            }
        }
        None if is_upgrade && !headers.contains_key(AUTHORIZATION) => Err(Refusal::NoOrigin),
        None => Ok(()),
    }
}

/// The text of a header that occurs exactly once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(only), None) => only.to_str().ok(),
        _ => None,
    }
}

/// Returns whether a host name is this machine's. The port is ignored, because a tunnel may use another one.
fn is_ours(host: &str, local: IpAddr, names: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let local = local.to_canonical();
    let loopback =
        local.is_loopback() && (host.eq_ignore_ascii_case("localhost") || address.is_some_and(|ip| ip.is_loopback()));
    loopback || address == Some(local) || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

fn expected(local: IpAddr, names: &[String]) -> String {
    let mut all = if local.is_loopback() { vec!["localhost".to_owned()] } else { Vec::new() };
    all.push(local.to_string());
    all.extend(names.iter().cloned());
    all.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:8765";

    fn said(method: Method, uri: &str, headers: &[(&'static str, &str)], local: &str, is_upgrade: bool) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let names = ["tahti.example.org".to_owned()];
        let checked = check((&method, &uri.parse().unwrap(), &map), local.parse().unwrap(), &names, is_upgrade);
        checked.map_or_else(|refusal| refusal.status(), |()| 200)
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let host = |host: &str, local: &str| said(Method::GET, "/", &[("host", host)], local, false);
        for ours in
            ["127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765", "localhost:9000", "tahti.example.org"]
        {
            assert_eq!(host(ours, LOCAL), 200, "{ours}");
        }
        for rebound in
            ["evil.example", "127.0.0.1.evil.example:8765", "localhost.evil.example", "10.0.0.1", "x@localhost"]
        {
            assert_eq!(host(rebound, LOCAL), 421, "{rebound}");
        }
        for wrong in ["", "a b", "[::1", "::::"] {
            assert!(matches!(host(wrong, LOCAL), 400 | 421), "{wrong}");
        }
        assert_eq!((host("10.1.2.3:80", "10.1.2.3:80"), host("localhost", "10.1.2.3:80")), (200, 421));
        assert_eq!(host("127.0.0.1:8765", "[::ffff:127.0.0.1]:8765"), 200);
        assert_eq!(said(Method::GET, "/", &[], LOCAL, false), 400);
        assert_eq!(said(Method::GET, "/", &[("host", "localhost"), ("host", "localhost")], LOCAL, false), 400);
        assert_eq!(said(Method::GET, "http://evil.example/", &[("host", "localhost")], LOCAL, false), 421);
    }

    #[test]
    fn writes_and_websockets_are_refused_from_pages_of_other_origins() {
        let asked = |method, headers: &[(&'static str, &str)], is_upgrade| {
            let host = ("host", "localhost:8765");
            said(method, "/ws", &[&[host], headers].concat(), LOCAL, is_upgrade)
        };
        let (ours, evil) = (("origin", "http://localhost:8765"), ("origin", "http://evil.example"));
        let beside = ("origin", "http://localhost:9999");
        assert_eq!(asked(Method::GET, &[ours], true), 200);
        for other in [evil, beside, ("origin", "null"), ("origin", "http://localhost:8765.evil.example")] {
            assert_eq!(asked(Method::GET, &[other], true), 403, "{other:?}");
            assert_eq!(asked(Method::POST, &[other], false), 403, "{other:?}");
        }
        assert_eq!(
            asked(Method::GET, &[evil], false),
            200,
            "reads need no origin: their answers stay unreadable elsewhere"
        );
        assert_eq!(asked(Method::GET, &[], true), 403);
        assert_eq!(asked(Method::GET, &[("authorization", "Bearer t")], true), 200);
        assert_eq!(asked(Method::GET, &[evil, ("authorization", "Bearer t")], true), 403);
        assert_eq!(asked(Method::POST, &[], false), 200, "programs have no origin");
        assert_eq!(asked(Method::POST, &[("sec-fetch-site", "cross-site")], false), 403);
        assert_eq!(asked(Method::POST, &[("sec-fetch-site", "same-site"), ours], false), 403);
        assert_eq!(asked(Method::DELETE, &[evil], false), 403);
    }
}
