//! The client of RecCeiver in a running IOC. No package registry has RecCeiver, so the server here follows the description of its
//! protocol.

use super::Shell;
use std::io::Read as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Maximum time of a step.
const PATIENCE: Duration = Duration::from_secs(60);
const KEY: [u8; 4] = [1, 2, 3, 4];

struct RecCeiver {
    udp: UdpSocket,
    tcp: TcpListener,
    /// UDP port of its announcements.
    port: u16,
}

impl RecCeiver {
    fn new() -> Self {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        udp.set_broadcast(true).unwrap();
        Self { udp, tcp, port: free.local_addr().unwrap().port() }
    }

    /// Announces itself to an address until a client connects.
    fn accept(&self, to: &str) -> TcpStream {
        let port = self.tcp.local_addr().unwrap().port().to_be_bytes();
        let announcement = [b"RC\0\0\xff\xff\xff\xff", &port[..], &[0, 0], &KEY].concat();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.udp.send_to(&announcement, (to, self.port)).unwrap();
            if let Ok((stream, _)) = self.tcp.accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no client connects");
    }
}

/// The next message: its number and body.
fn message(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    let mut head = [0; 8];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..2], *b"RC");
    let mut body = vec![0; u32::from_be_bytes(head[4..].try_into().unwrap()) as usize];
    stream.read_exact(&mut body).unwrap();
    (u16::from_be_bytes([head[2], head[3]]), body)
}

/// Greets a client and takes its list: properties of the IOC, and lines about records.
fn list(stream: &mut TcpStream) -> (Vec<String>, Vec<String>) {
    assert_eq!(message(stream), (1, [&[0; 4], &KEY[..]].concat()));
    stream.write_all(b"RC\x80\x01\0\0\0\x01\0").unwrap();
    let (mut properties, mut records) = (Vec::new(), Vec::new());
    let mut numbers: Vec<u32> = Vec::new();
    loop {
        let (number, body) = message(stream);
        if number == 5 {
            return (properties, records);
        }
        let text = |from: usize, to: usize| String::from_utf8(body[from..to].to_vec()).unwrap();
        let record = u32::from_be_bytes(body[..4].try_into().unwrap());
        // Numbers in the order of the list; 0 is the IOC.
        if record != 0 && !numbers.contains(&record) {
            numbers.push(record);
        }
        let record = numbers.iter().position(|number| *number == record).map_or(0, |place| place + 1);
        let (first, end) = (8 + usize::from(body[if number == 6 { 4 } else { 5 }]), body.len());
        match (number, record, body[4]) {
            (6, 0, _) => properties.push(format!("{}={}", text(8, first), text(first, end))),
            (6, ..) => records.push(format!("{record} {}={}", text(8, first), text(first, end))),
            (3, _, 0) => records.push(format!("{record} {} {}", text(8, first), text(first, end))),
            (3, _, 1) => records.push(format!("{record} alias {}", text(first, end))),
            other => panic!("{other:?}"),
        }
    }
}

/// An IOC that serves this host on free ports.
fn ioc(env: &[(&str, &str)], script: &[&str], database: &str) -> Shell {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port().to_string();
    let own = [("EPICS_CAS_SERVER_PORT", free.as_str()), ("EPICS_CAS_BEACON_PORT", free.as_str())];
    let env = env.iter().chain(&own).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut shell = Shell::new(true, env);
    shell.without_pvaccess();
    for line in script {
        shell.run_line(line).unwrap_or_else(|failed| panic!("{line}: {}", failed.0));
    }
    shell.load_text(database.to_owned(), "t.db", "").unwrap();
    shell.init().unwrap();
    shell
}

fn until(shell: &mut Shell, field: &'static str, expected: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = shell.with_record(field, move |db, _| {
            let channel = db.find(field).unwrap();
            db.get_text(&channel).to_str().to_owned()
        });
        let text = text.unwrap();
        if text == expected {
            return;
        }
        assert!(Instant::now() < end, "{field} is {text:?} instead of {expected:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_recceiver_gets_the_list_of_records_and_gets_it_again_after_a_restart() {
    let server = RecCeiver::new();
    let port = server.port.to_string();
    let env = [("TAHTI_RECCEIVER_PORT", port.as_str()), ("IOCNAME", "x"), ("SECTOR", "7"), ("OTHER", "8")];
    let script = [
        "addReccasterEnvVars(\"SECTOR\")",
        "addReccasterExcludePattern(\"*-Sts\", \"*-I\")",
        "var reccastMaxHoldoff 0.01",
    ];
    let database = "record(ai, \"X:a\") { field(DESC, \"first\") info(archive, \"monitor\") } alias(\"X:a\", \"X:b\")
        record(waveform, \"X:w\") {}
        record(mbbi, \"X:State-Sts\") { field(DTYP, \"RecCaster\") field(PINI, \"RUNNING\") field(SCAN, \"I/O Intr\")
            field(ZRST, \"Init\") field(ONST, \"Listening\") field(TWST, \"Connecting\") field(THST, \"Uploading\")
            field(FRST, \"Done\") }
        record(stringin, \"X:Msg-I\") { field(DTYP, \"RecCaster\") field(PINI, \"RUNNING\") field(SCAN, \"I/O Intr\") }";
    let mut shell = ioc(&env, &script, database);
    until(&mut shell, "X:State-Sts", "Listening");
    until(&mut shell, "X:Msg-I", "Searching");
    for to in ["127.0.0.1", "127.255.255.255"] {
        let mut stream = server.accept(to);
        let (properties, records) = list(&mut stream);
        assert_eq!(properties[0], concat!("EPICS_VERSION=tahti ", env!("CARGO_PKG_VERSION")));
        let has = |start: &str| properties.iter().any(|property| property.starts_with(start));
        assert!(has("IOCNAME=x") && has("SECTOR=7") && has("HOSTNAME=") && has("RSRV_SERVER_PORT="), "{properties:?}");
        assert!(!has("OTHER") && !has("PVAS_SERVER_PORT"), "{properties:?}");
        let expected = ["1 ai X:a", "1 alias X:b", "1 archive=monitor", "1 recordDesc=first", "2 waveform X:w"];
        assert_eq!(records, expected);
        stream.write_all(b"RC\x80\x02\0\0\0\x04\x09\x08\x07\x06").unwrap();
        assert_eq!(message(&mut stream), (2, vec![9, 8, 7, 6]));
        until(&mut shell, "X:State-Sts", "Done");
        until(&mut shell, "X:Msg-I", "Synchronized");
        drop(stream);
        until(&mut shell, "X:State-Sts", "Listening");
    }
    let late = shell.run_line("addReccasterEnvVars LATE").unwrap_err();
    assert!(late.0.contains("expected before iocInit"), "{}", late.0);
    shell.shut_down().unwrap();
}

#[test]
fn an_ioc_whose_script_does_not_use_reccaster_waits_for_no_recceiver() {
    let none: &[(&str, &str)] = &[];
    for env in [none, &[("TAHTI_RECCEIVERS", "NO")]] {
        let mut shell = ioc(env, &[], "record(ai, \"a\") {}");
        assert!(shell.caster.running.is_none());
        shell.shut_down().unwrap();
    }
}

#[test]
fn a_recceiver_whose_host_is_not_listed_gets_no_list() {
    let server = RecCeiver::new();
    let port = server.port.to_string();
    let listed = |list: &str| {
        let env = [("TAHTI_RECCEIVER_PORT", port.as_str()), ("TAHTI_RECCEIVERS", list)];
        ioc(&env, &["var reccastMaxHoldoff 0"], "record(ai, \"a\") {}")
    };
    // 192.0.2.0/24 is reserved for documentation.
    let mut stranger = listed("192.0.2.1");
    let mut friend = listed("192.0.2.1 127.0.0.1");
    let (_, records) = list(&mut server.accept("127.255.255.255"));
    assert_eq!(records, ["1 ai a"]);
    for shell in [&mut stranger, &mut friend] {
        shell.shut_down().unwrap();
    }
    assert!(server.tcp.accept().is_err(), "the other IOC does not connect");
}
