//! `cargo xtask bench`: builds the release binary and runs its measurements.

use crate::run::{Outcome, cargo, run};

/// Passes everything on to `tahti bench`.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let words = ["run", "--release", "--quiet", "--", "bench"];
    run(cargo(words).args(args))
}
