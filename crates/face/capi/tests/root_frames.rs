//! Frames with priorities on this machine's last CPU, with separately started activities in C.

mod separate;

use base::CpuId;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// Runs a test with the CPUs that there are, while no other one of this file runs: beside a frame of the same priorities
/// on the same CPU nobody has the time that it was promised.
fn alone(test: impl FnOnce(&[CpuId])) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    test(&sys::sched::affinity(0).unwrap().iter().collect::<Vec<_>>());
}

fn on_the_last_cpu(test: impl FnOnce(CpuId)) {
    alone(|cpus| test(*cpus.last().unwrap()));
}

#[test]
fn who_overruns_for_ever_is_parked_and_the_others_keep_their_frames() {
    on_the_last_cpu(separate::overruns_for_ever);
}

#[test]
fn who_blocks_is_passed_over_in_the_same_minor() {
    on_the_last_cpu(separate::blocks);
}

#[test]
fn who_dies_inside_its_call_costs_the_others_nothing() {
    on_the_last_cpu(separate::dies_inside);
}

#[test]
fn who_dies_with_a_mutex_leaves_it_to_the_next_one_who_is_told() {
    on_the_last_cpu(separate::dies_with_a_mutex);
}

#[test]
fn who_is_held_by_a_debugger_costs_the_others_nothing() {
    on_the_last_cpu(separate::is_debugged);
}

#[test]
fn who_is_stopped_comes_back_when_it_is_let_go() {
    on_the_last_cpu(separate::is_stopped);
}

#[test]
fn who_is_demoted_stays_in_the_background_also_where_it_is_alone() {
    on_the_last_cpu(separate::is_demoted_alone);
}

#[test]
fn who_was_demoted_stays_below_the_others_after_a_minor_in_which_it_had_no_turn() {
    on_the_last_cpu(separate::stays_demoted);
}

#[test]
fn who_asks_for_a_mode_gets_it_where_a_major_frame_begins() {
    on_the_last_cpu(separate::asks_for_a_mode);
}

#[test]
fn a_team_does_its_job_in_each_call_of_an_activity() {
    on_the_last_cpu(separate::runs_a_team);
}

#[test]
fn a_group_on_all_cpus_keeps_step() {
    alone(separate::group);
}
