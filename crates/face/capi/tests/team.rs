//! Teams of threads from C.

mod separate;

use std::process::Command;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

#[test]
fn a_team_in_c_shares_jobs_names_a_late_worker_and_reports_errors() {
    let program = separate::compiled("team");
    let ended = Command::new(&*program).output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn destructors_of_thread_data_may_call_the_library() {
    let program = separate::compiled("ending");
    let ended = Command::new(&*program).output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}
