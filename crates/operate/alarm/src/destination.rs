//! Destinations of notifications: `notify` of `[alarms]`.

use crate::Severity;
use base::DurNs;
use host::plant::NOTIFY;
use std::path::PathBuf;
use table::{Diagnostics, Section, clipped};
use toml::de::DeValue;

/// Maximum number of destinations.
const DESTINATIONS_MAX: usize = 16;
/// Maximum number of mail addresses of a destination.
const ADDRESSES_MAX: usize = 16;
/// Maximum bytes of a mail address (RFC 5321) and of a URL.
const ADDRESS_BYTES_MAX: usize = 254;
const URL_BYTES_MAX: usize = 2048;

/// A server with a TCP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name or address, without the brackets of an IPv6 address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether the connection begins with TLS.
    pub is_secure: bool,
}

impl Server {
    /// Whether it is this machine by its name, so that no other machine can read the connection.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let address = self.host.parse::<core::net::IpAddr>();
        self.host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    /// Parses the part after `//`: `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
    fn parse(text: &str, is_secure: bool, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<core::net::Ipv6Addr>().ok()?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port? {
            "" if text.ends_with(':') => return None,
            "" => default_port,
            port => port.parse().ok().filter(|port| *port != 0)?,
        };
        let is_host = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_' | ':');
        let is_good = !host.is_empty() && host.len() <= 253 && host.chars().all(is_host);
        is_good.then(|| Self { host: host.to_owned(), port, is_secure })
    }
}

/// Kind of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A webhook, which receives JSON by HTTP POST.
    Web {
        /// Its server.
        server: Server,
        /// `Host` of the request: the server as written.
        authority: String,
        /// Path and query.
        path: String,
        /// File with the token for `Authorization: Bearer`.
        token_file: Option<PathBuf>,
    },
    /// Mail.
    Mail {
        /// Addresses of the receivers.
        to: Vec<String>,
        /// Address of the sender.
        from: String,
        /// Mail server.
        relay: Server,
    },
}

impl Target {
    /// The server to which the connection is made.
    #[must_use]
    pub const fn server(&self) -> &Server {
        match self {
            Self::Web { server, .. } => server,
            Self::Mail { relay, .. } => relay,
        }
    }
}

/// A destination of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its name.
    pub name: String,
    /// Its address.
    pub to: Target,
    /// Lowest severity that is sent.
    pub severity: Severity,
    /// Names of channels, areas or paths; empty: all.
    pub paths: Vec<String>,
    /// Minimum time for which an alarm is active and unacknowledged before it is sent.
    pub delay: DurNs,
    /// Interval of repetitions while the alarm is active and unacknowledged; 0: none.
    pub repeat: DurNs,
    /// File with the certificates of trusted authorities.
    pub ca: PathBuf,
}

/// Reads `notify`.
pub(crate) fn read(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Vec<Destination> {
    let Some(value) = section.value("notify") else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        section.wrong("notify", value, "a list of tables", found);
        return Vec::new();
    };
    if items.len() > DESTINATIONS_MAX {
        let message = format!("`notify` has {} destinations", items.len());
        found.error(
            value.span(),
            message,
            format!("at most {DESTINATIONS_MAX}"),
            "join mail addresses in one destination",
        );
    }
    let mut all: Vec<Destination> = Vec::new();
    for item in items.iter().take(DESTINATIONS_MAX) {
        let DeValue::Table(table) = item.get_ref() else {
            section.wrong("notify", item, "a table such as { name = \"…\", to = \"…\" }", found);
            continue;
        };
        let one = Section::open(table, item.span(), &NOTIFY, "notify", found);
        let Some(destination) = destination(&one, found) else { continue };
        if all.iter().any(|other| other.name == destination.name) {
            let message = format!("two destinations of `notify` are named {:?}", destination.name);
            found.error(item.span(), message, "one name for each", "rename one");
        } else {
            all.push(destination);
        }
    }
    all
}

/// `None` after an error.
fn destination(one: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Destination> {
    let name = required(one, "name", found).and_then(|(name, span)| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        let is_name = name.len() <= 32 && name.chars().all(is_letter);
        if !is_name {
            let message = format!("`name` of notify cannot be {:?}", clipped(name));
            found.error(span, message, "letters, digits, `-`, `_` and `.`, at most 32", "");
        }
        is_name.then(|| name.to_owned())
    });
    let to = target(one, found);
    let mut severity = Severity::Minor;
    if let Some((word, span)) = one.words("severity", found) {
        match Severity::ALL.into_iter().find(|severity| severity.is_active() && severity.name() == word) {
            Some(known) => severity = known,
            None => {
                let message = format!("`severity` of notify cannot be {:?}", clipped(word));
                found.error(span, message, "MINOR, MAJOR, INVALID or UNDEFINED", "");
            }
        }
    }
    let (day, month) = (DurNs::from_secs(86_400), DurNs::from_secs(30 * 86_400));
    let delay = one.time("delay", DurNs(0), day, found).map_or(DurNs::from_secs(10), |(time, _)| time);
    let repeat = match one.time("repeat", DurNs(0), month, found) {
        Some((time, span)) if time != DurNs(0) && time < DurNs::from_secs(60) => {
            found.error(span, format!("`repeat` of notify cannot be {time}"), "0s, or 1m to 720h", "");
            time
        }
        time => time.map_or(DurNs::from_secs(4 * 3600), |(time, _)| time),
    };
    let paths = one.texts("paths", found).unwrap_or_default().into_iter().map(|(path, _)| path.to_owned()).collect();
    let ca = one.words("ca", found).map_or("/etc/ssl/certs/ca-certificates.crt", |(file, _)| file).into();
    Some(Destination { name: name?, to: to?, severity, paths, delay, repeat, ca })
}

type Placed<'t> = (&'t str, std::ops::Range<usize>);

fn required<'t>(one: &Section<'t>, key: &str, found: &mut Diagnostics<'_>) -> Option<Placed<'t>> {
    if one.value(key).is_none() {
        one.missing(key, found);
    }
    one.words(key, found)
}

fn target(one: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Target> {
    let (text, span) = required(one, "to", found)?;
    let wrong = |found: &mut Diagnostics<'_>| {
        let message = format!("`to` of notify cannot be {:?}", clipped(text));
        let expected = "`http://HOST/PATH`, `https://HOST/PATH` or `mailto:ADDRESS`, without user, fragment, blanks or other letters than ASCII";
        found.error(span.clone(), message, expected, "for example `to = \"https://alerts.example.org/tahti\"`");
    };
    let others = |keys: &[&str], found: &mut Diagnostics<'_>| {
        for key in keys.iter().filter(|key| one.value(key).is_some()) {
            let message = format!("`{key}` of notify with `to = {:?}`", clipped(text));
            found.error(span.clone(), message, "keys of webhooks, or keys of mails", format!("remove `{key}`"));
        }
    };
    if let Some(list) = text.strip_prefix("mailto:") {
        others(&["token_file"], found);
        let to: Vec<String> = list.split(',').map(str::to_owned).collect();
        let is_good = to.len() <= ADDRESSES_MAX && to.iter().all(|address| is_address(address));
        if !is_good {
            wrong(found);
        }
        let from = required(one, "from", found).and_then(|(from, span)| {
            if !is_address(from) {
                let message = format!("`from` of notify cannot be {:?}", clipped(from));
                found.error(span, message, "a mail address in ASCII", "for example \"tahti@example.org\"");
            }
            is_address(from).then(|| from.to_owned())
        });
        let relay = relay(one, found);
        return if is_good { Some(Target::Mail { to, from: from?, relay: relay? }) } else { None };
    }
    others(&["from", "relay"], found);
    let web = web(text);
    if web.is_none() {
        wrong(found);
    }
    let token_file = one.words("token_file", found).map(|(file, span)| (PathBuf::from(file), span));
    let (server, authority, path) = web?;
    if let Some((_, span)) = &token_file
        && !server.is_secure
        && !server.is_here()
    {
        let message = "`token_file` of notify would send the token to another machine without encryption";
        found.error(span.clone(), message, "`https`, or this machine", "write `to = \"https://…\"`");
    }
    Some(Target::Web { server, authority, path, token_file: token_file.map(|(file, _)| file) })
}

/// Server, authority and path of a URL.
fn web(text: &str) -> Option<(Server, String, String)> {
    let is_printable = text.len() <= URL_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    let (rest, is_secure) = match text.strip_prefix("https://") {
        Some(rest) => (rest, true),
        None => (text.strip_prefix("http://")?, false),
    };
    if !is_printable || text.contains(['#', '\\']) {
        return None;
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let server = Server::parse(authority, is_secure, if is_secure { 443 } else { 80 })?;
    Some((server, authority.to_owned(), path))
}

fn relay(one: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Server> {
    let Some((text, span)) = one.words("relay", found) else {
        let here = Server { host: "localhost".to_owned(), port: 25, is_secure: false };
        return one.value("relay").is_none().then_some(here);
    };
    let server = match text.strip_prefix("smtps://") {
        Some(rest) => Server::parse(rest, true, 465),
        None => text.strip_prefix("smtp://").and_then(|rest| Server::parse(rest, false, 25)),
    };
    if server.is_none() {
        let message = format!("`relay` of notify cannot be {:?}", clipped(text));
        found.error(span, message, "`smtp://HOST[:PORT]` or `smtps://HOST[:PORT]`", "");
    }
    server
}

/// Whether a text is a mail address without letters that have a meaning in SMTP or in headers.
fn is_address(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_graphic() && !b"<>()[],;:\\\"@".contains(&byte);
    let is_good = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    let parts = text.split_once('@');
    text.len() <= ADDRESS_BYTES_MAX && parts.is_some_and(|(user, host)| is_good(user) && is_good(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    fn read_one(entry: &str) -> Result<Destination, Vec<String>> {
        let text =
            format!("[alarms]\nname = \"r\"\nfolder = \"a\"\nnotify = [{entry}]\n[[alarm]]\nchannels = [\"A\"]\n");
        let (config, found) = read(&text);
        let messages = found.into_iter().map(|found| found.message).collect();
        config.map(|mut config| config.notify.remove(0)).ok_or(messages)
    }

    #[test]
    fn a_webhook_and_mail_addresses_are_destinations_with_defaults() {
        let web = read_one("{ name = \"a\", to = \"https://h.example.org:8443/x?y=1\", token_file = \"/t\" }").unwrap();
        let server = Server { host: "h.example.org".into(), port: 8443, is_secure: true };
        let to = Target::Web {
            server,
            authority: "h.example.org:8443".into(),
            path: "/x?y=1".into(),
            token_file: Some("/t".into()),
        };
        assert_eq!((web.to, web.severity, web.delay), (to, Severity::Minor, DurNs::from_secs(10)));
        let mail = "{ name = \"b\", to = \"mailto:a@x.org,b@x.org\", from = \"t@x.org\", relay = \"smtps://m\", severity = \"MAJOR\", repeat = \"0s\" }";
        let mail = read_one(mail).unwrap();
        let relay = Server { host: "m".into(), port: 465, is_secure: true };
        let to = vec!["a@x.org".to_owned(), "b@x.org".to_owned()];
        assert_eq!(mail.to, Target::Mail { to, from: "t@x.org".into(), relay });
        assert_eq!((mail.severity, mail.repeat), (Severity::Major, DurNs(0)));
        let here = read_one("{ name = \"c\", to = \"http://[::1]:8080\", token_file = \"/t\" }").unwrap();
        let Target::Web { server, authority, path, .. } = here.to else { panic!() };
        assert_eq!((server.host.as_str(), server.port, server.is_here()), ("::1", 8080, true));
        assert_eq!((authority.as_str(), path.as_str()), ("[::1]:8080", "/"));
    }

    #[test]
    fn a_destination_that_cannot_be_used_is_an_error_with_its_key() {
        let web = "name = \"a\", to = \"https://h/x\"";
        let mail = "name = \"a\", to = \"mailto:a@x.org\", from = \"t@x.org\"";
        for (entry, expected) in [
            ("{ name = \"a\" }".to_owned(), "`to` is missing"),
            ("{ to = \"http://h\" }".to_owned(), "`name` is missing"),
            ("{ name = \"a b\", to = \"http://h\" }".to_owned(), "`name` of notify cannot be \"a b\""),
            ("{ name = \"a\", to = \"ftp://h\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"http://u:p@h/\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"http://h/a b\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"http://h:0/\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"http://h\\r\\nX: y/\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"mailto:a\", from = \"t@x.org\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"mailto:a@x>\", from = \"t@x.org\" }".to_owned(), "`to` of notify cannot be"),
            ("{ name = \"a\", to = \"mailto:a@x.org\" }".to_owned(), "`from` is missing"),
            (format!("{{ {web}, relay = \"smtp://h\" }}"), "`relay` of notify with"),
            (format!("{{ {mail}, token_file = \"/t\" }}"), "`token_file` of notify with"),
            (format!("{{ {mail}, relay = \"h\" }}"), "`relay` of notify cannot be \"h\""),
            (format!("{{ {web}, severity = \"OK\" }}"), "`severity` of notify cannot be \"OK\""),
            (format!("{{ {web}, repeat = \"5s\" }}"), "`repeat` of notify cannot be"),
            (format!("{{ {web}, sound = \"x\" }}"), "unknown key `sound`"),
            (format!("{{ {web} }}, {{ {web} }}"), "two destinations of `notify` are named \"a\""),
            (
                "{ name = \"a\", to = \"http://h/\", token_file = \"/t\" }".to_owned(),
                "would send the token to another machine",
            ),
        ] {
            let found = read_one(&entry).unwrap_err();
            assert!(found.len() == 1 && found[0].contains(expected), "{entry}: {found:?}");
        }
    }
}
