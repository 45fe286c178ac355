//! What somebody who introduces itself asks for, looked at.

use crate::greeting::{CLAIMS_MAX, FEWER, Hello};
use msg::{Band, Object};

/// A greeting that can be.
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) bands: Vec<Band>,
    pub(super) serves: Vec<String>,
    pub(super) host: String,
    pub(super) pool: u64,
}

impl Checked {
    pub(super) fn new(hello: Hello) -> Result<Self, String> {
        let Hello { version: _, name, bands, serves, host, pool } = hello;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("name {name:?}, expected 1 to 64 printable ASCII characters without blanks"));
        }
        let known: Option<Vec<Band>> = bands.iter().map(|number| Band::new(*number)).collect();
        let known = known.filter(|known| !known.is_empty() && known.len() <= msg::BANDS);
        let known = known.ok_or_else(|| format!("bands {bands:?}, expected one or more of 0 to 7"))?;
        if (1..known.len()).any(|at| known[..at].contains(&known[at])) {
            return Err(format!("bands {bands:?}, expected each once"));
        }
        if serves.len() > CLAIMS_MAX {
            return Err(format!("{} objects to serve, expected at most {CLAIMS_MAX}; {FEWER}", serves.len()));
        }
        for object in &serves {
            Object::new(object).map_err(|error| format!("object {object:?}: {error}"))?;
            if object == "server" || object.starts_with("server_") {
                return Err("object server is the message server itself".to_owned());
            }
        }
        if !host.is_empty() && (!msg::is_host(&host) || matches!(&*host, "local" | "other")) {
            return Err(format!(
                "host {host:?}, expected 1 to 48 letters, digits, '-', '_' and '.', and not local or other"
            ));
        }
        if !host.is_empty() && !serves.is_empty() {
            return Err("a link speaks for another host or serves its objects, by two connections".to_owned());
        }
        Ok(Self { name, bands: known, serves, host, pool })
    }
}
