//! Content of messages: JSON of webhooks, and mails.

use alarm::notify::{Alert, Batch};
use alarm::{Severity, Wall};
use base::Utc;
use serde_json::{Value, json};

/// Maximum letters of a description or an instruction in a message.
const TEXT_MAX: usize = 400;
/// Maximum number of instructions of an alarm in a message.
const GUIDES_MAX: usize = 8;
/// Time of the end while an alarm is active, as Alertmanager writes it.
const ACTIVE: &str = "0001-01-01T00:00:00Z";

/// The JSON of Alertmanager's webhooks, version 4.
pub(super) fn webhook(set: &str, receiver: &str, batch: &Batch) -> String {
    let is_firing = batch.alerts.iter().any(|alert| alert.ended.is_none());
    let alerts: Vec<Value> = batch.alerts.iter().map(|alert| one(set, alert)).collect();
    json!({
        "version": "4", "groupKey": format!("{{}}:{{alarms=\"{set}\"}}"), "truncatedAlerts": 0,
        "status": if is_firing { "firing" } else { "resolved" }, "receiver": receiver,
        "groupLabels": { "alarms": set }, "commonLabels": { "alarms": set }, "commonAnnotations": {}, "externalURL": "",
        "alerts": alerts,
    })
    .to_string()
}

fn one(set: &str, alert: &Alert) -> Value {
    let severity = alert.state.alarm.severity.name().to_ascii_lowercase();
    let ended = alert.ended.as_ref();
    json!({
        "status": if ended.is_some() { "resolved" } else { "firing" },
        "labels": { "alertname": alert.channel, "alarms": set, "path": alert.path, "severity": severity },
        "annotations": {
            "summary": summary(alert), "description": clipped(&alert.description),
            "guidance": guidance(alert).join("\n"), "ended": ended.map_or("", |(_, why)| why.as_str()),
        },
        "startsAt": iso(alert.since), "endsAt": ended.map_or_else(|| ACTIVE.to_owned(), |(at, _)| iso(*at)),
        "generatorURL": "", "fingerprint": format!("{:016x}", fingerprint(&alert.path)),
    })
}

/// Severity, channel, message and value.
fn summary(alert: &Alert) -> String {
    let moment = &alert.state.alarm;
    let severity = moment.severity;
    clipped(format!("{severity} {} {} {}", alert.path, moment.message, moment.value).trim_end())
}

fn guidance(alert: &Alert) -> Vec<String> {
    let guides = alert.guidance.iter().take(GUIDES_MAX);
    guides.map(|guide| clipped(&format!("{}: {}", guide.title, guide.details))).collect()
}

/// A mail: headers, and a plain text in base64, whose lines are short and do not begin with a dot.
pub(super) fn mail(set: &str, from: &str, to: &[String], batch: &Batch) -> String {
    let active = batch.alerts.iter().filter(|alert| alert.ended.is_none()).count();
    let worst = batch.alerts.iter().max_by_key(|alert| (alert.ended.is_none(), alert.state.alarm.severity));
    let about = worst.map_or_else(String::new, |alert| {
        let word = if alert.ended.is_some() { "ended:" } else { alert.state.alarm.severity.name() };
        format!("{word} {}", alert.path)
    });
    let more = match batch.alerts.len() {
        0 | 1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    let subject: String = format!("[{set}] {about}{more}")
        .chars()
        .map(|letter| if letter == ' ' || letter.is_ascii_graphic() { letter } else { '?' })
        .take(200)
        .collect();
    let host = from.split_once('@').map_or("localhost", |(_, host)| host);
    let mut text = format!("{set}: {active} active, {} ended\n", batch.alerts.len() - active);
    batch.alerts.iter().for_each(|alert| text.push_str(&paragraph(alert)));
    let lines: Vec<String> =
        base64(text.as_bytes()).as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!(
        "Date: {}\r\nFrom: {from}\r\nTo: {}\r\nSubject: {subject}\r\nMessage-ID: <{}.alarms@{host}>\r\nAuto-Submitted: auto-generated\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n",
        mail_date(Wall(batch.id)),
        to.join(",\r\n "),
        batch.id,
        lines.join("\r\n"),
    )
}

fn paragraph(alert: &Alert) -> String {
    let mut lines = vec![String::new()];
    let since = iso(alert.since);
    match &alert.ended {
        None => lines.extend([summary(alert), format!("  active since {since}")]),
        Some((at, why)) => {
            let end = if why == Severity::Ok.name() { "ended" } else { why };
            lines.extend([format!("{end} {}", clipped(&alert.path)), format!("  was {}", summary(alert))]);
            lines.push(format!("  active from {since} to {}", iso(*at)));
        }
    }
    let help = std::iter::once(clipped(&alert.description)).chain(guidance(alert));
    lines.extend(help.filter(|text| !text.is_empty()).map(|text| format!("  {text}")));
    lines.join("\n") + "\n"
}

/// One line of bounded length.
fn clipped(text: &str) -> String {
    let is_long = text.chars().count() > TEXT_MAX;
    let start = text.chars().take(TEXT_MAX).map(|letter| if letter.is_control() { ' ' } else { letter });
    start.chain(is_long.then_some('…')).collect()
}

/// A time of RFC 3339, to the second.
fn iso(at: Wall) -> String {
    let Utc { year, month, day, hour, minute, second } = Utc::of((at.0 / 1_000_000_000).max(0) as u64);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A time of RFC 5322.
fn mail_date(at: Wall) -> String {
    let seconds = (at.0 / 1_000_000_000).max(0) as u64;
    let Utc { year, month, day, hour, minute, second } = Utc::of(seconds);
    // 1970 began on a Thursday.
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(seconds / 86_400 % 7) as usize];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months[(month as usize - 1) % 12];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}

/// FNV-1a, the same in every version.
fn fingerprint(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Base64 of RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= three.len() { letter.into() } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alarm::{Guide, Moment, State};

    fn alert(path: &str, ended: Option<(Wall, String)>) -> Alert {
        let alarm = Moment { severity: Severity::Major, message: "HIHI".into(), value: "53".into(), time: Wall(0) };
        Alert {
            path: path.into(),
            channel: "RF:TEMP".into(),
            description: "Kühlwasser\r\nBcc: x@y".into(),
            guidance: vec![Guide { title: "Pump".into(), details: "call 4711".into() }],
            state: State { alarm, ..State::default() },
            since: Wall(1_795_817_429_000_000_000),
            ended,
        }
    }

    fn batch(alerts: Vec<Alert>) -> Batch {
        Batch { id: 1_795_817_439_000_000_000, alerts, tries: 0 }
    }

    #[test]
    fn a_webhook_receives_the_json_of_alertmanager() {
        let ended = alert("/ring/B", Some((Wall(1_795_817_489_000_000_000), "shelved".into())));
        let text = webhook("ring", "oncall", &batch(vec![alert("/ring/A", None), ended]));
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!([&json["version"], &json["status"], &json["receiver"]], ["4", "firing", "oncall"]);
        let (first, last) = (&json["alerts"][0], &json["alerts"][1]);
        assert_eq!([&first["status"], &last["status"]], ["firing", "resolved"]);
        assert_eq!([&first["startsAt"], &first["endsAt"]], ["2026-11-27T22:10:29Z", ACTIVE]);
        assert_eq!([&last["endsAt"], &last["annotations"]["ended"]], ["2026-11-27T22:11:29Z", "shelved"]);
        let labels = json!({ "alertname": "RF:TEMP", "alarms": "ring", "path": "/ring/A", "severity": "major" });
        assert_eq!(first["labels"], labels);
        assert_eq!(first["annotations"]["summary"], "MAJOR /ring/A HIHI 53");
        assert_eq!(first["annotations"]["guidance"], "Pump: call 4711");
        assert_eq!(first["fingerprint"].as_str().unwrap().len(), 16);
        let only = webhook("ring", "oncall", &batch(vec![alert("/ring/B", Some((Wall(0), "OK".into())))]));
        assert!(only.contains("\"status\":\"resolved\",\"truncatedAlerts\":0"), "{only}");
    }

    #[test]
    fn a_mail_has_ascii_headers_of_one_line_and_its_text_in_base64() {
        let to = ["a@x.org".to_owned(), "b@x.org".to_owned()];
        let text = mail("ring", "t@x.org", &to, &batch(vec![alert("/ring/Ä\r\nBcc: x", None), alert("/ring/B", None)]));
        assert!(text.is_ascii());
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let lines: Vec<&str> = head.split("\r\n").collect();
        assert_eq!(lines[0], "Date: Fri, 27 Nov 2026 22:10:39 +0000");
        assert_eq!(
            lines[1..5],
            ["From: t@x.org", "To: a@x.org,", " b@x.org", "Subject: [ring] MAJOR /ring/B and 1 more"]
        );
        assert_eq!(lines[5], "Message-ID: <1795817439000000000.alarms@x.org>");
        assert!(lines.iter().all(|line| !line.starts_with("Bcc")), "{head}");
        assert!(body.split("\r\n").all(|line| line.len() <= 76 && !line.starts_with('.')));
    }

    #[test]
    fn base64_has_the_vectors_of_rfc_4648() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn a_paragraph_names_what_is_wrong_since_when_and_what_to_do() {
        assert_eq!(
            paragraph(&alert("/ring/A", None)),
            "\nMAJOR /ring/A HIHI 53\n  active since 2026-11-27T22:10:29Z\n  Kühlwasser  Bcc: x@y\n  Pump: call 4711\n"
        );
        let ended = paragraph(&alert("/ring/A", Some((Wall(1_795_817_489_000_000_000), "OK".into()))));
        assert!(ended.starts_with(
            "\nended /ring/A\n  was MAJOR /ring/A HIHI 53\n  active from 2026-11-27T22:10:29Z to 2026-11-27T22:11:29Z\n"
        ));
    }
}
