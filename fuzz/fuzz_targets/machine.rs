//! A captured machine: no files make the shield's reader, its plan or its release panic.
#![no_main]

use base::CpuSet;
use host::doctor::Files;
use host::plan::{Profile, Want, model, plan, release};
use keep::machine::capture::Captured;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, bool, &str)| {
    let (bits, polling, text) = input;
    let Ok(files) = Files::from_capture(text) else { return };
    let cpus: CpuSet = (0..8u16).filter(|cpu| bits >> cpu & 1 == 1).collect();
    let profile = if polling { Profile::Polling } else { Profile::ControlLoop };
    let want = Want { cpus, profile, ..Want::default() };
    let Ok(snapshot) = keep::machine::snapshot(&Captured(files.scrubbed()), &cpus) else { return };
    let Ok(plan) = plan(&snapshot, &want) else { return };
    let after = model(&snapshot, &plan);
    let _ = model(&after, &release(&after, &plan.steps, false).plan);
});
