//! An archive over HTTP, with the interface of the EPICS Archiver Appliance. The [`web::Site`] opens the archive for each request, so it sees
//! the latest data of a logger. It sends data while it reads.
//!
//! `appliance` parses requests and builds answers. Memory per client: a few chunks of 32 KiB, the positions of the chunks of the requested
//! signals, and the needs of a post-processor.
#![forbid(unsafe_code)]

mod chunks;
mod columns;
mod opened;

use appliance::{Call, Method};
use chunks::chunks;
pub use columns::{Columns, ColumnsError, ROWS_MAX, Values, Wanted, columns};
pub use opened::Opened;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use store::{Archive, Folder, Reader, StoreError};
use web::{Answer, Now, Request, Site};

/// Opens an archive for the requested signals. The names of all other signals must be present; their samples are optional.
pub type Open = Box<dyn Fn(&dyn Fn(&str) -> bool) -> Result<Box<dyn Reader + Send>, StoreError> + Send + Sync>;

/// Opens the archive in a folder.
#[must_use]
pub fn folder(path: PathBuf) -> Open {
    opened(move |wanted| Archive::open_for(Folder::new(&path), wanted))
}

/// Opens any archive with the given function.
#[must_use]
pub fn opened<R: Reader + Send + 'static>(
    open: impl Fn(&dyn Fn(&str) -> bool) -> Result<R, StoreError> + Send + Sync + 'static,
) -> Open {
    Box::new(move |wanted| Ok(Box::new(open(wanted)?)))
}

/// Paths at which clients request the base addresses.
const APPLIANCE_INFO: [&str; 2] = ["/mgmt/bpl/getApplianceInfo", "/retrieval/bpl/getApplianceInfo"];

/// Base addresses in the format of the Appliance, derived from the request's `Host`, which has been validated.
fn info(request: &Request) -> String {
    let scheme = if request.secure { "https" } else { "http" };
    let at = format!("{scheme}://{}", request.header("host").unwrap_or("localhost"));
    format!(
        "{{\"identity\":\"tahti\",\"version\":\"tahti {}\",\"mgmtURL\":\"{at}/mgmt/bpl\",\
         \"retrievalURL\":\"{at}/retrieval/bpl\",\"dataRetrievalURL\":\"{at}/retrieval\"}}\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Response header that reports damage known at the start of the answer.
const DAMAGED: &str = "x-tahti-damaged";

/// Maximum length of that header's value, in bytes.
const DAMAGED_LEN: usize = 300;

/// Damage that may have changed an answer for a span: number of places, and the first one.
fn damage(source: &Opened, (from, to): (i64, i64)) -> Option<String> {
    let problems = source.0.problems(store::Span { from, to });
    let first = problems.first()?.to_string();
    let count = problems.len();
    let text = format!("{count} place{}: {first}", if count == 1 { "" } else { "s" });
    Some(text.chars().map(|one| if (' '..='~').contains(&one) { one } else { '?' }).take(DAMAGED_LEN).collect())
}

/// Records the damage that is known when the first bytes are written.
struct Noting<'a> {
    out: &'a mut dyn Write,
    source: &'a Opened,
    span: (i64, i64),
    damage: &'a OnceLock<Option<String>>,
}

impl Write for Noting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.damage.get_or_init(|| damage(self.source, self.span));
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// An archive as a web site.
pub struct Retrieval {
    open: Open,
    is_for_all_pages: bool,
}

impl Retrieval {
    /// A read-only site. With `is_for_all_pages`, pages of other sites may read it as well; otherwise browsers block them.
    #[must_use]
    pub fn new(open: Open, is_for_all_pages: bool) -> Self {
        Self { open, is_for_all_pages }
    }

    fn asked(&self, request: &Request, now: Now) -> Answer {
        let method = match request.method {
            web::Method::Get => Method::Get,
            web::Method::Post => Method::Post,
            web::Method::Other => return Answer::text(405, "nothing can be changed here; expected GET or POST"),
        };
        if APPLIANCE_INFO.contains(&request.path.as_str()) {
            return Answer::new(200, "application/json", info(request).into_bytes());
        }
        let (path, query) = (request.path.as_str(), request.query.as_deref().unwrap_or_default());
        let call = match Call::read(&appliance::Request { method, path, query, body: &request.body }, now.wall_ns) {
            Ok(call) => call,
            Err(refused) => return Answer::text(refused.status, &refused.why),
        };
        let source = match (self.open)(&|name| call.wants(name)) {
            Ok(reader) => Opened(reader),
            Err(error) => return Answer::text(500, &format!("the archive cannot be read: {error}")),
        };
        let answer = call.answer(&source);
        if let Some(whole) = answer.whole() {
            let whole = Answer::new(answer.status, answer.content_type, whole.to_vec());
            return reporting(whole, damage(&source, answer.span));
        }
        let (kind, span) = (answer.content_type, answer.span);
        let found = Arc::new(OnceLock::new());
        let noted = found.clone();
        match chunks(move |out| answer.write(&source, &mut Noting { out, source: &source, span, damage: &noted })) {
            Ok(parts) => reporting(Answer::parts(kind, parts), found.get().cloned().flatten()),
            Err(error) if error.kind() == io::ErrorKind::Other => Answer::text(500, &error.to_string()),
            Err(error) => Answer::text(503, &format!("no thread to read with: {error}; try again later")),
        }
    }
}

/// Adds the header that reports damage, if there is any.
fn reporting(answer: Answer, damage: Option<String>) -> Answer {
    match damage {
        Some(damage) => answer.with_header(DAMAGED, damage),
        None => answer,
    }
}

impl Site for Retrieval {
    fn may_take_long(&self, _: &Request) -> bool {
        true
    }

    fn answer(&self, request: &Request, now: Now) -> Answer {
        let answer = self.asked(request, now);
        if self.is_for_all_pages && request.path.starts_with("/retrieval/") {
            let answer = answer.with_header("access-control-allow-origin", "*");
            let answer = answer.with_header("access-control-expose-headers", DAMAGED);
            return answer.with_header("cross-origin-resource-policy", "cross-origin");
        }
        answer
    }
}
