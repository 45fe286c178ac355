//! The site behind the dashboard's address: files of the page, login, WebSocket.

use crate::access::{Access, Closed, Role};
use crate::client::{Client, Shared};
use crate::files;
use crate::hub::Hub;
use crate::manual;
use crate::scopes::{Scope, Scopes};
use crate::shares::{Party, Shares};
use crate::signals::Signals;
use crate::work::Worker;
use retrieval::Retrieval;
use std::sync::Arc;
use web::{Answer, Method, Now, Request, Site, Socket};

pub(crate) struct Dashboard {
    pub(crate) plant: String,
    pub(crate) access: Access,
    pub(crate) hub: Arc<Hub>,
    pub(crate) signals: Signals,
    pub(crate) worker: Arc<Worker>,
    pub(crate) scopes: Arc<Scopes>,
    /// Name of the message server, and the shares of clients that watch its messages.
    pub(crate) passing: (String, Shares),
    /// The archive, and whether it can be read without a token.
    pub(crate) archive: (Option<Retrieval>, bool),
}

const LOCKED: &str = "LOCKED: open the address with the token that `tahti dash url` prints";

impl Dashboard {
    /// Role of a request, from a session cookie or a token.
    fn role(&self, request: &Request, now: Now) -> Option<Role> {
        let session = |id| self.access.session(id, request.owner, now.mono);
        let by_cookie = request.cookie(&self.access.cookie).and_then(session);
        by_cookie.or_else(|| self.access.role(request.bearer()?, now.mono).ok())
    }

    fn login(&self, request: &Request, now: Now) -> Answer {
        let token = String::from_utf8_lossy(&request.body);
        let role = match self.access.role(token.trim(), now.mono) {
            Ok(role) => role,
            Err(Closed::Wrong) => {
                println!("audit: {}: a wrong token", self.who(request, None));
                return Answer::text(
                    403,
                    "LOCKED: the token is wrong, or of the time before the plant was brought up; `tahti dash url` prints the present one",
                );
            }
            Err(Closed::TooMany) => return Answer::text(429, "LOCKED: too many wrong tokens; try again in a minute"),
        };
        match self.access.begin(Party { role, owner: request.owner }, now.mono) {
            Ok(id) => {
                println!("audit: {}: connected", self.who(request, Some(role)));
                let secure = if request.secure { "; Secure" } else { "" };
                let cookie = format!("{}={id}; Path=/; HttpOnly; SameSite=Strict{secure}", self.access.cookie);
                Answer::text(200, role.word()).with_header("set-cookie", cookie)
            }
            Err(error) => Answer::text(500, &format!("/dev/urandom: {error}")),
        }
    }

    /// Answers requests to the archive, in the protocol of the EPICS Archiver Appliance.
    fn archive(&self, request: &Request, now: Now) -> Answer {
        match &self.archive {
            (None, _) => Answer::text(404, "this plant has no archive; [archive] in its file makes one"),
            (Some(archive), is_open) if *is_open || self.role(request, now).is_some() => archive.answer(request, now),
            (Some(_), _) => Answer::text(
                401,
                "LOCKED: the archive is read with the token that `tahti dash url` prints (Authorization: Bearer TOKEN), or by \
                 everybody where [dashboard] says `retrieval = true`",
            ),
        }
    }

    /// The metrics of the plant.
    fn metrics(&self, request: &Request, now: Now) -> Answer {
        let format = crate::metrics::Format::accepted(request.header("accept"));
        let text = crate::metrics::page(&self.hub, &self.plant, format, now);
        packed(request, format.content_type(), text.into_bytes())
    }

    /// An answer for clients with a session or a token.
    fn for_viewers(&self, request: &Request, now: Now, answer: impl FnOnce() -> Answer) -> Answer {
        match self.role(request, now) {
            Some(_) => answer(),
            None => Answer::text(401, LOCKED),
        }
    }

    /// Describes the client for the log: role, address, and the user if it is on this machine.
    fn who(&self, request: &Request, role: Option<Role>) -> String {
        let user = request.owner.user().map_or_else(String::new, |user| format!(", user {user}"));
        format!("{} {}{user}", role.map_or("nobody", Role::word), request.peer)
    }
}

/// An answer, compressed if the client supports it.
fn packed(request: &Request, kind: &str, bytes: Vec<u8>) -> Answer {
    if !files::accepts_deflate(request.header("accept-encoding")) {
        return Answer::new(200, kind, bytes);
    }
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&bytes, 6);
    Answer::new(200, kind, packed).with_header("content-encoding", "deflate")
}

/// Whether the path belongs to the archive.
fn is_of_the_archive(path: &str) -> bool {
    ["/retrieval/", "/mgmt/"].iter().any(|start| path.starts_with(start))
}

impl Site for Dashboard {
    /// Reads of the archive and of the history must not delay logins and the page.
    fn may_take_long(&self, request: &Request) -> bool {
        is_of_the_archive(&request.path) || ["/history", "/metrics"].contains(&request.path.as_str())
    }

    /// Operators are admitted when viewers use all connections.
    fn has_reserve(&self, request: &Request, now: Now) -> bool {
        self.role(request, now) == Some(Role::Operator)
    }

    fn answer(&self, request: &Request, now: Now) -> Answer {
        match (request.method, request.path.as_str()) {
            (_, path) if is_of_the_archive(path) => self.archive(request, now),
            (Method::Get, "/metrics") => self.for_viewers(request, now, || self.metrics(request, now)),
            (Method::Get, "/history") => self.for_viewers(request, now, || {
                packed(request, "application/json", self.hub.past().to_string().into_bytes())
            }),
            (Method::Get, "/who") => match self.role(request, now) {
                Some(role) => Answer::text(200, role.word()),
                None => Answer::text(401, LOCKED),
            },
            (Method::Post, "/login") => self.login(request, now),
            (Method::Get, "/docs" | "/docs/") => Answer::text(308, "the documentation is at /docs/index.html")
                .with_header("location", "/docs/index.html"),
            (Method::Get, path) if path.starts_with("/docs/") => match manual::file(&path["/docs/".len()..]) {
                Some(file) => Answer::new(200, file.kind, file.bytes),
                None => Answer::text(404, "no such page; the first one is /docs/index.html"),
            },
            (Method::Get, path) => files::answer(path, request.header("accept-encoding")),
            _ => Answer::text(405, "expected GET, or POST of /login").with_header("allow", "GET, POST"),
        }
    }

    fn socket(&self, request: &Request, now: Now) -> Result<Box<dyn Socket>, Answer> {
        if request.path != "/ws" {
            return Err(Answer::text(404, "not here; expected /ws"));
        }
        let role = self.role(request, now).ok_or_else(|| Answer::text(401, LOCKED))?;
        let (plant, hub) = (self.plant.clone(), self.hub.clone());
        let (signals, worker, passing) = (self.signals.clone(), self.worker.clone(), self.passing.clone());
        let shared = Shared { plant, hub, signals, worker, passing };
        let user = request.owner.user().map(|uid| sys::users::name_of(uid).unwrap_or(uid.to_string()));
        let user = user.unwrap_or_else(|| request.peer.to_string());
        let who = self.who(request, Some(role));
        let party = Party { role, owner: request.owner };
        let scope = Scope::new(self.scopes.clone(), party, who.clone());
        Ok(Box::new(Client::new(shared, scope, party, who, user)))
    }
}
