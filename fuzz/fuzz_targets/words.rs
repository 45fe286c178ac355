//! CPU lists, masks, times, rates, sizes and scheduling classes: accepted values survive a round trip.
#![no_main]

use base::{CpuSet, DurNs, Hz, Policy, Size};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(cpus) = text.parse::<CpuSet>() {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
    if let Ok(cpus) = CpuSet::from_mask(text) {
        let mut mask = String::new();
        cpus.write_mask(&mut mask).expect("a String takes everything");
        assert_eq!(CpuSet::from_mask(&mask), Ok(cpus));
    }
    let _ = text.parse::<DurNs>();
    let _ = text.parse::<Hz>();
    if let Ok(size) = text.parse::<Size>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    let _ = text.parse::<Policy>();
});
