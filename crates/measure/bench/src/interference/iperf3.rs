//! The real `iperf3` over the same link, in the same class, for comparison.

use super::link::{CLASS, Running};
use crate::Failed;
use crate::wire::Wire;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use sys::sched::{Scheduling, set_scheduling};

/// Bytes of one run for each Mbit/s: a third of a second.
const BYTES: u32 = 45_000;

/// One run from the wire's second end to `to` at the first, of this many Mbit/s by UDP: received Mbit/s.
pub(super) fn run(wire: &Wire, to: &str, mbit: u32, udp: bool) -> Result<f64, Failed> {
    let failed = Failed::process("iperf3");
    let start = |end: usize, words: &[&str]| {
        let [program, place] = wire.words(end);
        let mut command = Command::new(program);
        command.args([&place, "iperf3"]).args(words);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(&failed)?;
        let child = Running(child);
        // It executes the program, which inherits its class.
        set_scheduling(child.0.id() as i32, Scheduling { policy: CLASS, reset_on_fork: false })?;
        Ok::<_, Failed>(child)
    };
    let mut server = start(0, &["--server", "--one-off", "--bind", to, "--forceflush"])?;
    let mut lines = server.0.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
    if !lines.any(|line| line.is_ok_and(|line| line.contains("listening"))) {
        return Err(Failed::answer("iperf3", "a listening server", "its end"));
    }
    let (rate_given, bytes) = (format!("{mbit}M"), (mbit.saturating_mul(BYTES)).to_string());
    let datagrams: &[&str] = if udp { &["--udp", "--bitrate", &rate_given, "--length", "1400"] } else { &[] };
    let mut client = start(1, &[&["--client", to, "--bytes", &bytes, "--json"], datagrams].concat())?;
    let mut text = String::new();
    if let Some(mut output) = client.0.stdout.take() {
        output.read_to_string(&mut text).map_err(failed)?;
    }
    rate(&text).ok_or_else(|| Failed::answer("iperf3", "its report", text))
}

/// Received Mbit/s, from its JSON.
fn rate(text: &str) -> Option<f64> {
    let found: Value = serde_json::from_str(text).ok()?;
    let end = &found["end"];
    let sums = [&end["sum_received"], &end["sum"]];
    let rate = |sum: &Value| {
        let lost = sum["lost_percent"].as_f64().unwrap_or(0.0);
        Some(sum["bits_per_second"].as_f64()? * (1.0 - lost / 100.0) / 1e6)
    };
    sums.into_iter().find_map(rate).filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_received_rate_excludes_lost_data() {
        let tcp = r#"{"end":{"sum_sent":{"bits_per_second":99e6},"sum_received":{"bits_per_second":95.5e6}}}"#;
        assert_eq!(rate(tcp), Some(95.5));
        let udp = r#"{"end":{"sum":{"bits_per_second":90e6,"lost_percent":10}}}"#;
        assert_eq!(rate(udp), Some(81.0));
        assert_eq!(rate(r#"{"error":"unable to connect"}"#), None);
        assert_eq!(rate("iperf3: error"), None);
    }
}
