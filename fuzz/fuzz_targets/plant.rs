//! The plant file: no text panics the check, and every finding points into the text.
#![no_main]

use host::plant::{Anywhere, check, render_all};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let checked = check(text, &Anywhere);
    let broken = checked.found.iter().any(|one| one.severity == host::plant::Severity::Error);
    assert_eq!(checked.plant.is_none(), broken, "a plant comes out exactly when nothing is wrong");
    let _ = render_all(&checked.found, "plant.toml", text);
});
