//! State of the plant's archive: sample rate, last sync, disk.

use serde_json::{Value, json};
use std::path::Path;

/// `is_configured`, and `error` or the logger's status.
pub(super) fn status(folder: Option<&Path>) -> Value {
    let Some(folder) = folder else { return json!({ "is_configured": false }) };
    match collect::status::ask(folder) {
        Ok(status) => json!({ "is_configured": true, "status": status }),
        Err(error) => json!({
            "is_configured": true,
            "error": format!("the archive in {} does not answer: {error}", folder.display()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_archive_is_distinguished_from_a_missing_one() {
        assert_eq!(status(None), json!({ "is_configured": false }));
        let silent = status(Some(Path::new("/nonexistent/archive")));
        assert_eq!(silent["is_configured"], true);
        assert!(silent["error"].as_str().unwrap().starts_with("the archive in /nonexistent/archive does not answer: "));
    }
}
