//! Disturbances of each CPU, counted over 1 s.

use crate::hub::News;
use crate::metrics::Source;
use keep::RunDir;
use keep::shield::watch::status;
use serde_json::json;
use std::time::Duration;
use sys::root::RootDir;

/// Counting interval.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum lines of drift and of new tasks.
const LINES_MAX: usize = 20;
/// Maximum lines of what the shield could not move. The rest is counted.
const UNMOVED_MAX: usize = 200;

pub(super) fn look() -> News {
    match status(&RootDir::machine(), &RunDir::from_env(), WINDOW) {
        Ok(status) => {
            let drift = status.drift.iter().take(LINES_MAX);
            let newcomers = status.newcomers.iter().take(LINES_MAX);
            let page = json!({
                "want": status.want.as_ref().map(|want| json!({ "cpus": want.cpus.to_string() })),
                "window_ms": status.window_ms,
                "cpus": status.cpus,
                "drift": drift.map(ToString::to_string).collect::<Vec<_>>(),
                "newcomers": newcomers.map(|one| one.label.clone()).collect::<Vec<_>>(),
                "unmoved": status.unmoved.iter().take(UNMOVED_MAX).collect::<Vec<_>>(),
                "unmoved_more": status.unmoved.len().saturating_sub(UNMOVED_MAX),
            });
            News { page, source: Some(Source::Shield(Box::new(status))) }
        }
        Err(why) => News { page: json!({ "error": why.to_string() }), source: None },
    }
}
