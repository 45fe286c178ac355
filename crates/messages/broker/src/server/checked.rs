//! Validation of a greeting.

use super::refusal::Refusal;
use crate::greeting::{CLAIMS_MAX, Hello};
use msg::{Band, Object};

/// A valid greeting.
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) bands: Vec<Band>,
    pub(super) serves: Vec<String>,
    pub(super) host: String,
    pub(super) pool: u64,
}

impl Checked {
    pub(super) fn new(hello: Hello) -> Result<Self, Refusal> {
        let Hello { version: _, name, bands, serves, host, pool } = hello;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refusal::Name(name));
        }
        let known: Option<Vec<Band>> = bands.iter().map(|number| Band::new(*number)).collect();
        let known = known.filter(|known| !known.is_empty() && known.len() <= msg::BANDS);
        let known = known.ok_or_else(|| Refusal::Bands(bands.clone()))?;
        if (1..known.len()).any(|at| known[..at].contains(&known[at])) {
            return Err(Refusal::BandTwice(bands));
        }
        if serves.len() > CLAIMS_MAX {
            return Err(Refusal::Claims(serves.len()));
        }
        for object in &serves {
            Object::new(object).map_err(|error| Refusal::Object(object.clone(), error))?;
            if object == "server" || object.starts_with("server_") {
                return Err(Refusal::ServersObject);
            }
        }
        if !host.is_empty() && (!msg::is_host(&host) || matches!(&*host, "local" | "other")) {
            return Err(Refusal::Host(host));
        }
        if !host.is_empty() && !serves.is_empty() {
            return Err(Refusal::LinkServes);
        }
        Ok(Self { name, bands: known, serves, host, pool })
    }
}
