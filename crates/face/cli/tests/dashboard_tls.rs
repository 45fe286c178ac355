//! A plant's dashboard over TLS, with a certificate made by OpenSSL and verified by curl.

use harness::page::token;
use harness::plant::{Bench, sh};
use harness::port::free_port;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

/// A plant with a dashboard that has a certificate and its key.
fn plant(name: &str, port: u16, key_mode: u32) -> Bench {
    let process = sh("steady", "echo up; exec sleep 1000", "");
    let dashboard = format!(
        "[dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{port}\"\ncertificate = \"page.pem\"\nkey = \"page.key\"\n"
    );
    let bench = Bench::new(name, &(process + &dashboard));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=page \
                 -addext subjectAltName=IP:127.0.0.1 -out page.pem -keyout page.key";
    let made = Command::new("openssl").args(words.split_whitespace()).current_dir(&bench.dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::set_permissions(bench.dir.join("page.key"), std::fs::Permissions::from_mode(key_mode)).unwrap();
    bench
}

fn curl(bench: &Bench, words: &[&str]) -> Command {
    let mut curl = Command::new("curl");
    // `--max-time` is the watchdog for requests that may hang.
    curl.args(["--silent", "--show-error", "--include", "--no-buffer", "--http1.1", "--max-time", "60"]).args(words);
    curl.args(["--cacert", "page.pem"]).current_dir(&bench.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    curl
}

#[test]
fn a_dashboard_with_a_certificate_is_reachable_by_tls_only() {
    let port = free_port();
    let bench = plant("dash-tls", port, 0o600);
    let said = bench.ok(&["up", ".", "--detach"]);
    let origin = format!("https://127.0.0.1:{port}");
    assert!(said.contains(&format!("dashboard: {origin}/#token=")), "{said}");
    let address = bench.ok(&["dash", "url"]);
    assert!(address.starts_with(&origin), "{address}");
    let get = |words: &[&str]| String::from_utf8(curl(&bench, words).output().unwrap().stdout).unwrap();
    assert!(get(&[&format!("{origin}/")]).contains("<title>tahti</title>"));
    let login = get(&[&format!("{origin}/login"), "--data", &token(&address)]).to_ascii_lowercase();
    assert!(login.starts_with("http/1.1 200") && login.contains("; secure"), "{login}");
    let open = get(&[&format!("http://127.0.0.1:{port}/")]);
    assert!(!open.contains("<title>"), "no page is served without TLS: {open}");

    let bearer = format!("Authorization: Bearer {}", token(&address));
    let mut socket = curl(&bench, &[&format!("{origin}/ws"), "-H", &bearer, "-H", &format!("Origin: {origin}")]);
    socket.args(["-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13"]);
    let mut socket = socket.args(["-H", "Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw=="]).spawn().unwrap();
    let (mut came, mut part) = (Vec::new(), [0; 4096]);
    let mut stream = socket.stdout.take().unwrap();
    while !String::from_utf8_lossy(&came).contains(r#""hello""#) {
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&part[..length]);
    }
    let _ = socket.kill();
    socket.wait().unwrap();
    assert!(came.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&came));
    assert!(bench.ok(&["down"]).contains("good"));
}

#[test]
fn a_key_that_others_may_read_is_refused_with_a_remedy() {
    let bench = plant("dash-tls-open", free_port(), 0o644);
    bench.run(&["up", ".", "--detach"]);
    let log = bench.ok(&["logs", "dashboard"]);
    assert!(log.contains("page.key") && log.contains("chmod"), "{log}");
}
