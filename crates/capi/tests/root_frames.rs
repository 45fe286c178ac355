//! Frames with priorities on this machine's last CPU, with separately started activities in C.

mod separate;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

fn cpu() -> base::CpuId {
    sys::sched::affinity(0).unwrap().iter().last().unwrap()
}

#[test]
fn who_overruns_for_ever_is_parked_and_the_others_keep_their_frames() {
    separate::overruns_for_ever(cpu());
}

#[test]
fn who_blocks_is_passed_over_in_the_same_minor() {
    separate::blocks(cpu());
}

#[test]
fn who_dies_inside_its_call_costs_the_others_nothing() {
    separate::dies_inside(cpu());
}

#[test]
fn who_dies_with_a_mutex_leaves_it_to_the_next_one_who_is_told() {
    separate::dies_with_a_mutex(cpu());
}

#[test]
fn who_is_held_by_a_debugger_costs_the_others_nothing() {
    separate::is_debugged(cpu());
}

#[test]
fn who_is_stopped_comes_back_when_it_is_let_go() {
    separate::is_stopped(cpu());
}

#[test]
fn who_is_demoted_stays_in_the_background_also_where_it_is_alone() {
    separate::is_demoted_alone(cpu());
}

#[test]
fn who_was_demoted_stays_below_the_others_after_a_minor_in_which_it_had_no_turn() {
    separate::stays_demoted(cpu());
}

#[test]
fn who_asks_for_a_mode_gets_it_where_a_major_frame_begins() {
    separate::asks_for_a_mode(cpu());
}

#[test]
fn a_group_on_all_cpus_keeps_step() {
    let cpus: Vec<base::CpuId> = sys::sched::affinity(0).unwrap().iter().collect();
    separate::group(&cpus);
}
