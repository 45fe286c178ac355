//! The dashboard before users of other numbers.

use harness::page::http;
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
    // Each ends after ten seconds without a request: whoever means it opens new ones.
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
