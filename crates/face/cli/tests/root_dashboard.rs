//! The dashboard with users of other user ids, and over a slow line.

use harness::network::Namespace;
use harness::page::{PageMessage, Socket, http, token};
use harness::port::free_port;
use harness::process::Running;
use harness::{Folder, fresh, tahti};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

#[test]
fn a_user_who_opens_connections_without_end_leaves_room_for_others() {
    const NOBODY: u32 = 65_534;
    let (port, run) = (free_port(), Folder::new());
    let mut serve = tahti();
    serve.args(["dash", "serve", "--plant", &fresh("page"), &format!("--listen=127.0.0.1:{port}")]);
    let _serves = Running::until(serve.env("TAHTI_RUN", &run.0), "serves at");
    // The server closes each connection after ten seconds without a request, so the attacker opens new ones.
    let script = format!(
        "while :; do for fd in $(seq 10 110); do eval \"exec $fd<>/dev/tcp/127.0.0.1/{port}\"; done; echo all are open; sleep 3; done"
    );
    let mut hog = Command::new("bash");
    let _hog = Running::until(hog.args(["-c", &script]).uid(NOBODY).gid(NOBODY).current_dir("/"), "all are open");
    for _ in 0..20 {
        let answer = http(port, "GET / HTTP/1.1", "");
        assert!(answer.contains("<title>tahti</title>"), "{answer}");
    }
}

/// Number of oscilloscope pictures that arrive before the answer to a request sent now. Beats received meanwhile are
/// stored in `beats`.
fn pictures_before_an_answer(page: &mut Socket, id: u64, beats: &mut Vec<serde_json::Value>) -> usize {
    const PICTURE: u8 = 2;
    page.say(&format!(r#"{{"id":{id},"do":"verbs"}}"#));
    let mut pictures = 0;
    loop {
        match page.message() {
            PageMessage::Bytes(bytes) => pictures += usize::from(bytes[0] == PICTURE),
            PageMessage::Text(text) if text["answer"] == id => return pictures,
            PageMessage::Text(text) => beats.extend(text.get("beat").cloned()),
        }
    }
}

#[test]
fn over_a_line_of_one_megabit_the_newest_update_arrives_and_dropped_ones_are_counted() {
    let (line, run, segment) = (Namespace::new("slow"), Folder::new(), fresh("slow"));
    line.slow_loopback("1mbit");
    let mut demo = tahti();
    let _loop = Running::until(&mut line.command(demo.args(["demo", "llrf", "--channel", &segment])), "armed:");
    let (port, plant) = (line.within(free_port), fresh("page"));
    let ours = |args: &[&str]| {
        let mut ours = tahti();
        ours.args(args).env("TAHTI_RUN", &run.0);
        line.command(&ours)
    };
    let mut serve = ours(&["dash", "serve", "--plant", &plant, &format!("--listen=127.0.0.1:{port}")]);
    let _serves = Running::until(&mut serve, "serves at");
    let url = ours(&["dash", "url", "--plant", &plant]).output().unwrap();
    let mut page = line.within(|| Socket::open(port, &token(&String::from_utf8_lossy(&url.stdout))));

    // Pictures of about 100 kB, ten per second: eight times the capacity of the line.
    page.say(&format!(
        r#"{{"id":1,"do":"scope","act":{{"do":"arm","segment":"{segment}","channels":["amplitude","phase","drive","drive-phase","beam"],"trigger":null,"mode":"roll","pre":0,"length":4000,"every":1,"holdoff":0,"keep":1}}}}"#
    ));
    assert!(page.answer(1)["ok"].is_object());
    page.say(r#"{"id":2,"do":"scope","act":{"do":"view","capture":null,"reference":null,"window":null,"columns":2000,"cursors":null,"maths":[],"fft":null,"xy":null,"persistence":null}}"#);
    assert!(page.answer(2)["ok"].is_object());
    let mut beats = Vec::new();
    let left_out = |beats: &[serde_json::Value]| beats.last().and_then(|beat| beat["dropped"].as_u64()).unwrap_or(0);
    let begun = std::time::Instant::now();
    let mut id = 3;
    // Until the line has been congested for long: by then all buffers on the path are full.
    while left_out(&beats) < 100 {
        pictures_before_an_answer(&mut page, id, &mut beats);
        id += 1;
        assert!(begun.elapsed() < harness::PATIENCE, "{} missing", left_out(&beats));
    }
    // After the picture in transit at most one finished picture follows; no older picture is queued anywhere.
    for id in id..id + 5 {
        let before = pictures_before_an_answer(&mut page, id, &mut beats);
        assert!(before <= 2, "{before} pictures precede an answer");
    }
    assert!(beats.iter().all(|beat| beat["stale"] == serde_json::json!([])), "{beats:?}");
}
