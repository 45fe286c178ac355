use super::*;
use crate::top::seen::{ActiveAlarm, AlarmsSample};
use base::{Policy, Size};
use host::health::Reason;
use host::supervise::Phase;
use keep::supervisor::Figures;
use keep::supervisor::control::{Family, LoopHistogram, LoopStatus, Status};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use serde_json::json;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

fn process(name: &str, pid: i32, misses: Option<u64>) -> ProcessStatus {
    let time = |ns| Some(DurNs(ns));
    let wake = Figures { count: 1000, p50: time(2_000), p99: time(9_000), p999: time(60_000), max: time(70_000) };
    let page =
        |misses| LoopStatus { thread: pid, cycles: 1000, first: MonoNs(0), period: DurNs::from_ms(1), wake, misses };
    ProcessStatus {
        name: name.to_owned(),
        state: "running".to_owned(),
        pid: Some(pid),
        keeper: None,
        class: Policy::Other { nice: 0 },
        cpus: "1".parse().unwrap(),
        cpu: DurNs(0),
        memory: Size(u64::try_from(pid).unwrap() << 20),
        threads: 1,
        family: None,
        started: Some(MonoNs(0)),
        starts: 1,
        restarts: 0,
        ended: None,
        last_line: None,
        automatic: BTreeMap::new(),
        shortfalls: Vec::new(),
        trouble: None,
        status_text: None,
        evidence: None,
        loop_page: misses.map(page),
        value: None,
        guest: None,
    }
}

fn alarm(path: &str, severity: Severity) -> ActiveAlarm {
    let (message, age) = ("HIHI".to_owned(), DurNs(90_000_000_000));
    ActiveAlarm { path: path.to_owned(), severity, message, age }
}

fn model() -> Model {
    let processes = vec![process("zebra", 11, None), process("loop", 12, Some(3)), process("\x1b]0;ape", 13, None)];
    let plant = Status {
        partitions: Vec::new(),
        name: "rf".to_owned(),
        file: "/plants/rf".into(),
        profiles: host::plant::Profiles::default(),
        phase: Phase::Up,
        supervisor: 10,
        since: MonoNs(0),
        now: MonoNs(100 * SECOND),
        shield: "no shield".to_owned(),
        shortfalls: Vec::new(),
        outcome: Outcome::Good,
        health: Vec::new(),
        processes,
    };
    let buckets = vec![(1_000, 1_999, 10), (2_000, 3_999, 980), (60_000, 70_000, 10)];
    let minor = json!({ "length_ns": 1_000_000, "p50": 250_000, "p99": 500_000, "max": 900_000 });
    let counts = json!({ "overruns": 2, "minors": 4000 });
    let seen = PlantSample {
        plant,
        percents: BTreeMap::from([(11, 0.5), (12, 42.0), (13, 7.0)]),
        threads: BTreeMap::new(),
        histograms: vec![LoopHistogram { name: "loop".to_owned(), buckets, beyond: 1, sum: DurNs(0) }],
        late: None,
        alarms: Ok(AlarmsSample {
            rows: vec![alarm("/rf/HV", Severity::Major), alarm("/rf/T", Severity::Minor)],
            acknowledged: 1,
        }),
        cpus: vec![(0, 3.0), (1, 99.0)],
        log: Vec::new(),
        frames: json!([{ "name": "sr", "state": "runs", "counts": counts, "minors": [minor] }]),
        own: 0.4,
    };
    let stale = DurNs::from_ms(3_000);
    let mut model = Model::new("rf", View::new(false, Sort::Order), stale);
    model.take(Box::new(seen));
    model
}

fn screen(model: &Model, (columns, rows): (u16, u16), after: u64) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| model.draw(frame, MonoNs(100 * SECOND + after))).unwrap();
    let cells = terminal.backend().buffer().content();
    cells.chunks(columns.into()).map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

#[test]
fn a_usual_terminal_shows_processes_alarms_and_the_latency_of_the_chosen_one() {
    let mut model = model();
    model.press(b"j");
    let rows = screen(&model, (80, 24), 0);
    let all = rows.join("\n");
    assert!(rows[0].starts_with("rf: up for 1m40s, ● good, no shield"), "{all}");
    assert!(rows[1].starts_with("all promises are kept"), "{all}");
    assert!(rows[2].starts_with("alarms: /rf/HV, /rf/T "), "{all}");
    assert!(rows[3].starts_with("CPUs  0 ▁  1 █   top itself 0.4 %"), "{all}");
    assert!(rows[6].starts_with("> loop") && rows[6].contains("42.0") && rows[6].contains(" 3    0"), "{all}");
    assert!(all.contains("Wake-up latency of loop: p50 2.00 µs"), "{all}");
    assert!(
        all.contains("beyond") && rows[23].starts_with("? help  q quit") && rows[23].trim_end().ends_with("by plant"),
        "{all}"
    );
    let bars = |count: &str| {
        let row = rows.iter().find(|row| row.contains(count)).unwrap_or_else(|| panic!("{count} in {all}"));
        row.matches('#').count()
    };
    // Logarithmic: 98 times the count gives about 3 times the length.
    assert!(bars(" 980 #") > bars(" 10 #") && bars(" 980 #") < 4 * bars(" 10 #"), "{all}");
}

#[test]
fn names_of_programs_never_control_the_terminal() {
    let all = screen(&model(), (80, 24), 0).join("\n");
    // The row is as wide as the others.
    assert!(all.contains("  \\x1b]0;ape           13 running") && !all.contains('\x1b'), "{all}");
}

#[test]
fn keys_select_the_order_and_the_filter() {
    let order = |pressed: &[u8]| {
        let mut model = model();
        model.press(pressed);
        model.processes().iter().map(|one| one.pid.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(order(b"o"), [11, 12, 13]);
    assert_eq!(order(b"c"), [12, 13, 11]);
    assert_eq!(order(b"m"), [13, 12, 11]);
    assert_eq!(order(b"d"), [12, 11, 13]);
    assert_eq!(order(b"n"), [13, 12, 11]);
    assert_eq!(order(b"/oo\r"), [12]);
    let mut nothing = model();
    nothing.press(b"/absent");
    let all = screen(&nothing, (80, 24), 0).join("\n");
    assert!(
        all.contains("no process has \"absent\" in its name") && all.contains("names that contain: absent_"),
        "{all}"
    );
}

#[test]
fn old_data_are_displayed_as_stale_and_paused_data_as_paused() {
    let mut model = model();
    assert!(!screen(&model, (80, 24), 3 * SECOND).join("").contains("STALE"));
    assert!(screen(&model, (80, 24), 4 * SECOND)[2].starts_with("STALE: this is 4.0 s old"));
    model.trouble = Some(NoLook::Silent("gone".to_owned()));
    assert!(screen(&model, (80, 24), SECOND)[2].starts_with("STALE: this is 1.0 s old (gone)"));
    model.press(b"p");
    assert!(screen(&model, (80, 24), 9 * SECOND)[2].starts_with("PAUSED 9.0 s ago"));
}

#[test]
fn a_plant_that_went_down_is_reported_and_its_processes_are_not_shown_as_running() {
    let mut model = model();
    model.trouble = Some(NoLook::Down);
    let rows = screen(&model, (100, 24), 4 * SECOND);
    let all = rows.join("\n");
    assert!(rows[0].starts_with("rf: DOWN: the plant went down; last seen 4.0 s ago"), "{all}");
    assert!(rows[1].starts_with("`tahti up` starts it again") && !all.contains("running"), "{all}");
    assert!(rows[23].contains("q quit"), "{all}");
    model.seen = None;
    assert!(screen(&model, (80, 24), 0)[0].starts_with("rf: DOWN: the plant went down"));
}

#[test]
fn a_program_that_forks_is_shown_with_its_descendants() {
    let mut model = model();
    let zebra = &mut model.seen.as_mut().unwrap().plant.processes[0];
    let (memory, cpu) = (Size(90 << 20), DurNs::from_ms(70));
    zebra.family = Some(Family { processes: 3, cpu, memory, threads: 5, memory_bound: None, tasks_bound: None });
    let all = screen(&model, (80, 24), 0).join("\n");
    assert!(all.contains("90.0 M") && !all.contains("11.0 M"), "{all}");
    model.press(b"m");
    assert_eq!(model.processes()[0].name, "zebra");
}

#[test]
fn frames_show_the_used_share_of_their_minors_and_help_shows_the_keys() {
    let mut model = model();
    model.press(b"3");
    let all = screen(&model, (80, 24), 0).join("\n");
    assert!(all.contains("sr: runs, 2 overruns in 4000 minors"), "{all}");
    assert!(all.contains("minor 0 of 1.00 ms: used p50 25.0 %, p99 50.0 %, max 90.0 %"), "{all}");
    model.press(b"?");
    let all = screen(&model, (80, 24), 0).join("\n");
    assert!(all.contains("deadlines missed") && !all.contains("minor 0"), "{all}");
}

#[test]
fn late_wake_ups_are_shown_with_their_culprits_or_that_no_recorder_runs() {
    let mut model = model();
    model.press(b"2");
    let all = screen(&model, (120, 24), 0).join("\n");
    assert!(all.contains("no flight recorder runs; add [recorder] to the plant file"), "{all}");
    let late = json!({ "at_ns": 99 * SECOND, "tid": 12, "name": "loop", "cpu": 1, "delay_ns": 1_200_000,
        "culprit": "preempted by hog (real-time 60)", "parts": [] });
    let recorded = json!({ "pid": 9, "since_ns": 0, "now_ns": 98 * SECOND, "cpus": "1", "above_ns": 500_000, "threads": 1, "events": 7,
        "lost": { "events": 0, "times": 0, "broken": 0 }, "burnt_ns": 1, "held_bytes": 1, "held_bytes_max": 2, "wakeups": 1000, "late": 1,
        "unexplained_percent": 0.0, "culprits": [], "last": [late], "kept": [], "left_out": 0, "trouble": null });
    model.seen.as_mut().unwrap().late = Some(serde_json::from_value(recorded).unwrap());
    let sample = model.seen.as_mut().unwrap().late.as_mut().unwrap();
    sample.shortfall = Some("watches 0 threads: they have ended".to_owned());
    let all = screen(&model, (120, 24), 0).join("\n");
    assert!(all.contains("watches 0 threads: they have ended"), "{all}");
    assert!(all.contains("Wake-ups later than 500us (as of 2.0 s ago), newest first:"), "{all}");
    assert!(all.contains("1.00 s ago   1.20 ms  loop (12), CPU 1: preempted by hog (real-time 60)"), "{all}");
}

#[test]
fn every_size_of_a_window_is_drawn() {
    let mut model = model();
    for pressed in [&b""[..], b"t", b"?", b"?4", b"2", b"5", b"6", b"x", b"n/x", b"\x1b\x1b[F"] {
        model.press(pressed);
        for columns in [1, 2, 10, 40, 80, 300] {
            for rows in [1, 2, 3, 4, 5, 12, 15, 24, 60, 120] {
                assert_eq!(screen(&model, (columns, rows), 0).len(), usize::from(rows));
            }
        }
    }
    model.seen = None;
    assert!(screen(&model, (80, 24), 0)[0].starts_with("rf: reading"));
}

#[test]
fn a_plant_that_is_not_good_shows_its_first_reason_and_the_number_of_others() {
    let mut model = model();
    let reason = |subject: &str| Reason {
        subject: subject.to_owned(),
        promise: "runs".to_owned(),
        line: Some(26),
        file: None,
        found: "stopped by a signal".to_owned(),
        from: DurNs(1),
        lasted: DurNs(2),
        lasts: true,
        count: 1,
        gaps: 0,
        whole_life: false,
        is_failure: true,
    };
    model.seen.as_mut().unwrap().plant.outcome = Outcome::Failed(vec![reason("loop"), reason("zebra")]);
    let rows = screen(&model, (120, 24), 0);
    assert!(rows[0].starts_with("rf: up for 1m40s, ◆ failed, no shield"), "{rows:?}");
    assert!(rows[1].contains("loop: stopped by a signal") && rows[1].contains("(and 1 more: `tahti ps`)"), "{rows:?}");
}

#[test]
fn the_log_of_the_chosen_process_and_the_alarms_have_panes() {
    let mut model = model();
    let mut again = model.seen.take().unwrap();
    let line = |text: &str| LogLine::parse("loop", format!("2026-11-28T01:02:03.000Z {text}").as_bytes(), "");
    again.log = (0..300).map(|nth| line(&format!("line {nth}"))).collect();
    model.take(again);
    assert_eq!(model.logs["loop"].len(), LOG_LINES);
    model.press(b"j5");
    let all = screen(&model, (120, 40), 0).join("\n");
    assert!(all.contains("Log of loop") && all.contains("01:02:03 line 299") && !all.contains("line 3 "), "{all}");
    model.press(b"6");
    let all = screen(&model, (120, 40), 0).join("\n");
    assert!(all.contains("MAJOR        /rf/HV for 1m30s: HIHI"), "{all}");
}

#[test]
fn the_use_of_the_cpu_is_drawn_over_time_on_a_wide_terminal() {
    let mut model = model();
    for percent in [0.0, 50.0, 100.0] {
        let mut next = model.seen.take().unwrap();
        next.percents.insert(12, percent);
        model.take(next);
    }
    let rows = screen(&model, (120, 24), 0);
    assert!(rows[6].contains("▄▁▅█"), "{rows:?}");
    assert!(!screen(&model, (80, 24), 0)[6].contains('█'));
}

#[test]
fn an_action_asks_first_and_its_answer_replaces_the_keys() {
    let mut model = model();
    model.press(b"jx");
    assert!(screen(&model, (80, 24), 0)[23].starts_with("stop loop?  y yes, any other key no"));
    model.press(b"n");
    assert!(screen(&model, (80, 24), 0)[23].starts_with("? help"));
    model.answer = Some(Err("loop is needed by logger: stop logger, too".to_owned()));
    assert!(screen(&model, (80, 24), 0)[23].starts_with("loop is needed by logger"));
}
