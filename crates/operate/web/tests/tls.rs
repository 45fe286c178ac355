//! HTTPS with OpenSSL and curl, which make the certificates and connect.

use std::fs::Permissions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use web::{Answer, IdentityError, IdentityFiles, Limits, Next, Now, Request, Server, Site, Socket};

struct Here;

impl Site for Here {
    fn answer(&self, request: &Request, _: Now) -> Answer {
        Answer::text(200, if request.secure { "by TLS" } else { "in the open" })
    }

    fn socket(&self, _: &Request, _: Now) -> Result<Box<dyn Socket>, Answer> {
        Ok(Box::new(Closing))
    }
}

/// A handler that ends the connection at once.
struct Closing;

impl Socket for Closing {
    fn receive(&mut self, _: web::Message<'_>, _: Now) {}

    fn next(&mut self, _: Now) -> Next {
        Next::Close("done".to_owned())
    }
}

/// A separate folder with certificates for each test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tahti-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A self-signed certificate and its key.
    fn certificate(&self, name: &str) -> IdentityFiles {
        let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -addext subjectAltName=IP:127.0.0.1";
        let subject = format!("/CN={name}");
        let made = Command::new("openssl")
            .args(words.split(' '))
            .args(["-subj", &subject, "-out", &certificate, "-keyout", &key])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        IdentityFiles { certificate: certificate.into(), key: key.into() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that runs until it is dropped.
struct Served {
    address: SocketAddr,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(files: IdentityFiles) -> Self {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Vec::new(), Limits::default()).unwrap();
        let server = server.with_identity(Some(files)).unwrap();
        let address = server.address();
        assert_eq!(server.url(), format!("https://{address}"));
        let (stop, stopped) = UnixStream::pair().unwrap();
        stopped.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || server.run(Arc::new(Here), stopped.into()).unwrap());
        Self { address, stop, thread: Some(thread) }
    }

    fn curl(&self, words: &[&str], scheme: &str) -> Output {
        let url = format!("{scheme}://{}/", self.address);
        Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .args(words)
            .arg(url)
            .output()
            .unwrap()
    }

    /// The answer that `openssl s_client` receives to a request.
    fn openssl(&self, words: &[&str], request: &str) -> String {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-ign_eof", "-connect", &self.address.to_string()])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A refused client does not read its input.
        let _ = client.stdin.as_mut().unwrap().write_all(request.as_bytes());
        let output = client.wait_with_output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.stop.write_all(b"x");
        let _ = self.thread.take().unwrap().join();
    }
}

fn text(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    text.trim_end().to_owned()
}

#[test]
fn curl_gets_a_page_from_a_certificate_that_it_trusts_and_no_other() {
    let folder = Folder::new("curl");
    let files = folder.certificate("a");
    let served = Served::new(files.clone());
    let trusted = served.curl(&["--cacert", files.certificate.to_str().unwrap()], "https");
    assert_eq!(text(&trusted), "by TLS");
    let other = folder.certificate("b");
    let refused = served.curl(&["--cacert", other.certificate.to_str().unwrap()], "https");
    assert!(!refused.status.success(), "{}", text(&refused));
}

#[test]
fn a_request_without_tls_is_answered_with_the_expected_scheme() {
    let folder = Folder::new("plain");
    let served = Served::new(folder.certificate("a"));
    let answer = text(&served.curl(&[], "http"));
    assert!(answer.contains("expected https:// in the address"), "{answer}");
}

#[test]
fn tls_1_2_and_1_3_are_served_and_earlier_versions_refused() {
    let folder = Folder::new("versions");
    let served = Served::new(folder.certificate("a"));
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.address);
    for version in ["-tls1_2", "-tls1_3"] {
        let answer = served.openssl(&[version], &request);
        assert!(answer.contains("by TLS"), "{version}: {answer}");
    }
    let old = served.openssl(&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], &request);
    assert!(!old.contains("by TLS"), "{old}");
}

#[test]
fn a_websocket_is_opened_through_tls() {
    let folder = Folder::new("socket");
    let served = Served::new(folder.certificate("a"));
    let address = served.address;
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {address}\r\nOrigin: https://{address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    // The key and its answer are those of RFC 6455, 1.3.
    let answer = served.openssl(&[], &request);
    assert!(answer.contains("101 Switching Protocols") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
}

#[test]
fn a_new_certificate_is_served_without_a_restart_and_a_bad_one_is_not() {
    let folder = Folder::new("renewed");
    let files = folder.certificate("a");
    let served = Served::new(files.clone());
    let newer = folder.certificate("b");
    let trusts = |authority: &IdentityFiles| {
        let path = authority.certificate.to_str().unwrap().to_owned();
        served.curl(&["--cacert", &path], "https").status.success()
    };
    // The served files get the content of these; their authorities stay the same.
    let old = IdentityFiles { certificate: folder.path("old.pem").into(), ..files.clone() };
    std::fs::copy(&files.certificate, &old.certificate).unwrap();
    assert!(trusts(&old) && !trusts(&newer));
    std::fs::copy(&newer.certificate, &files.certificate).unwrap();
    assert!(trusts(&old), "a certificate without its key is not served");
    std::fs::copy(&newer.key, &files.key).unwrap();
    assert!(trusts(&newer) && !trusts(&old));
    std::fs::remove_file(&files.key).unwrap();
    assert!(trusts(&newer), "without its files the last certificate is valid");
}

#[test]
fn clients_that_never_begin_their_handshake_do_not_block_others() {
    let folder = Folder::new("silent");
    let files = folder.certificate("a");
    let served = Served::new(files.clone());
    let silent: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(served.address).unwrap()).collect();
    let trusted = served.curl(&["--cacert", files.certificate.to_str().unwrap()], "https");
    assert_eq!(text(&trusted), "by TLS");
    drop(silent);
}

#[test]
fn a_key_that_others_can_read_does_not_match_or_is_missing_is_reported() {
    let folder = Folder::new("bad");
    let (a, b) = (folder.certificate("a"), folder.certificate("b"));
    let open = |files: IdentityFiles| {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Vec::new(), Limits::default()).unwrap();
        server.with_identity(Some(files)).map(|_| ()).unwrap_err()
    };
    let swapped = open(IdentityFiles { key: b.key.clone(), ..a.clone() });
    assert!(matches!(swapped, IdentityError::Pair { .. }), "{swapped}");
    std::fs::set_permissions(&b.key, Permissions::from_mode(0o640)).unwrap();
    let shown = open(b.clone());
    assert!(matches!(shown, IdentityError::KeyIsOpen { mode: 0o640, .. }), "{shown}");
    let none = open(IdentityFiles { certificate: a.key.clone(), ..a.clone() });
    assert!(matches!(none, IdentityError::Text { expected: "certificate", .. }), "{none}");
    std::fs::write(&a.key, "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
    let cut = open(a.clone());
    assert!(matches!(cut, IdentityError::Text { expected: "key", .. }), "{cut}");
    let missing = open(IdentityFiles { certificate: folder.path("none").into(), ..a });
    assert!(matches!(missing, IdentityError::File { .. }), "{missing}");
}
