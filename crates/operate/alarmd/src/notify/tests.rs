//! Notifications with real servers on loopback.

use super::*;
use alarm::notify::{Alert, GAP};
use alarm::{Moment, Server, Severity, State, Update, Wall};
use base::{DurNs, MonoNs};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::thread::JoinHandle;

fn at(seconds: u64) -> Now {
    Now { mono: MonoNs(seconds * 1_000_000_000), wall: Wall(seconds as i64 * 1_000_000_000) }
}

fn batch() -> Batch {
    let alarm = Moment { severity: Severity::Major, message: "HIHI".into(), value: "53".into(), time: Wall(0) };
    let alert = Alert {
        path: "/ring/A".into(),
        channel: "A".into(),
        description: String::new(),
        guidance: Vec::new(),
        state: State { alarm, ..State::default() },
        since: Wall(0),
        ended: None,
    };
    Batch { id: 7, alerts: vec![alert], tries: 0 }
}

fn destination(to: Target) -> Destination {
    let (delay, repeat) = (DurNs(0), DurNs(0));
    Destination { name: "a".into(), to, severity: Severity::Minor, paths: Vec::new(), delay, repeat, ca: "/ca".into() }
}

fn web(port: u16) -> Destination {
    let server = Server { host: "127.0.0.1".into(), port, is_secure: false };
    let authority = format!("127.0.0.1:{port}");
    destination(Target::Web { server, authority, path: "/hook".into(), token_file: None })
}

fn mail(port: u16, to: &[&str]) -> Destination {
    let relay = Server { host: "127.0.0.1".into(), port, is_secure: false };
    let to = to.iter().map(ToString::to_string).collect();
    destination(Target::Mail { to, from: "t@x.org".into(), relay })
}

/// Accepts one connection and serves it.
fn served<T: Send + 'static>(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> (u16, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, std::thread::spawn(move || serve(listener.accept().unwrap().0)))
}

/// Reads a request with its body.
fn request(stream: &TcpStream) -> String {
    let (mut reader, mut text) = (BufReader::new(stream), String::new());
    while !text.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    text + &String::from_utf8(body).unwrap()
}

/// The result of a POST, and the request that the server received.
fn posted(answer: &'static str) -> (Delivery, String) {
    let (port, server) = served(move |mut stream| {
        let request = request(&stream);
        stream.write_all(answer.as_bytes()).unwrap();
        request
    });
    (send(&web(port), "ring", &batch()), server.join().unwrap())
}

#[test]
fn a_webhook_receives_a_post_with_its_batch() {
    let (sent, request) = posted("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(sent, Delivery::Delivered(None));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
    assert!(head.contains("\r\nWebhook-Id: 7\r\n") && !head.contains("Authorization"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["alerts"][0]["labels"]["path"], "/ring/A");
}

#[test]
fn an_answer_of_a_webhook_is_a_delivery_a_refusal_or_a_failure_that_may_pass() {
    let busy = posted("HTTP/1.1 503 Busy\r\nretry-after: 7\r\n\r\n").0;
    assert!(
        matches!(busy, Delivery::Failed(why, Some(after)) if why.contains("503 Busy") && after == DurNs::from_secs(7))
    );
    for (answer, expected) in [
        ("HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found"),
        ("HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", "redirects are not followed"),
    ] {
        assert!(matches!(posted(answer).0, Delivery::Refused(why) if why.contains(expected)), "{answer}");
    }
    for (answer, expected) in [
        ("", "without an answer"),
        ("hello\x1b[31m\r\n\r\n", "expected HTTP/1.1"),
        ("HTTP/1.1 429 Slow\r\nRetry-After: soon\r\n\r\n", "429 Slow"),
    ] {
        let sent = posted(answer).0;
        assert!(
            matches!(&sent, Delivery::Failed(why, None) if why.contains(expected) && !why.contains('\x1b')),
            "{sent:?}"
        );
    }
    let long: &'static str = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "y".repeat(9_000)).leak();
    assert_eq!(posted(long).0, Delivery::Delivered(None), "at most 4 KiB are read");
}

#[test]
fn a_server_that_is_not_there_is_a_failure_with_its_place() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for to in [web(port), mail(port, &["a@x.org"])] {
        let expected = format!("127.0.0.1 port {port}: Connection refused");
        assert!(matches!(send(&to, "ring", &batch()), Delivery::Failed(why, None) if why.starts_with(&expected)));
    }
}

#[test]
fn a_token_is_sent_unless_another_user_may_read_its_file() {
    let file = std::env::temp_dir().join(format!("tahti-token-{}", std::process::id()));
    std::fs::write(&file, "secret\n").unwrap();
    let with_token = |port| {
        let mut to = web(port);
        let Target::Web { token_file, .. } = &mut to.to else { unreachable!() };
        *token_file = Some(file.clone());
        to
    };
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = send(&with_token(1), "ring", &batch());
    assert!(matches!(refused, Delivery::Failed(why, None) if why.contains("mode 0644") && why.contains("chmod 600")));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (port, server) = served(|mut stream| {
        let request = request(&stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        request
    });
    assert_eq!(send(&with_token(port), "ring", &batch()), Delivery::Delivered(None));
    assert!(server.join().unwrap().contains("\r\nAuthorization: Bearer secret\r\n"));
    std::fs::remove_file(file).unwrap();
}

/// A mail server that gives these answers to the first words of commands, and else 250. Returns the commands and the mail.
fn mail_server(answers: &'static [(&'static str, &'static str)]) -> (u16, JoinHandle<Vec<String>>) {
    served(move |stream| {
        let (mut out, mut lines, mut is_data) = (stream.try_clone().unwrap(), Vec::new(), false);
        let first = answers.iter().find(|(start, _)| start.is_empty()).map_or("220 here", |(_, answer)| answer);
        out.write_all(format!("{first}\r\n").as_bytes()).unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let known = answers.iter().find(|(start, _)| !start.is_empty() && line.starts_with(start));
            let answer = match (known, is_data, line.as_str()) {
                (_, true, ".") => {
                    is_data = false;
                    "250 queued"
                }
                (_, true, _) => "",
                (Some((_, answer)), ..) => answer,
                (None, false, "DATA") => {
                    is_data = true;
                    "354 go on"
                }
                (None, false, "QUIT") => "221 bye",
                (None, false, _) => "250-first\r\n250 last",
            };
            lines.push(line);
            if !answer.is_empty() && out.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
                break;
            }
        }
        lines
    })
}

#[test]
fn a_mail_server_receives_a_mail_for_all_addresses() {
    let (port, server) = mail_server(&[]);
    assert_eq!(send(&mail(port, &["a@x.org", "b@x.org"]), "ring", &batch()), Delivery::Delivered(None));
    let lines = server.join().unwrap();
    let commands = ["EHLO [127.0.0.1]", "MAIL FROM:<t@x.org>", "RCPT TO:<a@x.org>", "RCPT TO:<b@x.org>", "DATA"];
    assert_eq!(lines[..5], commands);
    assert!(lines.contains(&"Subject: [ring] MAJOR /ring/A".to_owned()), "{lines:?}");
    assert_eq!(lines[lines.len() - 2..], [".", "QUIT"]);
}

#[test]
fn addresses_that_a_mail_server_refuses_are_reported_and_the_others_receive_the_mail() {
    let (port, server) = mail_server(&[("RCPT TO:<b", "550 unknown")]);
    let sent = send(&mail(port, &["a@x.org", "b@x.org"]), "ring", &batch());
    assert_eq!(sent, Delivery::Delivered(Some("b@x.org: 550 unknown".into())));
    assert!(server.join().unwrap().contains(&".".to_owned()));
    let (port, server) = mail_server(&[("RCPT", "550 unknown")]);
    let sent = send(&mail(port, &["a@x.org"]), "ring", &batch());
    assert!(matches!(sent, Delivery::Refused(why) if why == "mail server answers 550 unknown to RCPT TO:<a@x.org>"));
    assert!(!server.join().unwrap().contains(&"DATA".to_owned()));
}

#[test]
fn a_mail_server_that_answers_4xx_or_nonsense_is_tried_again_and_5xx_is_final() {
    let many: &'static str = "250-more\r\n".repeat(200).leak();
    let long: &'static str = "2".repeat(5_000).leak();
    for (start, answer, expected, is_final) in [
        ("", "421 busy", "421 busy to the connection", false),
        ("", "hello", "no reply of SMTP", false),
        ("", "2é0 x", "no reply of SMTP", false),
        ("EHLO", "502 what", "502 what to EHLO", true),
        ("MAIL", "451 later", "451 later to MAIL", false),
        ("DATA", "554 spam", "554 spam to DATA", true),
        ("EHLO", many, "more than 100 lines", false),
        ("EHLO", long, "more than 1000 bytes", false),
    ] {
        let (port, server) = mail_server(vec![(start, answer)].leak());
        let (why, found) = match send(&mail(port, &["a@x.org"]), "ring", &batch()) {
            Delivery::Failed(why, None) => (why, false),
            Delivery::Refused(why) => (why, true),
            other => panic!("{start} {answer}: {other:?}"),
        };
        assert!(why.contains(expected) && found == is_final, "{start} {answer}: {why}");
        server.join().unwrap();
    }
}

#[test]
fn a_silent_server_delays_neither_another_destination_nor_the_alarms() {
    // It accepts connections in the kernel, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, good) = served(|mut stream| {
        let request = request(&stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        request
    });
    let text = format!(
        "[alarms]\nname = \"ring\"\nfolder = \"a\"\nnotify = [{{ name = \"silent\", to = \"http://127.0.0.1:{}/\", delay = \"0s\" }}, \
         {{ name = \"good\", to = \"http://127.0.0.1:{port}/\", delay = \"0s\" }}]\n[[alarm]]\nchannels = [\"A\"]\n",
        silent.local_addr().unwrap().port()
    );
    let config = alarm::read(&text).0.unwrap();
    let mut panel = Panel::new(&config, at(0));
    let mut notify = Notify::start(&config, &panel, at(0)).unwrap();
    let channel = panel.channels().next().unwrap().0;
    let moment = Moment { severity: Severity::Major, message: "HIHI".into(), value: "1".into(), time: Wall(0) };
    panel.update(channel, Update { moment, number: None }, at(1));
    notify.observe(&panel.row("/ring/A").unwrap(), &panel, at(1));
    let mut lines = Vec::new();
    notify.step(at(1), &mut |line| lines.push(line.to_owned()));
    assert!(good.join().unwrap().contains("\"path\":\"/ring/A\""));
    // The alarms go on meanwhile: a step never waits.
    notify.step(at(2 + GAP.0 as u64 / 1_000_000_000), &mut |line| lines.push(line.to_owned()));
    assert_eq!((lines.as_slice(), notify.faults(at(2)).as_str()), (&[][..], ""));
    notify.end(&mut |line| lines.push(line.to_owned()));
    assert!(lines[0].starts_with("notification silent: 1 alert not delivered before the end"), "{lines:?}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_destination_with_tls_is_unavailable_in_a_build_without_it() {
    let mut to = web(1);
    let Target::Web { server, .. } = &mut to.to else { unreachable!() };
    server.is_secure = true;
    let config = |notify| Config { notify, ..Config::default() };
    assert!(unavailable(&config(vec![web(1)])).is_none());
    assert_eq!(unavailable(&config(vec![web(1), to.clone()])), Some(&to));
    let why = crate::serve(&config(vec![to]), None, &mut |_| ()).unwrap_err().to_string();
    assert!(why.contains("`to` with https:// of the destination \"a\"") && why.contains("--features tls"), "{why}");
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::Arc;

    fn openssl(words: &str) {
        let output = Command::new("openssl").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// An authority, and a certificate of 127.0.0.1 with its key.
    fn certificates(folder: &std::path::Path) -> [PathBuf; 3] {
        std::fs::create_dir_all(folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let (ca, ca_key, key, request, leaf) =
            (path("ca.pem"), path("ca.key"), path("leaf.key"), path("leaf.csr"), path("leaf.pem"));
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!("req -x509 {new} -days 2 -subj /CN=ca -out {ca} -keyout {ca_key}"));
        openssl(&format!("req {new} -subj /CN=leaf -addext subjectAltName=IP:127.0.0.1 -out {request} -keyout {key}"));
        openssl(&format!(
            "x509 -req -days 2 -in {request} -CA {ca} -CAkey {ca_key} -CAcreateserial -copy_extensions copy -out {leaf}"
        ));
        [ca.into(), leaf.into(), key.into()]
    }

    /// Answers one request over TLS; the request, if the client accepted the certificate.
    fn secure_server(leaf: &PathBuf, key: &PathBuf) -> (u16, JoinHandle<Option<String>>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = vec![CertificateDer::from_pem_file(leaf).unwrap()];
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
            .unwrap();
        served(move |stream| {
            let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let (mut text, mut part) = (String::new(), [0; 4096]);
            while !text.ends_with('}') {
                let length = stream.read(&mut part).ok().filter(|length| *length > 0)?;
                text.push_str(std::str::from_utf8(&part[..length]).unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            Some(text)
        })
    }

    #[test]
    fn a_webhook_over_tls_needs_a_certificate_of_a_trusted_authority() {
        let folder = std::env::temp_dir().join(format!("tahti-notify-tls-{}", std::process::id()));
        let [ca, leaf, key] = certificates(&folder.join("ours"));
        let [foreign, ..] = certificates(&folder.join("foreign"));
        let secure = |port, ca: &PathBuf| {
            let mut to = Destination { ca: ca.clone(), ..web(port) };
            let Target::Web { server, .. } = &mut to.to else { unreachable!() };
            server.is_secure = true;
            to
        };
        let (port, server) = secure_server(&leaf, &key);
        assert_eq!(send(&secure(port, &ca), "ring", &batch()), Delivery::Delivered(None));
        assert!(server.join().unwrap().unwrap().starts_with("POST /hook HTTP/1.1\r\n"));
        let (port, server) = secure_server(&leaf, &key);
        let sent = send(&secure(port, &foreign), "ring", &batch());
        assert!(matches!(&sent, Delivery::Failed(why, None) if why.contains("certificate")), "{sent:?}");
        assert_eq!(server.join().unwrap(), None, "nothing was sent");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
