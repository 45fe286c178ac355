//! Texts that the shield reads: lines of tasks, lists and masks, cgroup files, cache ways, the shield's journal. No
//! text causes a panic, and written values are read back the same.
#![no_main]

use host::snapshot::{Cache, Class, Form, Snapshot};
use keep::shield::journal::Journal;
use libfuzzer_sys::fuzz_target;
use proc::{cgroup, interrupts, mountinfo, status, task_stat};

fuzz_target!(|text: &str| {
    if let Some(stat) = task_stat::Stat::parse(text) {
        let _ = (stat.is_dead(), Class::of(&stat).to_string());
    }
    let _ = (status::cpus_allowed(text), status::field(text, "Cpus_allowed_list"));
    cgroup::memberships(text).for_each(drop);
    mountinfo::mounts(text).for_each(drop);
    if let Ok(table) = interrupts::Interrupts::parse(text) {
        let keys = keep::machine::irq_keys(&table);
        assert!(keys.len() <= table.rows.len());
    }
    if let Some(ways) = Cache::parse(text) {
        assert_eq!(Cache::parse(&ways.to_string()), Some(ways));
    }
    // No round trip for this form: an arbitrary chosen word may have brackets, which a kernel's never has.
    let _ = Form::Choice.read(text);
    for form in [Form::Text, Form::List, Form::Mask, Form::Cache, Form::Controller] {
        let value = form.read(text);
        let written = form.write(&value).expect("what was read can be written");
        let again = form.read(&written);
        assert_eq!(form.read(&form.write(&again).expect("and again")), again, "{form:?}");
    }
    if let Ok(journal) = serde_json::from_str::<Journal>(text) {
        let steps = journal.steps();
        let way = host::plan::release(&Snapshot::default(), &steps, true);
        let _ = host::plan::model(&Snapshot::default(), &way.plan);
        let _ = keep::shield::drift(&Snapshot::default(), &journal);
    }
});
