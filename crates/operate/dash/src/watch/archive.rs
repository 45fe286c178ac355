//! State of the plant's archive: sample rate, last sync, disk.

use crate::hub::News;
use crate::metrics::Source;
use serde_json::json;
use std::path::Path;

/// `is_configured`, and `error` or the logger's status.
pub(super) fn status(folder: Option<&Path>) -> News {
    let Some(folder) = folder else { return News { page: json!({ "is_configured": false }), source: None } };
    match collect::status::ask(folder) {
        Ok(status) => {
            let page = json!({ "is_configured": true, "status": status });
            News { page, source: Some(Source::Archive(Box::new(status))) }
        }
        Err(error) => {
            let error = format!("the archive in {} does not answer: {error}", folder.display());
            News { page: json!({ "is_configured": true, "error": error }), source: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_archive_is_distinguished_from_a_missing_one() {
        assert_eq!(status(None).page, json!({ "is_configured": false }));
        let silent = status(Some(Path::new("/nonexistent/archive"))).page;
        assert_eq!(silent["is_configured"], true);
        assert!(silent["error"].as_str().unwrap().starts_with("the archive in /nonexistent/archive does not answer: "));
    }
}
