//! Frames with priorities on this machine's last CPU, with separately started activities in C.

mod separate;

use base::CpuId;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// Runs a test with the available CPUs. Tests of this file run one at a time: frames with the same priorities on the
/// same CPU would miss their deadlines.
fn alone(test: impl FnOnce(&[CpuId])) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    test(&sys::sched::affinity(0).unwrap().iter().collect::<Vec<_>>());
}

fn on_the_last_cpu(test: impl FnOnce(CpuId)) {
    alone(|cpus| test(*cpus.last().unwrap()));
}

#[test]
fn an_activity_that_overruns_for_ever_is_parked_and_the_others_keep_their_frames() {
    on_the_last_cpu(separate::overruns_for_ever);
}

#[test]
fn a_blocked_activity_is_passed_over_in_the_same_minor() {
    on_the_last_cpu(separate::blocks);
}

#[test]
fn an_activity_that_dies_in_its_call_does_not_disturb_the_others() {
    on_the_last_cpu(separate::dies_inside);
}

#[test]
fn the_mutex_of_a_process_that_died_goes_to_the_next_owner_with_a_notice() {
    on_the_last_cpu(separate::dies_with_a_mutex);
}

#[test]
fn an_activity_held_by_a_debugger_does_not_disturb_the_others() {
    on_the_last_cpu(separate::is_debugged);
}

#[test]
fn a_stopped_activity_returns_when_it_is_continued() {
    on_the_last_cpu(separate::is_stopped);
}

#[test]
fn a_demoted_activity_stays_in_the_background_also_if_it_is_alone() {
    on_the_last_cpu(separate::is_demoted_alone);
}

#[test]
fn a_demoted_activity_stays_below_the_others_after_a_minor_without_its_turn() {
    on_the_last_cpu(separate::stays_demoted);
}

#[test]
fn a_requested_mode_begins_with_the_next_major_frame() {
    on_the_last_cpu(separate::asks_for_a_mode);
}

#[test]
fn a_team_does_its_job_in_each_call_of_an_activity() {
    on_the_last_cpu(separate::runs_a_team);
}

#[test]
fn a_group_on_all_cpus_stays_synchronous() {
    alone(separate::group);
}
