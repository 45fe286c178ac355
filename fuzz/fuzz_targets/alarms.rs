//! Alarms: Phoebus configurations, tahti's alarm file, filters, lines of the journal, requests. An imported
//! configuration survives export and a second import.
#![no_main]

use alarm::{Act, Entry, Filter, wire, xml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (serde_json::from_slice::<Entry>(bytes), serde_json::from_slice::<Act>(bytes));
    let _ = (serde_json::from_slice::<wire::Look>(bytes), serde_json::from_slice::<wire::Reply>(bytes));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = alarm::read(text);
    if let Ok(filter) = Filter::parse(text) {
        let _ = filter.is_true(&|index| (index % 3 > 0).then_some(index as f64));
    }
    if let Ok((config, _)) = xml::import(text) {
        let (again, told) = xml::import(&xml::export(&config)).expect("what we wrote");
        // A filter that is not evaluated is kept, and reported each time.
        let are_filters = told.iter().all(|note| note.contains("is stored as text but not evaluated"));
        assert!(are_filters && again.alarms.len() == config.alarms.len(), "{told:?}");
    }
});
