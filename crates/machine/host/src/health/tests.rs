use super::*;
use crate::plant::{Anywhere, Plant, check};
use base::{DurNs, MonoNs};
use proptest::prelude::*;

const TEXT: &str = r#"[plant]
name = "rf"

[shield]
cpus = "1"

[[process]]
name = "loop"
command = "./loop"
class = "fifo:80"
restart = { limit = 3 }
heartbeat = { within = "50ms" }

[[process]]
name = "viewer"
command = "./viewer"
"#;

fn plant() -> Plant {
    let checked = check(TEXT, &Anywhere);
    checked.plant.unwrap_or_else(|| panic!("{:?}", checked.found))
}

fn second(count: u64) -> MonoNs {
    MonoNs(count * 1_000_000_000)
}

fn promise(optional: bool, required: bool) -> Promise {
    Promise {
        subject: "loop".to_owned(),
        claim: Claim::Class,
        words: "class fifo:80".to_owned(),
        line: Some(10),
        file: None,
        optional,
        required,
        whole_life: false,
        interval: INTERVAL,
    }
}

fn table(optional: bool, required: bool) -> Table {
    let mut table = Table::new(second(0));
    table.promise(second(0), vec![promise(optional, required)]);
    table
}

fn seen(word: &str) -> Observation {
    let what = word.to_owned();
    match word {
        "kept" => Observation::Kept,
        "within" => Observation::Within(what),
        "absent" => Observation::Absent(what),
        "broken" => Observation::Broken(what),
        _ => Observation::NotDue(what),
    }
}

/// The outcome after one observation per second, one second after the last; `-` is a second without an observation.
fn outcome(optional: bool, required: bool, all: &[&str]) -> String {
    let mut table = table(optional, required);
    let mut now = 0;
    for word in all {
        now += 1;
        match *word {
            "-" => table.judge(second(now)),
            word => table.observe(second(now), "loop", Claim::Class, seen(word)),
        }
    }
    table.judge(second(now + 1));
    table.outcome(second(now + 1)).word().to_owned()
}

#[test]
fn one_broken_promise_fails_the_plant_for_the_rest_of_its_life() {
    assert_eq!(outcome(false, false, &["kept", "kept"]), "good");
    assert_eq!(outcome(false, false, &["kept", "broken", "kept", "kept"]), "failed");
    assert_eq!(outcome(false, false, &["kept", "within", "kept"]), "degraded");
    assert_eq!(outcome(false, false, &["within", "broken"]), "failed");
    assert_eq!(outcome(false, false, &["due later", "kept"]), "good");
}

#[test]
fn an_optional_subject_degrades_the_plant_and_a_required_one_fails_it() {
    assert_eq!(outcome(false, false, &["absent"]), "degraded");
    assert_eq!(outcome(false, true, &["absent"]), "failed");
    for word in ["broken", "within"] {
        assert_eq!(outcome(true, false, &["kept", word]), "degraded", "{word}");
    }
    assert_eq!(outcome(true, false, &["kept", "-", "-", "-"]), "degraded");
}

#[test]
fn a_row_that_was_never_observed_is_not_kept_at_the_end_and_after_its_removal() {
    let mut young = table(false, false);
    assert_eq!(young.outcome(second(0)), Outcome::Good, "the first observation is not due yet");
    let mut removed = young.clone();
    young.close();
    removed.promise(second(0), Vec::new());
    for table in [young, removed] {
        let Outcome::Failed(reasons) = table.outcome(second(0)) else { panic!("{table:?}") };
        assert_eq!(reasons[0].found, "never observed");
    }
    let mut observed = table(false, false);
    observed.observe(second(0), "loop", Claim::Class, Observation::Kept);
    observed.close();
    assert_eq!(observed.outcome(second(0)), Outcome::Good);
}

#[test]
fn a_row_without_an_observation_for_two_intervals_is_not_kept() {
    assert_eq!(outcome(false, false, &["kept", "-"]), "good", "two intervals are allowed");
    assert_eq!(outcome(false, false, &["kept", "-", "-"]), "failed");
    assert_eq!(outcome(false, false, &["-", "-"]), "failed", "never observed");
    assert_eq!(outcome(false, false, &["kept", "-", "-", "kept", "kept"]), "failed", "a gap stays a gap");
    assert_eq!(outcome(false, false, &["not due", "-", "-", "-", "kept"]), "good");
}

#[test]
fn a_reason_within_its_limit_is_called_degraded_also_in_a_failed_plant() {
    let mut table = Table::new(second(0));
    let restarts = Promise { claim: Claim::Restarts, ..promise(false, false) };
    table.promise(second(0), vec![restarts, promise(false, false)]);
    table.observe(second(1), "loop", Claim::Restarts, Observation::Within("restarted once".to_owned()));
    let words = |outcome: Outcome| -> Vec<&str> { outcome.reasons().iter().map(Reason::word).collect() };
    assert_eq!(words(table.outcome(second(2))), ["degraded"]);
    table.observe(second(2), "loop", Claim::Class, Observation::Broken("class other".to_owned()));
    assert_eq!(words(table.outcome(second(3))), ["failed", "degraded"]);
}

#[test]
fn a_gap_is_found_by_the_observation_that_ends_it() {
    let mut table = table(false, false);
    table.observe(second(1), "loop", Claim::Class, Observation::Kept);
    table.observe(second(8), "loop", Claim::Class, Observation::Kept);
    let Outcome::Failed(reasons) = table.outcome(second(9)) else { panic!("{:?}", table.outcome(second(9))) };
    let reason = &reasons[0];
    assert_eq!((reason.from, reason.lasted, reason.lasts), (DurNs::from_secs(1), DurNs::from_secs(7), false));
    assert!(reason.found.contains("no observation"), "{reason:?}");
}

#[test]
fn a_gap_of_the_supervisor_has_its_cause_in_the_row_of_the_supervisor_and_the_other_rows_refer_to_it() {
    let mut table = Table::new(second(0));
    let observes = Promise { subject: SUPERVISOR.to_owned(), claim: Claim::Observes, ..promise(false, false) };
    table.promise(second(0), vec![promise(false, false), observes]);
    let pass = |table: &mut Table, now| {
        table.observe(second(now), "loop", Claim::Class, Observation::Kept);
        table.observe(second(now), SUPERVISOR, Claim::Observes, Observation::Kept);
    };
    pass(&mut table, 1);
    table.gap(second(2), "a pass that is not late");
    pass(&mut table, 2);
    assert_eq!(table.outcome(second(2)), Outcome::Good);
    table.gap(second(6), "no pass for 4s: asleep");
    pass(&mut table, 6);
    let found: Vec<String> = table.outcome(second(6)).reasons().iter().map(|reason| reason.found.clone()).collect();
    assert_eq!(
        found,
        [
            "no observation for more than 2s: the supervisor made no pass",
            "no observation for more than 2s: no pass for 4s: asleep"
        ]
    );
}

#[test]
fn many_rows_with_gaps_of_the_supervisor_are_one_reason_for_users_and_a_row_that_also_failed_stays() {
    let mut table = Table::new(second(0));
    let named = |subject: &str| Promise { subject: subject.to_owned(), ..promise(false, false) };
    let observes = Promise { claim: Claim::Observes, ..named(SUPERVISOR) };
    let subjects = ["a", "b", "c", "d", "e"];
    table.promise(second(0), subjects.iter().map(|name| named(name)).chain([observes]).collect());
    for now in [1, 6, 7, 12] {
        table.gap(second(now), "no pass for 5s: asleep");
        for name in subjects {
            let found = if (name, now) == ("e", 7) { seen("broken") } else { Observation::Kept };
            table.observe(second(now), name, Claim::Class, found);
        }
        table.observe(second(now), SUPERVISOR, Claim::Observes, Observation::Kept);
    }
    let outcome = table.outcome(second(12));
    let words = outcome.words(|time| time.to_string());
    let merged = "4 promises, first of a, last of d: no observation for more than 2s: the supervisor made no pass [each is observed once per second]";
    assert!(words.contains(&format!("; {merged}, from 1s for 10s in 2 incidents")), "{words}");
    assert!(words.starts_with("failed: e: ") && words.contains("in 3 incidents"), "{words}");
    let listed: Vec<&str> = outcome.reasons().iter().map(|reason| reason.subject.as_str()).collect();
    assert_eq!(listed, ["a", "b", "c", "d", "e", SUPERVISOR], "as in `ps --json`");
    assert!(words.contains("supervisor: no observation for more than 2s: no pass for 5s: asleep"), "{words}");
    assert!(!words.contains("a: no observation"), "{words}");
}

#[test]
fn a_reason_has_the_line_of_the_plant_file_the_evidence_and_its_time() {
    let mut table = table(false, false);
    for (at, word) in [(1, "kept"), (2, "broken"), (4, "kept"), (5, "broken")] {
        table.observe(second(at), "loop", Claim::Class, seen(word));
    }
    let outcome = table.outcome(second(6));
    assert_eq!((outcome.word(), outcome.exit_status()), ("failed", 3));
    let words = outcome.words(|time| time.to_string());
    assert_eq!(words, "failed: loop: broken [class fifo:80, line 10], from 2s for 3s in 2 incidents");
    assert_eq!(Outcome::Good.words(|time| time.to_string()), "good");
}

#[test]
fn a_figure_over_the_whole_life_is_judged_by_its_last_state() {
    let mut table = Table::new(second(0));
    table.promise(second(0), vec![Promise { whole_life: true, ..promise(false, false) }]);
    table.observe(second(1), "loop", Claim::Class, seen("broken"));
    assert_eq!(table.outcome(second(1)).word(), "failed");
    table.observe(second(2), "loop", Claim::Class, seen("within"));
    assert_eq!(table.outcome(second(2)).word(), "degraded");
    table.observe(second(3), "loop", Claim::Class, Observation::Kept);
    assert_eq!(table.outcome(second(3)), Outcome::Good);
}

#[test]
fn a_row_that_can_no_longer_change_keeps_its_last_observation() {
    for word in ["kept", "within", "absent", "broken"] {
        let mut table = table(false, false);
        table.repeat(second(1), "loop", Claim::Class, "not started");
        assert_eq!(table.rows()[0].state, State::NotDue);
        table.observe(second(2), "loop", Claim::Class, seen(word));
        let before = (table.rows()[0].state, table.rows()[0].evidence.clone());
        for at in 3..9 {
            table.repeat(second(at), "loop", Claim::Class, "not started");
            table.judge(second(at));
        }
        assert_eq!((table.rows()[0].state, table.rows()[0].evidence.clone()), before);
    }
}

#[test]
fn a_promise_is_unobserved_until_its_first_observation_and_then_never_again() {
    let mut table = table(false, false);
    let is_unobserved = |table: &Table| table.is_unobserved("loop", Claim::Class);
    assert!(is_unobserved(&table) && !table.is_unobserved("loop", Claim::Cpus));
    for at in 1..4 {
        table.observe(second(at), "loop", Claim::Class, seen("not due"));
        assert!(is_unobserved(&table));
    }
    table.observe(second(4), "loop", Claim::Class, Observation::NotObserved("it ended".to_owned()));
    assert!(!is_unobserved(&table));
    table.observe(second(5), "loop", Claim::Class, seen("not due"));
    assert!(!is_unobserved(&table));
    assert_eq!(table.outcome(second(6)).word(), "failed");
    table.promise(second(6), vec![Promise { line: None, claim: Claim::Cpus, ..promise(false, false) }]);
    assert!(!table.is_unobserved("loop", Claim::Cpus), "a default is no promise of the plant file");
}

#[test]
fn history_is_bounded_and_counted() {
    let mut table = table(false, false);
    for at in 1..=100 {
        table.observe(second(at), "loop", Claim::Class, seen(if at % 2 == 0 { "kept" } else { "within" }));
    }
    let row = &table.rows()[0];
    assert_eq!((row.history.len(), row.transitions), (16, 100));
    assert_eq!(row.history.back().map(|last| last.at), Some(second(100)));
}

#[test]
fn a_broken_promise_outlives_its_removal_and_a_kept_row_keeps_its_state() {
    let mut table = table(false, false);
    table.observe(second(1), "loop", Claim::Class, seen("broken"));
    table.promise(second(2), vec![Promise { words: "class fifo:70".to_owned(), ..promise(false, false) }]);
    assert_eq!((table.rows().len(), table.rows()[0].state), (1, State::Broken));
    table.promise(second(2), Vec::new());
    assert_eq!(table.outcome(second(3)).word(), "failed");
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table, "the next supervisor reads it");
}

#[test]
fn a_total_that_an_earlier_supervisor_has_observed_is_not_counted_again() {
    let mut before = table(false, false);
    let changes = before.changes();
    assert_eq!(before.grown("loop", Claim::Class, 0, 3), 3);
    assert!(before.changes() > changes, "it is saved");
    let text = serde_json::to_string(&before).unwrap();
    let mut after: Table = serde_json::from_str(&text).unwrap();
    let mut more = |nth, total| after.grown("loop", Claim::Class, nth, total);
    assert_eq!([more(0, 3), more(0, 5), more(1, 5), more(0, 2), more(0, 3)], [0, 2, 5, 0, 1]);
    assert_eq!(after.grown("loop", Claim::Runs, 0, 7), 0, "no such promise");
}

#[test]
fn each_part_of_a_plant_has_its_promises_with_their_lines() {
    let all = promises(&plant(), false);
    let line = |subject: &str, claim| {
        all.iter().find(|one| one.subject == subject && one.claim == claim).map(|one| (one.words.as_str(), one.line))
    };
    assert_eq!(line("loop", Claim::Class), Some(("class fifo:80", Some(10))));
    assert_eq!(line("loop", Claim::Restarts), Some(("at most 3 restarts in 60s", Some(11))));
    assert_eq!(line("loop", Claim::Heartbeat), Some(("a sign of life within 50ms", Some(12))));
    assert_eq!(line("loop", Claim::Memory).map(|(words, _)| words), Some("memory locked"));
    assert_eq!(line("viewer", Claim::Class), Some(("class other", None)));
    assert_eq!(line("viewer", Claim::Restarts), Some(("at most 5 restarts in 60s, by default", None)));
    assert_eq!(line("viewer", Claim::Memory), None);
    assert_eq!(line(SHIELD, Claim::Isolated), Some(("CPUs 1 isolated", Some(5))));
    let mut names: Vec<(&str, Claim)> = all.iter().map(|one| (one.subject.as_str(), one.claim)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "each promise has another name");
}

/// Every way in which one row of a plant can go wrong, with the outcome that must follow within two intervals.
#[test]
fn each_broken_row_leads_to_its_outcome_within_two_intervals() {
    let all = promises(&plant(), false);
    let (mut tried, mut wrong) = (0, Vec::new());
    for victim in &all {
        for way in ["within", "absent", "broken", "silent"] {
            let mut table = Table::new(second(0));
            table.promise(second(0), all.clone());
            let mut now = 0;
            // Twice the longest interval, and one more second.
            while now <= 12 {
                now += 1;
                for row in &all {
                    let is_victim = row.subject == victim.subject && row.claim == victim.claim && now > 1;
                    match way {
                        "silent" if is_victim => {}
                        way if is_victim => table.observe(second(now), &row.subject, row.claim, seen(way)),
                        _ => table.observe(second(now), &row.subject, row.claim, Observation::Kept),
                    }
                }
                table.judge(second(now));
            }
            let expected = match way {
                "within" => "degraded",
                "absent" if !victim.required => "degraded",
                _ => "failed",
            };
            let outcome = table.outcome(second(now));
            let named = outcome.reasons().iter().any(|reason| reason.subject == victim.subject);
            tried += 1;
            if outcome.word() != expected || !named {
                wrong.push(format!("{} {:?} {way}: {outcome:?}", victim.subject, victim.claim));
            }
        }
    }
    println!("{} rows, {tried} ways to break them, {} wrong", all.len(), wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest! {
    /// Good means that each row was kept or not due at every moment.
    #[test]
    fn an_outcome_is_good_only_if_nothing_went_wrong(
        all in prop::collection::vec(prop::sample::select(vec!["kept", "within", "absent", "broken", "not due", "-"]), 1..40)
    ) {
        let word = outcome(false, false, &all);
        let bad = all.contains(&"broken");
        let doubtful = all.contains(&"within") || all.contains(&"absent");
        prop_assert!(!bad || word == "failed");
        prop_assert!(!doubtful || word != "good");
        if !bad && !doubtful && !all.contains(&"-") {
            prop_assert_eq!(word, "good");
        }
    }
}
