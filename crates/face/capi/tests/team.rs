//! Teams of threads from C.

mod separate;

use std::process::Command;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

#[test]
fn a_team_in_c_shares_jobs_names_who_is_late_and_says_what_is_wrong() {
    let program = separate::compiled("team");
    let ended = Command::new(&*program).output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_thread_that_ends_can_call_the_library_from_destructors_of_its_own_data() {
    let program = separate::compiled("ending");
    let ended = Command::new(&*program).output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}
