//! A stream of `tahti bench interference` by SCTP, on a kernel that has it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

/// One end of a stream to the loopback.
fn end(words: &[&str]) -> Command {
    let mut command = harness::tahti();
    command.args(["bench", "stream", "--class", "other", "--protocol", "sctp", "--to", "127.0.0.1"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[test]
fn an_sctp_stream_arrives_whole() {
    testkit::guest::required();
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let mut receiver = end(&[]).spawn().unwrap();
    let mut printed = BufReader::new(receiver.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let sent = end(&["--send"]).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let mut came = String::new();
    printed.read_to_string(&mut came).unwrap();
    assert!(receiver.wait().unwrap().success());
    let sent = String::from_utf8(sent.stdout).unwrap();
    assert_eq!(came.split_whitespace().next(), Some(sent.trim()), "{came:?}");
    assert_ne!(sent.trim(), "0");
}
